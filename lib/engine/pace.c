/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - comparisons of two depths, in turns, until it is clear which is the better one. */
#include "engine/pace.h"
#include "sys/small.h"

#include <math.h>

/* Depths that are tried: steps that make a difference. */
static const unsigned step[] = { 1, 2, 4, 8, 16, 32, 64 };
enum { STEPS = sizeof step / sizeof *step };

/* Bytes of a turn and of a rest. */
enum { TURN = 64 << 20 };
static const uint64_t REST = 6ull << 30;

/*
 * A process that was stopped, or a disk that hung, says nothing about the depth: nanoseconds, and
 * times what all requests that are on their way take.
 */
static const uint64_t STALL = 50000000;
enum { STALLS = 4 };

/* So often a turn begins anew for that reason. */
enum { TRIES = 4 };

/* Where the disk had nothing to do before more than one of so many requests, something else than the depth is the limit. */
enum { STARVED = 8 };

/* Of a round, in the order usual, other, other, usual, so that a disk that becomes slower does so for both. */
enum { TURNS = 4 };

/* Rounds of a comparison: at least, so that chance can be told, and at most. */
enum { LEAST = 3, MOST = 8 };

/*
 * By logarithms of what a byte takes.  A difference is clear when it is so many times its standard
 * error, for which a round is taken to be off by at least NOISE: a few that agree by chance are not
 * enough.  What replaces the usual depth has to gain, more requests as well as fewer, or it would go astray among
 * equals.
 */
static const double CLEAR = 3, NOISE = 0.03, GAIN = 0.015;

static void start(struct k3_pace *p, unsigned at)
{
	unsigned depth = at < p->last ? step[at] : p->most;

	p->unsettled = (unsigned)k3_max(depth, p->depth);
	p->depth = depth;
	p->requests = p->starved = p->bytes = p->nanoseconds = 0;
}

static unsigned in_turn(const struct k3_pace *p)
{
	return (p->turn + 1) / 2 % 2 ? p->other : p->usual;
}

/* Begins a round. */
static void begin(struct k3_pace *p)
{
	p->turn = 0;
	p->pace[0] = p->pace[1] = 0;
	start(p, p->usual);
}

static void rest(struct k3_pace *p)
{
	p->rests = true;
	p->failed = 0;
	start(p, p->usual);
}

/* Compares with the neighbour whose turn it is, or the other one, if that is none. */
static void compare(struct k3_pace *p)
{
	if (p->usual == (p->up ? p->last : 0))
		p->up = !p->up;
	p->other = p->up ? p->usual + 1 : p->usual - 1;
	p->rests = false;
	p->rounds = 0;
	p->sum = p->squares = 0;
	begin(p);
}

static bool decided(const struct k3_pace *p)
{
	double n = p->rounds, mean = p->sum / n, deviation;

	if (p->rounds < LEAST || p->rounds == MOST)
		return p->rounds == MOST;
	deviation = sqrt(fmax(p->squares - n * mean * mean, 0) / (n - 1));
	return fabs(mean) > CLEAR * fmax(deviation, NOISE) / sqrt(n);
}

/* The neighbour is not better: the other one is next, if it has not failed too. */
static void fail(struct k3_pace *p)
{
	p->up = !p->up;
	p->failed++;
}

static void go_on(struct k3_pace *p)
{
	unsigned neighbours = (p->usual > 0) + (p->usual < p->last);

	if (p->failed < neighbours)
		compare(p);
	else
		rest(p);
}

static void decide(struct k3_pace *p)
{
	if (p->sum / p->rounds < -GAIN) {
		/* what helped may help more; of the new one's neighbours, the old one has failed */
		p->usual = p->other;
		p->failed = 1;
	} else {
		fail(p);
	}
	go_on(p);
}

/* A round is over. */
static void weigh(struct k3_pace *p)
{
	double slower = log(p->pace[1] / p->pace[0]);

	p->rounds++;
	p->sum += slower;
	p->squares += slower * slower;
	if (decided(p))
		decide(p);
	else
		begin(p);
}

void k3_pace_init(struct k3_pace *p, unsigned most)
{
	*p = (struct k3_pace){ .most = most };
	while (p->last + 1 < STEPS && step[p->last] < most)
		p->last++;
	p->usual = (p->last + 1) / 2;
	if (p->last)
		compare(p);
	else
		rest(p);
}

static void end_turn(struct k3_pace *p)
{
	if (p->starved * STARVED > p->requests) {
		fail(p);
		go_on(p);
		return;
	}
	p->pace[in_turn(p) == p->other] += (double)p->nanoseconds / (double)p->bytes;
	p->turn++;
	if (p->turn == TURNS)
		weigh(p);
	else
		start(p, in_turn(p));
}

static bool stalled(const struct k3_pace *p, uint64_t nanoseconds)
{
	return p->typical && nanoseconds > STALL && nanoseconds > STALLS * p->depth * p->typical;
}

void k3_pace_account(struct k3_pace *p, uint64_t bytes, uint64_t nanoseconds, bool starved)
{
	if (stalled(p, nanoseconds)) {
		/* two close together, or one in each turn: it is no accident, the disk is like this now, and what comes next counts */
		if (p->alert || p->spoiled == TRIES)
			p->typical = 0;
		p->alert = p->depth;
		if (!p->rests) {
			p->spoiled++;
			start(p, in_turn(p));
		}
		return;
	}
	if (p->alert)
		p->alert--;
	if (p->unsettled) {
		p->unsettled--;
		return;
	}
	p->requests++;
	p->starved += starved;
	p->bytes += bytes;
	p->nanoseconds += nanoseconds;
	/* some disks tell of all requests at once, and so no batch is half in a turn */
	if (!p->last || p->bytes < (p->rests ? REST : TURN) || p->requests % p->depth)
		return;
	p->typical = p->nanoseconds / p->requests;
	p->spoiled = 0;
	if (p->rests)
		compare(p);
	else
		end_turn(p);
}
