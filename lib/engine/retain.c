/* SPDX-License-Identifier: Apache-2.0 */
/* retain.c - a ring of blocks. */
#include "engine/retain.h"
#include "sys/direct.h"

#include <k3/buf.h>

#include <stdlib.h>

enum { ALIGN = 64 };

/* What lies in the ring, in order of place; a gap at the ring's end counts as one that was dropped. */
struct piece {
	uint64_t at, bytes;
	uint32_t block;
	bool filled, dropped;
};

struct k3_retain {
	uint64_t blocks;
	/* of a ring that there is: */
	unsigned char *ring;
	uint64_t size;
	struct piece *piece;		/* blocks + 1 of them, from first on, in a circle */
	uint64_t first, pieces;
	uint64_t begin, used;		/* bytes of the ring */
	uint32_t *where;		/* of each block its piece's number and 1, or 0 */
};

int k3_retain_new(uint64_t blocks, struct k3_retain **out, struct k3_err *err)
{
	struct k3_retain *r = calloc(1, sizeof *r);

	*out = NULL;
	if (!r || blocks >= UINT32_MAX) {
		free(r);
		return k3_fail_nomem(err);
	}
	r->blocks = blocks;
	*out = r;
	return 0;
}

static void give_back(struct k3_retain *r)
{
	k3_huge_free(r->ring, r->size);
	free(r->piece);
	free(r->where);
	r->ring = NULL;
	r->piece = NULL;
	r->where = NULL;
	r->size = 0;
}

void k3_retain_free(struct k3_retain *r)
{
	if (r)
		give_back(r);
	free(r);
}

/* Beside the ring. */
static uint64_t lists(uint64_t blocks)
{
	return (blocks + 1) * (sizeof(struct piece) + sizeof(uint32_t));
}

uint64_t k3_retain_bytes(uint64_t blocks, uint64_t ring)
{
	/* a huge page is resident as a whole */
	return lists(blocks) + k3_huge_up(ring);
}

int k3_retain_size(struct k3_retain *r, uint64_t bytes, struct k3_err *err)
{
	uint64_t size = bytes < lists(r->blocks) ? 0 : bytes - lists(r->blocks);

	size = k3_huge_down(size);
	if (size == r->size) {
		k3_retain_clear(r);
		return 0;
	}
	give_back(r);
	r->first = r->pieces = r->begin = r->used = 0;
	if (!size)
		return 0;
	r->ring = k3_huge_new(size);
	r->piece = k3_calloc(r->blocks + 1, sizeof *r->piece);
	r->where = k3_calloc(r->blocks, sizeof *r->where);
	if (!r->ring || !r->piece || !r->where) {
		r->size = r->ring ? size : 0;
		give_back(r);
		return k3_fail_nomem(err);
	}
	r->size = size;
	return 0;
}

static struct piece *find(const struct k3_retain *r, uint64_t block)
{
	return r->size && r->where[block] ? &r->piece[r->where[block] - 1] : NULL;
}

const unsigned char *k3_retain_find(const struct k3_retain *r, uint64_t block)
{
	const struct piece *p = find(r, block);

	return p && p->filled ? r->ring + p->at : NULL;
}

bool k3_retain_coming(const struct k3_retain *r, uint64_t block)
{
	const struct piece *p = find(r, block);

	return p && !p->filled;
}

/* At the end of what is used. */
static uint64_t add(struct k3_retain *r, struct piece p)
{
	uint64_t i = (r->first + r->pieces++) % (r->blocks + 1);

	p.at = (r->begin + r->used) % r->size;
	r->used += p.bytes;
	r->piece[i] = p;
	return i;
}

unsigned char *k3_retain_assign(struct k3_retain *r, uint64_t block, uint64_t bytes)
{
	uint64_t n = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	uint64_t at = r->size ? (r->begin + r->used) % r->size : 0;
	uint64_t gap = r->size - at < n ? r->size - at : 0;

	if (gap + n > r->size - r->used)
		return NULL;
	if (gap)
		add(r, (struct piece){ .bytes = gap, .dropped = true });
	at = add(r, (struct piece){ .block = (uint32_t)block, .bytes = n });
	r->where[block] = (uint32_t)at + 1;
	return r->ring + r->piece[at].at;
}

void k3_retain_filled(struct k3_retain *r, uint64_t block)
{
	find(r, block)->filled = true;
}

void k3_retain_drop(struct k3_retain *r, uint64_t block)
{
	struct piece *p = find(r, block);

	if (!p)
		return;
	p->dropped = true;
	r->where[block] = 0;
	for (; r->pieces && r->piece[r->first].dropped; r->pieces--) {
		r->begin = (r->begin + r->piece[r->first].bytes) % r->size;
		r->used -= r->piece[r->first].bytes;
		r->first = (r->first + 1) % (r->blocks + 1);
	}
}

void k3_retain_clear(struct k3_retain *r)
{
	for (uint64_t i = 0; i < r->pieces; i++) {
		const struct piece *p = &r->piece[(r->first + i) % (r->blocks + 1)];

		if (!p->dropped)
			r->where[p->block] = 0;
	}
	r->first = r->pieces = r->begin = r->used = 0;
}
