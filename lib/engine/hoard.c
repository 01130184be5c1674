/* SPDX-License-Identifier: Apache-2.0 */
/* hoard.c - places for experts, and the reads that fill them. */
#include "engine/hoard.h"
#include "sys/small.h"

#include <k3/buf.h>

#include <stdlib.h>

/* Scales and codes of the matrices, each of which lies in one piece on the disk. */
enum { EXTENTS = 2 * K3_EXPERT_MATRICES };

#define NOWHERE UINT32_MAX

/* A stretch of a file, widened to whole pages. */
struct extent {
	struct k3_direct *file;
	unsigned char *to;
	uint64_t offset, size, need;
	const unsigned char *data;	/* where what was asked for begins */
};

/* An expert.  Reads of the extents before number `at`, and of this one for `done` bytes, have been given out. */
struct place {
	uint32_t expert;
	struct extent extent[EXTENTS];
	unsigned at;
	uint64_t done;
	uint64_t missing;		/* bytes that have not arrived */
};

struct k3_hoard {
	const struct k3_config *config;
	struct k3_source *source;
	uint64_t request;
	unsigned char *area;
	uint64_t size;
	uint32_t places;		/* in the area */
	struct place *place;
	uint32_t *where;		/* of each expert its place, or NOWHERE */
	uint32_t layer;			/* of the experts .. */
	uint32_t used;			/* .. in the first places */
	uint32_t reading;		/* the first one of which reads are to be given out */
};

static uint64_t extent_bytes(const struct k3_config *c, unsigned k)
{
	struct k3_expert_cut m = k3_expert_cut(c, k3_expert_matrix[k / 2], 0);

	return m.rows * (k % 2 ? m.code_bytes : m.scale_bytes);
}

/* A stretch may begin and end in the middle of a page. */
static uint64_t extent_room(const struct k3_config *c, unsigned k)
{
	return k3_direct_up(extent_bytes(c, k)) + K3_DIRECT;
}

/* What an expert takes in the area. */
static uint64_t stride(const struct k3_config *c)
{
	uint64_t sum = 0;

	for (unsigned k = 0; k < EXTENTS; k++)
		sum += extent_room(c, k);
	return sum;
}

/* The last huge page is resident as a whole. */
static uint64_t bytes_of(const struct k3_config *c, uint64_t experts)
{
	return experts * (stride(c) + sizeof(struct place)) + K3_HUGE_PAGE;
}

uint64_t k3_hoard_least(const struct k3_config *c)
{
	return bytes_of(c, 1);
}

uint64_t k3_hoard_all(const struct k3_config *c)
{
	return bytes_of(c, c->experts);
}

int k3_hoard_new(const struct k3_config *c, struct k3_source *source, uint64_t request,
		 struct k3_hoard **out, struct k3_err *err)
{
	struct k3_hoard *h = calloc(1, sizeof *h);

	*out = NULL;
	if (!h)
		return k3_fail_nomem(err);
	*h = (struct k3_hoard){ .config = c, .source = source, .request = request };
	h->where = k3_calloc(c->experts, sizeof *h->where);
	if (!h->where) {
		k3_hoard_free(h);
		return k3_fail_nomem(err);
	}
	k3_hoard_clear(h);
	*out = h;
	return 0;
}

void k3_hoard_free(struct k3_hoard *h)
{
	if (!h)
		return;
	k3_huge_free(h->area, h->size);
	free(h->place);
	free(h->where);
	free(h);
}

void k3_hoard_clear(struct k3_hoard *h)
{
	for (uint32_t e = 0; e < h->config->experts; e++)
		h->where[e] = NOWHERE;
	h->used = h->reading = 0;
}

int k3_hoard_size(struct k3_hoard *h, uint64_t bytes, struct k3_err *err)
{
	uint64_t one = bytes_of(h->config, 1) - K3_HUGE_PAGE, n;

	bytes -= k3_min(bytes, K3_HUGE_PAGE);
	n = k3_min(bytes / one, h->config->experts);
	k3_hoard_clear(h);
	if (n == h->places)
		return 0;
	k3_huge_free(h->area, h->size);
	free(h->place);
	h->places = 0;
	h->place = NULL;
	h->area = NULL;
	h->size = n * stride(h->config);
	if (!n)
		return 0;
	h->area = k3_huge_new(h->size);
	h->place = k3_calloc(n, sizeof *h->place);
	if (!h->area || !h->place)
		return k3_fail_nomem(err);
	h->places = (uint32_t)n;
	return 0;
}

/* ---- what is to be read ---- */

/* The stretch of an expert's scales or codes; they go to `to`, on a page's boundary. */
static int find_extent(struct k3_hoard *h, uint32_t expert, unsigned k, unsigned char *to,
		       struct extent *out, struct k3_err *err)
{
	struct k3_step step = {
		.section = h->layer, .role = k3_expert_matrix[k / 2], .expert = expert,
		.cut = k3_expert_cut(h->config, k3_expert_matrix[k / 2], 0),
	};
	struct k3_place p;
	uint64_t end;
	int rc = k3_source_place(h->source, &step, k % 2, &p, err);

	if (rc)
		return rc;
	end = p.offset + extent_bytes(h->config, k);
	out->file = p.file;
	out->offset = k3_direct_down(p.offset);
	out->to = to;
	out->need = end - out->offset;
	out->size = k3_direct_up(end) - out->offset;
	out->data = to + (p.offset - out->offset);
	return 0;
}

static int add(struct k3_hoard *h, uint32_t expert, struct k3_err *err)
{
	struct place *p = &h->place[h->used];
	unsigned char *to = h->area + h->used * stride(h->config);

	*p = (struct place){ .expert = expert };
	for (unsigned k = 0; k < EXTENTS; k++) {
		int rc = find_extent(h, expert, k, to, &p->extent[k], err);

		if (rc)
			return rc;
		to += extent_room(h->config, k);
		p->missing += p->extent[k].size;
	}
	h->where[expert] = h->used++;
	return 0;
}

int k3_hoard_expect(struct k3_hoard *h, uint32_t layer, uint32_t expert, struct k3_err *err)
{
	if (h->layer != layer)
		k3_hoard_clear(h);
	h->layer = layer;
	return h->used < h->places && h->where[expert] == NOWHERE ? add(h, expert, err) : 0;
}

void k3_hoard_stop(struct k3_hoard *h)
{
	uint32_t begun = h->reading;

	if (begun < h->used && (h->place[begun].at || h->place[begun].done))
		begun++;
	while (h->used > begun)
		h->where[h->place[--h->used].expert] = NOWHERE;
}

bool k3_hoard_next(struct k3_hoard *h, struct k3_hoard_read *out)
{
	const struct extent *x;
	struct place *p;
	uint64_t n;

	if (h->reading == h->used)
		return false;
	p = &h->place[h->reading];
	x = &p->extent[p->at];
	n = k3_min(x->size - p->done, h->request);
	*out = (struct k3_hoard_read){
		.file = x->file, .to = x->to + p->done, .offset = x->offset + p->done, .size = n,
		.need = k3_min(x->need - p->done, n), .place = h->reading,
	};
	p->done += n;
	if (p->done < x->size)
		return true;
	p->done = 0;
	if (++p->at == EXTENTS)
		h->reading++;
	return true;
}

void k3_hoard_arrived(struct k3_hoard *h, const struct k3_hoard_read *r)
{
	h->place[r->place].missing -= r->size;
}

/* ---- what has been read ---- */

const unsigned char *k3_hoard_find(const struct k3_hoard *h, const struct k3_step *step,
				   uint64_t i, bool *coming)
{
	uint32_t where = step->section == h->layer ? h->where[step->expert] : NOWHERE;
	const unsigned char *data;
	unsigned k = 0;

	if (where == NOWHERE)
		return NULL;
	*coming = h->place[where].missing;
	if (*coming)
		return NULL;
	while (k3_expert_matrix[k] != step->role)
		k++;
	data = h->place[where].extent[2 * k + (i > 0)].data;
	return i ? data + k3_cut_codes(&step->cut, i - 1) : data;
}
