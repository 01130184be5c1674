/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - comparisons of two depths, in turns, with a rest between them. */
#include "engine/pace.h"

#include <math.h>

/* Depths that are tried: steps that make a difference. */
static const unsigned step[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 };
enum { STEPS = sizeof step / sizeof *step };

/* Bytes of a turn, of its beginning that does not count, and of a rest. */
enum { TURN = 64 << 20, SETTLE = 32 << 20 };
static const uint64_t REST = 4ull << 30;

/* A process that was stopped, or a disk that hung, says nothing about the depth: nanoseconds. */
static const uint64_t STALL = 250000000;

/* In the order usual, other, other, usual, so that a disk that becomes slower does so for both. */
enum { TURNS = 8 };

/* What is less than GAIN is chance; what is more than CLEAR after half of the turns is none. */
static const double GAIN = 0.03, CLEAR = 0.1;

static void start(struct k3_pace *p, unsigned at)
{
	p->depth = at < p->last ? step[at] : p->most;
	p->settled = false;
	p->bytes = p->nanoseconds = 0;
}

static void rest(struct k3_pace *p)
{
	p->rests = true;
	start(p, p->usual);
}

/* Compares with the neighbour whose turn it is, or the other one, if that is none. */
static void compare(struct k3_pace *p)
{
	if (p->usual == (p->up ? p->last : 0))
		p->up = !p->up;
	p->other = p->up ? p->usual + 1 : p->usual - 1;
	p->rests = false;
	p->turn = 0;
	p->pace[0] = p->pace[1] = 0;
	start(p, p->usual);
}

static unsigned in_turn(const struct k3_pace *p)
{
	return (p->turn + 1) / 2 % 2 ? p->other : p->usual;
}

static bool decided(const struct k3_pace *p)
{
	return p->turn == TURNS || (p->turn == TURNS / 2 &&
				    fabs(p->pace[1] - p->pace[0]) > CLEAR * p->pace[0]);
}

static void decide(struct k3_pace *p)
{
	bool better = p->pace[1] < (1 - GAIN) * p->pace[0];

	if (better)
		p->usual = p->other;
	else
		p->up = !p->up;
	/* what helped may help more */
	if (better && p->usual > 0 && p->usual < p->last)
		compare(p);
	else
		rest(p);
}

void k3_pace_init(struct k3_pace *p, unsigned most)
{
	*p = (struct k3_pace){ .most = most, .up = true };
	while (p->last + 1 < STEPS && step[p->last] < most)
		p->last++;
	p->usual = (p->last + 1) / 2;
	if (p->last)
		compare(p);
	else
		rest(p);
}

void k3_pace_account(struct k3_pace *p, uint64_t bytes, uint64_t nanoseconds)
{
	if (nanoseconds > STALL) {
		if (!p->rests)
			start(p, in_turn(p));
		return;
	}
	p->bytes += bytes;
	p->nanoseconds += nanoseconds;
	if (!p->settled) {
		p->settled = p->bytes >= SETTLE;
		if (p->settled)
			p->bytes = p->nanoseconds = 0;
		return;
	}
	if (!p->last || p->bytes < (p->rests ? REST : TURN))
		return;
	if (p->rests) {
		compare(p);
		return;
	}
	p->pace[in_turn(p) == p->other] += (double)p->nanoseconds / (double)p->bytes;
	p->turn++;
	if (decided(p))
		decide(p);
	else
		start(p, in_turn(p));
}
