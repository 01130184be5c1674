/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model/feed.h - how weights come to operators: as blocks of whole rows.
 *
 * No operator ever holds a matrix.  It asks for the blocks of a matrix one
 * after the other, multiplies with each, and forgets it.  Where a block comes from
 * (the disk, pinned memory, a small model held whole) is the business of
 * whoever implements the feed.
 */
#ifndef K3_MODEL_FEED_H
#define K3_MODEL_FEED_H

#include "data/order.h"

/*
 * A matrix as the feed cuts it: blocks of block_rows rows, the last one shorter.  Only
 * kv_b is cut otherwise, see k3_kvb_block.
 */
struct k3_matrix {
	enum k3_role role;
	uint32_t layer, expert;
	bool mxfp4;
	uint64_t rows, cols;
	uint64_t block_rows, blocks;
	struct k3_tensor tensor, scale;	/* scale only for MXFP4 */
};

/* Rows row .. row + rows - 1, one after the other.  Valid until the same worker asks again. */
struct k3_block {
	uint64_t row, rows;
	const unsigned char *data;
	const unsigned char *scale;	/* NULL unless MXFP4 */
};

/*
 * kv_b has two blocks a head, its key rows and then its value rows (block_rows is
 * the larger of them): the first and the row count of block i.
 */
static inline void k3_kvb_block(const struct k3_config *c, uint64_t i, struct k3_block *b)
{
	b->row = i / 2 * ((uint64_t)c->nope + c->v_dim) + (i % 2 ? c->nope : 0);
	b->rows = i % 2 ? c->v_dim : c->nope;
}

struct k3_feed;

struct k3_feed_ops {
	/* Describes a matrix; K3_W1, K3_W2 and K3_W3 bring their scales with them. */
	int (*matrix)(struct k3_feed *f, enum k3_role role, uint32_t layer, uint32_t expert,
		      struct k3_matrix *m, struct k3_err *err);
	/* Block i of m for worker rank; scale bytes have been checked. */
	int (*block)(struct k3_feed *f, unsigned rank, const struct k3_matrix *m, uint64_t i,
		     struct k3_block *b, struct k3_err *err);
	/* All of a small tensor as fp32: rows * cols values into out. */
	int (*vector)(struct k3_feed *f, enum k3_role role, uint32_t layer, float *out,
		      struct k3_err *err);
	/* One row of a matrix as fp32: cols values into out. */
	int (*row)(struct k3_feed *f, enum k3_role role, uint64_t row, float *out,
		   struct k3_err *err);
};

struct k3_feed {
	const struct k3_feed_ops *ops;
};

#endif
