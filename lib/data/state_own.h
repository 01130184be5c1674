/* SPDX-License-Identifier: Apache-2.0 */
/* data/state_own.h - a state from inside: what state.c and state_pass.c share. */
#ifndef K3_DATA_STATE_OWN_H
#define K3_DATA_STATE_OWN_H

#include "data/slice_pool.h"
#include "data/state_file.h"

#include <stdbool.h>

/* A layer's slice in memory. */
struct k3_resident {
	float *kda;		/* M, and the conv history behind it; NULL until asked for */
	float **page;
	uint64_t pages;
	bool loaded;		/* MLA: what the file holds is in the pages */
	bool stored;		/* of the pass in progress: its slice is in the file */
};

struct k3_state {
	struct k3_state_shape shape;
	uint8_t fingerprint[16];
	bool passing, paged;
	bool named;		/* its file has a name, and keeps residual streams for others */
	struct k3_slice_pool *pool;	/* borrowed, or NULL */
	uint64_t room;		/* positions that pages hold behind those of a pass */
	int fd;			/* -1 without a file */
	bool readonly;
	char *path;		/* owned; NULL without a file */
	struct k3_state_head head;
	struct k3_resident *layer;	/* one for each layer of the range; one in all if passing */
	/* NULL if passing, as head.layer is */
	uint32_t *mla_number;	/* of each layer of the range: its place among MLA layers */
};

/* Layers are counted from the range's first one here. */

/* The slice of layer i; a passing state has one at a time. */
static inline struct k3_resident *k3_state_resident(const struct k3_state *s, uint32_t i)
{
	return &s->layer[s->passing ? 0 : i];
}

/* Positions that layer i has taken. */
uint64_t k3_state_taken(const struct k3_state *s, uint32_t i);
/* Bytes of the slice of a KDA layer. */
uint64_t k3_state_slice_bytes(const struct k3_state *s);
/* Bytes of one position of an MLA layer. */
uint64_t k3_state_row_bytes(const struct k3_state *s);
/* The checksum of positions from .. to - 1, one after the other, continued from seed. */
uint64_t k3_state_sum_positions(const struct k3_state *s, const struct k3_resident *r,
				uint64_t from, uint64_t to, uint64_t seed);
/* Bytes of the residual stream that the head names. */
uint64_t k3_state_residual_bytes(const struct k3_state *s);
/* Drops layer i from memory. */
void k3_state_forget(struct k3_state *s, uint32_t i);

#endif
