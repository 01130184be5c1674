/* SPDX-License-Identifier: Apache-2.0 */
/* model/ffn.h - dense MLP, router, shared and routed experts (docs/model.md 2.6, numerics.md N9). */
#ifndef K3_MODEL_FFN_H
#define K3_MODEL_FFN_H

#include "model/pass.h"

/* The dense MLP of n tokens: tile->x in, tile->y out. */
void k3_dense(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint64_t n);

/*
 * What a layer with experts does with a tile before any expert is known: the choice of the tokens first ..
 * first + n - 1 of the sweep into p->routed, their latents and the shared expert's result into
 * tile->latent and tile->shared.  tile->x in.  The router comes first, and the tile that is the last tells the
 * feed which experts there will be, while there are products left that need no expert.
 */
void k3_route_tile(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		   const struct k3_token *token, uint64_t first, uint64_t n, bool last);

/*
 * Who brings the rows of users first .. first + n - 1 of p->routed's list, one expert's, to where user_latent and
 * user_sum point, and takes the sums away.  The sum of a token is nothing yet when the first of its experts, slot
 * 0, asks for it.  All workers call; both end with a barrier, and are false if the team has failed.
 */
struct k3_users {
	bool (*bring)(struct k3_worker *w, void *ctx, uint64_t first, uint64_t n);
	bool (*take)(struct k3_worker *w, void *ctx, uint64_t first, uint64_t n);
	void *ctx;
};

/*
 * All routed experts over all tokens of the sweep, ascending, each for a group of its users at a time: into their
 * sums.  Behind the last tile and a barrier.  users: NULL if rows are where they should be.
 */
void k3_experts(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		const struct k3_users *users);

/* The module's output for n tokens of a tile: out of tile->sum, and added to tile->shared. */
void k3_latent_out(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint64_t n);

/*
 * Chooses from the scores of one token: the largest of score + bias, lower id on
 * equal ones; `chosen` ids ascending into id, their weights into weight.
 * score: sigmoid of the router's products.
 */
void k3_choose(const struct k3_config *c, const float *score, const float *bias, uint32_t *id,
	       float *weight);

#endif
