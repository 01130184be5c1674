/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mla.c - multi-head latent attention.  A position keeps kv_rank + rope values for all
 * heads together; keys and values are never expanded.  The queries are taken into the
 * latent space instead (absorbed), and the contexts out of it: the key rows and the value
 * rows of a head are used at different times, with all positions in between.
 */
#include "model/mla.h"
#include "model/norm.h"
#include "model/product.h"

#include <math.h>
#include <string.h>

/* Weights of n positions, not yet divided by their sum, which is taken in lanes by position (N8). */
static float softmax(const struct k3_kernels *math, float *score, uint64_t n)
{
	float lane[K3_LANES] = { 0 };

	k3_exp_below_largest(math, score, n);
	for (uint64_t s = 0; s < n; s++)
		lane[s % K3_LANES] += score[s];
	return k3_fold_lanes(lane);
}

float *k3_mla_position(const struct k3_config *c, const struct k3_slice *slice, uint64_t position)
{
	uint64_t width = (uint64_t)c->kv_rank + c->rope;

	return slice->page[position / K3_PAGE] + position % K3_PAGE * width;
}

void k3_mla_absorb(const struct k3_pass *p, const unsigned char *key_rows, const float *q,
		   float *out)
{
	uint64_t rank = p->config->kv_rank;

	memset(out, 0, rank * sizeof *out);
	for (uint64_t r = 0; r < p->config->nope; r++)
		p->math->axpy_bf16(q[r], key_rows + r * rank * 2, rank, out);
}

/* (DOT over the latent + DOT over the rope slots) * scale, for n positions; score[v] is a row. */
static void scores(const struct k3_pass *p, float *const *latent, const float *const *rope,
		   uint64_t heads, float *const *page, uint64_t n, float *const *score,
		   float *rope_score)
{
	const struct k3_config *c = p->config;
	uint64_t rank = c->kv_rank, width = rank + c->rope;
	float scale = (float)(1 / sqrt((double)(c->nope + c->rope)));
	float *to[K3_MLA_GROUP], *second[K3_MLA_GROUP];

	for (uint64_t first = 0; first < n; first += K3_PAGE) {
		const float *rows = page[first / K3_PAGE];
		uint64_t count = n - first < K3_PAGE ? n - first : K3_PAGE;

		for (uint64_t v = 0; v < heads; v++) {
			to[v] = score[v] + first;
			second[v] = rope_score + v * K3_PAGE;
		}
		p->math->rows_f32(rows, width, count, rank, (const float *const *)latent, heads, to);
		p->math->rows_f32(rows + rank, width, count, c->rope, rope, heads, second);
		for (uint64_t v = 0; v < heads; v++)
			for (uint64_t s = 0; s < count; s++)
				to[v][s] = (to[v][s] + second[v][s]) * scale;
	}
}

void k3_mla_attend(const struct k3_pass *p, float *const *latent, const float *const *rope,
		   uint64_t heads, float *const *page, uint64_t position, float *scratch)
{
	uint64_t rank = p->config->kv_rank, width = rank + p->config->rope, n = position + 1;
	float *score[K3_MLA_GROUP], sum[K3_MLA_GROUP];
	const float *weight[K3_MLA_GROUP];

	for (uint64_t v = 0; v < heads; v++)
		score[v] = scratch + v * n;
	scores(p, latent, rope, heads, page, n, score, scratch + heads * n);
	for (uint64_t v = 0; v < heads; v++) {
		sum[v] = softmax(p->math, score[v], n);
		memset(latent[v], 0, rank * sizeof(float));
	}
	for (uint64_t first = 0; first < n; first += K3_PAGE) {
		for (uint64_t v = 0; v < heads; v++)
			weight[v] = score[v] + first;
		p->math->weighted_rows(page[first / K3_PAGE], width,
				       n - first < K3_PAGE ? n - first : K3_PAGE, rank, weight, heads,
				       latent);
	}
	for (uint64_t v = 0; v < heads; v++)
		for (uint64_t i = 0; i < rank; i++)
			latent[v][i] /= sum[v];
}

/* Norms of the query latents, and each position's latent and rope key into its page. */
static void norm_and_append(struct k3_worker *w, const struct k3_pass *p,
			    const struct k3_segment *segment, uint64_t segments)
{
	const struct k3_config *c = p->config;
	const struct k3_tile *t = p->tile;
	uint64_t rank = c->kv_rank, i;
	uint32_t loop = k3_loop(w);

	while (k3_loop_next(w, loop, segments, &i)) {
		const struct k3_segment *s = &segment[i];

		for (uint64_t k = 0; k < s->count; k++) {
			uint64_t row = s->first + k, at = s->position + k;
			float *qa = t->qa.at[row], *kva = t->kva.at[row];
			float *to = k3_mla_position(c, &s->slice, at);

			k3_rms(p->math, qa, p->vectors->qa_norm, c->q_rank, K3_LATENT_EPS, qa);
			k3_rms(p->math, kva, p->vectors->kva_norm, rank, K3_LATENT_EPS, to);
			memcpy(to + rank, kva + rank, c->rope * sizeof(float));
		}
	}
}

/* A walk over the blocks of kv_b of one kind: part 0 the key rows of each head, 1 its value rows. */
static void each_head(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint32_t part,
		      void (*fn)(const struct k3_pass *p, uint64_t head,
				 const struct k3_block *b, uint64_t n, float *scratch),
		      uint64_t n)
{
	struct k3_matrix m = { 0 };
	struct k3_block b;
	struct k3_err err;
	uint32_t loop = k3_loop(w);
	uint64_t h;
	int rc = p->feed->ops->matrix(p->feed, w->rank, K3_MLA_KVB, layer, part, &m, &err);

	while (!rc && k3_loop_next(w, loop, m.blocks, &h)) {
		rc = p->feed->ops->block(p->feed, w->rank, &m, h, &b, &err);
		if (!rc)
			fn(p, h, &b, n, p->scratch[w->rank]);
	}
	p->feed->ops->release(p->feed, w->rank);
	if (rc)
		k3_worker_fail(w, rc, &err);
}

static void absorb(const struct k3_pass *p, uint64_t head, const struct k3_block *b, uint64_t n,
		   float *scratch)
{
	const struct k3_config *c = p->config;

	(void)scratch;
	for (uint64_t t = 0; t < n; t++)
		k3_mla_absorb(p, b->data, p->tile->q.at[t] + head * (c->nope + c->rope),
			      p->tile->latent_q.at[t] + head * c->kv_rank);
}

/* The head's values out of its contexts; o * sigmoid(gate) replaces the gate. */
static void values(const struct k3_pass *p, uint64_t head, const struct k3_block *b, uint64_t n,
		   float *scratch)
{
	const struct k3_config *c = p->config;
	float *out[K3_MLA_GROUP], *gate = scratch + (uint64_t)K3_MLA_GROUP * c->v_dim;
	const float *context[K3_MLA_GROUP];

	for (uint64_t i = 0; i < K3_MLA_GROUP; i++)
		out[i] = scratch + i * c->v_dim;
	for (uint64_t t = 0; t < n; t += K3_MLA_GROUP) {
		uint64_t k = n - t < K3_MLA_GROUP ? n - t : K3_MLA_GROUP;

		for (uint64_t i = 0; i < k; i++)
			context[i] = p->tile->latent_q.at[t + i] + head * c->kv_rank;
		if (b->coded)
			p->math->rows_coded(b->coded, 0, c->v_dim, context, k, out);
		else
			p->math->rows_bf16(b->data, c->v_dim, c->kv_rank, context, k, out);
		for (uint64_t i = 0; i < k; i++) {
			float *g = p->tile->g.at[t + i] + head * c->v_dim;

			p->math->sigmoid(g, c->v_dim, gate);
			for (uint64_t d = 0; d < c->v_dim; d++)
				g[d] = out[i][d] * gate[d];
		}
	}
}

/* All tokens of all segments; a group of heads of one token is a piece of work. */
static void attend(struct k3_worker *w, const struct k3_pass *p, const struct k3_segment *segment,
		   uint64_t segments, uint64_t n)
{
	const struct k3_config *c = p->config;
	const struct k3_segment *s = segment, *end = segment + segments;
	uint64_t groups = (c->mla_heads + K3_MLA_GROUP - 1) / K3_MLA_GROUP, i;
	float *latent[K3_MLA_GROUP];
	const float *rope[K3_MLA_GROUP];
	uint32_t loop = k3_loop(w);

	while (k3_loop_next(w, loop, n * groups, &i)) {
		uint64_t t = i / groups, first = i % groups * K3_MLA_GROUP;
		uint64_t heads = c->mla_heads - first < K3_MLA_GROUP ? c->mla_heads - first
								     : K3_MLA_GROUP;

		/* indices come in ascending order, and so do segments */
		while (s < end - 1 && t >= s->first + s->count)
			s++;
		for (uint64_t v = 0; v < heads; v++) {
			latent[v] = p->tile->latent_q.at[t] + (first + v) * c->kv_rank;
			rope[v] = p->tile->q.at[t] + (first + v) * (c->nope + c->rope) + c->nope;
		}
		k3_mla_attend(p, latent, rope, heads, s->slice.page, s->position + t - s->first,
			      p->scratch[w->rank]);
	}
}

void k3_mla(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
	    const struct k3_segment *segment, uint64_t segments, uint64_t n)
{
	const struct k3_tile *t = p->tile;

	k3_product(w, p, K3_MLA_QA, layer, 0, t->x.at, n, t->qa.at);
	k3_product(w, p, K3_MLA_KVA, layer, 0, t->x.at, n, t->kva.at);
	k3_product(w, p, K3_GATE, layer, 0, t->x.at, n, t->g.at);
	if (!k3_barrier(w))
		return;
	norm_and_append(w, p, segment, segments);
	if (!k3_barrier(w))
		return;
	k3_product(w, p, K3_MLA_QB, layer, 0, t->qa.at, n, t->q.at);
	if (!k3_barrier(w))
		return;
	each_head(w, p, layer, 0, absorb, n);
	if (!k3_barrier(w))
		return;
	attend(w, p, segment, segments, n);
	if (!k3_barrier(w))
		return;
	each_head(w, p, layer, 1, values, n);
	if (!k3_barrier(w))
		return;
	k3_product(w, p, K3_OUT, layer, 0, t->g.at, n, t->y.at);
}
