/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mla.c - multi-head latent attention.  A position keeps kv_rank + rope values for all
 * heads together; keys and values are never expanded.  The query is taken into the
 * latent space instead (absorbed), and the context out of it.
 */
#include "model/mla.h"
#include "model/norm.h"
#include "model/product.h"

#include <math.h>
#include <string.h>

static const float *latent(float *const *page, uint64_t s, uint64_t width)
{
	return page[s / K3_PAGE] + s % K3_PAGE * width;
}

/* Largest score, then exp of the distance to it; the sum in 16 lanes by position (N8). */
static float softmax(const struct k3_kernels *math, float *score, uint64_t n)
{
	float lane[16] = { 0 }, largest = score[0];

	for (uint64_t s = 1; s < n; s++)
		largest = score[s] > largest ? score[s] : largest;
	for (uint64_t s = 0; s < n; s++)
		score[s] -= largest;
	math->exp(score, n, score);
	for (uint64_t s = 0; s < n; s++)
		lane[s % 16] += score[s];
	for (int half = 8; half; half /= 2)
		for (int j = 0; j < half; j++)
			lane[j] += lane[j + half];
	return lane[0];
}

void k3_mla_head(const struct k3_pass *p, const unsigned char *block, const float *q,
		 float *const *page, uint64_t position, float *scratch, float *out)
{
	const struct k3_config *c = p->config;
	const struct k3_kernels *math = p->math;
	uint64_t rank = c->kv_rank, width = rank + c->rope, n = position + 1;
	float *absorbed = scratch, *context = absorbed + rank, *score = context + rank;
	float scale = (float)(1 / sqrt((double)(c->nope + c->rope))), sum;
	const float *query = absorbed;

	memset(absorbed, 0, rank * sizeof *absorbed);
	for (uint64_t r = 0; r < c->nope; r++)
		math->axpy_bf16(q[r], block + r * rank * 2, rank, absorbed);
	for (uint64_t s = 0; s < n; s++) {
		const float *l = latent(page, s, width);

		score[s] = (math->dot(absorbed, l, rank) +
			    math->dot(q + c->nope, l + rank, c->rope)) * scale;
	}
	sum = softmax(math, score, n);
	memset(context, 0, rank * sizeof *context);
	for (uint64_t s = 0; s < n; s++)
		math->axpy(score[s], latent(page, s, width), rank, context);
	for (uint64_t i = 0; i < rank; i++)
		context[i] /= sum;
	query = context;
	math->rows_bf16(block + (uint64_t)c->nope * rank * 2, c->v_dim, rank, &query, 1, &out);
}

/* Norms of the query latents, and each position's latent and rope key into its page. */
static void norm_and_append(struct k3_worker *w, const struct k3_pass *p,
			    const struct k3_segment *segment, uint64_t segments)
{
	const struct k3_config *c = p->config;
	const struct k3_tile *t = p->tile;
	uint64_t rank = c->kv_rank, width = rank + c->rope, i;
	uint32_t loop = k3_loop(w);

	while (k3_loop_next(w, loop, segments, &i)) {
		const struct k3_segment *s = &segment[i];

		for (uint64_t k = 0; k < s->count; k++) {
			uint64_t row = s->first + k, at = s->position + k;
			float *qa = t->qa.at[row], *kva = t->kva.at[row];
			float *to = s->slice.page[at / K3_PAGE] + at % K3_PAGE * width;

			k3_rms(p->math, qa, p->vectors->qa_norm, c->q_rank, K3_LATENT_EPS, qa);
			k3_rms(p->math, kva, p->vectors->kva_norm, rank, K3_LATENT_EPS, to);
			memcpy(to + rank, kva + rank, c->rope * sizeof(float));
		}
	}
}

/* One head, all tokens: o * sigmoid(gate), which replaces the gate. */
static void head(const struct k3_pass *p, uint64_t h, const unsigned char *block,
		 const struct k3_segment *segment, uint64_t segments, float *scratch)
{
	const struct k3_config *c = p->config;
	const struct k3_tile *t = p->tile;
	float *out = scratch, *gate = out + c->v_dim, *rest = gate + c->v_dim;

	for (const struct k3_segment *s = segment; s < segment + segments; s++)
		for (uint64_t k = 0; k < s->count; k++) {
			uint64_t row = s->first + k;
			const float *q = t->q.at[row] + h * (c->nope + c->rope);
			float *g = t->g.at[row] + h * c->v_dim;

			k3_mla_head(p, block, q, s->slice.page, s->position + k, rest, out);
			p->math->sigmoid(g, c->v_dim, gate);
			for (uint64_t d = 0; d < c->v_dim; d++)
				g[d] = out[d] * gate[d];
		}
}

/* The blocks of kv_b are one head each: the head is the piece of work. */
static void heads(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		  const struct k3_segment *segment, uint64_t segments)
{
	struct k3_matrix m = { 0 };
	struct k3_block b;
	struct k3_err err;
	uint32_t loop = k3_loop(w);
	uint64_t h;
	int rc = p->feed->ops->matrix(p->feed, K3_MLA_KVB, layer, 0, &m, &err);

	while (!rc && k3_loop_next(w, loop, m.blocks, &h)) {
		rc = p->feed->ops->block(p->feed, w->rank, &m, h, &b, &err);
		if (!rc)
			head(p, h, b.data, segment, segments, p->scratch[w->rank]);
	}
	if (rc)
		k3_worker_fail(w, rc, &err);
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
	heads(w, p, layer, segment, segments);
	if (!k3_barrier(w))
		return;
	k3_product(w, p, K3_OUT, layer, 0, t->g.at, n, t->y.at);
}
