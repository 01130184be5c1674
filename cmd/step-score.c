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

/* The rows of a round: the stream that judges, and the id that is judged, which comes behind it. */
struct judged {
	const struct step_run *r;
	struct k3_stream *stream;	/* owned */
	uint32_t *id;			/* owned */
	uint64_t n;
	struct k3_buf text;
};

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

/* The rows of one line, whose n ids are the last ones of its state. */
static void add_line(struct judged *j, const struct k3_sweep *s, uint32_t line, const uint32_t *id)
{
	uint64_t n = k3_sweep_tokens(s, line), start = k3_state_position(j->r->state[line]) - n;

	for (uint64_t t = start ? 0 : 1; t < n; t++) {
		struct k3_stream *to = &j->stream[j->n];

		*to = (struct k3_stream){ .sequence = line, .position = start + t - 1 };
		to->values = k3_sweep_stream(s, line, t ? t - 1 : 0, &to->sources);
		if (!t)
			to->values = j->r->score_last[line];
		j->id[j->n++] = id[t];
	}
}

/* The ids of a line were read, or are those of a pass that its state brought. */
static int add_sequence(struct judged *j, const struct k3_sweep *s, uint32_t line,
			struct k3_err *err)
{
	const struct step_tokens *read = &j->r->tokens[line];
	uint64_t n = k3_sweep_tokens(s, line);
	uint32_t *all;
	int rc;

	if (read->n == n) {
		add_line(j, s, line, read->ids);
		return 0;
	}
	rc = k3_state_ids(j->r->state[line], &all, err);
	if (rc)
		return rc;
	add_line(j, s, line, all + k3_state_position(j->r->state[line]) - n);
	free(all);
	return 0;
}

static void print(struct k3_buf *b, bool json, const struct k3_stream *judge, uint32_t id,
		  const struct k3_score *s)
{
	if (json)
		k3_buf_printf(b, "{\"event\":\"score\",\"sequence\":%" PRIu32 ",\"position\":%" PRIu64
			      ",\"id\":%" PRIu32 ",\"logprob\":%.9g,\"rank\":%" PRIu32
			      ",\"entropy\":%.9g}\n", judge->sequence, judge->position + 1, id,
			      s->logprob, s->rank, s->entropy);
	else
		k3_buf_printf(b, "%" PRIu32 "\t%" PRIu64 "\t%" PRIu32 "\t%.9g\t%" PRIu32 "\t%.9g\n",
			      judge->sequence, judge->position + 1, id, s->logprob, s->rank,
			      s->entropy);
}

static int judge_row(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct judged *j = ctx;
	struct k3_score score;
	int rc = 0;

	k3_score_id(logits, j->r->config->vocab, j->id[i], &score);
	print(&j->text, j->r->o.json, &j->stream[i], j->id[i], &score);
	if (j->text.failed)
		return k3_fail_nomem(err);
	if (j->text.len >= PIECE) {
		rc = cli_write(j->text.data, j->text.len, err);
		k3_buf_clear(&j->text);
	}
	return rc;
}

/* The last id of each line that had one will judge the next. */
static int keep_last(struct step_run *r, const struct k3_sweep *s, struct k3_err *err)
{
	for (uint32_t i = 0; i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);
		const float *values;
		uint32_t sources;
		size_t bytes;

		if (!n)
			continue;
		values = k3_sweep_stream(s, i, n - 1, &sources);
		bytes = sources * (size_t)r->config->hidden * sizeof *values;
		if (!r->score_last[i])
			r->score_last[i] = malloc(bytes);
		if (!r->score_last[i])
			return k3_fail_nomem(err);
		memcpy(r->score_last[i], values, bytes);
	}
	return 0;
}

int step_score_sweep(struct step_run *r, const struct k3_sweep *s, struct k3_err *err)
{
	struct judged j = { .r = r, .text = K3_BUF_INIT };
	uint64_t total = 0;
	int rc = 0;

	for (uint32_t i = 0; i < r->lines; i++)
		total += k3_sweep_tokens(s, i);
	j.stream = k3_calloc(total, sizeof *j.stream);
	j.id = k3_calloc(total, sizeof *j.id);
	if (!j.stream || !j.id)
		rc = k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < r->lines; i++)
		rc = add_sequence(&j, s, i, err);
	if (!rc)
		rc = k3_engine_logits(r->engine, j.stream, j.n, judge_row, &j, err);
	if (!rc && j.text.len)
		rc = cli_write(j.text.data, j.text.len, err);
	if (!rc && !r->o.all)
		rc = keep_last(r, s, err);
	k3_buf_free(&j.text);
	free(j.stream);
	free(j.id);
	return rc;
}
