/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - the worker's side of reading: which entry a block is, whether its bytes are good, and
 * a copy of what stays.
 *
 * A block is checked by the worker that uses it, right before it does, while its bytes are
 * on their way through the cache anyway.
 */
#include "engine/weights.h"
#include "data/roles.h"
#include "data/row_sum.h"
#include "engine/expert_cache.h"
#include "engine/hoard.h"
#include "engine/pins.h"
#include "engine/retain.h"
#include "math/code.h"
#include "math/kernels.h"
#include "sys/small.h"

#include <k3/buf.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What a worker has in its hands. */
struct hand {
	struct k3_walk walk;
	struct k3_step step;		/* the matrix that it asks blocks of */
	uint64_t held[2];		/* entries */
	unsigned holds;
	bool drops;			/* and then that block of the trunk is not needed any more */
	uint64_t dropped;
	unsigned char *plain;		/* the key rows of a head, decoded */
};

/* An expert of the current layer, on its way from the disk. */
struct check {
	_Atomic uint64_t total;		/* of the sums of its rows */
	_Atomic uint64_t blocks;	/* that are missing from it */
	uint64_t want;
	bool known;			/* the index has a sum */
};

struct k3_weights {
	struct k3_feed base;
	const struct k3_index *ix;
	const struct k3_config *config;
	struct k3_source *source;
	struct k3_reader *reader;
	struct k3_pins *pins;
	struct k3_retain *retain;
	struct k3_hoard *hoard;
	struct k3_hoard_cost cost;
	struct k3_expert_cache *cache;
	struct k3_route route;
	bool retains;			/* the ring of these blocks has room */
	unsigned workers;
	struct hand *hand;
	struct check *check;		/* by the number of an expert's passing in its layer */
	uint32_t room;			/* for so many of them */
	unsigned char *row;		/* what a row of the embedding is read into */
	uint64_t row_size;
	uint64_t rows_read;		/* bytes .. */
	uint64_t rows_waited;		/* .. and nanoseconds, in which every worker waits */
	_Atomic uint64_t trunk_read, trunk_kept, expert_read, expert_kept;
};

static struct k3_weights *self(struct k3_feed *f)
{
	return (struct k3_weights *)f;
}

/* ---- the reader's question: is it in memory, or will it stay? ---- */

static bool find_expert(const struct k3_weights *s, const struct k3_step *step, uint64_t i,
			struct k3_entry *e)
{
	const unsigned char *ahead;
	bool coming = false;

	ahead = k3_hoard_find(s->hoard, step, i, &coming);
	if (coming)
		return false;
	e->data = k3_expert_cache_find(s->cache, step, i, &e->keep);
	e->read = !e->data;
	if (e->read)
		e->data = ahead;
	return true;
}

static bool find(void *ctx, const struct k3_step *step, uint64_t i, struct k3_entry *e)
{
	struct k3_weights *s = ctx;
	uint64_t number;

	if (!step->use)
		return find_expert(s, step, i, e);
	number = k3_source_number(s->source, step, i);
	/* a tile before this one is still to copy it */
	if (k3_pins_coming(s->pins, number) || k3_retain_coming(s->retain, number))
		return false;
	e->data = k3_pins_find(s->pins, number);
	if (!e->data)
		e->data = k3_retain_find(s->retain, number);
	e->read = !e->data;
	if (e->read)
		e->keep = k3_pins_assign(s->pins, number, e->bytes);
	if (e->read && !e->keep && step->left)
		e->keep = k3_retain_assign(s->retain, number, e->bytes);
	return true;
}

/* ---- steps ---- */

static int out_of_order(enum k3_role role, uint32_t layer, uint32_t part, struct k3_err *err)
{
	char name[K3_NAME];

	k3_role_name(role, layer, role >= K3_W1 ? part : 0, name, sizeof name);
	return k3_fail(err, K3_EARG, "%s was asked for out of order", name);
}

/* Goes on to the step that is asked for; vectors on the way are worker 0's. */
static int go(struct k3_weights *s, struct hand *h, enum k3_role role, uint32_t layer,
	      uint32_t part, struct k3_err *err)
{
	const struct k3_step *step = &h->step;

	while (k3_walk_next(&h->walk, &h->step) == K3_WALK_STEP) {
		bool of_model = step->section == s->config->layers;

		if (step->role == role && step->section == (of_model ? s->config->layers : layer) &&
		    (step->use ? step->use->values == (part == 1) : step->expert == part))
			return 0;
		if (!step->use || !step->use->vector)
			break;
	}
	return out_of_order(role, layer, part, err);
}

static int feed_matrix(struct k3_feed *f, unsigned rank, enum k3_role role, uint32_t layer,
		       uint32_t part, struct k3_matrix *m, struct k3_err *err)
{
	struct k3_weights *s = self(f);
	struct hand *h = &s->hand[rank];
	const struct k3_step *step = &h->step;
	int rc = go(s, h, role, layer, part, err);

	if (rc)
		return rc;
	*m = (struct k3_matrix){ .role = role, .layer = layer, .part = part };
	if (step->use) {
		m->rows = step->use->rows;
		m->cols = step->use->cols;
		m->blocks = step->use->blocks;
	} else {
		m->mxfp4 = true;
		m->rows = step->cut.rows;
		m->cols = step->cut.cols;
		m->blocks = step->cut.blocks;
	}
	return 0;
}

/* ---- blocks ---- */

static void feed_release(struct k3_feed *f, unsigned rank)
{
	struct hand *h = &self(f)->hand[rank];

	while (h->holds)
		k3_reader_release(self(f)->reader, h->held[--h->holds]);
	if (!h->drops)
		return;
	h->drops = false;
	k3_reader_lock(self(f)->reader);
	k3_retain_drop(self(f)->retain, h->dropped);
	k3_reader_unlock(self(f)->reader);
}

static int get(struct k3_weights *s, struct hand *h, uint64_t i, struct k3_entry *e,
	       struct k3_err *err)
{
	uint64_t n = h->step.first + i;
	int rc = k3_reader_get(s->reader, n, e, err);

	if (!rc)
		h->held[h->holds++] = n;
	return rc;
}

/* The block has been copied to where it is kept, and the reader may have waited for that. */
static void kept(struct k3_weights *s, uint64_t number)
{
	k3_reader_lock(s->reader);
	if (k3_pins_coming(s->pins, number))
		k3_pins_filled(s->pins, number);
	else
		k3_retain_filled(s->retain, number);
	k3_reader_known(s->reader);
	k3_reader_unlock(s->reader);
}

/* Block i of the trunk: checked if it came from the disk, and copied if it is to stay. */
static int trunk_block(struct k3_weights *s, struct hand *h, uint64_t i, struct k3_entry *e,
		       struct k3_err *err)
{
	uint64_t number = k3_source_number(s->source, &h->step, i);
	int rc = get(s, h, i, e, err);

	if (!rc && e->read)
		rc = k3_source_check(s->source, &h->walk.order, h->step.use, i, e->data, err);
	if (rc)
		return rc;
	atomic_fetch_add(e->read ? &s->trunk_read : &s->trunk_kept, e->bytes);
	if (e->read && e->keep) {
		memcpy(e->keep, e->data, e->bytes);
		kept(s, number);
	}
	h->drops = s->retains && !h->step.left;
	h->dropped = number;
	return 0;
}

uint64_t k3_weights_plain(const struct k3_config *c)
{
	return (uint64_t)c->nope * c->kv_rank * 2;
}

/* Products with key rows go along the columns, which no kernel does in a coded block. */
static int decode(const struct k3_config *c, struct hand *h, const struct k3_entry *e,
		  struct k3_block *b, struct k3_err *err)
{
	if (!h->plain)
		h->plain = malloc(k3_weights_plain(c));
	if (!h->plain)
		return k3_fail_nomem(err);
	k3_code_decode(e->data, 0, b->rows, h->plain);
	b->data = h->plain;
	return 0;
}

static int use_block(struct k3_weights *s, struct hand *h, uint64_t i, struct k3_block *b,
		     struct k3_err *err)
{
	const struct k3_use *use = h->step.use;
	struct k3_entry e;
	int rc = trunk_block(s, h, i, &e, err);

	if (rc)
		return rc;
	k3_use_rows(s->config, use, i, &b->row, &b->rows);
	if (!k3_source_coded(s->source))
		b->data = e.data;
	else if (use->role == K3_MLA_KVB && !use->values)
		rc = decode(s->config, h, &e, b, err);
	else
		b->coded = e.data;
	return rc;
}

/* Scales that would make infinities or NaNs out of codes are refused where they enter (N2). */
static int check_scales(const struct k3_weights *s, const struct k3_step *step, uint64_t first,
			const unsigned char *scale, uint64_t n, struct k3_err *err)
{
	char name[K3_NAME];
	struct k3_tensor t;
	uint64_t i = k3_mxfp4_bad_scale(scale, n);
	int rc;

	if (i == n)
		return 0;
	rc = k3_index_tensor(s->ix, step->role + 1, step->section, step->expert, &t, err);
	if (rc)
		return rc;
	k3_role_name(t.role, step->section, step->expert, name, sizeof name);
	return k3_fail(err, K3_EDATA, "%s: offset %" PRIu64 ": %s: scale byte %u is above %d",
		       k3_index_shard_path(s->ix, t.shard), t.offset + first + i, name,
		       scale[i], K3_MXFP4_MAX_SCALE);
}

/* One block less to come; with the last one the sum of the expert must be right. */
static int check_sum(struct k3_weights *s, const struct k3_step *step, const struct k3_block *b,
		     struct k3_err *err)
{
	const struct k3_expert_cut *m = &step->cut;
	struct check *c = &s->check[step->number];

	if (c->known)
		atomic_fetch_add(&c->total,
				 k3_expert_sum(step->role, b->row, b->rows, m->code_bytes, b->data) +
				 k3_expert_sum(step->role + 1, b->row, b->rows, m->scale_bytes,
					       b->scale));
	if (atomic_fetch_sub(&c->blocks, 1) > 1 || !c->known ||
	    k3_sum_stored(c->total) == c->want)
		return 0;
	c->blocks = 1;	/* it never came */
	return k3_fail(err, K3_EDATA, "%s: layer %" PRIu32 " expert %" PRIu32
		       " differs from its sum in the index", k3_index_directory(s->ix),
		       step->section, step->expert);
}

static int expert_block(struct k3_weights *s, struct hand *h, uint64_t i, struct k3_block *b,
			struct k3_err *err)
{
	const struct k3_step *step = &h->step;
	const struct k3_expert_cut *m = &step->cut;
	struct k3_entry scales, codes;
	uint64_t first, n;
	int rc = get(s, h, 0, &scales, err);

	if (!rc)
		rc = get(s, h, 1 + i, &codes, err);
	if (rc)
		return rc;
	k3_cut_rows(m, i, &b->row, &b->rows);
	first = b->row * m->scale_bytes;
	n = b->rows * m->scale_bytes;
	b->data = codes.data;
	b->scale = scales.data + first;
	atomic_fetch_add(codes.read ? &s->expert_read : &s->expert_kept, codes.bytes + n);
	if (!codes.read)
		return 0;
	if (codes.keep) {
		memcpy(codes.keep, codes.data, codes.bytes);
		memcpy(scales.keep + first, b->scale, n);
	}
	rc = check_scales(s, step, first, b->scale, n, err);
	return rc ? rc : check_sum(s, step, b, err);
}

static int feed_block(struct k3_feed *f, unsigned rank, const struct k3_matrix *m, uint64_t i,
		      struct k3_block *b, struct k3_err *err)
{
	struct k3_weights *s = self(f);
	struct hand *h = &s->hand[rank];

	feed_release(f, rank);
	*b = (struct k3_block){ 0 };
	return m->mxfp4 ? expert_block(s, h, i, b, err) : use_block(s, h, i, b, err);
}

/* Room for so many passings of experts in a layer. */
static int make_room(struct k3_weights *s, uint64_t n, struct k3_err *err)
{
	struct check *check;
	uint32_t *expert;

	if (n <= s->room)
		return 0;
	if (n > UINT32_MAX)
		return k3_fail_nomem(err);
	check = k3_reallocarray(s->check, n, sizeof *check);
	if (check)
		s->check = check;
	expert = k3_reallocarray(s->route.expert, n, sizeof *expert);
	if (expert)
		s->route.expert = expert;
	if (!check || !expert)
		return k3_fail_nomem(err);
	s->room = (uint32_t)n;
	return 0;
}

/* An expert passes once for each group of its tokens, and is checked each time. */
static int feed_experts(struct k3_feed *f, uint32_t layer, const uint64_t *first, uint64_t group,
			struct k3_err *err)
{
	struct k3_weights *s = self(f);
	struct k3_route *r = &s->route;
	uint32_t all = s->config->experts;
	uint64_t blocks = 2 * k3_expert_cut(s->config, K3_W1, r->block_rows).blocks +
			  k3_expert_cut(s->config, K3_W2, r->block_rows).blocks;
	int rc;

	k3_reader_lock(s->reader);
	r->experts = 0;
	rc = make_room(s, all + first[all] / group, err);
	for (uint32_t e = 0; !rc && e < all; e++)
		for (uint64_t from = first[e]; from < first[e + 1]; from += group) {
			struct check *c = &s->check[r->experts];

			c->total = 0;
			c->blocks = blocks;
			c->known = k3_index_sum(s->ix, layer, e, &c->want);
			r->expert[r->experts++] = e;
		}
	if (!rc) {
		k3_hoard_stop(s->hoard);
		k3_expert_cache_visit(s->cache, layer, first);
		r->experts_layer = layer;
		k3_reader_known(s->reader);
	}
	k3_reader_unlock(s->reader);
	return rc;
}

static int feed_expect(struct k3_feed *f, uint32_t layer, const uint32_t *expert, uint64_t n,
		       struct k3_err *err)
{
	struct k3_weights *s = self(f);
	int rc = 0;

	k3_reader_lock(s->reader);
	for (uint64_t i = 0; !rc && i < n; i++)
		if (!k3_expert_cache_has(s->cache, layer, expert[i]))
			rc = k3_hoard_expect(s->hoard, layer, expert[i], err);
	k3_reader_known(s->reader);
	k3_reader_unlock(s->reader);
	return rc;
}

/* ---- vectors and rows ---- */

static void widen(enum k3_dtype dtype, const unsigned char *raw, uint64_t bytes, float *out)
{
	if (dtype == K3_F32)
		memcpy(out, raw, bytes);
	else
		k3_kernels()->widen_bf16(raw, bytes / 2, out);
}

static int feed_vector(struct k3_feed *f, enum k3_role role, uint32_t layer, float *out,
		       struct k3_err *err)
{
	struct k3_weights *s = self(f);
	struct hand *h = &s->hand[0];
	struct k3_tensor t;
	struct k3_entry e;
	int rc = go(s, h, role, layer, 0, err);

	if (!rc)
		rc = trunk_block(s, h, 0, &e, err);
	if (!rc) {
		k3_role_describe(s->config, role, layer, 0, &t);
		widen(t.dtype, e.data, t.bytes, out);
	}
	feed_release(f, 0);
	return rc;
}

static int feed_row(struct k3_feed *f, enum k3_role role, uint64_t row, float *out,
		    struct k3_err *err)
{
	struct k3_weights *s = self(f);
	struct k3_place p;
	struct k3_tensor t;
	uint64_t from, n, want, since = k3_nanoseconds();
	int rc = k3_source_row(s->source, role, row, &p, err);

	if (rc)
		return rc;
	from = k3_direct_down(p.offset);
	n = k3_direct_up(p.offset + p.bytes) - from;
	if (n > s->row_size) {
		free(s->row);
		s->row_size = 0;
		s->row = aligned_alloc(K3_DIRECT, n + K3_DIRECT);
		if (!s->row)
			return k3_fail_nomem(err);
		s->row_size = n + K3_DIRECT;
	}
	rc = k3_direct_read(p.file, s->row, n, from, p.offset + p.bytes - from, err);
	s->rows_read += n;
	s->rows_waited += k3_nanoseconds() - since;
	if (!rc && role == K3_EMBED && k3_index_row_sum(s->ix, row, &want) &&
	    k3_embedding_sum(row, p.bytes, s->row + (p.offset - from)) != want)
		rc = k3_fail(err, K3_EDATA, "%s: row %" PRIu64 " of the embedding differs from its sum in "
			     "the index", k3_index_directory(s->ix), row);
	if (!rc) {
		k3_role_describe(s->config, role, 0, 0, &t);
		widen(t.dtype, s->row + (p.offset - from), p.bytes, out);
	}
	return rc;
}

static const struct k3_feed_ops ops = { feed_matrix, feed_block, feed_release, feed_expect,
					feed_experts, feed_vector, feed_row };

/* ---- making one ---- */

/* The scales of an expert's matrix, or the codes of a block: whichever is more. */
static uint64_t expert_entry(const struct k3_config *c, enum k3_role role, uint64_t block_rows)
{
	struct k3_expert_cut m = k3_expert_cut(c, role, block_rows);
	uint64_t rows = m.block_rows < m.rows ? m.block_rows : m.rows;

	return k3_max(m.rows * m.scale_bytes, rows * m.code_bytes);
}

/* The most that an entry can have. */
static uint64_t largest_entry(const struct k3_config *c, uint64_t block_rows)
{
	uint64_t entry = k3_max(expert_entry(c, K3_W1, block_rows),
				expert_entry(c, K3_W2, block_rows));
	struct k3_order order;

	for (uint32_t layer = 0; layer <= c->layers; layer++) {
		k3_order_init(c, layer, block_rows, &order);
		for (uint32_t i = 0; i < order.uses; i++) {
			const struct k3_use *u = &order.use[i];
			uint64_t rows = u->block_rows < u->rows ? u->block_rows : u->rows;

			/* a coded block is at most a little larger than its rows */
			entry = k3_max(entry, u->vector ? u->bytes : k3_code_bound(rows, u->cols));
		}
	}
	return entry;
}

struct k3_reader_options k3_weights_buffers(const struct k3_config *c,
					    const struct k3_weights_options *o)
{
	struct k3_reader_options ro = {
		.buffer = k3_reader_buffer(o->request, largest_entry(c, o->block_rows)),
		.request = o->request, .depth = o->depth,
	};

	ro.buffers = (unsigned)k3_max(o->ring / ro.buffer, k3_reader_least(o->workers));
	/* what has been read is to be used while other buffers are read into */
	ro.depth = (unsigned)k3_min(ro.depth, ro.buffers - 2);
	return ro;
}

static struct k3_hoard_cost hoard_cost(const struct k3_weights *s)
{
	const struct k3_config *c = s->config;
	struct k3_hoard_cost cost = { .least = k3_hoard_least(c), .all = k3_hoard_all(c) };

	for (uint32_t i = c->dense_layers; i < c->layers; i++) {
		uint64_t bytes = k3_source_section(s->source, i);

		cost.section += bytes / (c->layers - c->dense_layers);
		cost.retain = k3_max(cost.retain, bytes);
	}
	/* of a new layer the first blocks come before the last ones of the old one go */
	cost.retain = k3_retain_bytes(k3_source_blocks(s->source), cost.retain + cost.retain / 8);
	return cost;
}

static int make_parts(struct k3_weights *s, struct k3_trunk *trunk,
		      const struct k3_weights_options *o, struct k3_err *err)
{
	struct k3_reader_options ro = k3_weights_buffers(s->config, o);
	int rc = k3_source_new(s->ix, trunk, o->block_rows, &s->source, err);

	if (!rc)
		rc = k3_pins_new(k3_source_blocks(s->source), o->trunk_bytes,
				 o->memory, &s->pins, err);
	if (!rc)
		rc = k3_retain_new(k3_source_blocks(s->source), &s->retain, err);
	if (!rc)
		rc = k3_hoard_new(s->config, s->source, o->request, &s->hoard, err);
	if (!rc)
		rc = k3_expert_cache_new(s->config, o->memory - k3_pins_most(s->pins),
					 &s->cache, err);
	ro.hoard = s->hoard;
	ro.find = find;
	ro.ctx = s;
	if (!rc)
		rc = k3_reader_new(s->source, &ro, &s->reader, err);
	return rc;
}

int k3_weights_new(const struct k3_index *ix, struct k3_trunk *trunk,
		  const struct k3_weights_options *o, struct k3_weights **out, struct k3_err *err)
{
	struct k3_weights *s = calloc(1, sizeof *s);
	int rc;

	*out = NULL;
	if (!s) {
		k3_trunk_close(trunk);
		return k3_fail_nomem(err);
	}
	s->base.ops = &ops;
	s->ix = ix;
	s->config = k3_index_config(ix);
	s->workers = o->workers;
	s->route = (struct k3_route){ .config = s->config, .experts_layer = UINT32_MAX,
				      .block_rows = o->block_rows };
	rc = make_parts(s, trunk, o, err);
	if (!rc)
		s->cost = hoard_cost(s);
	s->hand = k3_calloc(o->workers, sizeof *s->hand);
	if (!rc && !s->hand)
		rc = k3_fail_nomem(err);
	if (!rc)
		rc = make_room(s, s->config->experts, err);
	if (rc)
		k3_weights_free(s);
	else
		*out = s;
	return rc;
}

void k3_weights_free(struct k3_weights *s)
{
	if (!s)
		return;
	k3_reader_free(s->reader);
	k3_expert_cache_free(s->cache);
	k3_hoard_free(s->hoard);
	k3_retain_free(s->retain);
	k3_pins_free(s->pins);
	k3_source_free(s->source);
	for (unsigned i = 0; s->hand && i < s->workers; i++)
		free(s->hand[i].plain);
	free(s->hand);
	free(s->check);
	free(s->route.expert);
	free(s->row);
	free(s);
}

struct k3_feed *k3_weights_feed(struct k3_weights *s)
{
	return &s->base;
}

uint64_t k3_weights_most(const struct k3_weights *s)
{
	return k3_pins_most(s->pins) + s->config->experts * k3_expert_cache_unit(s->config);
}

const struct k3_hoard_cost *k3_weights_hoard_cost(const struct k3_weights *s)
{
	return &s->cost;
}

int k3_weights_keep(struct k3_weights *s, uint64_t bytes, uint64_t hoard, struct k3_err *err)
{
	int rc = k3_retain_size(s->retain, hoard ? s->cost.retain : 0, err);

	s->retains = hoard;
	if (!rc)
		rc = k3_hoard_size(s->hoard, hoard, err);
	k3_pins_limit(s->pins, bytes);
	bytes -= bytes < k3_pins_most(s->pins) ? bytes : k3_pins_most(s->pins);
	k3_expert_cache_limit(s->cache, bytes);
	return rc;
}

void k3_weights_begin(struct k3_weights *s, uint32_t from, uint32_t until, const uint32_t *tiles)
{
	s->route.from = from;
	s->route.until = until;
	s->route.tiles = tiles;
	s->route.experts_layer = UINT32_MAX;
	k3_retain_clear(s->retain);
	k3_hoard_clear(s->hoard);
	for (unsigned i = 0; i < s->workers; i++) {
		k3_walk_begin(&s->hand[i].walk, &s->route);
		s->hand[i].holds = 0;
		s->hand[i].drops = false;
	}
	k3_reader_begin(s->reader, &s->route);
}

void k3_weights_end(struct k3_weights *s)
{
	k3_reader_end(s->reader);
	k3_pins_clean(s->pins);
	for (uint32_t i = 0; s->route.experts_layer != UINT32_MAX && i < s->route.experts; i++)
		if (s->check[i].blocks)
			k3_expert_cache_forget(s->cache, s->route.expert[i]);
}

void k3_weights_count(const struct k3_weights *s, struct k3_engine_counts *out)
{
	struct k3_reader_counts r;

	k3_reader_count(s->reader, &r);
	*out = (struct k3_engine_counts){
		.trunk_bytes = s->trunk_read, .trunk_kept = s->trunk_kept,
		.expert_bytes = s->expert_read, .expert_kept = s->expert_kept,
		.disk_bytes = r.bytes + s->rows_read,
		.waited = r.waited + (double)s->rows_waited * 1e-9 * s->workers,
	};
}

const char *k3_weights_refused(struct k3_weights *s)
{
	return k3_source_refused(s->source);
}
