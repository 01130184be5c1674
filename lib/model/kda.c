/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kda.c - Kimi Delta Attention: short convolutions, a decaying associative
 * memory per head, a gated norm.  Heads are independent of each other; the
 * tokens of a sequence go through a head strictly one after the other.
 */
#include "model/kda.h"
#include "model/norm.h"
#include "model/product.h"

#include <math.h>
#include <string.h>

/*
 * c = sum over j of w_j x_(t-W+1+j), then SiLU, for the dim channels of a head
 * (N6).  Inputs before the segment come from history.  weight: [conv][heads * dim].
 */
static void convolve(const struct k3_pass *p, float *const *rows, uint64_t t, uint64_t offset,
		     const float *history, const float *weight, float *out)
{
	uint64_t width = p->config->conv, dim = p->config->kda_dim;
	uint64_t all = (uint64_t)p->config->kda_heads * dim;

	memset(out, 0, dim * sizeof *out);
	for (uint64_t j = 0; j < width; j++) {
		uint64_t back = width - 1 - j;
		const float *x = back <= t ? rows[t - back] + offset
					   : history + (t + width - 1 - back) * all + offset;

		p->math->muladd(weight + j * all + offset, x, dim, out);
	}
	p->math->silu(out, dim, out);
}

/* Keeps the last W - 1 inputs of a head for the next segment. */
static void shift_history(const struct k3_config *c, float *const *rows, uint64_t n,
			  uint64_t offset, float *history)
{
	uint64_t keep = c->conv - 1, all = (uint64_t)c->kda_heads * c->kda_dim;

	for (uint64_t j = 0; j < keep; j++) {
		/* slot j holds input n - keep + j of the segment, counted from its start */
		const float *from = j + n >= keep ? rows[n - keep + j] + offset
						  : history + (j + n) * all + offset;

		memmove(history + j * all + offset, from, c->kda_dim * sizeof(float));
	}
}

/* x_i * (1 / sqrt(DOT(x, x) + 1e-6)) (N4) */
static void l2_norm(const struct k3_kernels *math, float *x, uint64_t n)
{
	float inv = 1.0f / sqrtf(math->dot(x, x, n) + 1e-6f);

	for (uint64_t i = 0; i < n; i++)
		x[i] *= inv;
}

/*
 * alpha = exp(lb * sigmoid(exp(A_log[head]) * (z + dt_bias))): A_log has one
 * value a head, the bias is added before the product.
 */
static void decay(const struct k3_pass *p, uint32_t head, const float *z, float *alpha)
{
	uint64_t dim = p->config->kda_dim;
	const float *bias = p->vectors->dt_bias + head * dim;
	float rate;

	p->math->exp(&p->vectors->a_log[head], 1, &rate);
	for (uint64_t d = 0; d < dim; d++)
		alpha[d] = rate * (z[d] + bias[d]);
	p->math->sigmoid(alpha, dim, alpha);
	for (uint64_t d = 0; d < dim; d++)
		alpha[d] = p->config->decay_bound * alpha[d];
	p->math->exp(alpha, dim, alpha);
}

/* RMS over the head, then times sigmoid(gate) (not SiLU). */
static void gated_norm(const struct k3_pass *p, float *o, const float *gate, float *scratch,
		       float *out)
{
	uint64_t dim = p->config->kda_dim;

	k3_rms(p->math, o, p->vectors->kda_norm, dim, p->config->eps, o);
	p->math->sigmoid(gate, dim, scratch);
	for (uint64_t d = 0; d < dim; d++)
		out[d] = o[d] * scratch[d];
}

void k3_kda_head(const struct k3_pass *p, uint32_t head, const struct k3_kda_rows *rows,
		 uint64_t n, struct k3_slice *slice, float *scratch)
{
	const struct k3_config *c = p->config;
	uint64_t dim = c->kda_dim, offset = head * dim;
	uint64_t all = (uint64_t)c->kda_heads * dim, taps = (uint64_t)(c->conv - 1) * all;
	float *const *input[3] = { rows->q, rows->k, rows->v };
	float *q = scratch, *k = q + dim, *v = k + dim, *alpha = v + dim, *o = alpha + dim;
	float *spare = o + dim, *copy = spare + dim, *to[3] = { q, k, v };
	uint64_t stays = n - rows->drafted;
	float scale = (float)(1 / sqrt((double)dim));
	struct k3_kda_step step = {
		.q = q, .k = k, .v = v, .alpha = alpha, .out = o, .scratch = spare,
		.state = slice->kda + head * dim * dim,
	};

	for (uint64_t t = 0; t < n; t++) {
		if (t == stays)
			step.state = memcpy(copy, step.state, dim * dim * sizeof *copy);
		for (int i = 0; i < 3; i++)
			convolve(p, input[i], t, offset, slice->conv + i * taps,
				 p->vectors->conv[i], to[i]);
		l2_norm(p->math, q, dim);
		l2_norm(p->math, k, dim);
		for (uint64_t d = 0; d < dim; d++)
			q[d] *= scale;
		decay(p, head, rows->z[t] + offset, alpha);
		p->math->sigmoid(&rows->beta[t][head], 1, &step.beta);
		p->math->kda_step(&step, dim);
		gated_norm(p, o, rows->gate[t] + offset, spare, rows->out[t] + offset);
	}
	for (int i = 0; i < 3; i++)
		shift_history(c, input[i], stays, offset, slice->conv + i * taps);
}

/* All heads of all segments: each pair is one piece of work. */
static void heads(struct k3_worker *w, const struct k3_pass *p, const struct k3_segment *segment,
		  uint64_t segments)
{
	const struct k3_tile *t = p->tile;
	uint32_t loop = k3_loop(w);
	uint64_t i, count = segments * p->config->kda_heads;

	while (k3_loop_next(w, loop, count, &i)) {
		const struct k3_segment *s = &segment[i / p->config->kda_heads];
		struct k3_slice slice = s->slice;
		struct k3_kda_rows rows = {
			.q = t->q.at + s->first, .k = t->k.at + s->first, .v = t->v.at + s->first,
			.gate = t->g.at + s->first, .z = t->z.at + s->first,
			.beta = t->beta.at + s->first, .out = t->g.at + s->first,
			.drafted = s->drafted,
		};

		k3_kda_head(p, (uint32_t)(i % p->config->kda_heads), &rows, s->count, &slice,
			    p->scratch[w->rank]);
	}
}

void k3_kda(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
	    const struct k3_segment *segment, uint64_t segments, uint64_t n)
{
	const struct k3_tile *t = p->tile;

	k3_product(w, p, K3_KDA_FA, layer, 0, t->x.at, n, t->fa.at);
	k3_product(w, p, K3_KDA_Q, layer, 0, t->x.at, n, t->q.at);
	k3_product(w, p, K3_KDA_K, layer, 0, t->x.at, n, t->k.at);
	k3_product(w, p, K3_KDA_V, layer, 0, t->x.at, n, t->v.at);
	k3_product(w, p, K3_GATE, layer, 0, t->x.at, n, t->g.at);
	k3_product(w, p, K3_KDA_B, layer, 0, t->x.at, n, t->beta.at);
	if (!k3_barrier(w))
		return;
	k3_product(w, p, K3_KDA_FB, layer, 0, t->fa.at, n, t->z.at);
	if (!k3_barrier(w))
		return;
	heads(w, p, segment, segments);
	if (!k3_barrier(w))
		return;
	k3_product(w, p, K3_OUT, layer, 0, t->g.at, n, t->y.at);
}
