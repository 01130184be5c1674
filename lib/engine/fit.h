/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/fit.h - how the tokens of a sweep share memory.
 *
 * First of all everything is to be in memory and all tokens in one tile.  If that is too much, states are paged; then the
 * rows of the sweep go to a file, which costs time for reading and writing them; and at last
 * tiles become smaller, each of which costs the trunk once more.
 */
#ifndef K3_ENGINE_FIT_H
#define K3_ENGINE_FIT_H

#include <k3/config.h>
#include <stdbool.h>

struct k3_fit {
	/* What there is to do. */
	uint64_t tokens, lines;
	uint64_t positions;		/* of the longest sequence */
	uint64_t sources;		/* of a token's residual stream */
	bool streams;			/* tokens came as residual streams, which exist twice */
	uint64_t tile;			/* of so many tokens; 0: chosen */
	bool may_spill;			/* is there a place for files? */
	/* States: bytes of those that must stay in memory, and of those that may be paged or pass .. */
	uint64_t stay, may_go;
	uint64_t slice;			/* .. and the largest slice of these .. */
	uint64_t moving;		/* .. and how many of them get tokens */
	/* What was chosen. */
	uint64_t group;			/* users of an expert at a time */
	bool spilled;			/* rows are in a file */
	bool paged;			/* and so are states; .. */
	bool ahead;			/* .. the slices of the next layer come in before this one is done */
	uint64_t sweep, states;		/* bytes of memory */
	uint64_t hoard;			/* and those that k3_fit_hoard gives to experts, beside the cost's retain */
};

/* What a row of logits takes while it is made. */
uint64_t k3_logits_bytes(const struct k3_config *c);

/* Chooses for that many bytes.  False if it takes more than these: then the choice is that of least memory. */
bool k3_fit_memory(const struct k3_config *c, unsigned threads, uint64_t have, struct k3_fit *s);

/*
 * What it takes to read experts ahead: bytes to retain the trunk of a layer with experts; the bytes of an average one;
 * and those of a hoard that has room for one expert, and for all.
 */
struct k3_hoard_cost {
	uint64_t retain, section, least, all;
};

/*
 * Where many tokens keep the processors busy longer than the disk, and there is memory for it, a choice
 * of one tile in memory becomes one of several, in which the disk need not wait: the trunk of a layer stays
 * for its later tiles, and while they pass, experts of the first ones are read.
 */
void k3_fit_hoard(const struct k3_config *c, unsigned threads, uint64_t have,
		  const struct k3_hoard_cost *cost, struct k3_fit *s);

#endif
