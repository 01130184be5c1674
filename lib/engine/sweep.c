/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c - tokens through a range of layers.  All workers walk through
 * run_layers together; what only one can do (states, callbacks) worker 0 does
 * while the others wait at the next barrier.
 */
#include "engine/sweep.h"
#include "model/ffn.h"
#include "model/kda.h"
#include "model/mla.h"
#include "model/norm.h"

#include <k3/buf.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A line's tokens in the sweep. */
struct member {
	struct k3_state *state;
	uint64_t first, n;		/* rows of the sweep */
	uint64_t position;		/* of the first token */
	uint32_t next;			/* the layer that its tokens stand in front of */
	uint32_t sources;		/* vectors in the streams that it brought */
	struct k3_slice slice;		/* of the current layer, while .. */
	bool loaded;			/* .. it is in memory */
};

struct k3_sweep {
	struct k3_engine *e;
	uint32_t first, last;		/* the range; this run goes .. */
	uint32_t from, until;		/* .. through these of it */
	struct member *member;
	uint32_t lines;
	uint64_t tokens, width;		/* width: floats of a token's residual stream */
	struct k3_rows stream;
	struct k3_token *token;
	/* of the current layer, only the tokens that pass it */
	uint32_t layer;
	uint64_t active;
	float **row;
	struct k3_token *name;
	uint64_t tile_tokens;
	uint32_t *tiles;		/* of each layer of the run */
	struct k3_tile tile;
	struct k3_routed routed;
	struct k3_segment *segment;	/* of the current tile */
	uint64_t segments;
	struct k3_pass pass;
	/* for reports */
	const struct k3_watch *watch;
	struct timespec begun;
	struct k3_engine_counts counts;
	uint32_t *report_sequence;
	uint64_t *report_position;
};

/* ---- making a sweep ---- */

static int embed(struct k3_sweep *s, const struct k3_line *line, const struct member *m,
		 uint32_t number, struct k3_err *err)
{
	struct k3_feed *f = k3_weights_feed(s->e->weights);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < m->n; i++) {
		if (line->ids[i] >= s->e->config->vocab)
			return k3_fail(err, K3_EDATA, "sequence %" PRIu32 ", position %" PRIu64
				       ": id %" PRIu32 " is not below %" PRIu32, number,
				       m->position + i, line->ids[i], s->e->config->vocab);
		rc = f->ops->row(f, K3_EMBED, line->ids[i], s->stream.at[m->first + i], err);
	}
	return rc;
}

static int take_streams(struct k3_sweep *s, const float *from, uint32_t sources,
			struct member *m, uint32_t number, struct k3_err *err)
{
	uint64_t n = sources * (uint64_t)s->e->config->hidden;

	m->sources = sources;

	if (m->n && s->first < s->last && sources != k3_config_sources(s->e->config, m->next))
		return k3_fail(err, K3_EDATA, "sequence %" PRIu32 ": %" PRIu32
			       " sources in front of layer %" PRIu32 ", which has %" PRIu32,
			       number, sources, m->next, k3_config_sources(s->e->config, m->next));
	for (uint64_t i = 0; i < m->n; i++) {
		for (uint64_t k = 0; k < n; k++)
			if (!isfinite(from[i * n + k]))
				return k3_fail(err, K3_EDATA, "sequence %" PRIu32 ", position %" PRIu64
					       ": value %" PRIu64 " of the residual stream is not finite",
					       number, m->position + i, k);
		memcpy(s->stream.at[m->first + i], from + i * n, n * sizeof *from);
	}
	return 0;
}

static int fill(struct k3_sweep *s, const struct k3_line *line, uint32_t number, struct k3_err *err)
{
	struct member *m = &s->member[number];
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

/* Which tokens each line brings, and how wide their streams can get. */
static int count(struct k3_sweep *s, const struct k3_line *line, struct k3_err *err)
{
	uint32_t sources = k3_config_sources(s->e->config, s->last);

	s->member = k3_calloc(s->lines, sizeof *s->member);
	if (!s->member)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < s->lines; i++) {
		uint64_t pending = k3_state_pending(line[i].state);
		struct member *m = &s->member[i];

		if (pending && line[i].n)
			return k3_fail(err, K3_EARG, "sequence %" PRIu32
				       ": a pass is in progress, which must be finished first", i);
		*m = (struct member){
			.state = line[i].state, .first = s->tokens, .sources = 1,
			.n = pending ? pending : line[i].n,
			.next = pending ? k3_state_layer(line[i].state) : s->first,
			.position = k3_state_position(line[i].state) - pending,
		};
		s->tokens += m->n;
		if (line[i].hidden && line[i].sources > sources)
			sources = line[i].sources;
	}
	s->width = sources * (uint64_t)s->e->config->hidden;
	return 0;
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

/*
 * What states take.  They stay in memory if there is room for all of them; else they are
 * paged, and like those that keep nothing they take the slices of one layer, for the
 * sequences of one tile.
 */
static uint64_t states_bytes(const struct k3_engine *e, const struct k3_line *line, uint32_t lines,
			     uint64_t tile, uint64_t room, bool *paged)
{
	uint64_t stay = 0, may_go = 0, largest = 0, moving = 0;

	for (uint32_t i = 0; i < lines; i++) {
		struct k3_state_bytes b = k3_state_memory(line[i].state, line[i].n);

		stay += b.itself;
		if (!k3_state_passing(line[i].state) && !can_be_paged(e, line[i].state)) {
			stay += b.all;
			continue;
		}
		may_go += k3_state_passing(line[i].state) ? 0 : b.all;
		moving += line[i].n || k3_state_pending(line[i].state);
		largest = b.layer > largest ? b.layer : largest;
	}
	moving = moving < tile ? moving : tile;
	*paged = stay + may_go > room;
	/* those of one sweep pass, all of them, or none does */
	return stay + (*paged || !may_go ? moving * largest : may_go);
}

static int page_states(const struct k3_engine *e, const struct k3_line *line, uint32_t lines,
		       bool paged, struct k3_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < lines; i++) {
		struct k3_state *s = line[i].state;

		if (paged && !k3_state_passing(s) && !k3_state_has_file(s) && e->temporary)
			rc = k3_state_give_file(s, e->temporary, err);
		k3_state_page(s, paged);
	}
	return rc;
}

/*
 * Tokens a tile: what was asked for, or as many as memory holds, for each tile more costs
 * the trunk once more; never more than there are.  Of what is left, logits get what they can
 * use, and weights the rest.
 */
static int share_memory(struct k3_sweep *s, const struct k3_line *line, struct k3_err *err)
{
	struct k3_engine *e = s->e;
	uint64_t have = e->budget.plan.memory, used = e->budget.fixed, need, more;
	struct k3_sweep_size size = { .tokens = s->tokens, .lines = s->lines,
				      .positions = longest(s), .width = s->width };
	bool paged;

	for (uint32_t i = 0; i < s->lines; i++)
		size.streams |= line[i].hidden || k3_state_pending(line[i].state);
	size.tile = e->tile && e->tile < s->tokens ? e->tile : s->tokens;
	for (;;) {
		need = used + k3_sweep_bytes(e->config, e->budget.threads, &size);
		need += states_bytes(e, line, s->lines, size.tile, have > need ? have - need : 0, &paged);
		if (need <= have || size.tile <= 1 || e->tile)
			break;
		size.tile = (size.tile + 1) / 2;
	}
	if (need > have)
		return k3_fail(err, K3_ENOMEM, "%" PRIu64 " tokens at a time in %" PRIu32
			       " sequences of up to %" PRIu64 " positions take %" PRIu64
			       " bytes of memory, and there are %" PRIu64, s->tokens, s->lines,
			       size.positions, need, have);
	s->tile_tokens = size.tile ? size.tile : 1;
	/* one row of them is in what is needed */
	more = s->tokens ? (s->tokens - 1) * k3_logits_bytes(e->config) : 0;
	more = more < e->budget.logits ? more : e->budget.logits;
	more = more < have - need ? more : have - need;
	e->logits = k3_logits_bytes(e->config) + more;
	k3_weights_keep(e->weights, have - need - more);
	return page_states(e, line, s->lines, paged, err);
}

static int allocate(struct k3_sweep *s, struct k3_err *err)
{
	struct k3_engine *e = s->e;
	int rc = k3_rows_new(&s->stream, s->tokens, s->width, err);

	s->token = k3_calloc(s->tokens, sizeof *s->token);
	s->row = k3_calloc(s->tokens, sizeof *s->row);
	s->name = k3_calloc(s->tokens, sizeof *s->name);
	s->segment = k3_calloc(s->lines, sizeof *s->segment);
	s->report_sequence = k3_calloc(s->tokens, sizeof *s->report_sequence);
	s->report_position = k3_calloc(s->tokens, sizeof *s->report_position);
	if (!rc && (!s->token || !s->row || !s->name || !s->segment || !s->report_sequence ||
		    !s->report_position))
		rc = k3_fail_nomem(err);
	if (!rc && s->first < s->last)
		rc = k3_tile_new(e->config, s->tile_tokens, &s->tile, err);
	if (!rc && s->first < s->last)
		rc = k3_routed_new(e->config, s->tokens, &s->routed, err);
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
	int rc;

	*out = NULL;
	if (!s)
		return k3_fail_nomem(err);
	s->e = e;
	s->first = first;
	s->last = last;
	s->lines = lines;
	rc = count(s, line, err);
	if (!rc)
		rc = share_memory(s, line, err);
	if (!rc)
		rc = allocate(s, err);
	for (uint32_t i = 0; !rc && i < lines; i++) {
		struct member *m = &s->member[i];

		for (uint64_t k = 0; k < m->n; k++)
			s->token[m->first + k] = (struct k3_token){ i, m->position + k };
		rc = fill(s, &line[i], i, err);
	}
	/* only when all lines are good does any state learn of its new tokens */
	for (uint32_t i = 0; !rc && i < lines && first < last; i++)
		if (line[i].n)
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
	k3_rows_free(&s->stream);
	k3_tile_free(&s->tile);
	k3_routed_free(&s->routed);
	free(s->member);
	free(s->token);
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

const float *k3_sweep_stream(const struct k3_sweep *s, uint32_t line, uint64_t token,
			     uint32_t *sources)
{
	const struct member *m = &s->member[line];

	*sources = s->first < s->last ? k3_config_sources(s->e->config, m->next) : m->sources;
	return s->stream.at[m->first + token];
}

/* ---- what worker 0 does between layers ---- */

static int enter_layer(struct k3_sweep *s, struct k3_err *err)
{
	const struct k3_watch *watch = s->watch;
	int rc = watch->before ? watch->before(watch->ctx, s->layer, err) : 0;

	clock_gettime(CLOCK_MONOTONIC, &s->begun);
	k3_engine_count(s->e, &s->counts);
	s->active = 0;
	for (uint32_t i = 0; !rc && i < s->lines; i++) {
		struct member *m = &s->member[i];

		if (!m->n || m->next != s->layer)
			continue;
		m->loaded = false;
		for (uint64_t k = 0; k < m->n; k++) {
			s->row[s->active] = s->stream.at[m->first + k];
			s->name[s->active++] = s->token[m->first + k];
		}
	}
	if (!rc && s->active)
		rc = k3_vectors_read(s->e->config, s->pass.feed, s->layer, &s->e->vectors, err);
	return rc;
}

/* The segments of the active tokens from .. from + n - 1; rows counted from the tile's start. */
static void cut_segments(struct k3_sweep *s, uint64_t from, uint64_t n)
{
	uint64_t done = 0;

	s->segments = 0;
	while (done < n) {
		const struct k3_token *t = &s->name[from + done];
		const struct member *m = &s->member[t->sequence];
		uint64_t left = m->position + m->n - t->position;

		left = left < n - done ? left : n - done;
		s->segment[s->segments++] = (struct k3_segment){ .first = done, .count = left,
								 .position = t->position };
		done += left;
	}
}

static int visit(struct k3_sweep *s, uint32_t sources, struct k3_err *err)
{
	const struct k3_watch *watch = s->watch;
	uint64_t hidden = s->e->config->hidden, at = 0;
	int rc = 0;

	if (!watch->visit)
		return 0;
	for (uint64_t t = 0; t < s->active; t++)
		s->row[t] += (sources - 1) * hidden;
	for (uint32_t i = 0; !rc && i < s->lines; i++) {
		uint64_t n = s->member[i].next == s->layer ? s->member[i].n : 0;

		rc = watch->visit(watch->ctx, K3_SITE_RESID, s->layer, i, n, hidden, s->row + at, err);
		at += n;
	}
	for (uint64_t t = 0; t < s->active; t++)
		s->row[t] -= (sources - 1) * hidden;
	return rc;
}

static int report(struct k3_sweep *s, struct k3_err *err)
{
	const struct k3_config *c = s->e->config;
	struct k3_layer_report r = {
		.layer = s->layer, .kind = c->kind[s->layer], .moe = k3_config_is_moe(c, s->layer),
		.tokens = s->active, .sequence = s->report_sequence, .position = s->report_position,
	};
	struct k3_engine_counts n, was = s->counts;
	struct timespec now;

	if (!s->watch->after)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	k3_engine_count(s->e, &n);
	r.seconds = (double)(now.tv_sec - s->begun.tv_sec) +
		    (double)(now.tv_nsec - s->begun.tv_nsec) * 1e-9;
	r.trunk_bytes = n.trunk_bytes - was.trunk_bytes;
	r.trunk_kept = n.trunk_kept - was.trunk_kept;
	r.expert_bytes = n.expert_bytes - was.expert_bytes;
	r.expert_kept = n.expert_kept - was.expert_kept;
	r.waited = n.waited - was.waited;
	for (uint64_t t = 0; t < s->active; t++) {
		s->report_sequence[t] = s->name[t].sequence;
		s->report_position[t] = s->name[t].position;
	}
	if (r.moe) {
		r.chosen = c->chosen;
		r.expert = s->routed.expert;
		r.weight = s->routed.weight;
		for (uint32_t e = 0; e < c->experts; e++)
			r.experts += s->routed.first[e] < s->routed.first[e + 1];
	}
	return s->watch->after(s->watch->ctx, &r, err);
}

static int leave_layer(struct k3_sweep *s, struct k3_err *err)
{
	uint32_t sources = k3_config_sources(s->e->config, s->layer + 1);
	int rc = visit(s, sources, err);

	for (uint32_t i = 0; !rc && i < s->lines; i++) {
		struct member *m = &s->member[i];

		if (!m->n || m->next != s->layer)
			continue;
		rc = k3_state_commit(m->state, s->layer, s->stream.at + m->first, sources, err);
		m->next++;
	}
	return rc ? rc : report(s, err);
}

/* ---- what all workers do ---- */

/* Runs fn on worker 0 alone; all are told how it ended. */
static bool alone(struct k3_worker *w, struct k3_sweep *s,
		  int (*fn)(struct k3_sweep *, struct k3_err *))
{
	struct k3_err err;
	int rc;

	if (w->rank == 0) {
		rc = fn(s, &err);
		if (rc)
			k3_worker_fail(w, rc, &err);
	}
	return k3_barrier(w);
}

static struct member *owner(struct k3_sweep *s, uint64_t from, const struct k3_segment *g)
{
	return &s->member[s->name[from + g->first].sequence];
}

/* Brings in the slices of a tile's segments; a sequence has one segment in a tile. */
static void load_slices(struct k3_worker *w, struct k3_sweep *s, uint64_t from)
{
	uint32_t loop = k3_loop(w);
	struct k3_err err;
	uint64_t i;

	while (k3_loop_next(w, loop, s->segments, &i)) {
		struct k3_segment *g = &s->segment[i];
		struct member *m = owner(s, from, g);
		int rc = m->loaded ? 0 : k3_state_slice(m->state, s->layer, &m->slice, &err);

		if (rc) {
			k3_worker_fail_at(w, i, rc, &err);
			return;
		}
		m->loaded = true;
		g->slice = m->slice;
	}
}

/* Stores the slices of those sequences that have no token behind the tile. */
static void store_slices(struct k3_worker *w, struct k3_sweep *s, uint64_t from)
{
	uint32_t loop = k3_loop(w);
	struct k3_err err;
	uint64_t i;

	while (k3_loop_next(w, loop, s->segments, &i)) {
		const struct k3_segment *g = &s->segment[i];
		struct member *m = owner(s, from, g);
		int rc = 0;

		if (g->position + g->count == m->position + m->n)
			rc = k3_state_store(m->state, s->layer, &err);
		if (rc) {
			k3_worker_fail_at(w, i, rc, &err);
			return;
		}
	}
}

/* docs/model.md 2.2, steps 1 to 4: mix, norm, attention, running sum. */
static bool attention(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n,
		      uint32_t sources, bool begin)
{
	const struct k3_layer_vectors *v = s->pass.vectors;

	if (w->rank == 0)
		cut_segments(s, from, n);
	k3_mix_and_norm(w, &s->pass, s->row + from, sources, sources > 1 ? v->attn_fold : NULL,
			v->attn_norm, n, s->tile.x.at);
	if (!k3_barrier(w))
		return false;
	load_slices(w, s, from);
	if (!k3_barrier(w))
		return false;
	if (s->e->config->kind[s->layer] == K3_KDA)
		k3_kda(w, &s->pass, s->layer, s->segment, s->segments, n);
	else
		k3_mla(w, &s->pass, s->layer, s->segment, s->segments, n);
	if (!k3_barrier(w))
		return false;
	store_slices(w, s, from);
	k3_add_to_stream(w, &s->pass, s->layer, s->name + from, s->row + from,
			 begin ? sources : sources - 1, begin, s->tile.y.at, n);
	return k3_barrier(w);
}

/* Steps 5 to 7 for a tile; of a layer with experts only what comes before them. */
static bool ffn(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n,
		uint32_t sources)
{
	bool last = from + n == s->active;
	const struct k3_layer_vectors *v = s->pass.vectors;

	k3_mix_and_norm(w, &s->pass, s->row + from, sources, v->mlp_fold, v->mlp_norm, n,
			s->tile.x.at);
	if (!k3_barrier(w))
		return false;
	if (k3_config_is_moe(s->e->config, s->layer)) {
		k3_route_tile(w, &s->pass, s->layer, s->name + from, from, n, last);
		return k3_barrier(w);
	}
	k3_dense(w, &s->pass, s->layer, n);
	if (!k3_barrier(w))
		return false;
	k3_add_to_stream(w, &s->pass, s->layer, s->name + from, s->row + from, sources - 1, false,
			 s->tile.y.at, n);
	return k3_barrier(w);
}

/*
 * One layer over all its tokens.  A boundary layer lets the running sum stand as a new
 * snapshot and begins the next one behind it: no value moves.
 */
static bool layer(struct k3_worker *w, struct k3_sweep *s)
{
	const struct k3_config *c = s->e->config;
	bool begin = s->layer % c->residual_block == 0;
	uint32_t before = k3_config_sources(c, s->layer), after = before + begin;

	for (uint64_t from = 0; from < s->active; from += s->tile_tokens) {
		uint64_t n = s->active - from < s->tile_tokens ? s->active - from : s->tile_tokens;

		if (!attention(w, s, from, n, before, begin) || !ffn(w, s, from, n, after))
			return false;
	}
	if (!k3_config_is_moe(c, s->layer) || !s->active)
		return true;
	k3_experts(w, &s->pass, s->layer, s->active);
	if (!k3_barrier(w))
		return false;
	k3_add_to_stream(w, &s->pass, s->layer, s->name, s->row, after - 1, false,
			 s->routed.shared.at, s->active);
	return k3_barrier(w);
}

static void run_layers(struct k3_worker *w, void *arg)
{
	struct k3_sweep *s = arg;

	for (uint32_t l = s->from; l < s->until; l++) {
		if (w->rank == 0)
			s->layer = l;
		if (!alone(w, s, enter_layer))
			return;
		if (!layer(w, s) || !alone(w, s, leave_layer))
			return;
	}
}

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

int k3_sweep_run(struct k3_sweep *s, uint32_t until, const struct k3_watch *watch,
		 struct k3_err *err)
{
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
	if (rc)
		return rc;
	k3_weights_begin(s->e->weights, first, until, s->tiles);
	rc = k3_team_run(s->e->team, run_layers, s, err);
	k3_weights_end(s->e->weights);
	return rc;
}
