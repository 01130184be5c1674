/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c - writes a trunk file.
 *
 * Threads read and code pieces side by side.  Where a piece goes depends on the size of all
 * before it, so each waits for its turn to be given its place, and then writes it while others
 * are given theirs.  The directory of a section follows when its last block has its place.
 */
#include "data/trunk.h"
#include "engine/pieces.h"
#include "math/code.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

struct pack {
	const struct k3_index *ix;
	struct k3_pieces *walk;
	struct k3_piece_most most;
	struct k3_outfile file;
	/* given out with the turn */
	struct k3_trunk_place *section;	/* owned: of all of them */
	struct k3_trunk_entry *entry;	/* owned: of the section at hand */
	uint64_t end;			/* of the last block that has a place, in the file */
	uint64_t plain;			/* bytes of the section in the checkpoint */
};

/* A piece when it is coded. */
struct coded {
	struct k3_trunk_entry *entry;	/* `at` is from the first block of the piece */
	unsigned char *bytes;
	uint64_t size, plain;
};

static uint64_t entries_room(const struct pack *k)
{
	return k3_trunk_up(k->most.blocks * sizeof(struct k3_trunk_entry), K3T_BLOCK_STEP);
}

static size_t room(const struct pack *k)
{
	return entries_room(k) + k->most.bytes + k->most.blocks * (K3T_MORE + K3T_BLOCK_STEP);
}

static uint64_t code_block(const struct k3_use *u, const unsigned char *rows, uint64_t bytes,
			   unsigned char *out)
{
	if (!u->vector)
		return k3_code_encode(rows, bytes / (2 * u->cols), u->cols, out);
	memcpy(out, rows, bytes);
	return bytes;
}

static struct coded code_piece(const struct pack *k, const struct k3_piece *p, void *space)
{
	struct coded c = { .entry = space, .bytes = (unsigned char *)space + entries_room(k) };

	for (uint64_t i = 0; i < p->blocks; i++) {
		struct k3_trunk_entry *e = &c.entry[i];
		unsigned char *out = c.bytes + c.size;
		const unsigned char *rows;
		uint64_t bytes, end;

		rows = k3_piece_block(p, p->first + i, &bytes);
		e->bytes = (uint32_t)code_block(p->use, rows, bytes, out);
		e->at = (uint32_t)(c.size / K3T_BLOCK_STEP);
		e->sum = XXH3_64bits(out, e->bytes);
		end = c.size + e->bytes;
		c.size = k3_trunk_up(end, K3T_BLOCK_STEP);
		memset(c.bytes + end, 0, c.size - end);
		c.plain += bytes;
	}
	return c;
}

/* Room for the directory of a section, which begins where the last one ends. */
static int begin_section(struct pack *k, const struct k3_order *o, struct k3_err *err)
{
	struct k3_trunk_place *s = &k->section[o->layer];
	struct k3_trunk_entry *entry = k3_reallocarray(k->entry, o->blocks, sizeof *entry);

	if (!entry)
		return k3_fail_nomem(err);
	k->entry = entry;
	k->plain = 0;
	s->offset = k->end;
	k->end = s->offset + k3_trunk_up(k3_trunk_directory_size(o->blocks), K3T_BLOCK_STEP);
	return 0;
}

static int end_section(struct pack *k, const struct k3_order *o, struct k3_err *err)
{
	struct k3_trunk_place *s = &k->section[o->layer];
	struct k3_buf b = K3_BUF_INIT;
	int rc;

	k3_trunk_put_directory(k->entry, (uint32_t)o->blocks, k->plain, &b);
	rc = b.failed ? k3_fail_nomem(err) :
	     k3_pwrite_full(k->file.fd, b.data, b.len, s->offset, k->file.path, err);
	k3_buf_free(&b);
	k->end = k3_trunk_up(k->end, K3T_SECTION_STEP);
	s->length = k->end - s->offset;
	return rc;
}

/* Gives a piece its place; it is its turn. */
static int place(struct pack *k, const struct k3_piece *p, const struct coded *c, uint64_t *at,
		 struct k3_err *err)
{
	uint64_t first = p->use->first + p->first, begin, unit;
	int rc = first ? 0 : begin_section(k, p->order, err);

	if (rc)
		return rc;
	*at = k->end;
	begin = k->end - k->section[p->order->layer].offset;
	if (begin + c->size > (uint64_t)UINT32_MAX * K3T_BLOCK_STEP)
		return k3_fail(err, K3_EDATA, "layer %" PRIu32 " is too large for a section of a trunk "
			       "file", p->order->layer);
	unit = begin / K3T_BLOCK_STEP;
	for (uint64_t i = 0; i < p->blocks; i++) {
		k->entry[first + i] = c->entry[i];
		k->entry[first + i].at += (uint32_t)unit;
	}
	k->end += c->size;
	k->plain += c->plain;
	return first + p->blocks == p->order->blocks ? end_section(k, p->order, err) : 0;
}

static int pack_piece(void *arg, const struct k3_piece *p, void *space, struct k3_err *err)
{
	struct pack *k = arg;
	struct coded c = code_piece(k, p, space);
	uint64_t at;
	int rc;

	if (!k3_pieces_turn(k->walk, p))
		return 0;
	rc = place(k, p, &c, &at, err);
	if (rc)
		return rc;
	k3_pieces_pass(k->walk);
	return k3_pwrite_full(k->file.fd, c.bytes, c.size, at, k->file.path, err);
}

/* The head, and the zeros behind the last block. */
static int finish(struct pack *k, uint32_t sections, struct k3_err *err)
{
	struct k3_buf b = K3_BUF_INIT;
	int rc;

	k3_trunk_put_head(k3_index_fingerprint(k->ix), k->section, sections, &b);
	rc = b.failed ? k3_fail_nomem(err) :
	     k3_pwrite_full(k->file.fd, b.data, b.len, 0, k->file.path, err);
	k3_buf_free(&b);
	if (!rc && ftruncate(k->file.fd, (off_t)k->end))
		rc = k3_fail_errno(err, "%s", k->file.path);
	return rc ? rc : k3_outfile_commit(&k->file, err);
}

int k3_pack(const struct k3_index *ix, const char *path, const struct k3_pack_options *options,
	    struct k3_err *err)
{
	uint32_t sections = k3_index_config(ix)->layers + 1;
	struct pack k = { .ix = ix, .file = { .fd = -1 }, .end = k3_trunk_head_size(sections) };
	int rc = k3_pieces_new(ix, options, &k.walk, err);

	if (rc)
		return rc;
	k.most = k3_pieces_most(k.walk);
	k.section = k3_calloc(sections, sizeof *k.section);
	rc = k.section ? k3_outfile_open(&k.file, path, err) : k3_fail_nomem(err);
	if (!rc)
		rc = k3_pieces_run(k.walk, pack_piece, &k, room(&k), err);
	if (!rc)
		rc = finish(&k, sections, err);
	k3_outfile_abort(&k.file);
	k3_pieces_free(k.walk);
	free(k.section);
	free(k.entry);
	return rc;
}
