/* SPDX-License-Identifier: Apache-2.0 */
/* hoard.c - places for experts, and the reads that fill them. */
#include "engine/hoard.h"
#include "sys/small.h"

#include <k3/buf.h>

#include <stdlib.h>

/* Scales and codes of the matrices. */
enum { PARTS = 2 * K3_EXPERT_MATRICES };

#define NOWHERE UINT32_MAX

/* A stretch of a file, widened to whole pages, of which the first `need` bytes must be there. */
struct extent {
	struct k3_direct *file;
	unsigned char *to;
	uint64_t offset, size, need;
};

/* An expert.  Reads of the extents before number `at`, and of this one for `done` bytes, have been given out. */
struct place {
	uint32_t expert;
	struct extent extent[PARTS];
	unsigned extents, at;
	uint64_t done;
	uint64_t missing;		/* bytes that have not arrived */
	const unsigned char *data[PARTS];
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

static uint64_t part_bytes(const struct k3_config *c, unsigned k)
{
	struct k3_expert_cut m = k3_expert_cut(c, k3_expert_matrix[k / 2], 0);

	return m.rows * (k % 2 ? m.code_bytes : m.scale_bytes);
}

/* What an expert takes in the area: each part may begin and end in the middle of a page. */
static uint64_t stride(const struct k3_config *c)
{
	uint64_t sum = 0;

	for (unsigned k = 0; k < PARTS; k++)
		sum += k3_direct_up(part_bytes(c, k)) + K3_DIRECT;
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

struct part {
	unsigned k;
	struct k3_place place;
};

static int in_file_order(const void *a, const void *b)
{
	const struct k3_place *p = &((const struct part *)a)->place, *q = &((const struct part *)b)->place;

	if (p->file != q->file)
		return (uintptr_t)p->file < (uintptr_t)q->file ? -1 : 1;
	return p->offset < q->offset ? -1 : p->offset > q->offset;
}

/* Where the parts of an expert lie. */
static int find_parts(struct k3_hoard *h, uint32_t expert, struct part *part, struct k3_err *err)
{
	int rc = 0;

	for (unsigned k = 0; !rc && k < PARTS; k++) {
		enum k3_role role = k3_expert_matrix[k / 2];

		part[k].k = k;
		rc = k3_source_tensor(h->source, k % 2 ? role : role + 1, h->layer, expert,
				      &part[k].place, err);
	}
	if (!rc)
		qsort(part, PARTS, sizeof *part, in_file_order);
	return rc;
}

/* Adds the next bytes of a file to the last stretch, if they follow it, or else to a new one on the page at `to`. */
static struct extent *join(struct place *p, const struct k3_place *next, unsigned char *to)
{
	struct extent *x = p->extents ? &p->extent[p->extents - 1] : NULL;
	uint64_t end = next->offset + next->bytes;

	if (!x || x->file != next->file || x->offset + x->need != next->offset) {
		x = &p->extent[p->extents++];
		*x = (struct extent){ .file = next->file, .to = to,
				      .offset = k3_direct_down(next->offset) };
	}
	x->need = end - x->offset;
	x->size = k3_direct_up(end) - x->offset;
	return x;
}

/* What is one piece on the disk is read as one, so that few reads are small ones. */
static int add(struct k3_hoard *h, uint32_t expert, struct k3_err *err)
{
	struct place *p = &h->place[h->used];
	unsigned char *to = h->area + h->used * stride(h->config);
	struct part part[PARTS];
	int rc = find_parts(h, expert, part, err);

	if (rc)
		return rc;
	*p = (struct place){ .expert = expert };
	for (unsigned i = 0; i < PARTS; i++) {
		const struct k3_place *next = &part[i].place;
		const struct extent *x = join(p, next, to);

		p->data[part[i].k] = x->to + (next->offset - x->offset);
		to = x->to + x->size;
	}
	for (unsigned i = 0; i < p->extents; i++)
		p->missing += p->extent[i].size;
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
	if (++p->at == p->extents)
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
	data = h->place[where].data[2 * k + (i > 0)];
	return i ? data + k3_cut_codes(&step->cut, i - 1) : data;
}
