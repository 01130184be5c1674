/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step-score.c - how likely the ids of a round were: a line of text for each of them.
 *
 * An id is judged by the logits of the id before it.  For the first id of a line that is the last one
 * of the same sequence's line before, so its residual stream is kept from round to round,
 * or taken from the state.  No logits are kept: each row is looked at as it comes from the head.
 */
#include "cli.h"
#include "step.h"

#include <k3/sample.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Text is written in pieces of this size, and what is left at the end of the round. */
enum { PIECE = 64 << 10 };

/* An id that something came before: token t of its line. */
struct row {
	uint32_t line, id;
	uint64_t token;
};

/* All of them of a round. */
struct judged {
	const struct step_run *r;
	struct k3_sweep *s;
	struct row *row;		/* owned */
	uint64_t n;
	struct k3_buf text;
};

uint64_t step_score_kept(const struct step_run *r)
{
	uint64_t sources = k3_config_sources(r->config, r->o.last);

	return step_sequences(&r->o) * sources * r->config->hidden * sizeof(float);
}

/* What a state holds of its last id, which judges the first one of the next line. */
static int take_last(struct step_run *r, uint32_t i, struct k3_err *err)
{
	uint64_t pending = k3_state_pending(r->state[i]), rows;
	uint32_t sources;

	if (k3_state_position(r->state[i]) == pending)
		return 0;
	if (pending)
		return k3_fail(err, K3_EDATA, "%s: of the pass in progress the first id can no longer be "
			       "scored: finish it with --logits none", r->o.state[i]);
	return k3_state_residual(r->state[i], &r->score_last[i], &rows, &sources, err);
}

int step_score_begin(struct step_run *r, struct k3_err *err)
{
	int rc = 0;

	r->score_last = k3_calloc(r->lines, sizeof *r->score_last);
	if (!r->score_last)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < r->lines; i++)
		rc = take_last(r, i, err);
	return rc;
}

void step_score_end(struct step_run *r)
{
	for (uint32_t i = 0; r->score_last && i < r->lines; i++)
		free(r->score_last[i]);
	free(r->score_last);
}

/* The position of a line's first id. */
static uint64_t start_of(const struct judged *j, uint32_t line)
{
	return k3_state_position(j->r->state[line]) - k3_sweep_tokens(j->s, line);
}

/* The rows of one line, whose n ids are the last ones of its state. */
static void add_line(struct judged *j, uint32_t line, const uint32_t *id)
{
	for (uint64_t t = start_of(j, line) ? 0 : 1; t < k3_sweep_tokens(j->s, line); t++)
		j->row[j->n++] = (struct row){ line, id[t], t };
}

/* The ids of a line were read, or are those of a pass that its state brought. */
static int add_sequence(struct judged *j, uint32_t line, struct k3_err *err)
{
	const struct step_tokens *read = &j->r->tokens[line];
	uint64_t n = k3_sweep_tokens(j->s, line);
	uint32_t *all;
	int rc;

	if (read->n == n) {
		add_line(j, line, read->ids);
		return 0;
	}
	rc = k3_state_ids(j->r->state[line], &all, err);
	if (rc)
		return rc;
	add_line(j, line, all + start_of(j, line));
	free(all);
	return 0;
}

static void print(struct k3_buf *b, bool json, const struct row *row, uint64_t position,
		  const struct k3_score *s)
{
	if (json)
		k3_buf_printf(b, "{\"event\":\"score\",\"sequence\":%" PRIu32 ",\"position\":%" PRIu64
			      ",\"id\":%" PRIu32 ",\"logprob\":%.9g,\"rank\":%" PRIu32
			      ",\"entropy\":%.9g}\n", row->line, position, row->id, s->logprob,
			      s->rank, s->entropy);
	else
		k3_buf_printf(b, "%" PRIu32 "\t%" PRIu64 "\t%" PRIu32 "\t%.9g\t%" PRIu32 "\t%.9g\n",
			      row->line, position, row->id, s->logprob, s->rank, s->entropy);
}

/* The stream of the id before, which is in another round for the first id of a line. */
static int judging_stream(void *ctx, uint64_t i, struct k3_stream *out, struct k3_err *err)
{
	const struct judged *j = ctx;
	const struct row *row = &j->row[i];
	int rc = k3_sweep_stream(j->s, row->line, row->token ? row->token - 1 : 0, out, err);

	if (!row->token)
		out->values = j->r->score_last[row->line];
	out->sequence = row->line;
	out->position = start_of(j, row->line) + row->token - 1;
	return rc;
}

static int judge_row(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct judged *j = ctx;
	const struct row *row = &j->row[i];
	struct k3_score score;
	int rc = 0;

	k3_score_id(logits, j->r->config->vocab, row->id, &score);
	print(&j->text, j->r->o.json, row, start_of(j, row->line) + row->token, &score);
	if (j->text.failed)
		return k3_fail_nomem(err);
	if (j->text.len >= PIECE) {
		rc = cli_write(j->text.data, j->text.len, err);
		k3_buf_clear(&j->text);
	}
	return rc;
}

/* The last id of each line that had one will judge the next. */
static int keep_last(struct step_run *r, struct k3_sweep *s, struct k3_err *err)
{
	for (uint32_t i = 0; i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);
		struct k3_stream last;
		size_t bytes;
		int rc;

		if (!n)
			continue;
		rc = k3_sweep_stream(s, i, n - 1, &last, err);
		if (rc)
			return rc;
		bytes = last.sources * (size_t)r->config->hidden * sizeof *last.values;
		if (!r->score_last[i])
			r->score_last[i] = malloc(bytes);
		if (!r->score_last[i])
			return k3_fail_nomem(err);
		memcpy(r->score_last[i], last.values, bytes);
	}
	return 0;
}

int step_score_sweep(struct step_run *r, struct k3_sweep *s, struct k3_err *err)
{
	struct judged j = { .r = r, .s = s, .text = K3_BUF_INIT };
	struct k3_head_io io = { judging_stream, judge_row, &j };
	uint64_t total = 0;
	int rc = 0;

	for (uint32_t i = 0; i < r->lines; i++)
		total += k3_sweep_tokens(s, i);
	j.row = k3_calloc(total, sizeof *j.row);
	if (!j.row)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < r->lines; i++)
		rc = add_sequence(&j, i, err);
	if (!rc)
		rc = k3_engine_logits(r->engine, j.n, &io, err);
	if (!rc && j.text.len)
		rc = cli_write(j.text.data, j.text.len, err);
	if (!rc && !r->o.all)
		rc = keep_last(r, s, err);
	k3_buf_free(&j.text);
	free(j.row);
	return rc;
}
