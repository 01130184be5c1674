/* SPDX-License-Identifier: Apache-2.0 */
/* engine/trunk_block.h - whether a block that was read from a trunk file is what it must be. */
#ifndef K3_ENGINE_TRUNK_BLOCK_H
#define K3_ENGINE_TRUNK_BLOCK_H

#include "data/order.h"
#include "data/trunk.h"

/*
 * Checks the bytes of block number `block` of section o->layer: their sum, and that they are the coded
 * rows that the order puts there.  After it the block may be given to the functions of math/code.h.
 * Any number of threads may call it.  Errors: K3_EDATA, with file, offset, tensor and rows.
 */
K3_NODISCARD int k3_trunk_block_check(const struct k3_trunk *t, const struct k3_index *ix,
				      const struct k3_order *o, uint64_t block, const void *bytes,
				      struct k3_err *err);

/*
 * Only the sum, which is quicker: enough for a block that was read and checked before, since
 * bytes of the same sum are the same bytes.
 */
K3_NODISCARD int k3_trunk_block_sum(const struct k3_trunk *t, const struct k3_index *ix,
				    const struct k3_order *o, uint64_t block, const void *bytes,
				    struct k3_err *err);

#endif
