/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c - libjq behind a strict front.
 *
 * Everything goes through libjq's streaming parser: it shows each key as often as it
 * was written, and its memory does not grow with the document.  A small document that passed
 * is given to the other parser, which builds its value.
 */
#include "data/json.h"

#include <math.h>
#include <string.h>

int k3_json_begin(struct k3_json *j, const char *name, k3_json_event *event, void *arg,
		  struct k3_err *err)
{
	*j = (struct k3_json){ .name = name, .event = event, .arg = arg };
	j->parser = jv_parser_new(JV_PARSE_STREAMING);
	return j->parser ? 0 : k3_fail_nomem(err);
}

/* Passes one event of libjq, [path, leaf] or [path], on. */
static int deliver(struct k3_json *j, jv event, struct k3_err *err)
{
	jv path = jv_array_get(jv_copy(event), 0), leaf = jv_array_get(event, 1);
	int rc = j->event(j->arg, path, leaf, err);

	jv_free(leaf);
	jv_free(path);
	return rc;
}

int k3_json_push(struct k3_json *j, const char *bytes, size_t n, bool last, struct k3_err *err)
{
	jv event, message;
	int rc = k3_grammar_push(&j->grammar, bytes, n, last, j->name, err);

	if (rc)
		return rc;
	jv_parser_set_buf(j->parser, bytes, (int)n, !last);
	while (jv_is_valid(event = jv_parser_next(j->parser))) {
		rc = deliver(j, event, err);
		if (rc)
			return rc;
	}
	message = jv_invalid_get_msg(event);
	if (jv_get_kind(message) == JV_KIND_STRING)
		rc = k3_fail(err, K3_EDATA, "%s: broken JSON: %s", j->name,
			     jv_string_value(message));
	jv_free(message);
	return rc;
}

void k3_json_end(struct k3_json *j)
{
	if (j->parser)
		jv_parser_free(j->parser);
	j->parser = NULL;
}

/* What k3_json_parse has seen so far. */
struct seen {
	const char *name;
	jv closed;	/* owned: an object whose keys are the paths of all finished values */
};

/* True if the first n steps of path lead to something finished. */
static bool is_closed(struct seen *s, jv path, int n)
{
	jv key = jv_dump_string(jv_array_slice(jv_copy(path), 0, n), 0);

	return jv_object_has(jv_copy(s->closed), key);
}

static void close_path(struct seen *s, jv path, int n)
{
	jv key = jv_dump_string(jv_array_slice(jv_copy(path), 0, n), 0);

	s->closed = jv_object_set(s->closed, key, jv_true());
}

/* Refuses a key that leads to something finished. */
static int check_keys(void *arg, jv path, jv leaf, struct k3_err *err)
{
	struct seen *s = arg;
	int n = jv_array_length(jv_copy(path)), rc;
	jv text;

	if (!jv_is_valid(leaf)) {
		close_path(s, path, n - 1);
		return 0;
	}
	for (int i = 1; i <= n; i++) {
		if (!is_closed(s, path, i))
			continue;
		text = jv_dump_string(jv_array_get(jv_copy(path), i - 1), 0);
		rc = k3_fail(err, K3_EDATA, "%s: the key %s is given twice", s->name,
			     jv_string_value(text));
		jv_free(text);
		return rc;
	}
	close_path(s, path, n);
	return 0;
}

/* Putting the events together instead, by jv_setpath, would copy a whole list for each entry. */
int k3_json_parse(const char *text, size_t len, const char *name, jv *out, struct k3_err *err)
{
	struct seen s = { name, jv_object() };
	struct k3_json j;
	int rc = k3_json_begin(&j, name, check_keys, &s, err);

	if (!rc)
		rc = k3_json_push(&j, text, len, true, err);
	k3_json_end(&j);
	jv_free(s.closed);
	if (rc)
		return rc;
	*out = jv_parse_sized(text, (int)len);
	if (jv_get_kind(*out) == JV_KIND_OBJECT)
		return 0;
	jv_free(*out);
	return k3_fail(err, K3_EDATA, "%s: the JSON value is not an object", name);
}

bool k3_json_u64(jv v, uint64_t max, uint64_t *out)
{
	double d;

	if (jv_get_kind(v) != JV_KIND_NUMBER)
		return false;
	d = jv_number_value(v);
	/* above 2^53 a double may already stand for another number than the text did */
	if (!(d >= 0 && d < 9007199254740992.0) || d != floor(d) || (uint64_t)d > max)
		return false;
	*out = (uint64_t)d;
	return true;
}

bool k3_json_is(jv v, const char *s)
{
	size_t n = strlen(s);

	return jv_get_kind(v) == JV_KIND_STRING &&
	       (size_t)jv_string_length_bytes(jv_copy(v)) == n &&
	       !memcmp(jv_string_value(v), s, n);
}
