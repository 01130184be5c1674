/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - made-up disks: whichever depth is the best of one, it is read nearly as fast as with that. */
#include "engine/pace.h"
#include "rng.h"
#include "tap.h"

#include <math.h>

enum { MOST = 8, REQUEST = 2 << 20 };

static struct rng rng = { 23 };

/*
 * Bytes a nanosecond at a depth: one that waits between batches, for so many microseconds, while memory
 * costs a part of the speed for each request.  By hand: the best depth is the root of wait / 700 / cost.
 */
struct disk {
	double wait, cost;	/* microseconds; of the time of a request */
	double slow;		/* so many times, all of that */
	bool batch;		/* it tells of as many requests as there were, when all are done */
};

static double rate(const struct disk *d, unsigned depth)
{
	double ms = d->slow * (.7 * depth * (1 + d->cost * depth) + d->wait / 1000);

	return REQUEST * (double)depth / (ms * 1e6);
}

static unsigned best(const struct disk *d, unsigned most)
{
	unsigned at = 1;

	for (unsigned i = 2; i <= most; i++)
		if (rate(d, i) > rate(d, at))
			at = i;
	return at;
}

/*
 * Reads so many gigabytes at rates that wander by `noise`, and drift, while the process is stopped for a while
 * at one request of so many; returns bytes over what the best depth reads in that time.
 */
static double efficiency(struct k3_pace *p, const struct disk *d, double gigabytes, double noise,
			 unsigned stops)
{
	double time = 0, ideal, bytes = 0, wander = 0;
	unsigned left = 0;	/* of a batch */

	while (bytes < gigabytes * 1e9) {
		double drift = 1 + .2 * sin(bytes / 3e9), ns = 0;

		if (p->depth < 1 || p->depth > p->most)
			return 0;
		if (!left) {
			unsigned n = d->batch ? p->depth : 1;

			wander = .98 * wander + noise * .2 * rng_normal(&rng);
			ns = n * REQUEST / (rate(d, p->depth) * drift * (1 + wander));
			left = n;
		}
		left--;
		time += ns * drift * (1 + wander);
		bytes += REQUEST;
		if (rng_u64(&rng) % stops == 0)
			k3_pace_account(p, REQUEST, 300000000, false);
		k3_pace_account(p, REQUEST, (uint64_t)ns, false);
	}
	ideal = time * rate(d, best(d, p->most));
	return bytes / ideal;
}

static void test_disk(double wait, double cost, double slow, unsigned most, double noise,
		      unsigned want)
{
	for (int batch = 0; batch < 2; batch++) {
		struct disk d = { wait, cost, slow, batch };
		struct k3_pace p;
		double e;

		k3_pace_init(&p, most);
		e = efficiency(&p, &d, 40, noise, 500);
		ok(best(&d, most) == want && e > .94,
		   "waits of %.0f us, %.3f a request, %.0f times slower, noise %.2f, told %s: %u of %u is best; "
		   "%.3f of its speed", wait, cost, slow, noise, batch ? "at once" : "of each", want, most, e);
	}
}

static void test_change(void)
{
	struct disk quick = { 50, .05, 1, false }, slow = { 1500, .01, 1, false };
	struct k3_pace p;
	double e[4];

	k3_pace_init(&p, MOST);
	for (int i = 0; i < 4; i++)
		e[i] = efficiency(&p, i % 2 ? &slow : &quick, 60, .03, 500);
	ok(best(&quick, MOST) == 1 && best(&slow, MOST) == MOST && e[0] > .95 && e[1] > .85 && e[2] > .85 && e[3] > .85,
	   "a disk that changes: %.3f, %.3f, %.3f, %.3f of the best speed", e[0], e[1], e[2], e[3]);
}

/* It becomes so slow that each request takes as long as one that hangs. */
static void test_lasting(void)
{
	for (int batch = 0; batch < 2; batch++) {
		struct disk quick = { 50, .1, 1, batch }, slow = { 1500, .01, 100, batch };
		struct k3_pace p;
		double e;

		k3_pace_init(&p, MOST);
		efficiency(&p, &quick, 20, .03, 500);
		e = efficiency(&p, &slow, 80, .03, 500);
		/* the time of a request is known again */
		ok(p.typical && e > .85, "a disk that becomes much slower and stays so, told %s: %.3f of the best speed",
		   batch ? "at once" : "of each", e);
	}
}

/* Stops that have nothing to do with each other say nothing of the disk, however many they are. */
static void test_stops(void)
{
	for (int batch = 0; batch < 2; batch++) {
		struct disk quick = { 50, .1, 1, batch }, slow = { 4000, .005, 1, batch };
		struct k3_pace p;
		double e[2];

		for (int i = 0; i < 2; i++) {
			k3_pace_init(&p, MOST);
			e[i] = efficiency(&p, i ? &slow : &quick, 40, .03, 150);
		}
		ok(e[0] > .97 && e[1] > .9, "many stops, told %s: %.3f, %.3f of the best speed",
		   batch ? "at once" : "of each", e[0], e[1]);
	}
}

/* Where the process is stopped again and again, as by a quota of the processor's time, comparisons come to their ends, too. */
static void test_regular_stops(void)
{
	for (int gap = 9; gap < 60; gap += 7) {
		struct k3_pace p;
		int rests = 0;

		k3_pace_init(&p, MOST);
		for (int i = 0; i < 20000; i++) {
			k3_pace_account(&p, REQUEST, i > 100 && i % gap == 0 ? 150000000 : 2000000, false);
			rests += p.rests;
		}
		ok(rests, "a stop in each %d requests: rests in %d of 20000", gap, rests);
	}
}

/* Where the processors are the limit, all depths are equally good, and nothing is compared. */
static void test_starved(void)
{
	struct k3_pace p;
	unsigned before, least = MOST, most = 0;

	k3_pace_init(&p, MOST);
	before = p.depth;
	for (int i = 0; i < 20000; i++) {
		k3_pace_account(&p, REQUEST, 2000000, i % 4 == 0);
		least = p.depth < least ? p.depth : least;
		most = p.depth > most ? p.depth : most;
	}
	ok(least == before && most == before, "nothing to read in time: a depth of %u, %u to %u", before, least,
	   most);
}

int main(void)
{
	static const double noise[] = { 0, .03, .06 };

	for (int i = 0; i < 3; i++) {
		test_disk(50, .1, 1, MOST, noise[i], 1);
		test_disk(300, .05, 1, MOST, noise[i], 3);
		test_disk(700, .04, 1, MOST, noise[i], 5);
		test_disk(4000, .005, 1, MOST, noise[i], MOST);
		test_disk(4000, .005, 100, MOST, noise[i], MOST);
		test_disk(50, .1, 100, MOST, noise[i], 1);
		test_disk(4000, .005, 1, 2, noise[i], 2);
		test_disk(100, .1, 1, 1, noise[i], 1);
	}
	test_change();
	test_lasting();
	test_stops();
	test_regular_stops();
	test_starved();
	return tap_done();
}
