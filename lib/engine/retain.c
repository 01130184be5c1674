/* SPDX-License-Identifier: Apache-2.0 */
/* retain.c - a ring of blocks. */
#include "engine/retain.h"
#include "sys/direct.h"

#include <k3/buf.h>

#include <stdlib.h>

enum { ALIGN = 64 };

/* What lies in the ring, in order of place; a gap at the ring's end counts as one that was dropped. */
struct piece {
	uint64_t block, bytes;
	bool dropped;
};

struct k3_retain {
	uint64_t blocks, size;
	unsigned char *ring;
	struct piece *piece;		/* blocks + 1 of them, from first on, in a circle */
	uint64_t first, pieces;
	uint64_t begin, used;		/* bytes of the ring */
	struct place {
		uint64_t at, piece;
		enum k3_retained state;
	} *place;			/* of each block */
};

int k3_retain_new(uint64_t blocks, struct k3_retain **out, struct k3_err *err)
{
	struct k3_retain *r = calloc(1, sizeof *r);

	*out = NULL;
	if (!r)
		return k3_fail_nomem(err);
	r->blocks = blocks;
	r->piece = k3_calloc(blocks + 1, sizeof *r->piece);
	r->place = k3_calloc(blocks, sizeof *r->place);
	if (!r->piece || !r->place) {
		k3_retain_free(r);
		return k3_fail_nomem(err);
	}
	*out = r;
	return 0;
}

void k3_retain_free(struct k3_retain *r)
{
	if (!r)
		return;
	k3_huge_free(r->ring, r->size);
	free(r->piece);
	free(r->place);
	free(r);
}

void k3_retain_clear(struct k3_retain *r)
{
	for (uint64_t i = 0; i < r->blocks; i++)
		r->place[i].state = K3_RETAIN_NONE;
	r->first = r->pieces = r->begin = r->used = 0;
}

void k3_retain_size(struct k3_retain *r, uint64_t bytes)
{
	k3_retain_clear(r);
	bytes = bytes / ALIGN * ALIGN;
	if (bytes == r->size)
		return;
	k3_huge_free(r->ring, r->size);
	r->ring = bytes ? k3_huge_new(bytes) : NULL;
	r->size = r->ring ? bytes : 0;
}

enum k3_retained k3_retain_find(const struct k3_retain *r, uint64_t block,
				const unsigned char **data)
{
	const struct place *p = &r->place[block];

	if (p->state == K3_RETAIN_HERE)
		*data = r->ring + p->at;
	return p->state;
}

static uint64_t add(struct k3_retain *r, struct piece p)
{
	uint64_t at = (r->first + r->pieces++) % (r->blocks + 1);

	r->piece[at] = p;
	r->used += p.bytes;
	return at;
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
	r->place[block] = (struct place){ gap ? 0 : at, 0, K3_RETAIN_COMING };
	r->place[block].piece = add(r, (struct piece){ block, n, false });
	return r->ring + r->place[block].at;
}

void k3_retain_filled(struct k3_retain *r, uint64_t block)
{
	r->place[block].state = K3_RETAIN_HERE;
}

void k3_retain_drop(struct k3_retain *r, uint64_t block)
{
	if (r->place[block].state == K3_RETAIN_NONE)
		return;
	r->place[block].state = K3_RETAIN_NONE;
	r->piece[r->place[block].piece].dropped = true;
	while (r->pieces && r->piece[r->first].dropped) {
		r->begin = (r->begin + r->piece[r->first].bytes) % r->size;
		r->used -= r->piece[r->first].bytes;
		r->first = (r->first + 1) % (r->blocks + 1);
		r->pieces--;
	}
}
