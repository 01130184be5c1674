/* SPDX-License-Identifier: Apache-2.0 */
/*
 * specials.c - the special ids: named in tokenizer_config.json, or reserved.
 *
 * Of the JSON only added_tokens_decoder counts: an object from ids, as strings, to
 * objects with a "content".
 */
#include "text/specials.h"

#include "data/json.h"

#include <k3/buf.h>
#include <k3/io.h>
#include <k3/num.h>
#include <k3/utf8.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "added_tokens_decoder"

/* The released file has 3 KB. */
#define CONFIG_MAX ((size_t)1 << 20)

/* One entry of the table; key and entry are borrowed. */
static int take_entry(struct specials *s, const char *path, jv key, jv entry,
		      struct k3_err *err)
{
	const char *id = jv_string_value(key);
	struct special *sp;
	size_t len = 0;
	uint64_t v;
	jv content;

	if (!k3_num_u64(id, UINT32_MAX, &v) || v < s->first || v - s->first >= SPECIALS ||
	    (*id == '0' && id[1]) || strlen(id) != (size_t)jv_string_length_bytes(jv_copy(key)))
		return k3_fail(err, K3_EDATA, "%s: " TABLE ": '%s' is not an id from %" PRIu32
			       " to %" PRIu32, path, id, s->first, s->first + SPECIALS - 1);
	content = jv_get_kind(entry) == JV_KIND_OBJECT ?
		jv_object_get(jv_copy(entry), jv_string("content")) : jv_null();
	if (jv_get_kind(content) == JV_KIND_STRING)
		len = (size_t)jv_string_length_bytes(jv_copy(content));
	if (!len || strlen(jv_string_value(content)) != len) {
		jv_free(content);
		return k3_fail(err, K3_EDATA, "%s: " TABLE ": id %s has no content that is a string "
			       "of one or more characters without NUL", path, id);
	}
	sp = &s->slot[v - s->first];
	sp->text = strdup(jv_string_value(content));
	sp->len = len;
	jv_free(content);
	return sp->text ? 0 : k3_fail_nomem(err);
}

/* The entries of the table, which is borrowed. */
static int take_table(struct specials *s, const char *path, jv table, struct k3_err *err)
{
	int rc = 0, i;
	jv key, value;

	if (!jv_is_valid(table))
		return k3_fail(err, K3_EDATA, "%s: there is no " TABLE " in it", path);
	if (jv_get_kind(table) != JV_KIND_OBJECT)
		return k3_fail(err, K3_EDATA, "%s: " TABLE " is not an object", path);
	for (i = jv_object_iter(table); !rc && jv_object_iter_valid(table, i);
	     i = jv_object_iter_next(table, i)) {
		key = jv_object_iter_key(table, i);
		value = jv_object_iter_value(table, i);
		rc = take_entry(s, path, key, value, err);
		jv_free(key);
		jv_free(value);
	}
	return rc;
}

static int parse(struct specials *s, const char *path, const struct k3_buf *file,
		 struct k3_err *err)
{
	const unsigned char *p = (const unsigned char *)file->data;
	size_t at, k;
	jv root, table;
	uint32_t c;
	int rc;

	/* libjq would put U+FFFD for what is not UTF-8, and a spelling would differ */
	for (at = 0; at < file->len; at += k) {
		k = k3_utf8_next(p + at, file->len - at, &c);
		if (!k)
			return k3_fail(err, K3_EDATA, "%s: offset %zu is not UTF-8", path, at);
	}
	rc = k3_json_parse(file->data, file->len, path, &root, err);
	if (rc)
		return rc;
	table = jv_object_get(root, jv_string(TABLE));
	rc = take_table(s, path, table, err);
	jv_free(table);
	return rc;
}

static int by_text(const void *a, const void *b, void *arg)
{
	const struct specials *s = arg;

	return strcmp(s->slot[*(const uint16_t *)a].text, s->slot[*(const uint16_t *)b].text);
}

/* Gives unnamed slots their spelling, sorts all, and refuses a spelling of two ids. */
static int complete(struct specials *s, const char *path, struct k3_err *err)
{
	struct special *sp, *next;
	int i, n;

	for (i = 0; i < SPECIALS; i++) {
		sp = &s->slot[i];
		s->sorted[i] = (uint16_t)i;
		if (sp->text)
			continue;
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
				       " have the same content '%s'", path,
				       s->first + s->sorted[i - 1], s->first + s->sorted[i],
				       sp->text);
	}
	return 0;
}

int k3i_specials_read(struct specials *s, uint32_t first, const char *path, struct k3_err *err)
{
	struct k3_buf file = K3_BUF_INIT;
	int rc;

	s->first = first;
	rc = k3_slurp(path, CONFIG_MAX, &file, err);
	if (!rc)
		rc = parse(s, path, &file, err);
	k3_buf_free(&file);
	return rc ? rc : complete(s, path, err);
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
