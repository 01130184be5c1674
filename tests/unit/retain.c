/* SPDX-License-Identifier: Apache-2.0 */
/* retain.c - blocks in a ring keep their bytes until they are dropped, and never lie in each other. */
#include "engine/retain.h"
#include "rng.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 200, PAGE = 2 << 20 };

static struct rng rng = { 11 };

/* What a block should be. */
struct want {
	unsigned char *at;	/* NULL: it has no place */
	uint64_t bytes;
	bool filled;
};

static bool holds(const struct want *w, unsigned char value)
{
	for (uint64_t i = 0; i < w->bytes; i++)
		if (w->at[i] != value)
			return false;
	return true;
}

static bool found(const struct k3_retain *r, uint64_t block, const struct want *w)
{
	const unsigned char *data = k3_retain_find(r, block);

	if (k3_retain_coming(r, block) != (w->at && !w->filled))
		return false;
	return w->at && w->filled ? data == w->at && holds(w, (unsigned char)block) : !data;
}

/*
 * Blocks come in order and go in about the same, `lag` of them later; a few are not filled before they go.
 * fits: the ring has room for all of them.
 */
static void test_ring(uint64_t size, uint64_t most, uint64_t lag, bool fits)
{
	struct want want[BLOCKS] = { { 0 } };
	struct k3_retain *r;
	struct k3_err err;
	uint64_t placed = 0, refused = 0;
	bool good = true;

	if (k3_retain_new(BLOCKS, &r, &err) || k3_retain_size(r, k3_retain_bytes(BLOCKS, size), &err))
		exit(1);
	for (uint64_t i = 0; i < 3000; i++) {
		/* of two neighbours the later one goes first */
		uint64_t b = i % BLOCKS, old = ((i + BLOCKS - lag) ^ 1) % BLOCKS;
		uint64_t bytes = 1 + rng_u64(&rng) % most;

		want[b] = (struct want){ k3_retain_assign(r, b, bytes), bytes, false };
		placed += want[b].at != NULL;
		refused += !want[b].at;
		if (want[b].at && rng_u64(&rng) % 10) {
			memset(want[b].at, (int)b, bytes);
			k3_retain_filled(r, b);
			want[b].filled = true;
		}
		if (old != b && want[old].at) {
			good &= found(r, old, &want[old]);
			k3_retain_drop(r, old);
			want[old].at = NULL;
		}
		for (uint64_t k = 0; i % 100 == 99 && k < BLOCKS; k++)
			good &= found(r, k, &want[k]);
	}
	ok(good && placed > 100 && !refused == fits,
	   "a ring of %llu bytes, blocks of up to %llu, %llu at a time: %llu placed, %llu refused",
	   (unsigned long long)size, (unsigned long long)most, (unsigned long long)lag,
	   (unsigned long long)placed, (unsigned long long)refused);
	k3_retain_clear(r);
	memset(want, 0, sizeof want);
	for (uint64_t k = 0; k < BLOCKS; k++)
		good &= found(r, k, &want[k]);
	ok(good && k3_retain_assign(r, 7, size) && !k3_retain_assign(r, 8, 1),
	   "when it is cleared one block may have all of it");
	k3_retain_free(r);
}

static void test_none(void)
{
	struct k3_retain *r;
	struct k3_err err;

	if (k3_retain_new(3, &r, &err))
		exit(1);
	ok(!k3_retain_assign(r, 1, 1) && !k3_retain_find(r, 1) && !k3_retain_coming(r, 1),
	   "at first there is no room");
	k3_retain_drop(r, 1);
	k3_retain_clear(r);
	ok(!k3_retain_size(r, k3_retain_bytes(3, PAGE) - 1, &err) && !k3_retain_assign(r, 1, 1),
	   "none in less than it takes for the smallest ring");
	ok(!k3_retain_size(r, k3_retain_bytes(3, 1), &err) && k3_retain_assign(r, 1, PAGE - 128) &&
	   k3_retain_assign(r, 0, 63) && !k3_retain_assign(r, 2, 65) && k3_retain_assign(r, 2, 64),
	   "room for what fits, whole lines of 64 bytes");
	ok(!k3_retain_size(r, k3_retain_bytes(3, 1), &err) && k3_retain_assign(r, 2, PAGE),
	   "a new size is an empty ring, even if it is the old one");
	ok(!k3_retain_size(r, 0, &err) && !k3_retain_assign(r, 1, 1), "and then no more");
	k3_retain_free(r);
}

int main(void)
{
	test_none();
	test_ring(PAGE, 150000, 6, true);
	test_ring(PAGE, 1500000, 4, false);
	test_ring(PAGE, 6000, 150, true);
	test_ring(2 * PAGE, 100000, 100, false);
	return tap_done();
}
