/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/expert_sum.h - the checksum of an expert, added up from parts.
 *
 * The total is a sum modulo 2^64 over all rows of the six tensors (k3-index(5)), so
 * several threads can each add up the blocks of rows that they have at hand, in any order.
 */
#ifndef K3_DATA_EXPERT_SUM_H
#define K3_DATA_EXPERT_SUM_H

#include <k3/index.h>
#include <stdint.h>

/*
 * What some rows add to the total: rows of row_bytes each, of which the first is row number
 * first of the tensor.  role is K3_W1 to K3_W3_SCALE.
 */
uint64_t k3_expert_sum(enum k3_role role, uint64_t first, uint64_t rows, uint64_t row_bytes,
		       const void *bytes);

/* What is stored for a total, and never 0: that says that tensors are missing. */
uint64_t k3_expert_sum_stored(uint64_t total);

#endif
