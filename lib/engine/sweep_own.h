/* SPDX-License-Identifier: Apache-2.0 */
/* engine/sweep_own.h - a sweep from inside: what sweep.c and layers.c share. */
#ifndef K3_ENGINE_SWEEP_OWN_H
#define K3_ENGINE_SWEEP_OWN_H

#include "engine/draft.h"
#include "engine/shelf.h"
#include "engine/sweep.h"

/* A line's tokens in the sweep. */
struct k3_member {
	struct k3_state *state;
	uint64_t first, n;		/* rows of the sweep */
	uint64_t position;		/* of the first token */
	uint32_t next;			/* the layer that its tokens stand in front of */
	uint32_t sources;		/* vectors in the streams that it brought */
	struct k3_draft *draft;
	uint64_t drafted;		/* of its tokens the last so many are guesses */
	uint64_t taken;			/* former guesses in front of its tokens */
	struct k3_slice slice;		/* of the current layer, while .. */
	bool loaded;			/* .. it is in memory */
};

struct k3_sweep {
	struct k3_engine *e;
	uint32_t first, last;		/* the range; this run goes .. */
	uint32_t from, until;		/* .. through these of it */
	struct k3_member *member;
	uint32_t lines;
	uint64_t drafted, taken;	/* guesses of all lines */
	uint64_t tokens;
	uint32_t sources;		/* places for vectors in a token's residual stream */
	struct k3_token *token;
	/* Rows of all tokens: residual streams, a part for each source; and of the current layer. */
	struct k3_spill spill;
	struct k3_shelf stream, latent, sum, shared;
	/* of the current layer, only the tokens that pass it */
	uint32_t layer;
	uint64_t active;
	uint64_t *index;		/* which ones */
	struct k3_token *name;
	float **row;			/* their residual streams, of a tile at least */
	uint64_t tile_tokens;
	uint32_t *tiles;		/* of each layer of the run */
	struct k3_tile tile;
	struct k3_routed routed;
	bool ahead;			/* slices of the next layer are loaded during this one */
	struct k3_segment *segment;	/* of the current tile */
	uint64_t segments;
	struct k3_pass pass;
	/* for reports */
	const struct k3_watch *watch;
	uint64_t begun;			/* nanoseconds */
	struct k3_engine_counts counts;
	uint32_t *report_sequence;
	uint64_t *report_position;
};

/* Runs layers s->from .. s->until - 1; for all workers of the team together, arg being the sweep. */
void k3_layers_run(struct k3_worker *w, void *arg);

#endif
