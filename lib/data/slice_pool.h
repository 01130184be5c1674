/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/slice_pool.h - memory that KDA slices leave to those that come after them.
 *
 * A slice of some megabytes that is allocated anew for each layer costs the system more than its way from a file:
 * each page has to be found and cleared.  A pool serves several threads.
 */
#ifndef K3_DATA_SLICE_POOL_H
#define K3_DATA_SLICE_POOL_H

#include <k3/state.h>

#include <stdbool.h>

struct k3_slice_pool;

K3_NODISCARD int k3_slice_pool_new(struct k3_slice_pool **out, struct k3_err *err);
/* Gives back what is in it; what was taken out belongs to whoever took it. */
void k3_slice_pool_free(struct k3_slice_pool *p);

/* Memory of that many bytes, and whether they are all 0; NULL if there is none.  p may be NULL. */
void *k3_slice_pool_take(struct k3_slice_pool *p, uint64_t bytes, bool *clear);
void k3_slice_pool_give(struct k3_slice_pool *p, void *slice, uint64_t bytes);

/* Where the state's slices get memory and leave it, until it is told NULL; borrowed. */
void k3_state_pool(struct k3_state *s, struct k3_slice_pool *p);

#endif
