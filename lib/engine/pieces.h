/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/pieces.h - all of a model's trunk, read from the shards in the order of use, on
 * several threads: what writing and verifying a trunk file have in common.
 */
#ifndef K3_ENGINE_PIECES_H
#define K3_ENGINE_PIECES_H

#include "data/order.h"

#include <k3/pack.h>
#include <stddef.h>

/* Blocks of one use, one after the other: what a thread takes at a time. */
struct k3_piece {
	uint64_t number;	/* of the piece, from 0 */
	const struct k3_config *config;
	const struct k3_order *order;	/* of its section */
	const struct k3_use *use;
	uint64_t first, blocks;		/* numbers in the use */
	struct k3_tensor tensor;
	const char *shard;		/* its path */
	uint64_t at;			/* where in the tensor the rows begin that are in memory */
	const unsigned char *rows;
};

/* Block i of the use: where it is in memory, and its bytes. */
const unsigned char *k3_piece_block(const struct k3_piece *p, uint64_t i, uint64_t *bytes);

/* The most that there is in any piece: for buffers. */
struct k3_piece_most {
	uint64_t blocks;
	uint64_t bytes;			/* of its blocks together */
	uint64_t block;			/* bytes of one */
};

struct k3_pieces;

/* Errors: K3_EDATA if a shard is missing, or weights could not be coded; K3_ENOMEM. */
K3_NODISCARD int k3_pieces_new(const struct k3_index *ix, const struct k3_pack_options *options,
			     struct k3_pieces **out, struct k3_err *err);
void k3_pieces_free(struct k3_pieces *w);
struct k3_piece_most k3_pieces_most(const struct k3_pieces *w);

/*
 * Calls fn for every piece, each thread with `room` bytes of memory of its own, at a multiple of
 * K3_DIRECT.  Of several failures that with the lowest number is told.
 */
typedef int k3_piece_fn(void *arg, const struct k3_piece *p, void *room, struct k3_err *err);
K3_NODISCARD int k3_pieces_run(struct k3_pieces *w, k3_piece_fn *fn, void *arg, size_t room,
			     struct k3_err *err);

/*
 * Waits until all pieces with lower numbers have passed on their turn; false if one of them has failed,
 * and then there is nothing left to do.
 */
K3_NODISCARD bool k3_pieces_turn(struct k3_pieces *w, const struct k3_piece *p);
void k3_pieces_pass(struct k3_pieces *w);

#endif
