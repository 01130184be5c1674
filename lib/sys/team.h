/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys/team.h - a team of threads that goes through one long function together.
 *
 * Every worker runs the same function and so comes to the same loops and
 * barriers in the same order.  A shared loop hands each of its indices to one
 * worker; there is no barrier at its end.  A barrier is where all of an earlier
 * result is needed.  Who waits, sleeps.
 *
 * A worker that fails records why and goes on to the next barrier, where all
 * workers learn of it and return: nobody is left waiting.
 */
#ifndef K3_SYS_TEAM_H
#define K3_SYS_TEAM_H

#include <k3/err.h>
#include <stdbool.h>
#include <stdint.h>

struct k3_team;

struct k3_worker {
	struct k3_team *team;
	unsigned rank;		/* 0 is the thread that called k3_team_run */
	uint32_t loops;		/* shared loops begun so far */
};

/* How many processors are online, at least 1. */
unsigned k3_processors(void);

/* Starts threads - 1 sleeping threads.  Errors: K3_ENOMEM, K3_EIO. */
K3_NODISCARD int k3_team_new(unsigned threads, struct k3_team **out, struct k3_err *err);
void k3_team_free(struct k3_team *team);
unsigned k3_team_size(const struct k3_team *team);

/*
 * Runs fn(worker, arg) on all threads and waits for them.  Returns the first
 * failure that a worker recorded, or 0.
 */
K3_NODISCARD int k3_team_run(struct k3_team *team, void (*fn)(struct k3_worker *, void *),
			     void *arg, struct k3_err *err);

/* Waits for the whole team; true if all is well, false if a worker has failed. */
K3_NODISCARD bool k3_barrier(struct k3_worker *w);

/* Records a failure; the first one of a run is kept. */
void k3_worker_fail(struct k3_worker *w, int status, const struct k3_err *err);

/*
 * Records the failure of index i of a shared loop: of several in that loop the one with the lowest
 * index is kept, so that the sentence does not depend on who was faster.
 */
void k3_worker_fail_at(struct k3_worker *w, uint64_t i, int status, const struct k3_err *err);

/*
 * A shared loop over 0 .. n-1, n < 2^32:
 *
 *	uint32_t loop = k3_loop(w);
 *	while (k3_loop_next(w, loop, n, &i))
 *		...
 *
 * Indices are handed out in ascending order.  At most K3_TEAM_LOOPS loops may
 * lie between two barriers.
 */
enum { K3_TEAM_LOOPS = 64 };
uint32_t k3_loop(struct k3_worker *w);
bool k3_loop_next(struct k3_worker *w, uint32_t loop, uint64_t n, uint64_t *i);

#endif
