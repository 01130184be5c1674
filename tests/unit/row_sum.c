/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_sum.c - the checksums of an expert, from parts, and of a row of the embedding, and what they notice.
 * That they are what k3-index(5) says is tested by cmd/index-format.t.
 */
#include "data/row_sum.h"
#include "rng.h"
#include "tap.h"
#include <string.h>

enum { ROWS = 24, ROW = 112 };

static uint8_t bytes[ROWS][ROW];

static uint64_t whole(enum k3_role role)
{
	return k3_expert_sum(role, 0, ROWS, ROW, bytes);
}

static void swap_rows(int a, int b)
{
	uint8_t row[ROW];

	memcpy(row, bytes[a], ROW);
	memcpy(bytes[a], bytes[b], ROW);
	memcpy(bytes[b], row, ROW);
}

/* Is the total of each two roles, over the same bytes, another one? */
static bool all_differ(void)
{
	for (int a = K3_W1; a <= K3_W3_SCALE; a++)
		for (int b = K3_W1; b < a; b++)
			if (whole((enum k3_role)a) == whole((enum k3_role)b))
				return false;
	return true;
}

static bool notices_a_bit(uint64_t want)
{
	for (int i = 0; i < ROWS * ROW * 8; i++) {
		uint8_t *at = &bytes[i / 8 / ROW][i / 8 % ROW];

		*at ^= (uint8_t)(1u << i % 8);
		if (whole(K3_W2) == want)
			return false;
		*at ^= (uint8_t)(1u << i % 8);
	}
	return true;
}

int main(void)
{
	struct rng g = { 1 };
	uint64_t want, parts = 0;

	for (int i = 0; i < ROWS * ROW; i++)
		bytes[i / ROW][i % ROW] = (uint8_t)rng_u64(&g);
	want = whole(K3_W2);
	for (int i = ROWS - 4; i >= 0; i -= 4)
		parts += k3_expert_sum(K3_W2, (uint64_t)i, 4, ROW, bytes[i]);
	ok(parts == want, "parts in any order make up the whole");
	ok(!k3_expert_sum(K3_W2, 5, 0, ROW, bytes), "no rows add nothing");
	ok(notices_a_bit(want), "each bit counts");
	swap_rows(3, 17);
	ok(whole(K3_W2) != want, "rows that change places are noticed");
	swap_rows(3, 17);
	ok(k3_expert_sum(K3_W2, 1, ROWS, ROW, bytes) != want, "and rows that are moved");
	ok(k3_expert_sum(K3_W2, 0, 2 * ROWS, ROW / 2, bytes) != want, "and rows of another length");
	ok(all_differ(), "the same rows in another tensor are noticed");
	ok(k3_sum_stored(0) == 1 && k3_sum_stored(1) == 1 &&
	   k3_sum_stored(UINT64_MAX) == UINT64_MAX, "no total is stored as 0");
	want = k3_embedding_sum(7, ROW, bytes[7]);
	ok(want != k3_embedding_sum(8, ROW, bytes[7]) && want != k3_embedding_sum(7, ROW - 2, bytes[7]) &&
	   want != k3_embedding_sum(7, ROW, bytes[8]), "a row of the embedding: its number, its length, its bytes");
	return tap_done();
}
