/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.c - making a sweep: its tokens, its memory, and its residual streams at both ends. */
#include "data/slice_pool.h"
#include "engine/fit.h"
#include "engine/sweep_own.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- making a sweep ---- */

static int embed(struct k3_sweep *s, const struct k3_line *line, const struct k3_member *m,
		 uint32_t number, struct k3_err *err)
{
	struct k3_feed *f = k3_weights_feed(s->e->weights);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < m->n; i++) {
		float *to = *k3_shelf_rows(&s->stream, m->first + i);

		if (line->ids[i] >= s->e->config->vocab)
			return k3_fail(err, K3_EDATA, "sequence %" PRIu32 ", position %" PRIu64
				       ": id %" PRIu32 " is not below %" PRIu32, number,
				       m->position + i, line->ids[i], s->e->config->vocab);
		rc = f->ops->row(f, K3_EMBED, line->ids[i], to, err);
		if (!rc)
			rc = k3_shelf_write(&s->stream, m->first + i, 0, 1, to, err);
	}
	return rc;
}

static int take_streams(struct k3_sweep *s, const float *from, uint32_t sources,
			struct k3_member *m, uint32_t number, struct k3_err *err)
{
	uint64_t n = sources * (uint64_t)s->e->config->hidden;
	int rc = 0;

	m->sources = sources;

	if (m->n && s->first < s->last && sources != k3_config_sources(s->e->config, m->next))
		return k3_fail(err, K3_EDATA, "sequence %" PRIu32 ": %" PRIu32
			       " sources in front of layer %" PRIu32 ", which has %" PRIu32,
			       number, sources, m->next, k3_config_sources(s->e->config, m->next));
	for (uint64_t i = 0; !rc && i < m->n; i++) {
		float *to = *k3_shelf_rows(&s->stream, m->first + i);

		for (uint64_t k = 0; k < n; k++)
			if (!isfinite(from[i * n + k]))
				return k3_fail(err, K3_EDATA, "sequence %" PRIu32 ", position %" PRIu64
					       ": value %" PRIu64 " of the residual stream is not finite",
					       number, m->position + i, k);
		memcpy(to, from + i * n, n * sizeof *from);
		rc = k3_shelf_write(&s->stream, m->first + i, 0, sources, to, err);
	}
	return rc;
}

static int fill(struct k3_sweep *s, const struct k3_line *line, uint32_t number, struct k3_err *err)
{
	struct k3_member *m = &s->member[number];
	uint32_t sources;
	uint64_t rows;
	float *values;
	int rc;

	if (k3_state_pending(line->state)) {
		rc = k3_state_residual(line->state, &values, &rows, &sources, err);
		if (!rc)
			rc = take_streams(s, values, sources, m, number, err);
		free(values);
		return rc;
	}
	if (!m->n)
		return 0;
	rc = s->first ? take_streams(s, line->hidden, line->sources, m, number, err)
		      : embed(s, line, m, number, err);
	if (!rc && m->position + m->n > s->e->config->max_positions)
		rc = k3_fail(err, K3_EDATA, "sequence %" PRIu32 ": position %" PRIu64
			     " is beyond the model's %" PRIu64, number, m->position + m->n - 1,
			     s->e->config->max_positions);
	return rc;
}

/* What a line has beside its own tokens: up to `most` guesses, if it has as many. */
static int count_guesses(struct k3_sweep *s, const struct k3_line *line, uint64_t most,
			 struct k3_member *m, struct k3_err *err)
{
	uint64_t left;

	if (line->drafted && !line->draft)
		return k3_fail(err, K3_EARG, "guesses without a draft");
	if (!line->draft || !line->n)
		return 0;
	if (s->first > 0 || s->first == s->last || line->drafted >= line->n ||
	    line->drafted > k3_draft_most(line->draft))
		return k3_fail(err, K3_EARG, "%" PRIu64 " guesses do not go with this sweep of %"
			       PRIu64 " ids", line->drafted, line->n);
	m->draft = line->draft;
	m->taken = k3_draft_taken(line->draft);
	m->position += m->taken;
	m->n -= line->drafted;
	left = s->e->config->max_positions - m->position;
	left = m->n < left ? left - m->n : 0;
	m->drafted = line->drafted < most ? line->drafted : most;
	m->drafted = m->drafted < left ? m->drafted : left;
	m->n += m->drafted;
	s->drafted += m->drafted;
	s->taken += m->taken;
	return k3_state_reserve(line->state, k3_draft_most(line->draft), err);
}

/* Which tokens each line brings, and how wide their streams can get. */
static int count(struct k3_sweep *s, const struct k3_line *line, uint64_t most, struct k3_err *err)
{
	int rc = 0;

	s->tokens = s->drafted = s->taken = 0;
	free(s->member);
	s->sources = k3_config_sources(s->e->config, s->last);
	s->member = k3_calloc(s->lines, sizeof *s->member);
	if (!s->member)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < s->lines; i++) {
		uint64_t pending = k3_state_pending(line[i].state);
		struct k3_member *m = &s->member[i];

		if (pending && line[i].n)
			return k3_fail(err, K3_EARG, "sequence %" PRIu32
				       ": a pass is in progress, which must be finished first", i);
		*m = (struct k3_member){
			.state = line[i].state, .first = s->tokens, .sources = 1,
			.n = pending ? pending : line[i].n,
			.next = pending ? k3_state_layer(line[i].state) : s->first,
			.position = k3_state_position(line[i].state) - pending,
		};
		rc = count_guesses(s, &line[i], most, m, err);
		s->tokens += m->n;
		if (line[i].hidden && line[i].sources > s->sources)
			s->sources = line[i].sources;
	}
	return rc;
}

static uint64_t longest(const struct k3_sweep *s)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < s->lines; i++)
		if (s->member[i].position + s->member[i].n > most)
			most = s->member[i].position + s->member[i].n;
	return most;
}

static bool can_be_paged(const struct k3_engine *e, const struct k3_state *s)
{
	return e->temporary || k3_state_has_file(s);
}

/* What states take, if they stay in memory and if they do not. */
static void count_states(const struct k3_engine *e, const struct k3_line *line, uint32_t lines,
			 struct k3_fit *s)
{
	for (uint32_t i = 0; i < lines; i++) {
		uint64_t taken = line[i].draft ? k3_draft_taken(line[i].draft) : 0;
		struct k3_state_bytes b = k3_state_memory(line[i].state, taken + line[i].n -
							  line[i].drafted);

		s->stay += b.itself;
		if (!k3_state_passing(line[i].state) && !can_be_paged(e, line[i].state)) {
			s->stay += b.all;
			continue;
		}
		/* those of one sweep pass, all of them, or none does */
		s->may_go += k3_state_passing(line[i].state) ? 0 : b.all;
		s->moving += line[i].n || k3_state_pending(line[i].state);
		s->slice = b.layer > s->slice ? b.layer : s->slice;
	}
}

/* Slices in files are moved by the pager, which starts when there are any. */
static int page_states(struct k3_engine *e, const struct k3_line *line, uint32_t lines,
		       bool paged, struct k3_err *err)
{
	bool files = false;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < lines; i++) {
		struct k3_state *s = line[i].state;

		if (paged && !k3_state_passing(s) && !k3_state_has_file(s) && e->temporary)
			rc = k3_state_give_file(s, e->temporary, err);
		k3_state_page(s, paged);
		files |= k3_state_has_file(s);
	}
	return !rc && files && !e->pager ? k3_pager_new(&e->pager, err) : rc;
}

/*
 * Whether weights are used again that memory can be given to: in another sweep, or in another part of
 * this one, unless the hoard comes with a place for a layer's trunk.  The head may pass for several groups of rows of
 * logits, but is too small a part of what would be kept to count.
 */
static bool worth_keeping(const struct k3_engine *e, const struct k3_fit *fit)
{
	return !e->once || fit->group < fit->tokens || (fit->tile < fit->tokens && !fit->hoard);
}

/*
 * Memory for the round; of what is left, logits get what they can
 * use, and weights the rest.  The head is to pass once for all guesses.
 */
static int share_memory(struct k3_sweep *s, const struct k3_line *line, struct k3_fit *fit,
			struct k3_err *err)
{
	struct k3_engine *e = s->e;
	const struct k3_hoard_cost *cost = k3_weights_hoard_cost(e->weights);
	uint64_t have = e->budget.plan.memory - e->budget.fixed, need, more, kept;
	uint64_t guesses = s->drafted * k3_logits_bytes(e->config);
	bool good;
	int rc;

	*fit = (struct k3_fit){ .tokens = s->tokens, .lines = s->lines, .positions = longest(s),
				    .sources = s->sources, .tile = e->tile,
				    .may_spill = e->temporary };
	for (uint32_t i = 0; i < s->lines; i++)
		fit->streams |= line[i].hidden || k3_state_pending(line[i].state);
	count_states(e, line, s->lines, fit);
	good = k3_fit_memory(e->config, e->budget.threads, have > guesses ? have - guesses : 0, fit);
	need = fit->sweep + fit->states + guesses;
	if (!good)
		return k3_fail(err, K3_ENOMEM, "%" PRIu64 " tokens at a time in %" PRIu32
			       " sequences of up to %" PRIu64 " positions take %" PRIu64
			       " bytes of memory, and there are %" PRIu64, s->tokens, s->lines,
			       fit->positions, k3_budget_total(&e->budget, need), e->budget.plan.memory);
	/* one row of them is in what is needed, and those of guesses */
	more = s->tokens ? (s->tokens - s->drafted - 1) * k3_logits_bytes(e->config) : 0;
	more = more < e->budget.logits ? more : e->budget.logits;
	more = more < have - need ? more : have - need;
	if (!e->tile && !s->drafted && have - need - more < k3_weights_most(e->weights))
		k3_fit_hoard(e->config, e->budget.threads, have - more, cost, fit);
	s->tile_tokens = fit->tile;
	s->ahead = fit->ahead;
	e->logits = k3_logits_bytes(e->config) + guesses + more;
	kept = have - guesses - more - fit->sweep - fit->states;
	kept -= fit->hoard ? fit->hoard + cost->retain : 0;
	rc = k3_weights_keep(e->weights, worth_keeping(e, fit) ? kept : 0, fit->hoard, err);
	return rc ? rc : page_states(e, line, s->lines, fit->paged, err);
}

/* Guesses come along where all tokens are in one tile and in memory. */
static int make_room(struct k3_sweep *s, const struct k3_line *line, struct k3_fit *fit,
		     struct k3_err *err)
{
	for (uint64_t most = K3_DRAFT_MOST;; most /= 2) {
		int rc = count(s, line, most, err);

		if (!rc)
			rc = share_memory(s, line, fit, err);
		if (!s->drafted || (rc && rc != K3_ENOMEM) ||
		    (!rc && fit->tile >= s->tokens && !fit->spilled))
			return rc;
	}
}

/* The rows of tokens, in memory or in a file, with the places that they are worked on in. */
static int make_shelves(struct k3_sweep *s, const struct k3_fit *fit, struct k3_err *err)
{
	const struct k3_config *c = s->e->config;
	uint64_t tile = fit->tile, users = tile > fit->group ? tile : fit->group;
	struct k3_spill *file = fit->spilled ? &s->spill : NULL;
	int rc = 0;

	if (file) {
		file->directory = s->e->temporary;
		rc = k3_unnamed_file(file->directory, &file->fd, err);
	}
	if (!rc)
		rc = k3_shelf_new(&s->stream, s->tokens, s->sources, c->hidden, file, tile, err);
	if (rc || s->first == s->last)
		return rc;
	rc = k3_shelf_new(&s->latent, s->tokens, 1, c->latent, file, users, err);
	if (!rc)
		rc = k3_shelf_new(&s->sum, s->tokens, 1, c->latent, file, users, err);
	if (!rc)
		rc = k3_shelf_new(&s->shared, s->tokens, 1, c->hidden, file, tile, err);
	if (!rc)
		rc = k3_tile_new(c, tile, &s->tile, err);
	if (!rc)
		rc = k3_routed_new(c, s->tokens, fit->group, &s->routed, err);
	s->routed.latent = s->latent.rows.at;
	s->routed.sum = s->sum.rows.at;
	s->routed.by_place = file;
	return rc;
}

static int allocate(struct k3_sweep *s, const struct k3_fit *fit, struct k3_err *err)
{
	struct k3_engine *e = s->e;
	int rc = make_shelves(s, fit, err);

	s->token = k3_calloc(s->tokens, sizeof *s->token);
	s->index = k3_calloc(s->tokens, sizeof *s->index);
	s->row = k3_calloc(s->tokens, sizeof *s->row);
	s->name = k3_calloc(s->tokens, sizeof *s->name);
	s->segment = k3_calloc(s->lines, sizeof *s->segment);
	s->report_sequence = k3_calloc(s->tokens, sizeof *s->report_sequence);
	s->report_position = k3_calloc(s->tokens, sizeof *s->report_position);
	if (!rc && (!s->token || !s->index || !s->row || !s->name || !s->segment ||
		    !s->report_sequence || !s->report_position))
		rc = k3_fail_nomem(err);
	if (!rc)
		rc = k3_engine_scratch(e, longest(s), err);
	s->pass = (struct k3_pass){
		.config = e->config, .math = k3_kernels(), .feed = k3_weights_feed(e->weights),
		.vectors = &e->vectors, .tile = &s->tile, .routed = &s->routed,
		.scratch = e->scratch,
	};
	return rc;
}

int k3_sweep_new(struct k3_engine *e, uint32_t first, uint32_t last, const struct k3_line *line,
		 uint32_t lines, struct k3_sweep **out, struct k3_err *err)
{
	struct k3_sweep *s = calloc(1, sizeof *s);
	struct k3_fit fit;
	int rc;

	*out = NULL;
	if (!s)
		return k3_fail_nomem(err);
	s->e = e;
	s->spill.fd = -1;
	s->first = first;
	s->last = last;
	s->lines = lines;
	rc = make_room(s, line, &fit, err);
	if (!rc)
		rc = allocate(s, &fit, err);
	for (uint32_t i = 0; !rc && i < lines; i++) {
		struct k3_member *m = &s->member[i];

		for (uint64_t k = 0; k < m->n; k++)
			s->token[m->first + k] = (struct k3_token){ i, m->position + k };
		rc = fill(s, &line[i], i, err);
	}
	/* only when all lines are good does any state learn of its new tokens */
	for (uint32_t i = 0; !rc && i < lines && first < last; i++)
		if (s->member[i].draft)
			rc = k3_draft_begin(line[i].draft, line[i].state, line[i].ids, s->member[i].n -
					    s->member[i].drafted, s->member[i].drafted, err);
		else if (line[i].n)
			rc = k3_state_begin(line[i].state, line[i].ids, line[i].n, err);
	if (rc)
		k3_sweep_free(s);
	else
		*out = s;
	return rc;
}

void k3_sweep_free(struct k3_sweep *s)
{
	if (!s)
		return;
	k3_shelf_free(&s->stream);
	k3_shelf_free(&s->latent);
	k3_shelf_free(&s->sum);
	k3_shelf_free(&s->shared);
	if (s->spill.fd >= 0)
		close(s->spill.fd);
	k3_tile_free(&s->tile);
	k3_routed_free(&s->routed);
	free(s->member);
	free(s->token);
	free(s->index);
	free(s->row);
	free(s->name);
	free(s->segment);
	free(s->tiles);
	free(s->report_sequence);
	free(s->report_position);
	free(s);
}

uint64_t k3_sweep_tokens(const struct k3_sweep *s, uint32_t line)
{
	return s->member[line].n;
}

int k3_sweep_stream(struct k3_sweep *s, uint32_t line, uint64_t token, struct k3_stream *out,
		    struct k3_err *err)
{
	const struct k3_member *m = &s->member[line];
	float *values = *k3_shelf_rows(&s->stream, m->first + token);

	out->values = values;
	out->sources = s->first < s->last ? k3_config_sources(s->e->config, m->next) : m->sources;
	return k3_shelf_read(&s->stream, m->first + token, 0, out->sources, values, err);
}

/* ---- running it ---- */

/* How often the dense part of each layer will pass: a line joins at the layer it stands in front of. */
static int count_tiles(struct k3_sweep *s, struct k3_err *err)
{
	uint64_t active = 0;

	free(s->tiles);
	s->tiles = k3_calloc(s->until - s->from, sizeof *s->tiles);
	if (!s->tiles)
		return k3_fail_nomem(err);
	for (uint32_t l = s->from; l < s->until; l++) {
		active = 0;
		for (uint32_t i = 0; i < s->lines; i++)
			active += s->member[i].next <= l ? s->member[i].n : 0;
		s->tiles[l - s->from] = (uint32_t)((active + s->tile_tokens - 1) / s->tile_tokens);
	}
	return 0;
}

/* The layers, with memory that slices leave to each other; afterwards no state is in use. */
static int run(struct k3_sweep *s, struct k3_slice_pool *pool, struct k3_err *err)
{
	struct k3_err ignored;
	int rc;

	for (uint32_t i = 0; i < s->lines; i++)
		k3_state_pool(s->member[i].state, pool);
	k3_weights_begin(s->e->weights, s->from, s->until, s->tiles);
	rc = k3_team_run(s->e->team, k3_layers_run, s, err);
	k3_weights_end(s->e->weights);
	/* after a failure the pager may still have something to do */
	if (rc && s->e->pager && k3_pager_wait(s->e->pager, &ignored)) {
		/* the first failure has been told */
	}
	for (uint32_t i = 0; i < s->lines; i++)
		k3_state_pool(s->member[i].state, NULL);
	return rc;
}

int k3_sweep_run(struct k3_sweep *s, uint32_t until, const struct k3_watch *watch,
		 struct k3_err *err)
{
	struct k3_slice_pool *pool;
	uint32_t first = until;
	int rc;

	for (uint32_t i = 0; i < s->lines; i++)
		if (s->member[i].n && s->member[i].next < first)
			first = s->member[i].next;
	s->watch = watch;
	s->from = first;
	s->until = until;
	if (first >= until)
		return 0;
	rc = count_tiles(s, err);
	if (!rc)
		rc = k3_slice_pool_new(&pool, err);
	if (rc)
		return rc;
	rc = run(s, pool, err);
	k3_slice_pool_free(pool);
	return rc;
}
