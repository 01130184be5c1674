/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/cache_policy.h - which experts of a layer are worth their memory.
 *
 * Each layer has the same number of slots, for a walk over all layers would flush anything
 * that they share.  What is kept is what was used most, where a use counts for less with every
 * visit; of equals it is what was used last.  With a decay of 0 that is the least recently used
 * out first, with 1 the least frequently used.  Uses are remembered of experts that are not kept too.
 *
 * This is the bookkeeping only: there are no bytes here.  What it decides depends on the
 * visits alone.  A policy is used by one thread.
 */
#ifndef K3_CACHE_POLICY_H
#define K3_CACHE_POLICY_H

#include <k3/err.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The slot of an expert that is not kept. */
#define K3_NO_SLOT UINT32_MAX

struct k3_cache_policy;

/* Empty; slots may be 0, and the decay is from 0 to 1.  Errors: K3_ENOMEM, K3_EARG. */
K3_API K3_NODISCARD int k3_cache_policy_new(uint32_t layers, uint32_t experts,
					    uint32_t slots_per_layer, float decay,
					    struct k3_cache_policy **out, struct k3_err *err);
K3_API void k3_cache_policy_free(struct k3_cache_policy *p);

/*
 * A sweep comes to a layer and needs n experts, ascending; users[i] tokens chose expert[i].
 * hit[i] tells whether a slot holds it already.  slot[i] is its slot; for a miss that is where its
 * bytes are to go, and whatever was there is forgotten, or K3_NO_SLOT if they are not worth it.
 * No slot is named twice in a visit: what the sweep needs stays until the next one.
 */
K3_API void k3_cache_policy_visit(struct k3_cache_policy *p, uint32_t layer,
				  const uint32_t *expert, const uint32_t *users, uint32_t n,
				  uint32_t *slot, bool *hit);

/* Does a slot of the layer hold the expert? */
K3_API bool k3_cache_policy_has(const struct k3_cache_policy *p, uint32_t layer, uint32_t expert);

/* The bytes of a kept expert did not arrive: its slot is free again. */
K3_API void k3_cache_policy_forget(struct k3_cache_policy *p, uint32_t layer, uint32_t expert);

/* From now on only slots below that number are used; what the others held is forgotten. */
K3_API void k3_cache_policy_limit(struct k3_cache_policy *p, uint32_t slots);

#ifdef __cplusplus
}
#endif
#endif
