/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ffn.c - the feed-forward half of a layer.  The dense MLP, the shared expert
 * and the router see the tokens tile by tile; the routed experts see all tokens of the
 * sweep, so that each expert passes by once.
 */
#include "model/ffn.h"
#include "model/norm.h"
#include "model/product.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Values of one row that a worker takes at a time. */
enum { CHUNK = 1024 };

/* a = situ(a, b) for n rows. */
static void situ_rows(struct k3_worker *w, const struct k3_pass *p, float *const *a,
		      float *const *b, uint64_t n, uint64_t width)
{
	const struct k3_config *c = p->config;
	uint64_t chunks = (width + CHUNK - 1) / CHUNK, i;
	uint32_t loop = k3_loop(w);

	while (k3_loop_next(w, loop, n * chunks, &i)) {
		uint64_t at = i % chunks * CHUNK, k = width - at < CHUNK ? width - at : CHUNK;

		p->math->situ(a[i / chunks] + at, b[i / chunks] + at, k, c->situ_beta,
			      c->situ_linear_beta, a[i / chunks] + at);
	}
}

void k3_dense(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint64_t n)
{
	const struct k3_tile *t = p->tile;

	k3_product(w, p, K3_DENSE_GATE, layer, 0, t->x.at, n, t->gate.at);
	k3_product(w, p, K3_DENSE_UP, layer, 0, t->x.at, n, t->up.at);
	if (!k3_barrier(w))
		return;
	situ_rows(w, p, t->gate.at, t->up.at, n, p->config->dense_width);
	if (!k3_barrier(w))
		return;
	k3_product(w, p, K3_DENSE_DOWN, layer, 0, t->gate.at, n, t->y.at);
}

void k3_choose(const struct k3_config *c, const float *score, const float *bias, uint32_t *id,
	       float *weight)
{
	uint32_t n = 0;
	float sum = 0;

	/* insertion by falling key; a later id comes behind an equal key */
	for (uint32_t e = 0; e < c->experts; e++) {
		float key = score[e] + bias[e];
		uint32_t i = n;

		while (i && key > score[id[i - 1]] + bias[id[i - 1]])
			i--;
		if (i == c->chosen)
			continue;
		if (n < c->chosen)
			n++;
		memmove(id + i + 1, id + i, (n - 1 - i) * sizeof *id);
		id[i] = e;
	}
	/* from here on ascending: experts are summed and combined in that order */
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t j = i; j && id[j - 1] > id[j]; j--) {
			uint32_t swap = id[j];

			id[j] = id[j - 1];
			id[j - 1] = swap;
		}
	for (uint32_t i = 0; i < n; i++)
		sum += score[id[i]];
	for (uint32_t i = 0; i < n; i++)
		weight[i] = score[id[i]] / (sum + 1e-20f) * c->routed_scale;
}

/* The choice of each token of a tile. */
static void choose_rows(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
			const struct k3_token *token, uint64_t first, uint64_t n)
{
	const struct k3_config *c = p->config;
	const float *bias = p->vectors->router_bias;
	uint32_t loop = k3_loop(w);
	struct k3_err err;
	uint64_t t;

	while (k3_loop_next(w, loop, n, &t)) {
		float *score = p->tile->router.at[t];
		uint64_t at = (first + t) * c->chosen;

		for (uint32_t e = 0; e < c->experts; e++)
			if (!isfinite(score[e]) || !isfinite(bias[e])) {
				k3_worker_fail_at(w, t, k3_fail(&err, K3_EDATA, "layer %" PRIu32
						", sequence %" PRIu32 ", position %" PRIu64
						": the router's %s of expert %" PRIu32
						" is not finite", layer, token[t].sequence,
						token[t].position,
						isfinite(score[e]) ? "bias" : "score", e), &err);
				return;
			}
		p->math->sigmoid(score, c->experts, score);
		k3_choose(c, score, bias, p->routed->expert + at, p->routed->weight + at);
	}
}

/* For each expert the list of its users, by counting.  The feed can begin. */
static int gather(const struct k3_pass *p, uint32_t layer, uint64_t n, struct k3_err *err)
{
	const struct k3_config *c = p->config;
	struct k3_routed *r = p->routed;
	uint64_t users = n * c->chosen;

	memset(r->first, 0, (c->experts + 1) * sizeof *r->first);
	for (uint64_t u = 0; u < users; u++)
		r->first[r->expert[u] + 1]++;
	for (uint32_t e = 0; e < c->experts; e++)
		r->first[e + 1] += r->first[e];
	/* placing moves each beginning to its end, which is where the next one began */
	for (uint64_t u = 0; u < users; u++)
		r->user[r->first[r->expert[u]]++] = u;
	memmove(r->first + 1, r->first, c->experts * sizeof *r->first);
	r->first[0] = 0;
	for (uint64_t at = 0; at < users; at++) {
		uint64_t token = r->user[at] / c->chosen;
		uint64_t place = (at - r->first[r->expert[r->user[at]]]) % r->group;
		uint64_t row = r->by_place ? place : token;

		r->user_latent[at] = r->latent[row];
		r->user_sum[at] = r->sum[row];
	}
	return p->feed->ops->experts(p->feed, layer, r->first, r->group, err);
}

/* Worker 0 alone, while the others go on. */
static void tell_experts(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint64_t first,
			 uint64_t n, bool last)
{
	uint64_t chosen = p->config->chosen;
	struct k3_err err;
	int rc = last ? gather(p, layer, first + n, &err)
		      : p->feed->ops->expect(p->feed, layer, p->routed->expert + first * chosen,
					     n * chosen, &err);

	if (rc)
		k3_worker_fail(w, rc, &err);
}

void k3_route_tile(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		   const struct k3_token *token, uint64_t first, uint64_t n, bool last)
{
	const struct k3_tile *t = p->tile;

	k3_product(w, p, K3_ROUTER, layer, 0, t->x.at, n, t->router.at);
	if (!k3_barrier(w))
		return;
	choose_rows(w, p, layer, token, first, n);
	k3_product(w, p, K3_LATENT_DOWN, layer, 0, t->x.at, n, t->latent);
	k3_product(w, p, K3_SHARED_GATE, layer, 0, t->x.at, n, t->gate.at);
	k3_product(w, p, K3_SHARED_UP, layer, 0, t->x.at, n, t->up.at);
	if (!k3_barrier(w))
		return;
	if (w->rank == 0)
		tell_experts(w, p, layer, first, n, last);
	situ_rows(w, p, t->gate.at, t->up.at, n,
		  (uint64_t)p->config->shared * p->config->expert_width);
	if (!k3_barrier(w))
		return;
	k3_product(w, p, K3_SHARED_DOWN, layer, 0, t->gate.at, n, t->shared);
}

/* sum += weight * y, one fused step an element (N9) */
static void add_weighted(const struct k3_combine *self, uint64_t v, uint64_t row, uint64_t rows,
			 const float *y)
{
	const struct k3_routed *r = self->pass->routed;
	uint64_t at = self->offset + v;

	self->pass->math->axpy(r->weight[r->user[at]], y, rows, r->user_sum[at] + row);
}

/* routed + shared, in place of shared */
static void add_shared(const struct k3_combine *self, uint64_t v, uint64_t row, uint64_t rows,
		       const float *y)
{
	float *s = self->pass->tile->shared[v] + row;

	for (uint64_t i = 0; i < rows; i++)
		s[i] = y[i] + s[i];
}

/* Of the users first .. first + n - 1 those of a token that has had no expert yet. */
static void begin_sums(struct k3_worker *w, const struct k3_pass *p, uint64_t first, uint64_t n)
{
	const struct k3_routed *r = p->routed;
	uint32_t loop = k3_loop(w);
	uint64_t i;

	while (k3_loop_next(w, loop, n, &i))
		if (r->user[first + i] % p->config->chosen == 0)
			memset(r->user_sum[first + i], 0, p->config->latent * sizeof(float));
}

/*
 * An expert for some of its users.  The next one may write its half of h1 and h3 while a slower
 * worker still reads this one's; the barrier in between keeps the one after it away.
 */
static bool expert(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint32_t e,
		   uint64_t first, uint64_t n, uint64_t half)
{
	struct k3_routed *r = p->routed;
	struct k3_combine sum = { add_weighted, p, first };
	float **h1 = r->h1.at + half * r->group, **h3 = r->h3.at + half * r->group;

	begin_sums(w, p, first, n);
	k3_product(w, p, K3_W1, layer, e, r->user_latent + first, n, h1);
	k3_product(w, p, K3_W3, layer, e, r->user_latent + first, n, h3);
	if (!k3_barrier(w))
		return false;
	situ_rows(w, p, h1, h3, n, p->config->expert_width);
	if (!k3_barrier(w))
		return false;
	k3_product_into(w, p, K3_W2, layer, e, h1, n, &sum);
	return true;
}

void k3_experts(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		const struct k3_users *users)
{
	const struct k3_routed *r = p->routed;
	uint64_t half = 0;

	for (uint32_t e = 0; e < p->config->experts; e++) {
		uint64_t end = r->first[e + 1];

		for (uint64_t at = r->first[e], n; at < end; at += n, half = !half) {
			n = end - at < r->group ? end - at : r->group;
			if (users && !users->bring(w, users->ctx, at, n))
				return;
			if (!expert(w, p, layer, e, at, n, half))
				return;
			if (users && !users->take(w, users->ctx, at, n))
				return;
		}
	}
}

void k3_latent_out(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint64_t n)
{
	struct k3_combine out = { add_shared, p, 0 };
	float **sum = p->tile->sum;
	uint32_t loop = k3_loop(w);
	uint64_t t;

	while (k3_loop_next(w, loop, n, &t))
		k3_rms(p->math, sum[t], p->vectors->latent_norm, p->config->latent, p->config->eps,
		       sum[t]);
	if (!k3_barrier(w))
		return;
	k3_product_into(w, p, K3_LATENT_UP, layer, 0, sum, n, &out);
}
