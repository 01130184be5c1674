/* SPDX-License-Identifier: Apache-2.0 */
/* model/product.h - matrix times vectors, block by block. */
#ifndef K3_MODEL_PRODUCT_H
#define K3_MODEL_PRODUCT_H

#include "model/pass.h"

/*
 * y[v] = W x[v] for n vectors, W being the tensor of that role: x has its columns,
 * y its rows.  The workers share the blocks; there is no barrier at the end.
 */
void k3_product(struct k3_worker *w, const struct k3_pass *p, enum k3_role role, uint32_t layer,
		uint32_t expert, float *const *x, uint64_t n, float *const *y);

/*
 * The same for a result that is used up at once: combine gets rows row ..
 * row + rows - 1 of W x[v] for each v.  All calls for the same rows come from one worker,
 * v ascending.
 */
struct k3_combine {
	void (*fn)(const struct k3_combine *self, uint64_t v, uint64_t row, uint64_t rows,
		   const float *y);
	const struct k3_pass *pass;
	uint64_t offset;	/* of v = 0 in whatever the function works on */
};
void k3_product_into(struct k3_worker *w, const struct k3_pass *p, enum k3_role role,
		     uint32_t layer, uint32_t expert, float *const *x, uint64_t n,
		     const struct k3_combine *combine);

/* Vectors that k3_product_into handles together: its scratch is this many times the rows. */
enum { K3_COMBINE_TILE = 32 };

#endif
