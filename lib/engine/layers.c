/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - layer after layer over the tokens of a sweep.  All workers walk through
 * k3_layers_run together; what only one can do (states, callbacks) worker 0 does
 * while the others wait at the next barrier.
 *
 * Where rows are in a file, those of a tile or of the users of an expert are read into their places before they are
 * used, and what has changed is written behind that.
 */
#include "engine/sweep_own.h"
#include "model/ffn.h"
#include "model/kda.h"
#include "model/mla.h"
#include "model/norm.h"
#include "sys/small.h"

/* ---- what worker 0 does between layers ---- */

static int enter_layer(struct k3_sweep *s, struct k3_err *err)
{
	const struct k3_watch *watch = s->watch;
	int rc = watch->before ? watch->before(watch->ctx, s->layer, err) : 0;

	s->begun = k3_nanoseconds();
	k3_engine_count(s->e, &s->counts);
	s->active = 0;
	for (uint32_t i = 0; !rc && i < s->lines; i++) {
		struct k3_member *m = &s->member[i];

		if (!m->n || m->next != s->layer)
			continue;
		m->loaded = false;
		for (uint64_t k = 0; k < m->n; k++) {
			s->index[s->active] = m->first + k;
			s->name[s->active++] = s->token[m->first + k];
		}
	}
	if (!rc && s->active)
		rc = k3_vectors_read(s->e->config, s->pass.feed, s->layer, &s->e->vectors, err);
	return rc;
}

/* Where the rows of the tile are in memory. */
static void find_rows(struct k3_sweep *s, uint64_t from, uint64_t n)
{
	for (uint64_t t = 0; t < n; t++)
		s->row[t] = k3_shelf_rows(&s->stream, s->index[from + t])[s->stream.file ? t : 0];
	s->tile.latent = k3_shelf_rows(&s->latent, from);
	s->tile.sum = k3_shelf_rows(&s->sum, from);
	s->tile.shared = k3_shelf_rows(&s->shared, from);
}

/* The segments of the active tokens from .. from + n - 1; rows counted from the tile's start. */
static void cut_segments(struct k3_sweep *s, uint64_t from, uint64_t n)
{
	uint64_t done = 0;

	s->segments = 0;
	while (done < n) {
		const struct k3_token *t = &s->name[from + done];
		const struct k3_member *m = &s->member[t->sequence];
		uint64_t left = m->position + m->n - t->position;

		left = left < n - done ? left : n - done;
		s->segment[s->segments++] = (struct k3_segment){ .first = done, .count = left,
								 .position = t->position,
								 .drafted = m->drafted };
		done += left;
	}
}

/* Up to a tile of a line's tokens, of each the running sum. */
static int visit_piece(struct k3_sweep *s, const struct k3_member *m, struct k3_visit *v,
		       uint32_t sources, struct k3_err *err)
{
	uint64_t last = sources - 1;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < v->count; i++) {
		uint64_t at = m->first + v->first + i;
		float *row = k3_shelf_rows(&s->stream, at)[s->stream.file ? i : 0];

		rc = k3_shelf_read(&s->stream, at, last, 1, row, err);
		s->row[i] = row + last * v->width;
	}
	return rc ? rc : s->watch->visit(s->watch->ctx, v, err);
}

static int visit(struct k3_sweep *s, uint32_t sources, struct k3_err *err)
{
	struct k3_visit v = { .site = K3_SITE_RESID, .layer = s->layer,
			      .width = s->e->config->hidden, .row = s->row };
	int rc = 0;

	for (v.line = 0; !rc && s->watch->visit && v.line < s->lines; v.line++) {
		const struct k3_member *m = &s->member[v.line];

		v.n = m->next == s->layer ? m->n : 0;
		v.first = 0;
		do {
			v.count = v.n - v.first < s->tile_tokens ? v.n - v.first : s->tile_tokens;
			rc = visit_piece(s, m, &v, sources, err);
			v.first += v.count;
		} while (!rc && v.first < v.n);
	}
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

	if (!s->watch->after)
		return 0;
	k3_engine_count(s->e, &n);
	r.seconds = (double)(k3_nanoseconds() - s->begun) * 1e-9;
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

/* A line's rows for its state. */
struct committed {
	const struct k3_sweep *s;
	const struct k3_member *m;
	uint32_t sources;
};

static int committed_row(void *ctx, uint64_t i, const float **values, struct k3_err *err)
{
	const struct committed *c = ctx;
	uint64_t at = c->m->first + i;
	float *row = *k3_shelf_rows(&c->s->stream, at);

	*values = row;
	return k3_shelf_read(&c->s->stream, at, 0, c->sources, row, err);
}

static int leave_layer(struct k3_sweep *s, struct k3_err *err)
{
	uint32_t sources = k3_config_sources(s->e->config, s->layer + 1);
	int rc = visit(s, sources, err);

	if (!rc && s->e->pager)
		rc = k3_pager_wait(s->e->pager, err);
	for (uint32_t i = 0; !rc && i < s->lines; i++) {
		struct k3_member *m = &s->member[i];

		if (!m->n || m->next != s->layer)
			continue;
		struct committed rows = { s, m, sources };
		struct k3_residual residual = { committed_row, &rows, sources };

		rc = k3_state_commit(m->state, s->layer, &residual, err);
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

static struct k3_member *owner(struct k3_sweep *s, uint64_t from, const struct k3_segment *g)
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
		struct k3_member *m = owner(s, from, g);
		int rc = m->loaded ? 0 : k3_state_slice(m->state, s->layer, &m->slice, &err);

		if (rc) {
			k3_worker_fail_at(w, i, rc, &err);
			return;
		}
		m->loaded = true;
		g->slice = m->slice;
	}
}

/* Before the first tokens of a line its former guesses go into the slice. */
static void take_guesses(struct k3_worker *w, struct k3_sweep *s, uint64_t from)
{
	uint64_t parts = k3_draft_parts(s->e->config, s->layer), i;
	uint32_t loop = k3_loop(w);

	while (k3_loop_next(w, loop, s->segments * parts, &i)) {
		const struct k3_segment *g = &s->segment[i / parts];
		const struct k3_member *m = owner(s, from, g);

		if (m->taken && g->position == m->position)
			k3_draft_replay(&s->pass, s->layer, m->draft, m->taken, m->position - m->taken,
					&g->slice, i % parts, s->pass.scratch[w->rank]);
	}
}

/*
 * Worker 0: the slices of those sequences that have no token behind the tile are stored, and then those of the
 * next layer loaded, if there is memory for both.
 */
static int store_slices(struct k3_sweep *s, uint64_t from, struct k3_err *err)
{
	struct k3_pager *pager = s->e->pager;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->segments; i++) {
		const struct k3_segment *g = &s->segment[i];
		struct k3_member *m = owner(s, from, g);

		if (g->position + g->count < m->position + m->n)
			continue;
		if (g->drafted)
			k3_draft_log(&s->pass, s->layer, m->draft, g);
		rc = pager ? k3_pager_store(pager, m->state, s->layer, err)
			   : k3_state_store(m->state, s->layer, err);
	}
	for (uint64_t i = 0; !rc && pager && s->ahead && s->layer + 1 < s->until && i < s->segments; i++)
		rc = k3_pager_load(pager, owner(s, from, &s->segment[i])->state, s->layer + 1, err);
	return rc;
}

/* ---- rows from the file and back; without one these do nothing and wait for nobody ---- */

/*
 * What is read or written of the tile's rows: parts of residual streams, and of the current layer's rows those that
 * are to be.
 */
struct piece {
	uint64_t from, n;		/* tokens of the layer */
	uint64_t part, parts;		/* of their residual streams */
	const struct k3_shelf *more[2];	/* or NULL */
	int (*move)(const struct k3_shelf *s, uint64_t i, uint64_t first, uint64_t n, float *values,
		    struct k3_err *err);
};

static int write_back(const struct k3_shelf *s, uint64_t i, uint64_t first, uint64_t n,
		      float *values, struct k3_err *err)
{
	return k3_shelf_write(s, i, first, n, values, err);
}

/* Something to be done for row i of `what`. */
typedef int row_fn(const struct k3_sweep *s, const void *what, uint64_t i, struct k3_err *err);

/* Behind a barrier; ends with one. */
static bool each_row(struct k3_worker *w, const struct k3_sweep *s, uint64_t n, row_fn *fn,
		     const void *what)
{
	uint32_t loop = k3_loop(w);
	struct k3_err err;
	uint64_t i;
	int rc = 0;

	while (!rc && k3_loop_next(w, loop, n, &i)) {
		rc = fn(s, what, i, &err);
		if (rc)
			k3_worker_fail_at(w, i, rc, &err);
	}
	return k3_barrier(w);
}

static int move_token(const struct k3_sweep *s, const void *what, uint64_t t, struct k3_err *err)
{
	const struct piece *p = what;
	int rc = p->move(&s->stream, s->index[p->from + t], p->part, p->parts, s->row[t], err);

	for (int k = 0; !rc && k < 2 && p->more[k]; k++)
		rc = p->move(p->more[k], p->from + t, 0, 1, k3_shelf_rows(p->more[k], 0)[t], err);
	return rc;
}

static bool move(struct k3_worker *w, const struct k3_sweep *s, const struct piece *p)
{
	return !s->stream.file || each_row(w, s, p->n, move_token, p);
}

/* User number *first + i of the layer. */
static int bring_user(const struct k3_sweep *s, const void *first, uint64_t i, struct k3_err *err)
{
	const struct k3_routed *r = &s->routed;
	uint64_t at = *(const uint64_t *)first + i, chosen = s->e->config->chosen;
	uint64_t token = r->user[at] / chosen;
	int rc = k3_shelf_read(&s->latent, token, 0, 1, r->user_latent[at], err);

	if (!rc && r->user[at] % chosen)
		rc = k3_shelf_read(&s->sum, token, 0, 1, r->user_sum[at], err);
	return rc;
}

static int take_user(const struct k3_sweep *s, const void *first, uint64_t i, struct k3_err *err)
{
	const struct k3_routed *r = &s->routed;
	uint64_t at = *(const uint64_t *)first + i;

	return k3_shelf_write(&s->sum, r->user[at] / s->e->config->chosen, 0, 1, r->user_sum[at],
			      err);
}

/* k3_users.bring: into the places of a group. */
static bool bring_users(struct k3_worker *w, void *ctx, uint64_t first, uint64_t n)
{
	return each_row(w, ctx, n, bring_user, &first);
}

static bool take_users(struct k3_worker *w, void *ctx, uint64_t first, uint64_t n)
{
	return k3_barrier(w) && each_row(w, ctx, n, take_user, &first);
}

/* ---- a layer ---- */

/* docs/model.md 2.2, steps 1 to 4: mix, norm, attention, running sum. */
static bool attention(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n,
		      uint32_t sources, bool begin)
{
	const struct k3_layer_vectors *v = s->pass.vectors;
	struct k3_err err;
	int rc;

	k3_mix_and_norm(w, &s->pass, s->row, sources, sources > 1 ? v->attn_fold : NULL,
			v->attn_norm, n, s->tile.x.at);
	if (!k3_barrier(w))
		return false;
	load_slices(w, s, from);
	if (!k3_barrier(w))
		return false;
	if (s->taken)
		take_guesses(w, s, from);	/* there is a barrier before a slice is used */
	if (s->e->config->kind[s->layer] == K3_KDA)
		k3_kda(w, &s->pass, s->layer, s->segment, s->segments, n);
	else
		k3_mla(w, &s->pass, s->layer, s->segment, s->segments, n);
	if (!k3_barrier(w))
		return false;
	rc = w->rank == 0 ? store_slices(s, from, &err) : 0;
	if (rc)
		k3_worker_fail(w, rc, &err);
	k3_add_to_stream(w, &s->pass, s->layer, s->name + from, s->row,
			 begin ? sources : sources - 1, begin, s->tile.y.at, n);
	return k3_barrier(w);
}

/* Steps 5 to 7 for a tile; of a layer with experts only what comes before them. */
static bool ffn(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n,
		uint32_t sources)
{
	bool last = from + n == s->active;
	const struct k3_layer_vectors *v = s->pass.vectors;

	k3_mix_and_norm(w, &s->pass, s->row, sources, v->mlp_fold, v->mlp_norm, n, s->tile.x.at);
	if (!k3_barrier(w))
		return false;
	if (k3_config_is_moe(s->e->config, s->layer)) {
		k3_route_tile(w, &s->pass, s->layer, s->name + from, from, n, last);
		return k3_barrier(w);
	}
	k3_dense(w, &s->pass, s->layer, n);
	if (!k3_barrier(w))
		return false;
	k3_add_to_stream(w, &s->pass, s->layer, s->name + from, s->row, sources - 1, false,
			 s->tile.y.at, n);
	return k3_barrier(w);
}

/* Worker 0 says what the next tile is; false if the team has failed. */
static bool begin_tile(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n)
{
	if (w->rank == 0)
		find_rows(s, from, n);
	return k3_barrier(w);
}

/* Whose slices the tile will want; those of the tile before have left memory. */
static bool begin_slices(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n)
{
	struct k3_err err;
	int rc = w->rank == 0 && s->e->pager ? k3_pager_wait(s->e->pager, &err) : 0;

	if (w->rank == 0)
		cut_segments(s, from, n);
	if (rc)
		k3_worker_fail(w, rc, &err);
	return k3_barrier(w);
}

/* All that a tile does before its experts. */
static bool tile(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n,
		 uint32_t before, uint32_t after)
{
	bool moe = k3_config_is_moe(s->e->config, s->layer);
	struct piece in = { from, n, 0, before, { NULL }, k3_shelf_read };
	struct piece out = { from, n, after - 1, 1, { moe ? &s->latent : NULL, &s->shared },
			     write_back };

	return begin_tile(w, s, from, n) && begin_slices(w, s, from, n) && move(w, s, &in) &&
	       attention(w, s, from, n, before, after > before) && ffn(w, s, from, n, after) &&
	       move(w, s, &out);
}

/* What comes behind the experts. */
static bool finish_tile(struct k3_worker *w, struct k3_sweep *s, uint64_t from, uint64_t n,
			uint32_t sources)
{
	struct piece in = { from, n, sources - 1, 1, { &s->sum, &s->shared }, k3_shelf_read };
	struct piece out = { from, n, sources - 1, 1, { NULL }, write_back };

	if (!begin_tile(w, s, from, n) || !move(w, s, &in))
		return false;
	k3_latent_out(w, &s->pass, s->layer, n);
	if (!k3_barrier(w))
		return false;
	k3_add_to_stream(w, &s->pass, s->layer, s->name + from, s->row, sources - 1, false,
			 s->tile.shared, n);
	return k3_barrier(w) && move(w, s, &out);
}

static uint64_t tile_size(const struct k3_sweep *s, uint64_t from)
{
	return s->active - from < s->tile_tokens ? s->active - from : s->tile_tokens;
}

/*
 * One layer over all its tokens.  A boundary layer lets the running sum stand as a new
 * snapshot and begins the next one behind it: no value moves.
 */
static bool layer(struct k3_worker *w, struct k3_sweep *s)
{
	const struct k3_config *c = s->e->config;
	const struct k3_users users = { bring_users, take_users, s };
	bool begin = s->layer % c->residual_block == 0;
	uint32_t before = k3_config_sources(c, s->layer), after = before + begin;

	for (uint64_t from = 0; from < s->active; from += s->tile_tokens)
		if (!tile(w, s, from, tile_size(s, from), before, after))
			return false;
	if (!k3_config_is_moe(c, s->layer) || !s->active)
		return true;
	k3_experts(w, &s->pass, s->layer, s->stream.file ? &users : NULL);
	if (!k3_barrier(w))
		return false;
	for (uint64_t from = 0; from < s->active; from += s->tile_tokens)
		if (!finish_tile(w, s, from, tile_size(s, from), after))
			return false;
	return true;
}

void k3_layers_run(struct k3_worker *w, void *arg)
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
