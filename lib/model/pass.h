/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model/pass.h - what the operators of one layer work on.
 *
 * The tokens of a tile come in segments, one for each sequence: consecutive positions
 * in the order of the sequence.  Everything that belongs to a token is a row of a
 * k3_rows; rows are found through pointers, so that an operator can be given any
 * selection of tokens.
 */
#ifndef K3_MODEL_PASS_H
#define K3_MODEL_PASS_H

#include "math/kernels.h"
#include "model/feed.h"
#include "sys/team.h"

#include <k3/state.h>

/* n vectors of width values, one behind the other; the first begins a line of the cache. */
struct k3_rows {
	void *memory;
	float **at;
	uint64_t n, width;
};

K3_NODISCARD int k3_rows_new(struct k3_rows *r, uint64_t n, uint64_t width, struct k3_err *err);
void k3_rows_free(struct k3_rows *r);
uint64_t k3_rows_bytes(uint64_t n, uint64_t width);

/* The tokens of one sequence in a tile. */
struct k3_segment {
	uint64_t first, count;		/* rows of the tile */
	uint64_t position;		/* of the first token in its sequence */
	uint64_t drafted;		/* the last so many leave no trace in the state */
	struct k3_slice slice;
};

/* The small tensors of a layer as fp32.  Those that its kind lacks stay unused. */
struct k3_layer_vectors {
	float *attn_fold, *mlp_fold;	/* hidden: norm times projection of the residual mixes */
	float *attn_norm, *mlp_norm;	/* hidden */
	float *conv[3];			/* [conv][P]: q, k, v, turned around from the checkpoint */
	float *dt_bias;			/* P */
	float *a_log;			/* max(heads, dim) */
	float *kda_norm;		/* dim */
	float *qa_norm, *kva_norm;	/* q_rank, kv_rank */
	float *router_bias;		/* experts */
	float *latent_norm;		/* latent */
	float *temp;			/* [P][conv] or hidden: a tensor before it is changed */
};

/* Buffers for a tile of tokens; kda.c, mla.c and ffn.c say how they use them. */
struct k3_tile {
	struct k3_rows x;		/* hidden: input of a module */
	struct k3_rows y;		/* hidden: output of a module */
	struct k3_rows q, k, v, g, z;	/* heads * dim */
	struct k3_rows fa, beta;	/* kda_dim, kda_heads */
	struct k3_rows qa, kva;		/* q_rank, kv_rank + rope */
	struct k3_rows latent_q;	/* mla_heads * kv_rank: absorbed queries, then contexts */
	struct k3_rows gate, up;	/* the wider of dense and shared MLP */
	struct k3_rows router;		/* experts */
	/* The tile's rows of what outlives it, set by whoever keeps them. */
	float **latent;			/* latent: what experts take in */
	float **sum;			/* latent: what they give, weighted and added up */
	float **shared;			/* hidden: what the shared expert gives; then all together */
};

/*
 * What connects the tokens of a sweep with the experts of a layer.  A user is a token of an expert,
 * named by token * chosen + slot; an expert takes up to `group` of them at a time.
 */
struct k3_routed {
	struct k3_rows h1, h3;		/* expert_width; two halves of group rows, used in turn */
	uint64_t group;
	uint32_t *expert;		/* chosen a token, ascending */
	float *weight;			/* chosen a token */
	uint64_t *first;		/* experts + 1: where each expert's users begin in .. */
	uint64_t *user;			/* .. this list */
	/* Rows of `latent` values, by token; or, if by_place, by a user's place in its group. */
	float **latent, **sum;
	bool by_place;
	float **user_latent, **user_sum;	/* those of each user */
};

/* A token's name in messages. */
struct k3_token {
	uint32_t sequence;
	uint64_t position;
};

/* Constant during a layer. */
struct k3_pass {
	const struct k3_config *config;
	const struct k3_kernels *math;
	struct k3_feed *feed;
	struct k3_layer_vectors *vectors;
	struct k3_tile *tile;
	struct k3_routed *routed;
	float **scratch;		/* one area a worker: k3_scratch_size floats */
};

/*
 * What a worker needs for itself, in floats, when sequences have up to
 * `positions` positions and mixes that many sources.
 */
uint64_t k3_scratch_size(const struct k3_config *c, uint64_t positions);

#endif
