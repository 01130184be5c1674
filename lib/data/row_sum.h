/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/row_sum.h - checksums of what is read in place from the shards (k3-index(5)).
 *
 * That of an expert is a sum modulo 2^64 over all rows of its six tensors, so several threads can each
 * add up the blocks of rows that they have at hand, in any order.  The embedding, of which single rows are
 * read, has one for each row.
 */
#ifndef K3_DATA_ROW_SUM_H
#define K3_DATA_ROW_SUM_H

#include <k3/index.h>
#include <stdint.h>

/*
 * What some rows add to the total: rows of row_bytes each, of which the first is row number
 * first of the tensor.  role is K3_W1 to K3_W3_SCALE.
 */
uint64_t k3_expert_sum(enum k3_role role, uint64_t first, uint64_t rows, uint64_t row_bytes,
		       const void *bytes);

/* What is stored for a total, and never 0: that says that tensors are missing. */
uint64_t k3_sum_stored(uint64_t total);

/* What is stored for a row of the embedding. */
uint64_t k3_embedding_sum(uint64_t row, uint64_t row_bytes, const void *bytes);

#endif
