/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c - what a sweep takes, and which of the ways to do it fits. */
#include "engine/fit.h"
#include "engine/shelf.h"
#include "model/layer.h"
#include "sys/small.h"

/*
 * Beside vectors and states.  Of a token its id, its names and places in the sweep, in a report and
 * among the rows of logits.  Of a line what was read of it, with one allocation, what the sweep
 * knows of it, and its segment in a tile.
 */
enum { TOKEN = 88, LINE = 288 };

/*
 * Users that an expert can take at a time: so many times as the average expert has, so that hardly any has to pass
 * twice; if that is too much, so few.
 */
enum { POPULAR = 8, FEW = 16 };

/*
 * Where experts are read ahead a tile has so many tokens on the average, and there are so many tiles at
 * most; with fewer tokens the disk is the slower one.  While one token is computed the disk can read about a
 * twentieth of a layer's trunk; a faster disk more.
 */
enum { HOARD_TILE = 32, HOARD_TILES = 8, HOARD_PART = 16 };

uint64_t k3_logits_bytes(const struct k3_config *c)
{
	return k3_rows_bytes(1, c->vocab) + k3_rows_bytes(1, c->hidden);
}

/* With one row of logits. */
static uint64_t sweep_bytes(const struct k3_config *c, unsigned threads, const struct k3_fit *s)
{
	uint64_t positions = k3_max(s->positions, c->layers + 2), n = s->tokens;
	uint64_t users = k3_max(s->tile, s->group);
	uint64_t sum = k3_shelf_bytes(n, s->sources, c->hidden, s->spilled, s->tile);

	if (s->streams)
		sum += k3_rows_bytes(n, s->sources * c->hidden);
	sum += 2 * k3_shelf_bytes(n, 1, c->latent, s->spilled, users);
	sum += k3_shelf_bytes(n, 1, c->hidden, s->spilled, s->tile);
	sum += n * TOKEN + s->lines * LINE;
	sum += k3_tile_bytes(c, s->tile) + k3_routed_bytes(c, n, s->group);
	sum += threads * k3_scratch_size(c, positions) * sizeof(float);
	return sum + k3_logits_bytes(c);
}

/*
 * States stay in memory if there is room for all of them; else those that can be are
 * paged, and like those that keep nothing they take the slices of one layer, for the
 * sequences of one tile.  If that is all of them there may be room for those of two layers.
 */
static void states_bytes(struct k3_fit *s, uint64_t room)
{
	uint64_t slices = k3_min(s->moving, s->tile) * s->slice;

	s->paged = s->stay + s->may_go > room;
	s->ahead = s->paged && s->tile >= s->tokens && s->stay + 2 * slices <= room;
	if (s->paged || !s->may_go)
		s->states = s->stay + (s->ahead ? 2 : 1) * slices;
	else
		s->states = s->stay + s->may_go;
}

static bool fits(const struct k3_config *c, unsigned threads, uint64_t have, struct k3_fit *s)
{
	s->sweep = sweep_bytes(c, threads, s);
	states_bytes(s, have > s->sweep ? have - s->sweep : 0);
	return s->sweep + s->states <= have;
}

static void set_tile(struct k3_fit *s, uint64_t tile, uint64_t group)
{
	s->tile = tile;
	s->group = k3_min(group, k3_max(s->tokens, 1));
}

/* The largest tile that fits, and of as many tiles those of equal size.  False if no tile fits. */
static bool fit_tile(const struct k3_config *c, unsigned threads, uint64_t have, uint64_t group,
		     struct k3_fit *s)
{
	uint64_t all = k3_max(s->tokens, 1), good = 0, bad = all + 1, tiles;

	while (bad - good > 1) {
		uint64_t half = good + (bad - good) / 2;

		set_tile(s, half, group);
		if (fits(c, threads, have, s))
			good = half;
		else
			bad = half;
	}
	tiles = (all + k3_max(good, 1) - 1) / k3_max(good, 1);
	set_tile(s, (all + tiles - 1) / tiles, group);
	return fits(c, threads, have, s);
}

void k3_fit_hoard(const struct k3_config *c, unsigned threads, uint64_t have,
		  const struct k3_hoard_cost *cost, struct k3_fit *s)
{
	uint64_t tiles = k3_min(s->tokens / HOARD_TILE, HOARD_TILES), left;
	struct k3_fit t = *s;

	if (tiles < 2 || !c->experts || s->spilled || s->paged || s->tile < s->tokens)
		return;
	set_tile(&t, (s->tokens + tiles - 1) / tiles, s->group);
	if (!fits(c, threads, have, &t) || t.paged)
		return;
	left = have - t.sweep - t.states;
	left -= k3_min(left, cost->retain);
	t.hoard = k3_max((s->tokens - t.tile) * (cost->section / HOARD_PART), cost->least);
	t.hoard = k3_min(k3_min(t.hoard, cost->all), left);
	if (t.hoard >= cost->least)
		*s = t;
}

bool k3_fit_memory(const struct k3_config *c, unsigned threads, uint64_t have, struct k3_fit *s)
{
	uint64_t all = k3_max(s->tokens, 1), asked = s->tile;
	uint64_t popular = c->experts ? k3_max(POPULAR * all * c->chosen / c->experts, FEW) : FEW;

	s->spilled = false;
	s->group = all;
	s->tile = asked ? k3_min(asked, all) : all;
	if (fits(c, threads, have, s))
		return true;
	s->spilled = s->may_spill;
	if (asked)
		return s->spilled && fits(c, threads, have, s);
	return fit_tile(c, threads, have, popular, s) || fit_tile(c, threads, have, FEW, s);
}
