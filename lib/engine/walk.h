/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/walk.h - which blocks will be asked for, and in which order.
 *
 * A walk is what a reader goes ahead on and what a worker goes behind on: both count entries in
 * the same way, so that the reader's entry number n is the worker's.  Each of them has a
 * walk of its own.
 */
#ifndef K3_ENGINE_WALK_H
#define K3_ENGINE_WALK_H

#include "data/order.h"

/* Sections from .. until - 1 (data/order.h) one after the other. */
struct k3_route {
	const struct k3_config *config;
	uint64_t block_rows;		/* 0: as data/order.h cuts */
	uint32_t from, until;
	const uint32_t *tiles;		/* of each section: how often all but its experts passes; 0: not at all */
	/* The experts of one layer, as far as they are known. */
	uint32_t experts_layer;		/* UINT32_MAX: of none */
	uint32_t experts;
	uint32_t *expert;		/* ascending; again for each group of its tokens */
};

/* Blocks of an expert's matrix: its scales are held until the last one is used, and queues are finite. */
enum { K3_EXPERT_BLOCKS = 500 };

/* The matrices of an expert, in the order of use: K3_W1, K3_W3, K3_W2. */
enum { K3_EXPERT_MATRICES = 3 };
extern const enum k3_role k3_expert_matrix[K3_EXPERT_MATRICES];

/* A matrix of an expert, K3_W1, K3_W2 or K3_W3, and how it is cut. */
struct k3_expert_cut {
	uint64_t rows, cols;
	uint64_t code_bytes, scale_bytes;	/* of a row */
	uint64_t block_rows, blocks;
};
struct k3_expert_cut k3_expert_cut(const struct k3_config *c, enum k3_role role,
				   uint64_t block_rows);

/*
 * The rows of block i, and the bytes of codes in front of it.  Blocks are counted from the matrix's end: there
 * its scales lie in a released checkpoint, which are needed first and so come by the same request.
 */
void k3_cut_rows(const struct k3_expert_cut *m, uint64_t i, uint64_t *row, uint64_t *rows);
uint64_t k3_cut_codes(const struct k3_expert_cut *m, uint64_t i);

/* The bytes of an expert in the shards. */
uint64_t k3_expert_bytes(const struct k3_config *c);

/* One tensor, or part of one, that is asked for as a whole by its blocks. */
struct k3_step {
	uint32_t section;
	const struct k3_use *use;	/* NULL for a matrix of an expert .. */
	enum k3_role role;
	uint32_t expert, number;	/* .. which is this one, number `number` of the layer's list */
	struct k3_expert_cut cut;	/* of the expert's matrix */
	uint64_t first, entries;	/* its entries; an expert's first one are the scales */
	uint32_t left;			/* how often a use will pass again */
};

struct k3_walk {
	const struct k3_route *route;
	struct k3_order order;
	uint32_t section, tile, tail, use, expert;
	unsigned matrix;		/* of the expert: w1, w3, w2 */
	uint64_t entry;
	bool fresh;			/* the order is not yet that of the section */
};

void k3_walk_begin(struct k3_walk *w, const struct k3_route *route);

enum k3_walked { K3_WALK_END, K3_WALK_STEP, K3_WALK_UNKNOWN };

/*
 * The next step; K3_WALK_UNKNOWN in front of experts that are not known yet: ask again.  The
 * step's use stays valid until the next call.
 */
enum k3_walked k3_walk_next(struct k3_walk *w, struct k3_step *step);

#endif
