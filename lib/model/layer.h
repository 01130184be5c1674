/* SPDX-License-Identifier: Apache-2.0 */
/* model/layer.h - a layer's small tensors, and the parts that frame the model: first and last. */
#ifndef K3_MODEL_LAYER_H
#define K3_MODEL_LAYER_H

#include "model/pass.h"

K3_NODISCARD int k3_vectors_new(const struct k3_config *c, struct k3_layer_vectors *v,
				struct k3_err *err);
void k3_vectors_free(struct k3_layer_vectors *v);

/* Reads the small tensors of a layer. */
K3_NODISCARD int k3_vectors_read(const struct k3_config *c, struct k3_feed *f, uint32_t layer,
				 struct k3_layer_vectors *v, struct k3_err *err);

/* The output mix's fold and the final norm, hidden values each. */
K3_NODISCARD int k3_output_vectors(const struct k3_config *c, struct k3_feed *f, float *fold,
				   float *norm, float *temp, struct k3_err *err);

/* Buffers for tiles of n tokens, and for sweeps of n tokens of which an expert takes a group at a time. */
K3_NODISCARD int k3_tile_new(const struct k3_config *c, uint64_t n, struct k3_tile *t,
			     struct k3_err *err);
void k3_tile_free(struct k3_tile *t);
K3_NODISCARD int k3_routed_new(const struct k3_config *c, uint64_t n, uint64_t group,
			       struct k3_routed *r, struct k3_err *err);
void k3_routed_free(struct k3_routed *r);

/* The bytes that they take. */
uint64_t k3_tile_bytes(const struct k3_config *c, uint64_t n);
uint64_t k3_routed_bytes(const struct k3_config *c, uint64_t n, uint64_t group);

#endif
