/* SPDX-License-Identifier: Apache-2.0 */
/* model/ffn.h - dense MLP, router, shared and routed experts (docs/model.md 2.6, numerics.md N9). */
#ifndef K3_MODEL_FFN_H
#define K3_MODEL_FFN_H

#include "model/pass.h"

/* The dense MLP of n tokens: tile->x in, tile->y out. */
void k3_dense(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint64_t n);

/*
 * What a layer with experts does with a tile before any expert is known: shared
 * expert, latent and choice of the tokens first .. first + n - 1 of the sweep
 * into p->routed.  tile->x in.  The router comes first and the tile that is the last tells the
 * feed which experts there will be, while there are products left that need no expert.
 */
void k3_route_tile(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
		   const struct k3_token *token, uint64_t first, uint64_t n, bool last);

/*
 * All routed experts over all n tokens of the sweep, each expert once, ascending; behind the
 * last tile and a barrier.
 * Afterwards p->routed->shared holds the module's output: routed + shared.
 */
void k3_experts(struct k3_worker *w, const struct k3_pass *p, uint32_t layer, uint64_t n);

/*
 * Chooses from the scores of one token: the largest of score + bias, lower id on
 * equal ones; `chosen` ids ascending into id, their weights into weight.
 * score: sigmoid of the router's products.
 */
void k3_choose(const struct k3_config *c, const float *score, const float *bias, uint32_t *id,
	       float *weight);

#endif
