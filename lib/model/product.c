/* SPDX-License-Identifier: Apache-2.0 */
/* product.c - every product with weights is this loop over blocks of rows. */
#include "model/product.h"

static void multiply(const struct k3_kernels *math, const struct k3_matrix *m,
		     const struct k3_block *b, float *const *x, uint64_t n, float *const *y)
{
	if (m->mxfp4)
		math->rows_mxfp4(b->data, b->scale, b->rows, m->cols, (const float *const *)x, n, y);
	else if (b->coded)
		math->rows_coded(b->coded, 0, b->rows, (const float *const *)x, n, y);
	else
		math->rows_bf16(b->data, b->rows, m->cols, (const float *const *)x, n, y);
}

/* Vectors that are handled together, so that their shifted pointers fit on the stack. */
enum { TILE = 64 };

/* A block's rows of all results: where y lies, or through the worker's scratch. */
static void place(const struct k3_pass *p, const struct k3_matrix *m, const struct k3_block *b,
		  float *const *x, uint64_t n, float *const *y)
{
	float *shifted[TILE];

	for (uint64_t v = 0; v < n; v += TILE) {
		uint64_t k = n - v < TILE ? n - v : TILE;

		for (uint64_t i = 0; i < k; i++)
			shifted[i] = y[v + i] + b->row;
		multiply(p->math, m, b, x + v, k, shifted);
	}
}

static void combine(const struct k3_pass *p, const struct k3_matrix *m, const struct k3_block *b,
		    float *const *x, uint64_t n, float *scratch, const struct k3_combine *c)
{
	float *y[K3_COMBINE_TILE];

	for (uint64_t i = 0; i < K3_COMBINE_TILE; i++)
		y[i] = scratch + i * b->rows;
	for (uint64_t v = 0; v < n; v += K3_COMBINE_TILE) {
		uint64_t k = n - v < K3_COMBINE_TILE ? n - v : K3_COMBINE_TILE;

		multiply(p->math, m, b, x + v, k, y);
		for (uint64_t i = 0; i < k; i++)
			c->fn(c, v + i, b->row, b->rows, y[i]);
	}
}

/* Exactly one of y and c is there. */
static void product(struct k3_worker *w, const struct k3_pass *p, enum k3_role role,
		    uint32_t layer, uint32_t part, float *const *x, uint64_t n,
		    float *const *y, const struct k3_combine *c)
{
	struct k3_matrix m = { 0 };
	struct k3_block b;
	struct k3_err err;
	uint32_t loop = k3_loop(w);
	uint64_t i;
	int rc = p->feed->ops->matrix(p->feed, w->rank, role, layer, part, &m, &err);

	while (!rc && k3_loop_next(w, loop, m.blocks, &i)) {
		rc = p->feed->ops->block(p->feed, w->rank, &m, i, &b, &err);
		if (rc)
			break;
		if (y)
			place(p, &m, &b, x, n, y);
		else
			combine(p, &m, &b, x, n, p->scratch[w->rank], c);
	}
	p->feed->ops->release(p->feed, w->rank);
	if (rc)
		k3_worker_fail(w, rc, &err);
}

void k3_product(struct k3_worker *w, const struct k3_pass *p, enum k3_role role, uint32_t layer,
		uint32_t expert, float *const *x, uint64_t n, float *const *y)
{
	product(w, p, role, layer, expert, x, n, y, NULL);
}

void k3_product_into(struct k3_worker *w, const struct k3_pass *p, enum k3_role role,
		     uint32_t layer, uint32_t expert, float *const *x, uint64_t n,
		     const struct k3_combine *c)
{
	product(w, p, role, layer, expert, x, n, NULL, c);
}
