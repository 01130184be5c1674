/* SPDX-License-Identifier: Apache-2.0 */
/* stat-vectors.c - k3-stat on a vector stream: one line for each record, as it comes. */
#include "stat.h"

#include <k3/npy.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 14 };	/* values looked at at a time */

struct entry {
	uint64_t at;		/* place in the record, counted in C order */
	float value;
};

/* What has been seen of a record; everything but nonfinite is about finite values. */
struct summary {
	uint64_t seen, nonfinite, finite;
	float min, max;
	double sum, squares;
	struct entry *largest;	/* by magnitude, the earlier first where it is equal */
	uint32_t n_largest, room;
};

static void keep_largest(struct summary *u, uint64_t at, float v)
{
	struct entry *e = u->largest;
	uint32_t i = u->n_largest;

	if (i == u->room) {
		if (!i || fabsf(v) <= fabsf(e[i - 1].value))
			return;
		i--;
	} else {
		u->n_largest++;
	}
	for (; i && fabsf(e[i - 1].value) < fabsf(v); i--)
		e[i] = e[i - 1];
	e[i] = (struct entry){ at, v };
}

static void add_values(struct summary *u, const float *v, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++, u->seen++) {
		if (!isfinite(v[i])) {
			u->nonfinite++;
			continue;
		}
		if (!u->finite++)
			u->min = u->max = v[i];
		if (v[i] < u->min)
			u->min = v[i];
		if (v[i] > u->max)
			u->max = v[i];
		u->sum += v[i];
		u->squares += (double)v[i] * v[i];
		keep_largest(u, u->seen, v[i]);
	}
}

/* The index of a place, one number for each dimension from `from` on. */
static void add_index(struct k3_buf *b, const struct k3_npy *h, uint32_t from, uint64_t at)
{
	uint64_t below;
	uint32_t i, k;

	for (i = from; i < h->rank; i++) {
		for (below = 1, k = i + 1; k < h->rank; k++)
			below *= h->shape[k];
		k3_buf_printf(b, "%s%" PRIu64, i > from ? "," : "", at / below % h->shape[i]);
	}
}

static void add_json(struct k3_buf *b, const struct stat_source *s, uint64_t record,
		     const struct k3_npy *h, const struct summary *u)
{
	uint32_t i;

	stat_json_begin(b, s, "vectors");
	k3_buf_printf(b, ",\"record\":%" PRIu64 ",\"shape\":[", record);
	for (i = 0; i < h->rank; i++)
		k3_buf_printf(b, "%s%" PRIu64, i ? "," : "", h->shape[i]);
	if (u->finite)
		k3_buf_printf(b, "],\"min\":%.9g,\"max\":%.9g,\"mean\":%.15g,\"rms\":%.15g", u->min,
			      u->max, u->sum / (double)u->finite,
			      sqrt(u->squares / (double)u->finite));
	else
		k3_buf_str(b, "],\"min\":null,\"max\":null,\"mean\":null,\"rms\":null");
	k3_buf_printf(b, ",\"nonfinite\":%" PRIu64 ",\"largest\":[", u->nonfinite);
	for (i = 0; i < u->n_largest; i++) {
		k3_buf_str(b, i ? ",{\"at\":[" : "{\"at\":[");
		add_index(b, h, 0, u->largest[i].at);
		k3_buf_printf(b, "],\"value\":%.9g}", u->largest[i].value);
	}
	k3_buf_str(b, "]}\n");
}

static void add_row(struct k3_buf *b, uint64_t record, const struct k3_npy *h,
		    const struct summary *u)
{
	char shape[4 * 24] = "";
	uint32_t i, from = 0;
	size_t n = 0;

	for (i = 0; i < h->rank; i++)
		n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, i ? "x" : "",
				      h->shape[i]);
	k3_buf_printf(b, "%6" PRIu64 "  %-12s", record, shape);
	if (u->finite)
		k3_buf_printf(b, " %12.6g %12.6g %12.6g %12.6g", u->min, u->max,
			      u->sum / (double)u->finite, sqrt(u->squares / (double)u->finite));
	else
		k3_buf_printf(b, " %12s %12s %12s %12s", "-", "-", "-", "-");
	k3_buf_printf(b, " %9" PRIu64 " ", u->nonfinite);
	/* leading dimensions of one need no index: an entry of one row of logits is id:logit */
	while (from + 1 < h->rank && h->shape[from] == 1)
		from++;
	for (i = 0; i < u->n_largest; i++) {
		k3_buf_char(b, ' ');
		add_index(b, h, from, u->largest[i].at);
		k3_buf_printf(b, ":%.6g", u->largest[i].value);
	}
	k3_buf_char(b, '\n');
}

/* Reads the values of a record. */
static int summarize(struct k3_npy_stream *in, uint64_t count, struct summary *u, float *chunk,
		     struct k3_err *err)
{
	uint64_t n;
	int rc = 0;

	*u = (struct summary){ .largest = u->largest, .room = u->room };
	for (; count && !rc; count -= n) {
		n = count < CHUNK ? count : CHUNK;
		rc = k3_npy_values(in, chunk, n, err);
		if (!rc)
			add_values(u, chunk, n);
	}
	return rc;
}

int stat_vectors(struct stat_source *s, struct k3_err *err)
{
	struct k3_npy_stream in = { .fd = s->fd, .name = s->name, .head_len = s->head_len };
	struct summary u = { .room = s->top };
	float *chunk = k3_calloc(CHUNK, sizeof *chunk);
	struct k3_buf b = K3_BUF_INIT;
	struct k3_npy h;
	int rc;

	_Static_assert((int)STAT_HEAD <= (int)K3_NPY_MAGIC, "the head goes back whole");
	memcpy(in.head, s->head, s->head_len);
	u.largest = k3_calloc(s->top, sizeof *u.largest);
	rc = chunk && u.largest ? 0 : k3_fail_nomem(err);
	if (!rc && !s->json)
		k3_buf_printf(&b, "%6s  %-12s %12s %12s %12s %12s %9s  %s\n", "record", "shape",
			      "min", "max", "mean", "rms", "nonfinite", "largest");
	while (!rc && (rc = k3_npy_next(&in, &h, err)) > 0) {
		rc = summarize(&in, h.count, &u, chunk, err);
		if (rc)
			break;
		if (s->json)
			add_json(&b, s, in.record - 1, &h, &u);
		else
			add_row(&b, in.record - 1, &h, &u);
		stat_print(&b);
	}
	k3_buf_free(&b);
	free(u.largest);
	free(chunk);
	return rc;
}
