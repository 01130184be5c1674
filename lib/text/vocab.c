/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab.c - reads tiktoken.model: a line for each token, its bytes in base64 and
 * its rank, which is its id.
 *
 * A vocabulary with a flaw gives fluent nonsense, so nothing is repaired: the ranks count
 * up from 0, no bytes come twice, and all 256 single bytes are there, in any order,
 * because byte-pair encoding starts from them.
 */
#include "text/vocab.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The released file has 2.8 MB; what is a hundred times larger is something else. */
#define VOCAB_FILE_MAX ((size_t)256 << 20)

/* A file being read: path and line are for error sentences. */
struct reading {
	struct vocab *v;
	struct k3_buf bytes;
	const char *path;
	uint32_t line;
};

static int sextet(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	const char *d = c ? strchr(digits, c) : NULL;

	return d ? (int)(d - digits) : -1;
}

/*
 * Appends the bytes that n characters of base64 stand for; false unless it is
 * padded and has no stray bits at its end: one spelling for every token.
 */
static bool base64(const char *s, size_t n, struct k3_buf *out)
{
	size_t pad, i;
	int v;
	uint32_t bits;

	if (n == 0 || n % 4)
		return false;
	pad = s[n - 1] != '=' ? 0 : s[n - 2] != '=' ? 1 : 2;
	for (bits = 0, i = 0; i < n - pad; i++) {
		v = sextet(s[i]);
		if (v < 0)
			return false;
		bits = bits << 6 | (uint32_t)v;
		if (i % 4 == 3) {
			k3_buf_char(out, (char)(bits >> 16));
			k3_buf_char(out, (char)(bits >> 8));
			k3_buf_char(out, (char)bits);
			bits = 0;
		}
	}
	if (pad == 1) {
		k3_buf_char(out, (char)(bits >> 10));
		k3_buf_char(out, (char)(bits >> 2));
		return !(bits & 3);
	}
	if (pad == 2) {
		k3_buf_char(out, (char)(bits >> 4));
		return !(bits & 15);
	}
	return true;
}

/* A decimal number without leading zeros, in n characters; false if it is none. */
static bool decimal(const char *s, size_t n, uint64_t *out)
{
	*out = 0;
	if (n == 0 || n > 18 || (n > 1 && *s == '0'))
		return false;
	for (; n; s++, n--) {
		if (*s < '0' || *s > '9')
			return false;
		*out = *out * 10 + (uint64_t)(*s - '0');
	}
	return true;
}

static int read_line(struct reading *r, const char *s, size_t n, struct k3_err *err)
{
	const char *blank = memchr(s, ' ', n);
	size_t len = blank ? (size_t)(blank - s) : n;
	uint64_t rank;

	if (n && s[n - 1] == '\r')
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu32 " ends with a carriage return",
			       r->path, r->line);
	if (!blank || !decimal(blank + 1, n - len - 1, &rank))
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu32 " is not base64, one blank and "
			       "a decimal rank", r->path, r->line);
	if (!base64(s, len, &r->bytes))
		return r->bytes.failed ? k3_fail_nomem(err) :
			k3_fail(err, K3_EDATA, "%s: line %" PRIu32 ": '%.*s' is not the base64 "
				"of a token", r->path, r->line, len > 60 ? 60 : (int)len, s);
	if (rank != r->v->count)
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu32 " has rank %" PRIu64
			       " where rank %" PRIu32 " must stand: ranks count up from 0 "
			       "without gaps", r->path, r->line, rank, r->v->count);
	r->v->start[++r->v->count] = (uint32_t)r->bytes.len;
	return 0;
}

static int read_lines(struct reading *r, const struct k3_buf *file, struct k3_err *err)
{
	const char *p = file->data, *end = p + file->len, *newline;
	size_t lines = 0;
	int rc;

	for (const char *q = p; q < end; q++)
		lines += *q == '\n';
	r->v->start = k3_calloc(lines + 1, sizeof *r->v->start);
	if (!r->v->start)
		return k3_fail_nomem(err);
	while (p < end) {
		r->line++;
		newline = memchr(p, '\n', (size_t)(end - p));
		if (!newline)
			return k3_fail(err, K3_EDATA, "%s: line %" PRIu32 " has no newline: "
				       "the file is cut short", r->path, r->line);
		rc = read_line(r, p, (size_t)(newline - p), err);
		if (rc)
			return rc;
		p = newline + 1;
	}
	return r->bytes.failed ? k3_fail_nomem(err) : 0;
}

/* Where these bytes are in the table of slots, or where they belong. */
static struct vocab_slot *slot_of(const struct vocab *v, const unsigned char *p, size_t n,
				  uint32_t *tag)
{
	uint64_t h = XXH3_64bits(p, n);
	uint32_t i = (uint32_t)h & v->mask, id;

	*tag = (uint32_t)(h >> 32);
	for (;; i = (i + 1) & v->mask) {
		id = v->slots[i].id;
		if (id == VOCAB_NONE)
			return &v->slots[i];
		if (v->slots[i].tag == *tag && v->start[id + 1] - v->start[id] == n &&
		    !memcmp(v->bytes + v->start[id], p, n))
			return &v->slots[i];
	}
}

uint32_t k3i_vocab_find(const struct vocab *v, const unsigned char *p, size_t n)
{
	uint32_t tag;

	return n > v->longest ? VOCAB_NONE : slot_of(v, p, n, &tag)->id;
}

/* Fills the table from bytes to ids, half full at most. */
static int make_slots(struct vocab *v, const char *path, struct k3_err *err)
{
	uint64_t size = 512;
	struct vocab_slot *s;
	uint32_t id, n, tag;

	while (size < 2 * (uint64_t)v->count)
		size *= 2;
	v->mask = (uint32_t)(size - 1);
	v->slots = k3_reallocarray(NULL, size, sizeof *v->slots);
	if (!v->slots)
		return k3_fail_nomem(err);
	memset(v->slots, 0xff, size * sizeof *v->slots);
	for (id = 0; id < v->count; id++) {
		n = v->start[id + 1] - v->start[id];
		s = slot_of(v, v->bytes + v->start[id], n, &tag);
		if (s->id != VOCAB_NONE)
			return k3_fail(err, K3_EDATA, "%s: line %" PRIu32 " has the same bytes as "
				       "line %" PRIu32, path, id + 1, s->id + 1);
		*s = (struct vocab_slot){ id, tag };
		if (n > v->longest)
			v->longest = n;
	}
	return 0;
}

int k3i_vocab_read(struct vocab *v, const char *path, struct k3_err *err)
{
	struct reading r = { v, K3_BUF_INIT, path, 0 };
	struct k3_buf file = K3_BUF_INIT;
	unsigned char byte;
	int rc, b;

	rc = k3_slurp(path, VOCAB_FILE_MAX, &file, err);
	if (!rc)
		rc = read_lines(&r, &file, err);
	k3_buf_free(&file);
	v->bytes = (unsigned char *)r.bytes.data;
	if (!rc)
		rc = make_slots(v, path, err);
	for (b = 0; !rc && b < 256; b++) {
		byte = (unsigned char)b;
		v->of_byte[b] = k3i_vocab_find(v, &byte, 1);
		if (v->of_byte[b] == VOCAB_NONE)
			rc = k3_fail(err, K3_EDATA, "%s: no line holds the single byte 0x%02x",
				     path, (unsigned)b);
	}
	return rc;
}

void k3i_vocab_free(struct vocab *v)
{
	free(v->bytes);
	free(v->start);
	free(v->slots);
	*v = (struct vocab){ 0 };
}
