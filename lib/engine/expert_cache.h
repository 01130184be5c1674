/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/expert_cache.h - experts that stay in memory, each layer having so many places.
 *
 * Which ones they are is for engine/cache_policy.h to say.  The caller sees to it that one thread
 * at a time is in here.
 */
#ifndef K3_ENGINE_EXPERT_CACHE_H
#define K3_ENGINE_EXPERT_CACHE_H

#include "engine/walk.h"

struct k3_expert_cache;

/* At most that many bytes; less than an expert for each layer is none. */
K3_NODISCARD int k3_expert_cache_new(const struct k3_config *c, uint64_t bytes,
				     struct k3_expert_cache **out, struct k3_err *err);
void k3_expert_cache_free(struct k3_expert_cache *c);

/* What one place in every layer takes, the places that fit into so many bytes, and what all may take. */
uint64_t k3_expert_cache_unit(const struct k3_config *c);
uint32_t k3_expert_cache_places(const struct k3_config *c, uint64_t bytes);
uint64_t k3_expert_cache_bytes(const struct k3_expert_cache *c);

/* From now on only so many bytes; what lies beyond is given back.  Nothing may be in use. */
void k3_expert_cache_limit(struct k3_expert_cache *c, uint64_t bytes);

/* A layer needs the experts e with first[e] < first[e + 1], each for the difference of tokens. */
void k3_expert_cache_visit(struct k3_expert_cache *c, uint32_t layer, const uint64_t *first);

/* Whether that expert of a layer is in memory now, and so when the layer is visited next. */
bool k3_expert_cache_has(const struct k3_expert_cache *c, uint32_t layer, uint32_t expert);

/* Entry i of a step: its bytes, or NULL and in *keep where they should go, if they should. */
const unsigned char *k3_expert_cache_find(const struct k3_expert_cache *c,
					  const struct k3_step *step, uint64_t i,
					  unsigned char **keep);

/* That expert of the layer visited last was to be kept and did not arrive. */
void k3_expert_cache_forget(struct k3_expert_cache *c, uint32_t expert);

#endif
