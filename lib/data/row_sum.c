/* SPDX-License-Identifier: Apache-2.0 */
/* row_sum.c - the checksum of an expert, added up from parts, and of a row of the embedding. */
#include "data/row_sum.h"

#include <xxhash.h>

uint64_t k3_expert_sum(enum k3_role role, uint64_t first, uint64_t rows, uint64_t row_bytes,
		       const void *bytes)
{
	/* A sum has no order: what is in the wrong place is noticed by the seed alone. */
	uint64_t seed = ((uint64_t)(role - K3_W1) << 32) + first, sum = 0;
	const uint8_t *row = bytes;

	for (uint64_t i = 0; i < rows; i++)
		sum += XXH3_64bits_withSeed(row + i * row_bytes, row_bytes, seed + i);
	return sum;
}

uint64_t k3_sum_stored(uint64_t total)
{
	return total ? total : 1;
}

uint64_t k3_embedding_sum(uint64_t row, uint64_t row_bytes, const void *bytes)
{
	return k3_sum_stored(XXH3_64bits_withSeed(bytes, row_bytes, row));
}
