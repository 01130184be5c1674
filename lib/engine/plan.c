/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - the split of memory: what must be there, then pinned trunk and head, then experts.
 *
 * A pinned byte of the trunk saves a byte a token.  A cached byte of an expert saves at most
 * half of that, for what a token chooses is mostly new; so it comes last.
 */
#include "engine/plan.h"
#include "data/index.h"
#include "engine/draft.h"
#include "engine/expert_cache.h"
#include "engine/pins.h"
#include "engine/fit.h"
#include "engine/source.h"
#include "model/layer.h"
#include "sys/memory.h"
#include "sys/small.h"
#include "sys/team.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define MB (1ull << 20)

/*
 * What was best on a disk of 3 GB/s, which wants few requests into little memory in one minute, and many in
 * another.  A request is six blocks of an expert.  The ring is larger where it is a small part of the memory.
 */
enum { RING = 15 << 20, RING_MORE = 19 << 20, RING_PART = 16, REQUEST = (2 << 20) + (64 << 10), DEPTH = 12 };

/*
 * Beside what is counted one by one: code, libraries, the heap's small and unused parts, queues,
 * lines of ids; and of each thread its stack.
 */
enum { PROCESS = 8 << 20, STACK = 96 << 10 };

/* Of memory that is free this much is left to others, and at least so much. */
enum { LEAVE_PART = 8 };
#define LEAVE_LEAST (256 * MB)

/* Logits of many rows are made in groups of this part of the memory, and at most of LOGITS bytes. */
enum { LOGITS_PART = 64 };
#define LOGITS (64 * MB)

/* Positions that a sequence is planned for: more take what pins had. */
enum { POSITIONS = K3_PAGE };

/* ---- the trunk file ---- */

static int open_trunk(const struct k3_index *ix, const char *path, struct k3_trunk **out,
		      struct k3_err *err)
{
	char *name;
	int rc;

	*out = NULL;
	if (path)
		return *path ? k3_trunk_open(path, ix, out, err) : 0;
	rc = k3_trunk_beside(ix, &name, err);
	if (!rc && !access(name, F_OK))
		rc = k3_trunk_open(name, ix, out, err);
	free(name);
	return rc;
}

/* Blocks of all sections; of those that will be used, the bytes on the disk. */
static void trunk_size(const struct k3_config *c, const struct k3_engine_options *o,
		       const struct k3_trunk *trunk, struct k3_plan *p, uint64_t *blocks)
{
	struct k3_order order;

	*blocks = 0;
	for (uint32_t i = 0; i <= c->layers; i++) {
		k3_order_init(c, i, o->block_rows, &order);
		*blocks += order.blocks;
		if (i < c->layers ? i < o->first || i >= o->last : o->last < c->layers)
			continue;
		p->sections++;
		p->trunk_bytes += k3_section_bytes(c, trunk, i);
		if (order.experts_at < order.uses)
			p->expert_bytes += c->chosen * k3_expert_bytes(c);
	}
}

/* ---- the parts ---- */

static void fill_disk(const struct k3_engine_options *o, struct k3_budget *b)
{
	b->weights = (struct k3_weights_options){
		.workers = b->threads, .block_rows = o->block_rows,
		.ring = o->disk.ring ? k3_direct_up(o->disk.ring) : RING,
		.request = o->disk.request ? k3_direct_up(o->disk.request) : REQUEST,
		.depth = o->disk.depth ? (unsigned)o->disk.depth : DEPTH,
	};
}

static uint64_t index_bytes(const struct k3_index *ix, uint64_t blocks)
{
	/* a directory entry of 16 bytes, a pin's place of 16, a note; and the trunk file's head */
	return ix->length + 33 * blocks + MB / 4;
}

/* One token in each sequence, and guesses, which want to be in one tile and in memory. */
static struct k3_fit least_sweep(const struct k3_index *ix, const struct k3_engine_options *o)
{
	const struct k3_config *c = k3_index_config(ix);
	struct k3_state_spec spec = { c, k3_index_fingerprint(ix), o->first, o->last };
	struct k3_state_bytes state = k3_state_memory_of(&spec, o->passing, POSITIONS);
	bool may_go = o->passing || o->temporary;
	uint64_t tokens = o->sequences * (1 + o->drafted);

	return (struct k3_fit){
		.tokens = tokens, .tile = o->drafted ? tokens : 0,
		.lines = o->sequences, .positions = POSITIONS,
		.sources = k3_config_sources(c, o->last), .streams = o->first > 0,
		.may_spill = o->temporary && !o->drafted, .moving = o->sequences, .slice = state.layer,
		.stay = o->sequences * (state.itself + (may_go ? 0 : state.all)),
		.may_go = o->temporary && !o->passing ? o->sequences * state.all : 0,
	};
}

/* What a round takes, and the least that one can be done in. */
static void round_bytes(const struct k3_index *ix, const struct k3_engine_options *o,
			unsigned threads, uint64_t have, struct k3_plan *p)
{
	const struct k3_config *c = k3_index_config(ix);
	uint64_t guesses = o->sequences * (k3_draft_bytes(c, o->drafted) +
					   o->drafted * k3_logits_bytes(c));
	struct k3_fit least = least_sweep(ix, o), fit = least;

	/* nothing fits into nothing: what is left is the choice that takes least */
	k3_fit_memory(c, threads, 0, &least);
	k3_fit_memory(c, threads, have > guesses ? have - guesses : 0, &fit);
	p->floor = least.sweep + least.states + guesses;
	p->activations = fit.sweep + guesses;
	p->states = fit.states;
	p->paged = o->passing || fit.paged;
	p->spilled = fit.spilled;
}

/* What there may be, on this machine or the described one: --mem, or most of what is free. */
static int choose_memory(const struct k3_engine_options *o, uint64_t *out, struct k3_err *err)
{
	const uint64_t described = o->disk.memory;
	struct k3_memory m = { described, "the described machine", described };
	int rc = described ? 0 : k3_memory_read(&m, err);

	if (rc)
		return rc;
	if (o->memory > m.most)
		return k3_fail(err, K3_ENOMEM, "%" PRIu64 " bytes of memory are more than %s has, "
			       "which are %" PRIu64, o->memory, m.limit, m.most);
	*out = o->memory;
	if (!o->memory) {
		uint64_t leave = k3_max(m.available / LEAVE_PART, LEAVE_LEAST);

		*out = m.available > 2 * leave ? m.available - leave : m.available / 2;
	}
	return 0;
}

/* Pins, then whole places in the expert cache. */
static void spend(const struct k3_config *c, struct k3_plan *p, uint64_t blocks)
{
	uint64_t used = p->process + p->index + p->ring + p->states + p->activations;
	uint64_t left = p->memory - used, unit = k3_expert_cache_unit(c);
	uint64_t all = k3_pins_area(blocks, p->trunk_bytes);

	p->pinned = k3_pins_expected(blocks, p->trunk_bytes, left);
	if (left > all)
		p->cached = k3_expert_cache_places(c, left - all) * unit;
}

/* What a token still reads, and how long that takes. */
static void cost(const struct k3_config *c, struct k3_plan *p, double rate)
{
	uint64_t unit = k3_expert_cache_unit(c), places = unit ? p->cached / unit : 0;
	double missed = c->experts ? 1 - (double)places / c->experts : 0;

	p->token_bytes = p->trunk_bytes - p->pinned + (uint64_t)((double)p->expert_bytes * missed);
	p->token_seconds = rate > 0 ? (double)p->token_bytes / rate : 0;
}

/* The parts, with the ring that b says; and their least sum. */
static void reckon(const struct k3_index *ix, const struct k3_engine_options *o, struct k3_budget *b)
{
	const struct k3_reader_options buffers = k3_weights_buffers(k3_index_config(ix), &b->weights);
	struct k3_plan *p = &b->plan;

	p->ring = k3_reader_memory(&buffers);
	/* threads that compute and that read, and the pager */
	p->process = PROCESS + o->reserved + (uint64_t)(b->threads + buffers.depth + 1) * STACK;
	if (p->coded)
		p->process += b->threads * k3_weights_plain(k3_index_config(ix));
	b->fixed = p->process + p->index + p->ring;
	round_bytes(ix, o, b->threads, p->memory > b->fixed ? p->memory - b->fixed : 0, p);
	b->least = p->floor += b->fixed;
}

/* More buffers where there is memory, if nobody said how many. */
static void widen_ring(const struct k3_index *ix, const struct k3_engine_options *o, struct k3_budget *b)
{
	uint64_t floor = b->plan.floor;
	struct k3_budget wide = *b;

	if (o->disk.ring)
		return;
	wide.weights.ring += RING_MORE;
	reckon(ix, o, &wide);
	b->wider = wide.fixed - b->fixed;
	b->wide_from = floor + RING_PART * b->wider;
	if (b->plan.memory < b->wide_from)
		return;
	*b = wide;
	b->plan.floor = floor;
}

uint64_t k3_budget_total(const struct k3_budget *b, uint64_t need)
{
	uint64_t total = need + b->fixed;

	return total < b->wide_from ? total : total + b->wider;
}

int k3_budget_make(const struct k3_index *ix, const struct k3_engine_options *given,
		   struct k3_budget *b, struct k3_trunk **trunk, struct k3_err *err)
{
	const struct k3_config *c = k3_index_config(ix);
	struct k3_engine_options filled = *given, *o = &filled;
	struct k3_plan *p = &b->plan;
	uint64_t blocks;
	int rc;

	*b = (struct k3_budget){ .threads = o->threads ? o->threads : k3_processors() };
	if (!o->last)
		o->last = c->layers;
	fill_disk(o, b);
	rc = open_trunk(ix, o->trunk, trunk, err);
	if (!rc)
		rc = choose_memory(o, &p->memory, err);
	if (rc)
		return rc;
	if (*trunk)
		o->block_rows = b->weights.block_rows = 0;
	p->coded = *trunk;
	trunk_size(c, o, *trunk, p, &blocks);
	p->index = index_bytes(ix, blocks);
	b->logits = k3_min(p->memory / LOGITS_PART, LOGITS);
	reckon(ix, o, b);
	if (p->memory < p->floor)
		rc = k3_fail(err, K3_ENOMEM, "%" PRIu64 " bytes of memory are too few: it takes at "
			     "least %" PRIu64, p->memory, p->floor);
	if (rc)
		return rc;
	widen_ring(ix, o, b);
	if (!o->once)
		spend(c, p, blocks);
	cost(c, p, o->disk.rate);
	b->fixed += o->sequences * k3_draft_bytes(c, o->drafted);
	b->weights.memory = p->memory - b->fixed;
	b->weights.trunk_bytes = p->trunk_bytes;
	return 0;
}

int k3_plan_make(const struct k3_index *ix, const struct k3_engine_options *o, struct k3_plan *out,
		 struct k3_err *err)
{
	struct k3_trunk *trunk = NULL;
	struct k3_budget b;
	int rc = k3_budget_make(ix, o, &b, &trunk, err);

	*out = b.plan;
	k3_trunk_close(trunk);
	return rc;
}
