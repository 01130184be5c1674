/* SPDX-License-Identifier: Apache-2.0 */
/* trunk.c - head and directories of trunk files, written, and checked when a file is opened. */
#include "data/trunk.h"
#include "data/index.h"
#include "data/order.h"
#include "sys/le.h"

#include <k3/io.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	HEAD = 48, PLACE = 16, SUM = 8,
	AT_VERSION = 8, AT_FLAGS = 12, AT_FINGERPRINT = 16, AT_SECTIONS = 32, AT_ZERO = 36,
	AT_LENGTH = 40,
	/* of a section */
	SECTION = 24, ENTRY = 16,
	AT_BLOCKS = 8, AT_SECTION_ZERO = 12, AT_PLAIN = 16
};

static const char section_magic[8] = { 'K', '3', 'L', 'A', 'Y', 'E', 'R', '\n' };

struct section {
	struct k3_trunk_place place;
	uint32_t blocks;
	uint64_t plain;
	struct k3_trunk_entry *entry;	/* owned */
};

struct k3_trunk {
	char *path;			/* owned */
	int fd;
	uint64_t length;
	uint8_t fingerprint[K3_DIGEST];
	uint32_t sections;
	struct section *section;	/* owned */
};

uint64_t k3_trunk_head_end(uint32_t sections)
{
	return HEAD + (uint64_t)PLACE * sections + SUM;
}

uint64_t k3_trunk_head_size(uint32_t sections)
{
	return k3_trunk_up(k3_trunk_head_end(sections), K3T_SECTION_STEP);
}

uint64_t k3_trunk_directory_size(uint64_t blocks)
{
	return SECTION + ENTRY * blocks + SUM;
}

/* ---- writing ---- */

static void put32(struct k3_buf *b, uint32_t v)
{
	unsigned char p[4];

	k3_put32(p, v);
	k3_buf_add(b, p, sizeof p);
}

static void put64(struct k3_buf *b, uint64_t v)
{
	unsigned char p[8];

	k3_put64(p, v);
	k3_buf_add(b, p, sizeof p);
}

/* The sum of what is in the buffer from `first` on. */
static void put_sum(struct k3_buf *b, size_t first)
{
	if (!b->failed)
		put64(b, XXH3_64bits(b->data + first, b->len - first));
}

void k3_trunk_put_head(const uint8_t fingerprint[16], const struct k3_trunk_place *section,
		       uint32_t sections, struct k3_buf *out)
{
	const struct k3_trunk_place *last = &section[sections - 1];
	size_t first = out->len;

	k3_buf_add(out, K3_TRUNK_MAGIC, 8);
	put32(out, K3T_VERSION);
	put32(out, 0);
	k3_buf_add(out, fingerprint, K3_DIGEST);
	put32(out, sections);
	put32(out, 0);
	put64(out, last->offset + last->length);
	for (uint32_t i = 0; i < sections; i++) {
		put64(out, section[i].offset);
		put64(out, section[i].length);
	}
	put_sum(out, first);
}

void k3_trunk_put_directory(const struct k3_trunk_entry *entry, uint32_t blocks, uint64_t plain,
			    struct k3_buf *out)
{
	size_t first = out->len;

	k3_buf_add(out, section_magic, sizeof section_magic);
	put32(out, blocks);
	put32(out, 0);
	put64(out, plain);
	for (uint32_t i = 0; i < blocks; i++) {
		put32(out, entry[i].at);
		put32(out, entry[i].bytes);
		put64(out, entry[i].sum);
	}
	put_sum(out, first);
}

/* ---- opening ---- */

/* n bytes at offset in memory of their own, which the caller frees, with a sum at their end. */
static int read_summed(const struct k3_trunk *t, uint64_t offset, uint64_t n, const char *what,
		       unsigned char **out, struct k3_err *err)
{
	unsigned char *p = k3_calloc(n, 1);
	int rc = p ? k3_pread_full(t->fd, p, n, offset, t->path, err) : k3_fail_nomem(err);

	if (!rc && XXH3_64bits(p, n - SUM) != k3_get64(p + n - SUM))
		rc = k3_fail(err, K3_EDATA, "%s: offset %" PRIu64 ": the checksum of %s is wrong: "
			     "the file is damaged", t->path, offset, what);
	if (rc)
		free(p);
	else
		*out = p;
	return rc;
}

/* What says that it is a trunk file at all, and how long its head is. */
static int read_begin(struct k3_trunk *t, struct k3_err *err)
{
	unsigned char p[HEAD];
	struct stat s;
	int rc;

	if (fstat(t->fd, &s))
		return k3_fail_errno(err, "%s", t->path);
	if (!S_ISREG(s.st_mode))
		return k3_fail(err, K3_EDATA, "%s: not a regular file", t->path);
	t->length = (uint64_t)s.st_size;
	rc = k3_pread_full(t->fd, p, HEAD, 0, t->path, err);
	if (rc)
		return rc;
	if (memcmp(p, K3_TRUNK_MAGIC, 8))
		return k3_fail(err, K3_EDATA, "%s: not a trunk file", t->path);
	if (k3_get32(p + AT_VERSION) != K3T_VERSION)
		return k3_fail(err, K3_EDATA, "%s: a trunk file of version %" PRIu32 "; this program "
			       "reads version %d", t->path, k3_get32(p + AT_VERSION), K3T_VERSION);
	t->sections = k3_get32(p + AT_SECTIONS);
	if (!t->sections || k3_trunk_head_size(t->sections) > t->length)
		return k3_fail(err, K3_EDATA, "%s: its %" PRIu64 " bytes are too few for %" PRIu32
			       " sections: the file is damaged", t->path, t->length, t->sections);
	return 0;
}

/* Sections lie behind the head and each other without gaps, up to the end of the file. */
static int read_places(struct k3_trunk *t, const unsigned char *p, struct k3_err *err)
{
	uint64_t end = k3_trunk_head_size(t->sections);

	t->section = k3_calloc(t->sections, sizeof *t->section);
	if (!t->section)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < t->sections; i++) {
		struct k3_trunk_place *s = &t->section[i].place;

		s->offset = k3_get64(p + HEAD + (size_t)PLACE * i);
		s->length = k3_get64(p + HEAD + (size_t)PLACE * i + 8);
		if (s->offset != end || s->length % K3T_SECTION_STEP || !s->length ||
		    s->length > t->length - end)
			return k3_fail(err, K3_EDATA, "%s: section %" PRIu32 " cannot lie at %" PRIu64
				       " with %" PRIu64 " bytes", t->path, i, s->offset, s->length);
		end += s->length;
	}
	if (end != t->length)
		return k3_fail(err, K3_EDATA, "%s: the last section ends at %" PRIu64 " of %" PRIu64
			       " bytes", t->path, end, t->length);
	return 0;
}

static int read_head(struct k3_trunk *t, struct k3_err *err)
{
	unsigned char *p;
	uint64_t length;
	int rc = read_begin(t, err);

	if (!rc)
		rc = read_summed(t, 0, k3_trunk_head_end(t->sections), "the head", &p, err);
	if (rc)
		return rc;
	memcpy(t->fingerprint, p + AT_FINGERPRINT, sizeof t->fingerprint);
	length = k3_get64(p + AT_LENGTH);
	if (k3_get32(p + AT_FLAGS) || k3_get32(p + AT_ZERO))
		rc = k3_fail(err, K3_EDATA, "%s: its head has flags that this program does not know",
			     t->path);
	else if (length != t->length)
		rc = k3_fail(err, K3_EDATA, "%s: the file has %" PRIu64 " bytes, but should have %"
			     PRIu64, t->path, t->length, length);
	else
		rc = read_places(t, p, err);
	free(p);
	return rc;
}

/* Blocks lie one behind the other in order, and the section ends with the last. */
static int read_entries(struct k3_trunk *t, uint32_t section, const unsigned char *p,
			struct k3_err *err)
{
	struct section *s = &t->section[section];
	uint64_t end = k3_trunk_directory_size(s->blocks);

	s->entry = k3_calloc(s->blocks, sizeof *s->entry);
	if (!s->entry)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < s->blocks; i++) {
		const unsigned char *q = p + SECTION + (size_t)ENTRY * i;
		struct k3_trunk_entry e = { k3_get32(q), k3_get32(q + 4), k3_get64(q + 8) };
		uint64_t at = (uint64_t)e.at * K3T_BLOCK_STEP;

		if (at != k3_trunk_up(end, K3T_BLOCK_STEP) || !e.bytes ||
		    at + e.bytes > s->place.length)
			return k3_fail(err, K3_EDATA, "%s: block %" PRIu32 " of section %" PRIu32
				       " cannot lie at %" PRIu64 " with %" PRIu32 " bytes", t->path,
				       i, section, at, e.bytes);
		end = at + e.bytes;
		s->entry[i] = e;
	}
	if (k3_trunk_up(end, K3T_SECTION_STEP) != s->place.length)
		return k3_fail(err, K3_EDATA, "%s: the blocks of section %" PRIu32 " end at %" PRIu64
			       " of its %" PRIu64 " bytes", t->path, section, end, s->place.length);
	return 0;
}

static int read_section(struct k3_trunk *t, uint32_t section, struct k3_err *err)
{
	struct section *s = &t->section[section];
	unsigned char head[SECTION], *p;
	char what[64];
	uint64_t size;
	int rc = k3_pread_full(t->fd, head, SECTION, s->place.offset, t->path, err);

	if (rc)
		return rc;
	s->blocks = k3_get32(head + AT_BLOCKS);
	s->plain = k3_get64(head + AT_PLAIN);
	size = k3_trunk_directory_size(s->blocks);
	if (memcmp(head, section_magic, sizeof section_magic) || k3_get32(head + AT_SECTION_ZERO) ||
	    !s->blocks || size > s->place.length)
		return k3_fail(err, K3_EDATA, "%s: offset %" PRIu64 ": this is not the beginning of a "
			       "section", t->path, s->place.offset);
	snprintf(what, sizeof what, "the directory of section %" PRIu32, section);
	rc = read_summed(t, s->place.offset, size, what, &p, err);
	if (rc)
		return rc;
	rc = read_entries(t, section, p, err);
	free(p);
	return rc;
}

/* ---- against the model ---- */

/* A vector has the bytes of the checkpoint, a coded block at most those and its head. */
static int check_sizes(const struct k3_trunk *t, const struct k3_config *c,
		       const struct k3_order *o, struct k3_err *err)
{
	const struct section *s = &t->section[o->layer];
	uint64_t plain = 0, bytes;

	for (uint32_t i = 0; i < o->uses; i++) {
		const struct k3_use *u = &o->use[i];

		for (uint64_t k = 0; k < u->blocks; k++) {
			const struct k3_trunk_entry *e = &s->entry[u->first + k];

			k3_use_place(c, u, k, &bytes);
			plain += bytes;
			if (u->vector ? e->bytes == bytes : e->bytes <= bytes + K3T_MORE)
				continue;
			return k3_fail(err, K3_EDATA, "%s: block %" PRIu64 " of section %" PRIu32
				       " has %" PRIu32 " bytes for %" PRIu64 " in the model", t->path,
				       u->first + k, o->layer, e->bytes, bytes);
		}
	}
	if (s->plain != plain)
		return k3_fail(err, K3_EDATA, "%s: section %" PRIu32 " is said to stand for %" PRIu64
			       " bytes, but in the model there are %" PRIu64, t->path, o->layer,
			       s->plain, plain);
	return 0;
}

static int check_model(const struct k3_trunk *t, const struct k3_index *ix, struct k3_err *err)
{
	const struct k3_config *c = k3_index_config(ix);
	int rc = 0;

	if (memcmp(t->fingerprint, k3_index_fingerprint(ix), sizeof t->fingerprint))
		return k3_fail(err, K3_ESTALE, "%s: a trunk file of another model than %s; k3-pack "
			       "makes one for it", t->path, k3_index_directory(ix));
	if (t->sections != c->layers + 1)
		return k3_fail(err, K3_EDATA, "%s: %" PRIu32 " sections for %" PRIu32 " layers and the "
			       "output", t->path, t->sections, c->layers);
	for (uint32_t i = 0; !rc && i < t->sections; i++) {
		struct k3_order o;

		k3_order_init(c, i, 0, &o);
		if (t->section[i].blocks == o.blocks)
			rc = check_sizes(t, c, &o, err);
		else
			rc = k3_fail(err, K3_EDATA, "%s: section %" PRIu32 " has %" PRIu32 " blocks, and "
				     "should have %" PRIu64, t->path, i, t->section[i].blocks, o.blocks);
	}
	return rc;
}

int k3_trunk_open(const char *path, const struct k3_index *ix, struct k3_trunk **out,
		  struct k3_err *err)
{
	struct k3_trunk *t = k3_calloc(1, sizeof *t);
	int rc;

	*out = NULL;
	if (!t)
		return k3_fail_nomem(err);
	t->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);	/* a fifo does not hold us up */
	t->path = strdup(path);
	if (t->fd < 0)
		rc = k3_fail_errno(err, "%s", path);
	else
		rc = t->path ? read_head(t, err) : k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < t->sections; i++)
		rc = read_section(t, i, err);
	if (!rc && ix)
		rc = check_model(t, ix, err);
	if (rc)
		k3_trunk_close(t);
	else
		*out = t;
	return rc;
}

void k3_trunk_close(struct k3_trunk *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; t->section && i < t->sections; i++)
		free(t->section[i].entry);
	free(t->section);
	if (t->fd >= 0)
		close(t->fd);
	free(t->path);
	free(t);
}

/* ---- asking ---- */

const char *k3_trunk_path(const struct k3_trunk *t)
{
	return t->path;
}

int k3_trunk_fd(const struct k3_trunk *t)
{
	return t->fd;
}

uint64_t k3_trunk_length(const struct k3_trunk *t)
{
	return t->length;
}

const uint8_t *k3_trunk_fingerprint(const struct k3_trunk *t)
{
	return t->fingerprint;
}

void k3_trunk_block(const struct k3_trunk *t, uint32_t section, uint64_t block,
		    struct k3_trunk_block *out)
{
	const struct section *s = &t->section[section];
	const struct k3_trunk_entry *e = &s->entry[block];

	*out = (struct k3_trunk_block){ s->place.offset + (uint64_t)e->at * K3T_BLOCK_STEP,
					e->bytes, e->sum };
}

uint32_t k3_trunk_sections(const struct k3_trunk *t)
{
	return t->sections;
}

void k3_trunk_section(const struct k3_trunk *t, uint32_t section, struct k3_trunk_section *out)
{
	const struct section *s = &t->section[section];

	*out = (struct k3_trunk_section){ .offset = s->place.offset, .length = s->place.length,
					  .blocks = s->blocks, .plain = s->plain };
	for (uint32_t i = 0; i < s->blocks; i++)
		out->coded += s->entry[i].bytes;
}

int k3_trunk_beside(const struct k3_index *ix, char **path, struct k3_err *err)
{
	*path = k3_index_join(k3_index_directory(ix), "model.k3t");
	return *path ? 0 : k3_fail_nomem(err);
}
