/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c - pieces handed out in order, and their rows read. */
#include "engine/pieces.h"
#include "data/index.h"
#include "math/code.h"
#include "sys/direct.h"
#include "sys/small.h"
#include "sys/team.h"

#include <k3/buf.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

/* The rows of a piece lie within so many bytes, unless a single block has more. */
enum { SPAN = 2 << 20 };

struct k3_pieces {
	const struct k3_index *ix;
	const struct k3_config *config;
	struct k3_pack_options options;
	unsigned threads;
	struct k3_piece_most most;
	uint64_t span;			/* of the largest piece */
	uint64_t total;			/* bytes of all tensors */
	k3_piece_fn *fn;
	void *arg;
	size_t room;

	pthread_mutex_t lock;		/* of all below */
	pthread_cond_t turned;
	struct k3_order order;		/* where the next piece comes from */
	uint32_t use;
	uint64_t block;
	uint64_t number;
	uint64_t turn;			/* the piece whose turn it is */
	uint64_t failed;		/* the lowest piece that failed, or UINT64_MAX */
	uint64_t done;			/* bytes */
};

/* A thread at work. */
struct walker {
	struct k3_pieces *walk;
	struct k3_order order;		/* of the piece's section */
	struct k3_direct shard;		/* open if it is the one with the path */
	unsigned char *in, *room;
	size_t in_size;
};

const unsigned char *k3_piece_block(const struct k3_piece *p, uint64_t i, uint64_t *bytes)
{
	return p->rows + (k3_use_place(p->config, p->use, i, bytes) - p->at);
}

/* How many blocks from `first` on lie within SPAN bytes, and how many bytes that is. */
static uint64_t reach(const struct k3_config *c, const struct k3_use *u, uint64_t first,
		      uint64_t *span)
{
	uint64_t bytes, begin = k3_use_place(c, u, first, span), n = 1;

	for (; first + n < u->blocks; n++) {
		uint64_t end = k3_use_place(c, u, first + n, &bytes) + bytes - begin;

		if (end > SPAN)
			break;
		*span = end;
	}
	return n;
}

/* ---- what there is ---- */

/* Every byte of a code and of a directory is counted in 32 bits. */
static int check_use(const struct k3_pieces *w, const struct k3_order *o, const struct k3_use *u,
		     struct k3_err *err)
{
	struct k3_tensor t;
	char name[256];
	uint64_t bytes;
	int rc = k3_index_tensor(w->ix, u->role, k3_section_layer(w->config, o->layer), 0, &t, err);

	if (rc)
		return rc;
	k3_use_place(w->config, u, 0, &bytes);
	if (u->vector ? bytes <= UINT32_MAX : k3_code_bound(u->block_rows, u->cols) != 0)
		return 0;
	k3_role_name(u->role, t.layer, 0, name, sizeof name);
	return k3_fail(err, K3_EDATA, "%s: %" PRIu64 " columns are too many for a block", name,
		       u->cols);
}

static void measure(struct k3_pieces *w, const struct k3_use *u)
{
	uint64_t span, bytes, sum;

	for (uint64_t i = 0, n; i < u->blocks; i += n) {
		n = reach(w->config, u, i, &span);
		sum = 0;
		for (uint64_t k = i; k < i + n; k++) {
			k3_use_place(w->config, u, k, &bytes);
			sum += bytes;
			w->most.block = k3_max(w->most.block, bytes);
		}
		w->total += sum;
		w->most.blocks = k3_max(w->most.blocks, n);
		w->most.bytes = k3_max(w->most.bytes, sum);
		w->span = k3_max(w->span, span);
	}
}

static int prepare(struct k3_pieces *w, struct k3_err *err)
{
	struct k3_order o;
	int rc = 0;

	for (uint32_t i = 0; i < k3_index_shards(w->ix); i++)
		if (k3_index_shard_missing(w->ix, i))
			return k3_fail(err, K3_EDATA, "%s: this shard is missing",
				       k3_index_shard_path(w->ix, i));
	for (uint32_t i = 0; i <= w->config->layers; i++) {
		k3_order_init(w->config, i, 0, &o);
		for (uint32_t k = 0; !rc && k < o.uses; k++) {
			rc = check_use(w, &o, &o.use[k], err);
			measure(w, &o.use[k]);
		}
	}
	return rc;
}

int k3_pieces_new(const struct k3_index *ix, const struct k3_pack_options *options,
		struct k3_pieces **out, struct k3_err *err)
{
	struct k3_pieces *w = k3_calloc(1, sizeof *w);
	int rc;

	*out = NULL;
	if (!w)
		return k3_fail_nomem(err);
	w->ix = ix;
	w->config = k3_index_config(ix);
	w->options = *options;
	w->threads = options->threads ? options->threads : 2 * k3_processors();
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->turned, NULL);
	rc = prepare(w, err);
	if (rc)
		k3_pieces_free(w);
	else
		*out = w;
	return rc;
}

void k3_pieces_free(struct k3_pieces *w)
{
	if (!w)
		return;
	pthread_cond_destroy(&w->turned);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

struct k3_piece_most k3_pieces_most(const struct k3_pieces *w)
{
	return w->most;
}

/* ---- handing out ---- */

/* The next piece of all; false if there is none, or one has failed. */
static bool take(struct walker *r, struct k3_piece *p)
{
	struct k3_pieces *w = r->walk;
	bool more;
	uint64_t span;

	pthread_mutex_lock(&w->lock);
	if (w->use == w->order.uses && w->order.layer < w->config->layers) {
		k3_order_init(w->config, w->order.layer + 1, 0, &w->order);
		w->use = 0;
	}
	more = w->failed == UINT64_MAX && w->use < w->order.uses;
	if (more) {
		if (r->order.layer != w->order.layer)
			r->order = w->order;
		*p = (struct k3_piece){ .number = w->number++, .config = w->config, .order = &r->order,
					.use = &r->order.use[w->use], .first = w->block };
		p->blocks = reach(w->config, p->use, p->first, &span);
		w->block += p->blocks;
		if (w->block == p->use->blocks) {
			w->use++;
			w->block = 0;
		}
	}
	pthread_mutex_unlock(&w->lock);
	return more;
}

bool k3_pieces_turn(struct k3_pieces *w, const struct k3_piece *p)
{
	bool mine;

	pthread_mutex_lock(&w->lock);
	while (w->turn != p->number && w->failed > p->number)
		pthread_cond_wait(&w->turned, &w->lock);
	mine = w->turn == p->number;
	pthread_mutex_unlock(&w->lock);
	return mine;
}

void k3_pieces_pass(struct k3_pieces *w)
{
	pthread_mutex_lock(&w->lock);
	w->turn++;
	pthread_cond_broadcast(&w->turned);
	pthread_mutex_unlock(&w->lock);
}

static void fail(struct k3_worker *worker, struct k3_pieces *w, const struct k3_piece *p, int status,
		 const struct k3_err *err)
{
	pthread_mutex_lock(&w->lock);
	if (p->number < w->failed)
		w->failed = p->number;
	pthread_cond_broadcast(&w->turned);
	pthread_mutex_unlock(&w->lock);
	k3_worker_fail_at(worker, p->number, status, err);
}

static int report(struct k3_pieces *w, const struct k3_piece *p, struct k3_err *err)
{
	uint64_t bytes;
	bool go_on = true;

	pthread_mutex_lock(&w->lock);
	for (uint64_t i = 0; i < p->blocks; i++) {
		k3_use_place(w->config, p->use, p->first + i, &bytes);
		w->done += bytes;
	}
	if (w->options.progress)
		go_on = w->options.progress(w->options.arg, w->done, w->total);
	pthread_mutex_unlock(&w->lock);
	return go_on ? 0 : k3_fail(err, K3_EIO, "interrupted");
}

/* ---- a thread ---- */

/* Shards change seldom, so that one of them is open at a time. */
static int open_shard(struct walker *r, const struct k3_piece *p, struct k3_err *err)
{
	if (r->shard.fd >= 0 && r->shard.path == p->shard)
		return 0;
	k3_direct_close(&r->shard);
	return k3_index_shard_direct(r->walk->ix, p->tensor.shard, &r->shard, err);
}

static int read_rows(struct walker *r, struct k3_piece *p, struct k3_err *err)
{
	const struct k3_pieces *w = r->walk;
	uint32_t layer = k3_section_layer(w->config, p->order->layer);
	uint64_t bytes, from, skew, need;
	int rc = k3_index_tensor(w->ix, p->use->role, layer, 0, &p->tensor, err);

	if (rc)
		return rc;
	p->shard = k3_index_shard_path(w->ix, p->tensor.shard);
	p->at = k3_use_place(w->config, p->use, p->first, &bytes);
	need = k3_use_place(w->config, p->use, p->first + p->blocks - 1, &bytes) + bytes - p->at;
	from = k3_direct_down(p->tensor.offset + p->at);
	skew = p->tensor.offset + p->at - from;
	p->rows = r->in + skew;
	rc = open_shard(r, p, err);
	if (rc)
		return rc;
	return k3_direct_read(&r->shard, r->in, k3_direct_up(skew + need), from, skew + need, err);
}

static void pieces(struct k3_worker *worker, struct walker *r)
{
	struct k3_piece p;
	struct k3_err err;
	int rc = 0;

	while (!rc && take(r, &p)) {
		rc = read_rows(r, &p, &err);
		if (!rc)
			rc = r->walk->fn(r->walk->arg, &p, r->room, &err);
		if (!rc)
			rc = report(r->walk, &p, &err);
		if (rc)
			fail(worker, r->walk, &p, rc, &err);
	}
}

static void work(struct k3_worker *worker, void *arg)
{
	struct k3_pieces *w = arg;
	struct walker r = { .walk = w, .order = { .layer = UINT32_MAX }, .shard = { .fd = -1 } };
	struct k3_err err;

	r.in_size = k3_direct_up(w->span + K3_DIRECT);
	r.in = k3_huge_new(r.in_size);
	r.room = k3_huge_new(w->room);
	if (r.in && r.room)
		pieces(worker, &r);
	else
		fail(worker, w, &(struct k3_piece){ .number = 0 }, k3_fail_nomem(&err), &err);
	k3_direct_close(&r.shard);
	k3_huge_free(r.in, r.in_size);
	k3_huge_free(r.room, w->room);
}

int k3_pieces_run(struct k3_pieces *w, k3_piece_fn *fn, void *arg, size_t room, struct k3_err *err)
{
	struct k3_team *team;
	int rc = k3_team_new(w->threads, &team, err);

	if (rc)
		return rc;
	w->fn = fn;
	w->arg = arg;
	w->room = room;
	w->failed = UINT64_MAX;
	k3_order_init(w->config, 0, 0, &w->order);
	rc = k3_team_run(team, work, w, err);
	k3_team_free(team);
	return rc;
}
