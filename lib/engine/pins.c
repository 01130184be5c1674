/* SPDX-License-Identifier: Apache-2.0 */
/* pins.c - one area on huge pages, filled from its start. */
#include "engine/pins.h"
#include "sys/direct.h"

#include <k3/buf.h>

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGN = 64 };

struct place {
	uint64_t at;
	uint32_t bytes;		/* 0: none */
	bool filled;
};

struct k3_pins {
	uint64_t blocks, total, most;
	uint64_t limit, used;	/* the area below used is given away */
	struct place *place;
	unsigned char *area;
};

/* Each block may have up to ALIGN - 1 bytes behind it. */
uint64_t k3_pins_area(uint64_t blocks, uint64_t total)
{
	return total + blocks * ALIGN;
}

/* A huge page is resident as a whole. */
static uint64_t whole_pages(uint64_t limit, uint64_t most)
{
	return limit < most ? k3_huge_down(limit) : most;
}

uint64_t k3_pins_expected(uint64_t blocks, uint64_t total, uint64_t limit)
{
	uint64_t most = k3_pins_area(blocks, total);

	limit = whole_pages(limit, most);
	return limit < most ? (uint64_t)((double)limit / (double)most * (double)total) : total;
}

int k3_pins_new(uint64_t blocks, uint64_t total, uint64_t most, struct k3_pins **out,
		struct k3_err *err)
{
	struct k3_pins *p = calloc(1, sizeof *p);

	*out = NULL;
	if (!p)
		return k3_fail_nomem(err);
	p->blocks = blocks;
	p->total = k3_pins_area(blocks, total);
	p->most = p->limit = most < p->total ? most : p->total;
	p->place = k3_calloc(blocks, sizeof *p->place);
	if (p->most)
		p->area = k3_huge_new(p->most);
	if (!p->place || (p->most && !p->area)) {
		k3_pins_free(p);
		return k3_fail_nomem(err);
	}
	*out = p;
	return 0;
}

void k3_pins_free(struct k3_pins *p)
{
	if (!p)
		return;
	k3_huge_free(p->area, p->most);
	free(p->place);
	free(p);
}

void k3_pins_limit(struct k3_pins *p, uint64_t bytes)
{
	uint64_t was = k3_huge_up(p->used), end = 0;

	p->limit = whole_pages(bytes, p->most);
	if (p->used <= p->limit)
		return;
	for (uint64_t i = 0; i < p->blocks; i++) {
		struct place *b = &p->place[i];

		if (b->at + b->bytes > p->limit)
			b->bytes = 0;
		else if (b->bytes && b->at + b->bytes > end)
			end = b->at + b->bytes;
	}
	p->used = (end + ALIGN - 1) / ALIGN * ALIGN;
	if (was > p->limit)
		madvise(p->area + p->limit, was - p->limit, MADV_DONTNEED);
}

const unsigned char *k3_pins_find(const struct k3_pins *p, uint64_t block)
{
	const struct place *b = &p->place[block];

	return b->bytes && b->filled ? p->area + b->at : NULL;
}

bool k3_pins_coming(const struct k3_pins *p, uint64_t block)
{
	return p->place[block].bytes && !p->place[block].filled;
}

/*
 * Whether the block is in the share that the limit has of the whole: multiples of the
 * golden ratio fall evenly into any part of the circle, and a larger share contains a smaller one.
 */
static bool chosen(const struct k3_pins *p, uint64_t block)
{
	uint32_t point = (uint32_t)block * 2654435769u;

	return p->limit >= p->total || point < (double)p->limit / (double)p->total * 0x1p32;
}

unsigned char *k3_pins_assign(struct k3_pins *p, uint64_t block, uint64_t bytes)
{
	struct place *b = &p->place[block];

	if (b->bytes || !chosen(p, block) || bytes > p->limit - p->used)
		return NULL;
	*b = (struct place){ p->used, (uint32_t)bytes, false };
	p->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	if (p->used > p->limit)
		p->used = p->limit;
	return p->area + b->at;
}

void k3_pins_filled(struct k3_pins *p, uint64_t block)
{
	p->place[block].filled = true;
}

void k3_pins_clean(struct k3_pins *p)
{
	for (uint64_t i = 0; i < p->blocks; i++)
		if (!p->place[i].filled)
			p->place[i].bytes = 0;
}

uint64_t k3_pins_used(const struct k3_pins *p)
{
	return p->used;
}

uint64_t k3_pins_most(const struct k3_pins *p)
{
	return p->most;
}
