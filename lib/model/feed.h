/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model/feed.h - how weights come to operators: as blocks of whole rows.
 *
 * No operator ever holds a matrix.  It asks for the blocks of a matrix one
 * after the other, multiplies with each, and forgets it.  Where a block comes from
 * (the disk, pinned memory, a small model held whole) is the business of
 * whoever implements the feed.
 *
 * So that a feed can read ahead, all workers ask for the same matrices in the same order, that
 * of data/order.h, and each block of a matrix is asked for by one of them, in ascending order.
 */
#ifndef K3_MODEL_FEED_H
#define K3_MODEL_FEED_H

#include "data/order.h"

/* A matrix as the feed cuts it. */
struct k3_matrix {
	enum k3_role role;
	uint32_t layer, part;
	bool mxfp4;
	uint64_t rows, cols;
	uint64_t blocks;
};

/* Rows row .. row + rows - 1, in one of three forms.  Valid until the same worker asks again. */
struct k3_block {
	uint64_t row, rows;
	const unsigned char *data;	/* bf16 or MXFP4 codes, row after row; or NULL, and .. */
	const unsigned char *coded;	/* .. a coded block (math/code.h) of just these rows */
	const unsigned char *scale;	/* NULL unless MXFP4 */
};

struct k3_feed;

struct k3_feed_ops {
	/*
	 * Describes a matrix to worker rank.  part: the expert of K3_W1, K3_W2 and K3_W3, which
	 * bring their scales with them; of K3_MLA_KVB 0 for the key rows and 1 for the value
	 * rows, a block a head, of which the key rows are never coded; else 0.
	 */
	int (*matrix)(struct k3_feed *f, unsigned rank, enum k3_role role, uint32_t layer,
		      uint32_t part, struct k3_matrix *m, struct k3_err *err);
	/* Block i of m for worker rank; scale bytes have been checked. */
	int (*block)(struct k3_feed *f, unsigned rank, const struct k3_matrix *m, uint64_t i,
		     struct k3_block *b, struct k3_err *err);
	/* The worker is done with its last block.  Whoever waits for others holds none. */
	void (*release)(struct k3_feed *f, unsigned rank);
	/*
	 * Some of the layer's experts that will be asked for, known before all are: a feed may read them
	 * ahead.  One may be named again.  Called by one worker, before experts is.
	 */
	int (*expect)(struct k3_feed *f, uint32_t layer, const uint32_t *expert, uint64_t n,
		      struct k3_err *err);
	/*
	 * Tells, as soon as it is known, which experts of the layer will be asked for: those e
	 * with first[e] < first[e + 1], once for each group of that many users.  Called by one worker.
	 */
	int (*experts)(struct k3_feed *f, uint32_t layer, const uint64_t *first, uint64_t group,
		       struct k3_err *err);
	/* All of a small tensor as fp32: rows * cols values into out.  For worker 0. */
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
