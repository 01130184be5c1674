/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.c - text to ids: sections, special spellings, pieces, pairs.
 *
 * The order matters: a section is cut first, and a special spelling that the cut goes
 * through is text; the text between two specials is split as if it stood alone.
 */
#include "text/bpe.h"
#include "text/specials.h"
#include "text/split.h"
#include "text/vocab.h"

#include <k3/buf.h>
#include <k3/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>

struct k3_tokenizer {
	struct vocab vocab;
	struct specials specials;
	bool begins[256];	/* a special spelling begins with this byte */
};

/* One text being encoded. */
struct encoding {
	const struct k3_tokenizer *t;
	bool special;
	struct k3_ids *ids, *ends;
	struct bpe bpe;
};

int k3_ids_add(struct k3_ids *ids, uint32_t id, struct k3_err *err)
{
	size_t capacity;
	uint32_t *p;

	if (ids->count == ids->capacity) {
		capacity = ids->capacity < 16 ? 32 : ids->capacity + ids->capacity / 2;
		p = k3_reallocarray(ids->id, capacity, sizeof *p);
		if (!p)
			return k3_fail_nomem(err);
		ids->id = p;
		ids->capacity = capacity;
	}
	ids->id[ids->count++] = id;
	return 0;
}

void k3_ids_free(struct k3_ids *ids)
{
	free(ids->id);
	*ids = (struct k3_ids)K3_IDS_INIT;
}

static int open_files(struct k3_tokenizer *t, const char *directory, struct k3_err *err)
{
	char *path;
	int rc;

	if (asprintf(&path, "%s/tiktoken.model", directory) < 0)
		return k3_fail_nomem(err);
	rc = k3i_vocab_read(&t->vocab, path, err);
	free(path);
	if (rc)
		return rc;
	if (asprintf(&path, "%s/tokenizer_config.json", directory) < 0)
		return k3_fail_nomem(err);
	rc = k3i_specials_read(&t->specials, t->vocab.count, path, err);
	free(path);
	return rc;
}

int k3_tokenizer_open(const char *directory, struct k3_tokenizer **out, struct k3_err *err)
{
	struct k3_tokenizer *t = calloc(1, sizeof *t);
	int rc, i;

	*out = NULL;
	if (!t)
		return k3_fail_nomem(err);
	rc = open_files(t, directory, err);
	if (rc) {
		k3_tokenizer_close(t);
		return rc;
	}
	for (i = 0; i < SPECIALS; i++)
		t->begins[(unsigned char)t->specials.slot[i].text[0]] = true;
	*out = t;
	return 0;
}

void k3_tokenizer_close(struct k3_tokenizer *t)
{
	if (!t)
		return;
	k3i_vocab_free(&t->vocab);
	k3i_specials_free(&t->specials);
	free(t);
}

uint32_t k3_tokenizer_vocab(const struct k3_tokenizer *t)
{
	return t->vocab.count + SPECIALS;
}

const char *k3_tokenizer_bytes(const struct k3_tokenizer *t, uint32_t id, size_t *n)
{
	const struct special *sp;

	if (id < t->vocab.count) {
		*n = t->vocab.start[id + 1] - t->vocab.start[id];
		return (const char *)t->vocab.bytes + t->vocab.start[id];
	}
	if (id - t->vocab.count >= SPECIALS)
		return NULL;
	sp = &t->specials.slot[id - t->vocab.count];
	*n = sp->len;
	return sp->text;
}

static int end_piece(struct encoding *e, struct k3_err *err)
{
	return e->ends ? k3_ids_add(e->ends, (uint32_t)e->ids->count, err) : 0;
}

/* Text without special spellings. */
static int encode_plain(struct encoding *e, const unsigned char *p, size_t n, struct k3_err *err)
{
	size_t len;
	int rc = 0;

	for (; n && !rc; p += len, n -= len) {
		len = k3i_split_piece(p, n);
		rc = k3i_bpe_piece(&e->bpe, &e->t->vocab, p, len, e->ids, err);
		if (!rc)
			rc = end_piece(e, err);
	}
	return rc;
}

static int encode_section(struct encoding *e, const unsigned char *p, size_t n,
			  struct k3_err *err)
{
	const struct k3_tokenizer *t = e->t;
	size_t at = 0, done = 0;
	int slot, rc;

	while (e->special && at < n) {
		slot = t->begins[p[at]] ? k3i_specials_match(&t->specials, p + at, n - at) : -1;
		if (slot < 0) {
			at++;
			continue;
		}
		rc = encode_plain(e, p + done, at - done, err);
		if (!rc)
			rc = k3_ids_add(e->ids, t->vocab.count + (uint32_t)slot, err);
		if (!rc)
			rc = end_piece(e, err);
		if (rc)
			return rc;
		at += t->specials.slot[slot].len;
		done = at;
	}
	return encode_plain(e, p + done, n - done, err);
}

int k3_tokenizer_encode(const struct k3_tokenizer *t, const void *text, size_t n, bool special,
			struct k3_ids *ids, struct k3_ids *ends, struct k3_err *err)
{
	struct encoding e = { .t = t, .special = special, .ids = ids, .ends = ends };
	const unsigned char *p = text;
	size_t left = SPLIT_TEXT, len;
	int rc = 0;

	/* so that no count or place can exceed 32 bits: an id takes a byte at least */
	if (n > UINT32_MAX - ids->count)
		return k3_fail(err, K3_EDATA, "a text of %zu bytes is longer than 4 GiB", n);
	for (; n && !rc; p += len, n -= len) {
		len = k3i_split_section(p, n, &left);
		rc = encode_section(&e, p, len, err);
	}
	k3i_bpe_free(&e.bpe);
	return rc;
}
