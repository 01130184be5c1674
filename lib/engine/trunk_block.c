/* SPDX-License-Identifier: Apache-2.0 */
/* trunk_block.c - the check of a block as it comes from the disk. */
#include "engine/trunk_block.h"
#include "data/roles.h"
#include "math/code.h"
#include "sys/small.h"

#include <inttypes.h>
#include <stdio.h>
/* compiled here, and so with the flags that make a loop wide */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Bytes that are summed while as many behind them are fetched. */
enum { STRIP = 4096 };

/* "FILE: offset N: TENSOR, rows A to B", made only when something is wrong. */
static void name_block(const struct k3_trunk *t, const struct k3_index *ix,
		       const struct k3_order *o, uint64_t block, struct k3_err *out)
{
	const struct k3_use *u = k3_order_use(o, block);
	const struct k3_config *c = k3_index_config(ix);
	struct k3_trunk_block place;
	char name[K3_NAME];
	uint64_t row, rows;

	k3_trunk_block(t, o->layer, block, &place);
	k3_use_rows(c, u, block - u->first, &row, &rows);
	k3_role_name(u->role, k3_section_layer(c, o->layer), 0, name, sizeof name);
	snprintf(out->text, sizeof out->text, "%s: offset %" PRIu64 ": %s, rows %" PRIu64 " to %"
		 PRIu64, k3_trunk_path(t), place.offset, name, row, row + rows - 1);
}

/* The measures of a coded block are those of the rows that belong there. */
static bool right_shape(const struct k3_index *ix, const struct k3_order *o, uint64_t block,
			const void *bytes)
{
	const struct k3_use *u = k3_order_use(o, block);
	struct k3_code code = k3_code_view(bytes);
	uint64_t row, rows;

	k3_use_rows(k3_index_config(ix), u, block - u->first, &row, &rows);
	return code.rows == rows && code.cols == u->cols;
}

/*
 * XXH3 of n bytes that come from a disk.  Nothing has fetched them into a cache, and by itself a processor does
 * that too late for the sum's pace.
 */
static uint64_t sum_of(const unsigned char *p, size_t n)
{
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	for (size_t i = 0, k; i < n; i += k) {
		k = k3_min(n - i, STRIP);
		k3_prefetch(p + i + k, k3_min(n - i - k, STRIP));
		XXH3_64bits_update(&state, p + i, k);
	}
	return XXH3_64bits_digest(&state);
}

int k3_trunk_block_sum(const struct k3_trunk *t, const struct k3_index *ix,
		       const struct k3_order *o, uint64_t block, const void *bytes,
		       struct k3_err *err)
{
	struct k3_trunk_block b;
	struct k3_err name;

	k3_trunk_block(t, o->layer, block, &b);
	if (sum_of(bytes, b.bytes) == b.sum)
		return 0;
	name_block(t, ix, o, block, &name);
	return k3_fail(err, K3_EDATA, "%s: the checksum is wrong", name.text);
}

int k3_trunk_block_check(const struct k3_trunk *t, const struct k3_index *ix,
			 const struct k3_order *o, uint64_t block, const void *bytes,
			 struct k3_err *err)
{
	struct k3_trunk_block b;
	struct k3_err name;
	int rc = k3_trunk_block_sum(t, ix, o, block, bytes, err);

	if (rc)
		return rc;
	k3_trunk_block(t, o->layer, block, &b);
	if (k3_order_use(o, block)->vector)
		return 0;	/* k3_trunk_open has compared the sizes */
	if (k3_code_check(bytes, b.bytes, "", NULL)) {
		name_block(t, ix, o, block, &name);
		return k3_code_check(bytes, b.bytes, name.text, err);
	}
	if (!right_shape(ix, o, block, bytes)) {
		name_block(t, ix, o, block, &name);
		return k3_fail(err, K3_EDATA, "%s: the block holds rows of another number or width",
			       name.text);
	}
	return 0;
}
