/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step-lookup.c - guesses of the ids that come next, out of what came before, and rounds that find
 * their line guessed already.
 *
 * All that is decided here depends on ids and on bytes, not on time: a run can be repeated.
 */
#include "step.h"

#include <stdlib.h>
#include <string.h>

/*
 * The ids that end the sequence are looked for in it.  A single id stands before anything; behind
 * four the same ids follow almost as surely as behind more.
 */
enum { SHORTEST = 2, LONGEST = STEP_LOOKUP_LONGEST };

/* An observation counts this much with each one that comes behind it .. */
#define FADE (15.0 / 16)
/* .. so that of a long line only the last ids need be looked at. */
enum { LOOK_AT = 256 };

/*
 * Bytes in memory are as many times cheaper than those on the disk.  One more token in a sweep
 * costs a quarter of what it costs to bring all the weights out of memory, for it is multiplied
 * with them.
 */
enum { MEMORY = 8, TOKEN = 4 };

/*
 * The latest place where the last ids stood before, as many of them as there are to find: how
 * many, 0 if too few; *next is the place of the id that followed.
 */
static uint64_t find(const uint32_t *ids, uint64_t n, uint64_t *next)
{
	uint64_t best = 0;

	for (uint64_t at = n; best < LONGEST && at-- > SHORTEST;) {
		uint64_t k = 0;

		while (k < LONGEST && k < at && ids[at - 1 - k] == ids[n - 1 - k])
			k++;
		if (k > best) {
			best = k;
			*next = at;
		}
	}
	return best < SHORTEST ? 0 : best;
}

/* Was what would have been guessed right?  That can be seen whether a guess was made or not. */
static void observe(struct step_lookup *l, uint32_t id)
{
	uint64_t next, k = find(l->ids, l->n, &next);

	if (!k)
		return;
	l->found[k] = l->found[k] * FADE + 1;
	l->right[k] = l->right[k] * FADE + (l->ids[next] == id);
}

static int remember(struct step_lookup *l, const struct step_tokens *t, struct k3_err *err)
{
	if (l->room - l->n < t->n) {
		uint64_t room = 2 * l->room + t->n + LOOK_AT;
		uint32_t *p = k3_reallocarray(l->ids, room, sizeof *p);

		if (!p)
			return k3_fail_nomem(err);
		l->ids = p;
		l->room = room;
	}
	for (uint64_t i = 0; i < t->n; i++) {
		if (i + LOOK_AT >= t->n)
			observe(l, t->ids[i]);
		l->ids[l->n++] = t->ids[i];
	}
	return 0;
}

/*
 * How many guesses give the most ids for the cost, when each is right with probability p if all
 * before it are.
 */
static uint64_t worth(const struct step_lookup *l, uint64_t most, double p)
{
	double ids = 1, chance = 1, best = 1 / (l->sweep_cost + l->token_cost);
	uint64_t n = 0;

	for (uint64_t i = 1; l->token_cost > 0 && i <= most; i++) {
		chance *= p;
		ids += chance;
		if (ids / (l->sweep_cost + (double)(1 + i) * l->token_cost) > best) {
			best = ids / (l->sweep_cost + (double)(1 + i) * l->token_cost);
			n = i;
		}
	}
	return n;
}

/* Guesses into `out`, up to `most`; how many. */
static uint64_t guess(const struct step_lookup *l, uint64_t most, uint32_t *out)
{
	uint64_t next, k = find(l->ids, l->n, &next), n;

	/* one that was wrong is there from the start: the first that is right proves little */
	n = k ? worth(l, most, l->right[k] / (l->found[k] + 1)) : 0;
	/* what follows may reach into the guesses themselves */
	for (uint64_t i = 0; i < n; i++)
		out[i] = next + i < l->n ? l->ids[next + i] : out[next + i - l->n];
	return n;
}

/* What a sweep of few tokens cost; a long line says little of the experts of one id. */
static void learn(struct step_lookup *l, const struct k3_engine_counts *was,
		  const struct k3_engine_counts *now, uint64_t tokens)
{
	double trunk_read = (double)(now->trunk_bytes - was->trunk_bytes);
	double trunk_kept = (double)(now->trunk_kept - was->trunk_kept);
	double sweep = trunk_read + trunk_kept / MEMORY;
	double token = ((double)(now->expert_bytes - was->expert_bytes) +
			(double)(now->expert_kept - was->expert_kept) / MEMORY) / (double)tokens +
		       (trunk_read + trunk_kept) / MEMORY / TOKEN;
	double weight = l->token_cost > 0 ? 1 - FADE : 1;

	l->sweep_cost += (sweep - l->sweep_cost) * weight;
	l->token_cost += (token - l->token_cost) * weight;
}

static int write_record(struct step_run *r, uint64_t rows, const float *logits, struct k3_err *err)
{
	int rc = k3_npy_begin(&r->out, 2, (uint64_t[]){ rows, r->config->vocab }, err);

	return rc || !rows ? rc : k3_npy_put(&r->out, logits, r->config->vocab, err);
}

/* The last of a sweep's own ids, and the guesses behind it. */
struct rows {
	struct step_run *r;
	struct k3_sweep *s;
	uint64_t own;
};

static int row_stream(void *ctx, uint64_t i, struct k3_stream *out, struct k3_err *err)
{
	const struct rows *rows = ctx;

	out->sequence = 0;
	out->position = k3_state_position(rows->r->state[0]) - 1 + i;
	return k3_sweep_stream(rows->s, 0, rows->own - 1 + i, out, err);
}

/* The first row is the round's record, the others are kept until their ids come. */
static int row_logits(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct step_run *r = ((const struct rows *)ctx)->r;

	if (!i)
		return write_record(r, 1, logits, err);
	memcpy(k3_draft_logits(r->lookup.draft, i - 1), logits, r->config->vocab * sizeof *logits);
	return 0;
}

static int write_rows(struct step_run *r, struct k3_sweep *s, uint64_t own, struct k3_err *err)
{
	struct rows rows = { r, s, own };
	struct k3_head_io io = { row_stream, row_logits, &rows };

	return k3_engine_logits(r->engine, k3_sweep_tokens(s, 0) - own + 1, &io, err);
}

/* The last n ids of the sequence are new. */
static int sweep(struct step_run *r, uint64_t n, struct k3_err *err)
{
	struct step_lookup *l = &r->lookup;
	uint32_t *ids = k3_reallocarray(NULL, n + r->o.lookup, sizeof *ids);
	struct k3_line line = { .state = r->state[0], .ids = ids, .draft = l->draft };
	struct k3_engine_counts was, now;
	struct k3_sweep *s = NULL;
	uint64_t tokens;
	int rc;

	if (!ids)
		return k3_fail_nomem(err);
	memcpy(ids, l->ids + l->n - n, n * sizeof *ids);
	line.drafted = guess(l, r->o.lookup, ids + n);
	line.n = n + line.drafted;
	k3_engine_count(r->engine, &was);
	rc = k3_sweep_new(r->engine, r->o.first, r->o.last, &line, 1, &s, err);
	if (!rc)
		rc = k3_sweep_run(s, r->o.last, &r->watch, err);
	if (!rc)
		rc = write_rows(r, s, n, err);
	if (!rc) {
		tokens = k3_sweep_tokens(s, 0);
		r->report.drafted = tokens - n;
		k3_engine_count(r->engine, &now);
		if (tokens <= 1 + r->o.lookup)
			learn(l, &was, &now, tokens);
	}
	k3_sweep_free(s);
	free(ids);
	return rc;
}

int step_lookup_begin(struct step_run *r, struct k3_err *err)
{
	r->report.lookup = true;
	return k3_draft_new(r->config, r->o.lookup, &r->lookup.draft, err);
}

int step_lookup_round(struct step_run *r, struct k3_err *err)
{
	struct step_lookup *l = &r->lookup;
	const struct step_tokens *t = &r->tokens[0];
	uint64_t guesses, same = 0;
	const uint32_t *guessed = k3_draft_ids(l->draft, &guesses);
	int rc = remember(l, t, err);

	while (same < t->n && same < guesses && t->ids[same] == guessed[same])
		same++;
	r->report.taken = same;
	r->report.drafted = 0;
	step_report_round(&r->report, r->engine);
	if (!rc && same == t->n)
		rc = write_record(r, same > 0, same ? k3_draft_logits(l->draft, same - 1) : NULL,
				  err);
	k3_draft_take(l->draft, same);
	if (!rc && same < t->n)
		rc = sweep(r, t->n - same, err);
	return rc ? rc : step_report_done(&r->report, r->engine, t->n, err);
}

void step_lookup_end(struct step_run *r)
{
	k3_draft_free(r->lookup.draft);
	free(r->lookup.ids);
}
