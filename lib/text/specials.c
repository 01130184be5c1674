/* SPDX-License-Identifier: Apache-2.0 */
/*
 * specials.c - the special ids: named in tokenizer_config.json, or reserved.
 *
 * Of the JSON only added_tokens_decoder counts: an object from ids, as strings, to
 * objects with a "content".  It is read as a stream of paths and leaves, where
 * a key that is given twice can be seen.
 */
#include "text/specials.h"

#include <k3/buf.h>
#include <k3/io.h>
#include <k3/num.h>
#include <k3/utf8.h>

#include <inttypes.h>
#include <jv.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "added_tokens_decoder"

/* The released file has 3 KB. */
#define CONFIG_MAX ((size_t)16 << 20)

/* A file being read. */
struct reading {
	struct specials *s;
	const char *path;
	bool closed;		/* the whole JSON object has been read */
	bool table, table_done;	/* the table has begun, has ended */
	bool known[SPECIALS], done[SPECIALS];	/* and so the object of each slot's id */
};

/* The slot of an id as the JSON spells it; NULL stands for what is not a key. */
static int slot_of(struct reading *r, const char *id, int *slot, struct k3_err *err)
{
	uint64_t v;

	if (!id || !k3_num_u64(id, UINT32_MAX, &v) || v < r->s->first ||
	    v - r->s->first >= SPECIALS || (*id == '0' && id[1]))
		return k3_fail(err, K3_EDATA, "%s: " TABLE ": '%s' is not an id from %" PRIu32
			       " to %" PRIu32, r->path, id ? id : "", r->s->first,
			       r->s->first + SPECIALS - 1);
	*slot = (int)(v - r->s->first);
	if (r->done[*slot])
		return k3_fail(err, K3_EDATA, "%s: " TABLE ": id %s is given twice", r->path, id);
	return 0;
}

static int take_content(struct reading *r, int slot, jv value, struct k3_err *err)
{
	struct special *sp = &r->s->slot[slot];
	uint32_t id = r->s->first + (uint32_t)slot;

	if (sp->text)
		return k3_fail(err, K3_EDATA, "%s: " TABLE ": id %" PRIu32 " has two contents",
			       r->path, id);
	if (jv_get_kind(value) == JV_KIND_STRING)
		sp->len = (size_t)jv_string_length_bytes(jv_copy(value));
	if (!sp->len || strlen(jv_string_value(value)) != sp->len)
		return k3_fail(err, K3_EDATA, "%s: " TABLE ": the content of id %" PRIu32
			       " is not a string of one or more characters without NUL",
			       r->path, id);
	sp->text = strdup(jv_string_value(value));
	return sp->text ? 0 : k3_fail_nomem(err);
}

/*
 * Something in the table, under a path of this depth with the keys key[0] (the
 * table's own name), key[1] (an id) and key[2]; value is invalid where an object ends.
 */
static int take_entry(struct reading *r, int depth, const char *const *key, jv value,
		      struct k3_err *err)
{
	bool end = !jv_is_valid(value);
	int slot = 0, rc;

	if (r->table_done)
		return k3_fail(err, K3_EDATA, "%s: " TABLE " is given twice", r->path);
	r->table = true;
	if (depth == 1 && jv_get_kind(value) != JV_KIND_OBJECT)
		return k3_fail(err, K3_EDATA, "%s: " TABLE " is not an object", r->path);
	if (depth == 1 || (depth == 2 && end)) {
		r->table_done = true;
		return 0;
	}
	rc = slot_of(r, key[1], &slot, err);
	if (rc)
		return rc;
	r->known[slot] = true;
	if (depth == 2 || (depth == 3 && end))
		r->done[slot] = true;
	else if (depth == 3 && key[2] && !strcmp(key[2], "content"))
		return take_content(r, slot, value, err);
	return 0;
}

/* What the parser met: an array of a path and, but for the end of an object, a value. */
static int take_event(struct reading *r, jv event, struct k3_err *err)
{
	jv path = jv_array_get(jv_copy(event), 0), part[3], value = jv_invalid();
	int depth = jv_array_length(jv_copy(path)), rc = 0, i;
	const char *key[3];
	bool end;

	for (i = 0; i < 3; i++) {
		part[i] = i < depth ? jv_array_get(jv_copy(path), i) : jv_null();
		key[i] = jv_get_kind(part[i]) == JV_KIND_STRING ? jv_string_value(part[i]) : NULL;
	}
	end = jv_array_length(jv_copy(event)) == 1;
	if (!end)
		value = jv_array_get(jv_copy(event), 1);
	if (r->closed || (depth ? !key[0] : jv_get_kind(value) != JV_KIND_OBJECT))
		rc = k3_fail(err, K3_EDATA, "%s: it is not one JSON object", r->path);
	else if (depth == 0 || (depth == 1 && end))
		r->closed = true;
	else if (!strcmp(key[0], TABLE))
		rc = take_entry(r, depth, key, value, err);
	for (i = 0; i < 3; i++)
		jv_free(part[i]);
	jv_free(value);
	jv_free(path);
	return rc;
}

/* Takes the events of the parser until it has no more, or one is wrong. */
static int take_events(struct reading *r, struct jv_parser *parser, struct k3_err *err)
{
	jv event, message;
	int rc = 0;

	while (!rc && jv_is_valid(event = jv_parser_next(parser))) {
		rc = take_event(r, event, err);
		jv_free(event);
	}
	if (rc)
		return rc;
	if (jv_invalid_has_msg(jv_copy(event))) {
		message = jv_invalid_get_msg(event);
		rc = k3_fail(err, K3_EDATA, "%s: %s", r->path, jv_string_value(message));
		jv_free(message);
	} else {
		jv_free(event);
	}
	return rc;
}

static int parse(struct reading *r, const struct k3_buf *file, struct k3_err *err)
{
	const unsigned char *p = (const unsigned char *)file->data;
	struct jv_parser *parser;
	size_t at, k;
	uint32_t c;
	int rc;

	/* libjq would put U+FFFD for what is not UTF-8, and a spelling would differ */
	for (at = 0; at < file->len; at += k) {
		k = k3_utf8_next(p + at, file->len - at, &c);
		if (!k)
			return k3_fail(err, K3_EDATA, "%s: offset %zu is not UTF-8", r->path, at);
	}
	parser = jv_parser_new(JV_PARSE_STREAMING);
	if (!parser)
		return k3_fail_nomem(err);
	jv_parser_set_buf(parser, file->data, (int)file->len, 0);
	rc = take_events(r, parser, err);
	jv_parser_free(parser);
	if (!rc && !r->closed)
		rc = k3_fail(err, K3_EDATA, "%s: it is not one JSON object", r->path);
	if (!rc && !r->table)
		rc = k3_fail(err, K3_EDATA, "%s: there is no " TABLE " in it", r->path);
	return rc;
}

static int by_text(const void *a, const void *b, void *arg)
{
	const struct specials *s = arg;

	return strcmp(s->slot[*(const uint16_t *)a].text, s->slot[*(const uint16_t *)b].text);
}

/* Gives unnamed slots their spelling, sorts all, and refuses a spelling of two ids. */
static int complete(struct reading *r, struct k3_err *err)
{
	struct specials *s = r->s;
	struct special *sp, *next;
	int i, n;

	for (i = 0; i < SPECIALS; i++) {
		sp = &s->slot[i];
		s->sorted[i] = (uint16_t)i;
		if (sp->text)
			continue;
		if (r->known[i])
			return k3_fail(err, K3_EDATA, "%s: " TABLE ": id %" PRIu32
				       " has no content", r->path, s->first + (uint32_t)i);
		n = asprintf(&sp->text, "<|reserved_token_%" PRIu32 "|>", s->first + (uint32_t)i);
		if (n < 0) {
			sp->text = NULL;
			return k3_fail_nomem(err);
		}
		sp->len = (size_t)n;
	}
	qsort_r(s->sorted, SPECIALS, sizeof *s->sorted, by_text, s);
	for (i = 1; i < SPECIALS; i++) {
		sp = &s->slot[s->sorted[i - 1]];
		next = &s->slot[s->sorted[i]];
		if (!strcmp(sp->text, next->text))
			return k3_fail(err, K3_EDATA, "%s: " TABLE ": ids %" PRIu32 " and %" PRIu32
				       " have the same content '%s'", r->path,
				       s->first + s->sorted[i - 1], s->first + s->sorted[i],
				       sp->text);
	}
	return 0;
}

int k3i_specials_read(struct specials *s, uint32_t first, const char *path, struct k3_err *err)
{
	struct reading r = { .s = s, .path = path };
	struct k3_buf file = K3_BUF_INIT;
	int rc;

	s->first = first;
	rc = k3_slurp(path, CONFIG_MAX, &file, err);
	if (!rc)
		rc = parse(&r, &file, err);
	k3_buf_free(&file);
	return rc ? rc : complete(&r, err);
}

void k3i_specials_free(struct specials *s)
{
	int i;

	for (i = 0; i < SPECIALS; i++)
		free(s->slot[i].text);
	*s = (struct specials){ 0 };
}

/*
 * Of the sorted spellings from lo to hi, which agree in their first depth bytes, the
 * first whose next byte is at least c.
 */
static int lower(const struct specials *s, int lo, int hi, size_t depth, int c)
{
	int mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if ((unsigned char)s->slot[s->sorted[mid]].text[depth] < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int k3i_specials_match(const struct specials *s, const unsigned char *p, size_t n)
{
	int lo = 0, hi = SPECIALS, best = -1;
	size_t depth;

	for (depth = 0; depth < n && p[depth]; depth++) {
		lo = lower(s, lo, hi, depth, p[depth]);
		hi = lower(s, lo, hi, depth, p[depth] + 1);
		if (lo == hi)
			break;
		/* the shortest of those that begin alike comes first */
		if (s->slot[s->sorted[lo]].len == depth + 1)
			best = s->sorted[lo];
	}
	return best;
}
