/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/order.h - the order in which the tensors of a layer are used, and how they are cut.
 *
 * A section is a layer, or what comes behind the last one: the output vectors and the
 * head.  It is used block by block, each block once for each tile of tokens: whoever reads ahead
 * and whoever lays weights out in a file go by this order, and the operators ask for blocks
 * in it.  The routed experts are not part of it: they come in front of the use at
 * experts_at.
 */
#ifndef K3_DATA_ORDER_H
#define K3_DATA_ORDER_H

#include <k3/index.h>

/* A block of rows has at most so many bytes as bf16 or MXFP4, unless a single row has more. */
enum { K3_BLOCK_BYTES = 1 << 20 };

/* Rows are cut in multiples of this where they can be: kernels take them in such groups. */
enum { K3_ROWS_STEP = 8 };

/*
 * A tensor, or the part of one, that is used at one time.  A vector is a single block, and
 * stays as it is in the checkpoint; a matrix is cut into blocks of block_rows rows, the last one
 * shorter.  K3_MLA_KVB is used twice: the key rows of each head, then the value rows of
 * each head, a block a head (k3_use_rows).
 */
struct k3_use {
	enum k3_role role;
	bool vector;
	bool values;			/* of K3_MLA_KVB: the value rows */
	uint64_t rows, cols;		/* of the whole tensor */
	uint64_t bytes;			/* of the whole tensor */
	uint64_t block_rows;
	uint64_t first, blocks;		/* numbers of its blocks in the section */
};

enum { K3_USES = 32 };

struct k3_order {
	uint32_t layer;			/* or the number of layers: the output */
	struct k3_use use[K3_USES];	/* vectors first */
	uint32_t uses;
	uint32_t vectors;		/* how many of them are vectors */
	uint32_t experts_at;		/* experts come in front of this use; uses if there are none */
	uint64_t blocks;
};

/*
 * The order of section `layer`, which may be the number of layers.  block_rows: 0 for blocks as
 * trunk files have them, else the rows of every block but those of kv_b.
 */
void k3_order_init(const struct k3_config *c, uint32_t layer, uint64_t block_rows,
		   struct k3_order *out);

/* The layer that tensors of a section are asked for by: those of the output are the model's. */
uint32_t k3_section_layer(const struct k3_config *c, uint32_t section);

/* The rule for a matrix of these measures: depends on nothing else, as files are cut by it. */
uint64_t k3_block_rows(uint64_t rows, uint64_t row_bytes);

/* The rows of block i of a use, counted within the tensor. */
void k3_use_rows(const struct k3_config *c, const struct k3_use *u, uint64_t i, uint64_t *row,
		 uint64_t *rows);

/* The use that block number `block` of the section belongs to. */
const struct k3_use *k3_order_use(const struct k3_order *o, uint64_t block);

/* Its bytes in a checkpoint, and where they begin in its tensor. */
uint64_t k3_use_place(const struct k3_config *c, const struct k3_use *u, uint64_t i,
		      uint64_t *bytes);

#endif
