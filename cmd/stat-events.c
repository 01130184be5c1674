/* SPDX-License-Identifier: Apache-2.0 */
/* stat-events.c - k3-stat on an event stream: how many of each event, and their numbers. */
#include "stat.h"

#include <inttypes.h>
#include <jv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of one name in one kind of event. */
struct field {
	char *name;	/* owned */
	uint64_t count;
	double min, max, sum;
};

struct type {
	char *name;	/* owned; NULL for lines without the member "event" */
	uint64_t count;
	struct field *fields;
	size_t n_fields;
};

struct table {
	struct type *types;
	size_t n_types;
	struct stat_rounds rounds;
};

/* Makes room for one more element, zeroed, at the end of an array; NULL without memory. */
static void *append(void **array, size_t *n, size_t size)
{
	char *p = k3_reallocarray(*array, *n + 1, size);

	if (!p)
		return NULL;
	*array = p;
	return memset(p + (*n)++ * size, 0, size);
}

static struct type *find_type(struct table *t, const char *name)
{
	struct type *y;
	size_t i;

	for (i = 0; i < t->n_types; i++) {
		y = &t->types[i];
		if (name && y->name ? !strcmp(name, y->name) : name == y->name)
			return y;
	}
	y = append((void **)&t->types, &t->n_types, sizeof *y);
	if (y && name && !(y->name = strdup(name)))
		return NULL;
	return y;
}

static struct field *find_field(struct type *y, const char *name)
{
	struct field *f;
	size_t i;

	for (i = 0; i < y->n_fields; i++)
		if (!strcmp(y->fields[i].name, name))
			return &y->fields[i];
	f = append((void **)&y->fields, &y->n_fields, sizeof *f);
	if (f && !(f->name = strdup(name))) {
		y->n_fields--;
		return NULL;
	}
	return f;
}

static bool add_number(struct type *y, const char *name, double v)
{
	struct field *f = find_field(y, name);

	if (!f)
		return false;
	if (!f->count++)
		f->min = f->max = v;
	f->min = fmin(f->min, v);
	f->max = fmax(f->max, v);
	f->sum += v;
	return true;
}

/* Counts one event, an object that it consumes; false without memory. */
static bool add_event(struct table *t, jv object)
{
	jv event = jv_object_get(jv_copy(object), jv_string("event"));
	struct type *y = find_type(t, jv_get_kind(event) == JV_KIND_STRING ?
				   jv_string_value(event) : NULL);
	bool good = y != NULL;
	int i;

	if (y)
		y->count++;
	for (i = jv_object_iter(object); good && jv_object_iter_valid(object, i);
	     i = jv_object_iter_next(object, i)) {
		jv key = jv_object_iter_key(object, i), v = jv_object_iter_value(object, i);

		if (jv_get_kind(v) == JV_KIND_NUMBER && isfinite(jv_number_value(v)))
			good = add_number(y, jv_string_value(key), jv_number_value(v));
		jv_free(key);
		jv_free(v);
	}
	if (good && y->name && !strcmp(y->name, "round"))
		good = stat_rounds_add(&t->rounds, object);
	jv_free(event);
	jv_free(object);
	return good;
}

static int add_line(void *ctx, const struct stat_source *s, const char *line, size_t n,
		    uint64_t number, struct k3_err *err)
{
	jv v = jv_parse_sized(line, (int)n);

	if (jv_get_kind(v) != JV_KIND_OBJECT) {
		jv_free(v);
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 " is not a JSON object", s->name,
			       number);
	}
	return add_event(ctx, v) ? 0 : k3_fail_nomem(err);
}

/* A double in as few digits as give it back. */
static void add_double(struct k3_buf *b, const char *key, double v)
{
	char text[32];

	snprintf(text, sizeof text, "%.15g", v);
	if (strtod(text, NULL) != v)
		snprintf(text, sizeof text, "%.17g", v);
	k3_buf_printf(b, ",\"%s\":%s", key, text);
}

static void add_json(struct k3_buf *b, const struct stat_source *s, const struct type *y)
{
	size_t i;

	stat_json_begin(b, s, "events");
	k3_buf_str(b, ",\"event\":");
	if (y->name)
		k3_buf_json(b, y->name, strlen(y->name));
	else
		k3_buf_str(b, "null");
	k3_buf_printf(b, ",\"count\":%" PRIu64 ",\"fields\":{", y->count);
	for (i = 0; i < y->n_fields; i++) {
		const struct field *f = &y->fields[i];

		k3_buf_str(b, i ? "," : "");
		k3_buf_json(b, f->name, strlen(f->name));
		k3_buf_printf(b, ":{\"count\":%" PRIu64, f->count);
		add_double(b, "min", f->min);
		add_double(b, "max", f->max);
		add_double(b, "mean", f->sum / (double)f->count);
		k3_buf_char(b, '}');
	}
	k3_buf_str(b, "}}\n");
}

/* A name in a column of its own width. */
static void add_cell(struct k3_buf *b, const char *name, size_t width)
{
	size_t start = b->len;

	stat_name(b, name ? name : "-");
	if (b->len - start < width)
		k3_buf_printf(b, "%*s", (int)(width - (b->len - start)), "");
	k3_buf_char(b, ' ');
}

static void add_rows(struct k3_buf *b, const struct type *y, size_t width)
{
	size_t i;

	add_cell(b, y->name, width);
	add_cell(b, NULL, width);
	k3_buf_printf(b, "%10" PRIu64 " %12s %12s %12s\n", y->count, "-", "-", "-");
	for (i = 0; i < y->n_fields; i++) {
		const struct field *f = &y->fields[i];

		add_cell(b, y->name, width);
		add_cell(b, f->name, width);
		k3_buf_printf(b, "%10" PRIu64 " %12.6g %12.6g %12.6g\n", f->count, f->min, f->max,
			      f->sum / (double)f->count);
	}
}

int stat_events(struct stat_source *s, struct k3_err *err)
{
	const size_t width = 12;
	struct table t = { 0 };
	struct k3_buf b = K3_BUF_INIT;
	size_t i, k;
	int rc = stat_lines(s, add_line, &t, err);

	if (!s->json) {
		add_cell(&b, "event", width);
		add_cell(&b, "field", width);
		k3_buf_printf(&b, "%10s %12s %12s %12s\n", "count", "min", "max", "mean");
	}
	for (i = 0; i < t.n_types; i++) {
		if (s->json)
			add_json(&b, s, &t.types[i]);
		else
			add_rows(&b, &t.types[i], width);
	}
	stat_rounds_print(&t.rounds, s, &b);
	stat_print(&b);
	for (i = 0; i < t.n_types; i++) {
		for (k = 0; k < t.types[i].n_fields; k++)
			free(t.types[i].fields[k].name);
		free(t.types[i].fields);
		free(t.types[i].name);
	}
	free(t.types);
	k3_buf_free(&b);
	return rc;
}
