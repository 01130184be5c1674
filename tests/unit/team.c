/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - shared loops hand out each index once, barriers order, failure reaches all. */
#include "sys/team.h"
#include "tap.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1000, ROUNDS = 200 };

struct count {
	atomic_uint hits[MANY];
	atomic_uint left;	/* workers that returned by themselves */
	unsigned fail_rank, fail_round;
	atomic_bool disorder;
	unsigned rounds_seen[64];
};

/* Several loops between two barriers, some of them empty. */
static void loops(struct k3_worker *w, void *arg)
{
	struct count *c = arg;
	uint64_t i;

	for (unsigned r = 0; r < ROUNDS; r++) {
		for (int k = 0; k < 5; k++) {
			uint32_t loop = k3_loop(w);

			while (k3_loop_next(w, loop, k == 2 ? 0 : MANY, &i))
				atomic_fetch_add(&c->hits[i], 1);
		}
		if (!k3_barrier(w))
			return;
		/* all workers of the round before must be here: four full loops a round */
		for (int k = 0; k < MANY; k += 97)
			if (atomic_load(&c->hits[k]) != 4 * (r + 1))
				c->disorder = true;
		if (!k3_barrier(w))
			return;
	}
	atomic_fetch_add(&c->left, 1);
}

static void fails(struct k3_worker *w, void *arg)
{
	struct count *c = arg;
	struct k3_err err;

	for (unsigned r = 0; r < ROUNDS; r++) {
		if (w->rank == c->fail_rank && r == c->fail_round)
			k3_worker_fail(w, k3_fail(&err, K3_EDATA, "worker %u, round %u", w->rank, r),
				       &err);
		if (!k3_barrier(w)) {
			c->rounds_seen[w->rank] = r;
			return;
		}
	}
	c->rounds_seen[w->rank] = ROUNDS;
}

/* All indices from 3 on fail, at once or nearly so. */
static void fail_in_loop(struct k3_worker *w, void *arg)
{
	uint32_t loop = k3_loop(w);
	struct k3_err err;
	uint64_t i;

	(void)arg;
	while (k3_loop_next(w, loop, MANY, &i)) {
		for (atomic_int wait = 0; i == 3 && wait < 100000; wait++)
			;
		if (i >= 3)
			k3_worker_fail_at(w, i, k3_fail(&err, K3_EDATA, "index %d", (int)i), &err);
	}
	if (k3_barrier(w))
		abort();
}

static void with(unsigned threads)
{
	struct k3_team *team = NULL;
	struct count *c = calloc(1, sizeof *c);
	struct k3_err err;
	unsigned wrong = 0;
	int rc = k3_team_new(threads, &team, &err);

	if (!ok(c && !rc && k3_team_size(team) == threads, "a team of %u", threads))
		exit(1);
	ok(k3_team_run(team, loops, c, &err) == 0 && c->left == threads, "%u: loops end", threads);
	for (int i = 0; i < MANY; i++)
		wrong += c->hits[i] != 4 * ROUNDS;
	ok(!wrong && !c->disorder, "%u: each index once, all of it before the barrier", threads);
	for (unsigned bad = 0; bad < threads; bad++) {
		char want[64];

		c->fail_rank = bad;
		c->fail_round = 37 + bad;
		snprintf(want, sizeof want, "worker %u, round %u", bad, 37 + bad);
		rc = k3_team_run(team, fails, c, &err);
		ok(rc == K3_EDATA && !strcmp(err.text, want), "%u: the failure of %u is told",
		   threads, bad);
		wrong = 0;
		for (unsigned i = 0; i < threads; i++)
			wrong += c->rounds_seen[i] != 37 + bad;
		ok(!wrong, "%u: and all leave at the same barrier", threads);
	}
	for (int i = 0; i < 50; i++) {
		rc = k3_team_run(team, fail_in_loop, NULL, &err);
		wrong += rc != K3_EDATA || strcmp(err.text, "index 3");
	}
	ok(!wrong, "%u: of a loop's failures the lowest index is told", threads);
	memset(c->hits, 0, sizeof c->hits);
	c->left = 0;
	ok(k3_team_run(team, loops, c, &err) == 0 && c->left == threads,
	   "%u: a team goes on after a failure", threads);
	k3_team_free(team);
	free(c);
}

int main(void)
{
	with(1);
	with(2);
	with(3);
	with(16);
	return tap_done();
}
