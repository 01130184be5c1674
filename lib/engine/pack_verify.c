/* SPDX-License-Identifier: Apache-2.0 */
/* pack_verify.c - compares every byte of a trunk file with what it must be. */
#include "data/roles.h"
#include "data/trunk.h"
#include "engine/trunk_block.h"
#include "engine/pieces.h"
#include "math/code.h"
#include "sys/direct.h"

#include <k3/io.h>

#include <inttypes.h>
#include <string.h>

struct verify {
	const struct k3_index *ix;
	struct k3_trunk *trunk;
	struct k3_piece_most most;
	struct k3_direct file;		/* the trunk file once more, for direct reads */
};

static uint64_t rows_room(const struct verify *v)
{
	return k3_direct_up(v->most.block);
}

/* The rows of a block, and behind them the blocks of a piece as they are in the trunk file. */
static size_t room(const struct verify *v)
{
	return rows_room(v) + k3_direct_up(v->most.bytes + 2 * K3_DIRECT +
					   v->most.blocks * (K3T_MORE + K3T_BLOCK_STEP));
}

static int check_zeros(const struct verify *v, const unsigned char *p, uint64_t n, uint64_t offset,
		       struct k3_err *err)
{
	for (uint64_t i = 0; i < n; i++)
		if (p[i])
			return k3_fail(err, K3_EDATA, "%s: offset %" PRIu64 ": a byte that must be zero "
				       "is not", k3_trunk_path(v->trunk), offset + i);
	return 0;
}

/* The bytes of the file from begin to end, less than a section's step, are zeros. */
static int check_gap(const struct verify *v, uint64_t begin, uint64_t end, struct k3_err *err)
{
	unsigned char p[4096];
	int rc = 0;

	for (uint64_t n; !rc && begin < end; begin += n) {
		n = end - begin < sizeof p ? end - begin : sizeof p;
		rc = k3_pread_full(k3_trunk_fd(v->trunk), p, n, begin, k3_trunk_path(v->trunk), err);
		if (!rc)
			rc = check_zeros(v, p, n, begin, err);
	}
	return rc;
}

/* What is neither a block nor between two. */
static int check_around(const struct verify *v, uint32_t layer, struct k3_err *err)
{
	struct k3_trunk_section s;
	struct k3_trunk_block first, last;
	int rc;

	k3_trunk_section(v->trunk, layer, &s);
	k3_trunk_block(v->trunk, layer, 0, &first);
	k3_trunk_block(v->trunk, layer, s.blocks - 1, &last);
	rc = check_gap(v, s.offset + k3_trunk_directory_size(s.blocks), first.offset, err);
	if (!rc)
		rc = check_gap(v, last.offset + last.bytes, s.offset + s.length, err);
	return rc;
}

static int differs(const struct verify *v, const struct k3_piece *p, const unsigned char *got,
		   const unsigned char *want, uint64_t block, struct k3_err *err)
{
	uint64_t bytes, at = k3_use_place(p->config, p->use, block, &bytes), i = 0;
	char name[K3_NAME];

	while (got[i] == want[i])
		i++;
	k3_role_name(p->tensor.role, p->tensor.layer, 0, name, sizeof name);
	return k3_fail(err, K3_EDATA, "%s: %s differs in row %" PRIu64 " from %s, offset %" PRIu64,
		       k3_trunk_path(v->trunk), name, (at + i) / (p->tensor.bytes / p->tensor.rows),
		       p->shard, p->tensor.offset + at + i);
}

static int compare(const struct verify *v, const struct k3_piece *p, uint64_t block,
		   const unsigned char *got, unsigned char *rows, struct k3_err *err)
{
	const unsigned char *want;
	uint64_t bytes;
	int rc = k3_trunk_block_check(v->trunk, v->ix, p->order, p->use->first + block, got, err);

	if (rc)
		return rc;
	want = k3_piece_block(p, block, &bytes);
	if (!p->use->vector) {
		k3_code_decode(got, 0, k3_code_view(got).rows, rows);
		got = rows;
	}
	return memcmp(got, want, bytes) ? differs(v, p, got, want, block, err) : 0;
}

static int verify_piece(void *arg, const struct k3_piece *p, void *space, struct k3_err *err)
{
	struct verify *v = arg;
	uint32_t layer = p->order->layer;
	uint64_t first = p->use->first + p->first, from, end;
	unsigned char *in = (unsigned char *)space + rows_room(v);
	struct k3_trunk_block b;
	int rc;

	k3_trunk_block(v->trunk, layer, first, &b);
	from = k3_direct_down(b.offset);
	k3_trunk_block(v->trunk, layer, first + p->blocks - 1, &b);
	end = k3_trunk_up(b.offset + b.bytes, K3T_BLOCK_STEP);
	rc = k3_direct_read(&v->file, in, k3_direct_up(end - from), from, end - from, err);
	for (uint64_t i = 0; !rc && i < p->blocks; i++) {
		k3_trunk_block(v->trunk, layer, first + i, &b);
		rc = compare(v, p, p->first + i, in + (b.offset - from), space, err);
		end = b.offset + b.bytes;
		if (!rc)
			rc = check_zeros(v, in + (end - from), k3_trunk_up(end, K3T_BLOCK_STEP) - end,
					 end, err);
	}
	if (!rc && !first)
		rc = check_around(v, layer, err);
	return rc;
}

static int verify(struct verify *v, const struct k3_pack_options *options, struct k3_err *err)
{
	struct k3_trunk_section first;
	struct k3_pieces *walk;
	uint32_t sections = k3_trunk_sections(v->trunk);
	int rc = k3_pieces_new(v->ix, options, &walk, err);

	if (rc)
		return rc;
	v->most = k3_pieces_most(walk);
	k3_trunk_section(v->trunk, 0, &first);
	rc = check_gap(v, k3_trunk_head_end(sections), first.offset, err);
	if (!rc)
		rc = k3_pieces_run(walk, verify_piece, v, room(v), err);
	k3_pieces_free(walk);
	return rc;
}

int k3_pack_verify(const struct k3_index *ix, const char *path,
		   const struct k3_pack_options *options, struct k3_err *err)
{
	struct verify v = { .ix = ix, .file = { .fd = -1 } };
	int rc = k3_trunk_open(path, ix, &v.trunk, err);

	if (!rc)
		rc = k3_direct_open(&v.file, path, err);
	if (!rc)
		rc = verify(&v, options, err);
	k3_direct_close(&v.file);
	k3_trunk_close(v.trunk);
	return rc;
}
