/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.c - threads, a sleeping barrier that also carries failure, shared loops.
 *
 * OpenMP's barrier can neither sleep on demand nor tell all threads at one and
 * the same place that one of them has failed, so these are threads of our own.
 */
#include "sys/team.h"

#include <k3/buf.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct k3_team {
	unsigned size;
	unsigned started;	/* threads that must be joined */
	pthread_t *thread;	/* size - 1 of them */

	pthread_mutex_t lock;
	pthread_cond_t wake;	/* a run begins, or the team ends */
	pthread_cond_t done;	/* the last thread has left a run */
	uint64_t run;		/* number of the current run */
	bool quit;
	unsigned working;	/* helpers still inside the run */
	void (*fn)(struct k3_worker *, void *);
	void *arg;

	pthread_cond_t gate;
	uint64_t phase;		/* number of barriers passed */
	unsigned waiting;
	bool failed_at_gate;	/* what the workers of this phase are told */

	atomic_bool failed;
	int status;
	uint64_t failed_at;	/* the index that failed; UINT64_MAX outside of loops */
	struct k3_err err;

	/* high half: number of the loop, low half: its next index */
	_Atomic uint64_t cursor[K3_TEAM_LOOPS];
};

unsigned k3_processors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (unsigned)n;
}

struct start {
	struct k3_team *team;
	unsigned rank;
};

static void *helper(void *arg)
{
	struct start s = *(struct start *)arg;
	struct k3_team *t = s.team;
	uint64_t seen = 0;

	free(arg);
	pthread_mutex_lock(&t->lock);
	for (;;) {
		while (!t->quit && t->run == seen)
			pthread_cond_wait(&t->wake, &t->lock);
		if (t->quit)
			break;
		seen = t->run;
		pthread_mutex_unlock(&t->lock);
		struct k3_worker w = { t, s.rank, 0 };
		t->fn(&w, t->arg);
		pthread_mutex_lock(&t->lock);
		if (--t->working == 0)
			pthread_cond_signal(&t->done);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static int start_helper(struct k3_team *t, unsigned rank, struct k3_err *err)
{
	struct start *s = malloc(sizeof *s);
	int e;

	if (!s)
		return k3_fail_nomem(err);
	*s = (struct start){ t, rank };
	e = pthread_create(&t->thread[rank - 1], NULL, helper, s);
	if (e) {
		free(s);
		errno = e;
		return k3_fail_errno(err, "cannot start thread %u", rank);
	}
	t->started++;
	return 0;
}

int k3_team_new(unsigned threads, struct k3_team **out, struct k3_err *err)
{
	struct k3_team *t = calloc(1, sizeof *t);
	int rc = 0;

	*out = NULL;
	if (!t)
		return k3_fail_nomem(err);
	t->size = threads;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	pthread_cond_init(&t->done, NULL);
	pthread_cond_init(&t->gate, NULL);
	t->thread = k3_calloc(threads, sizeof *t->thread);
	if (!t->thread)
		rc = k3_fail_nomem(err);
	for (unsigned r = 1; !rc && r < threads; r++)
		rc = start_helper(t, r, err);
	if (rc) {
		k3_team_free(t);
		return rc;
	}
	*out = t;
	return 0;
}

void k3_team_free(struct k3_team *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->quit = true;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);
	for (unsigned i = 0; i < t->started; i++)
		pthread_join(t->thread[i], NULL);
	pthread_cond_destroy(&t->gate);
	pthread_cond_destroy(&t->done);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t->thread);
	free(t);
}

unsigned k3_team_size(const struct k3_team *t)
{
	return t->size;
}

int k3_team_run(struct k3_team *t, void (*fn)(struct k3_worker *, void *), void *arg,
		struct k3_err *err)
{
	struct k3_worker self = { t, 0, 0 };

	pthread_mutex_lock(&t->lock);
	t->fn = fn;
	t->arg = arg;
	t->failed = false;
	t->status = 0;
	t->working = t->size - 1;
	for (int i = 0; i < K3_TEAM_LOOPS; i++)
		t->cursor[i] = 0;
	t->run++;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);

	fn(&self, arg);

	pthread_mutex_lock(&t->lock);
	while (t->working)
		pthread_cond_wait(&t->done, &t->lock);
	pthread_mutex_unlock(&t->lock);
	if (t->failed && err)
		*err = t->err;
	return t->status;
}

bool k3_barrier(struct k3_worker *w)
{
	struct k3_team *t = w->team;
	uint64_t phase;
	bool good;

	if (t->size == 1)
		return !t->failed;
	pthread_mutex_lock(&t->lock);
	phase = t->phase;
	if (++t->waiting == t->size) {
		/* one answer for all: a failure after this moment is for the next barrier */
		t->failed_at_gate = t->failed;
		t->waiting = 0;
		t->phase++;
		pthread_cond_broadcast(&t->gate);
	} else {
		while (t->phase == phase)
			pthread_cond_wait(&t->gate, &t->lock);
	}
	good = !t->failed_at_gate;
	pthread_mutex_unlock(&t->lock);
	return good;
}

void k3_worker_fail_at(struct k3_worker *w, uint64_t i, int status, const struct k3_err *err)
{
	struct k3_team *t = w->team;

	pthread_mutex_lock(&t->lock);
	/* lower indices were handed out before, so they are all being looked at */
	if (!t->failed || i < t->failed_at) {
		t->status = status;
		t->err = *err;
		t->failed_at = i;
		t->failed = true;
	}
	pthread_mutex_unlock(&t->lock);
}

void k3_worker_fail(struct k3_worker *w, int status, const struct k3_err *err)
{
	k3_worker_fail_at(w, UINT64_MAX, status, err);
}

uint32_t k3_loop(struct k3_worker *w)
{
	return ++w->loops;
}

bool k3_loop_next(struct k3_worker *w, uint32_t loop, uint64_t n, uint64_t *i)
{
	_Atomic uint64_t *cursor = &w->team->cursor[loop % K3_TEAM_LOOPS];
	uint64_t begun = (uint64_t)loop << 32, now, next;

	if (w->team->failed)
		return false;
	now = atomic_load(cursor);
	do {
		/* the first to arrive takes the cell over from a loop that is long over */
		if (now >> 32 != loop)
			now = (atomic_compare_exchange_strong(cursor, &now, begun)) ? begun : now;
		if (now >> 32 != loop)
			continue;
		if ((now & UINT32_MAX) >= n)
			return false;
		next = now + 1;
		if (atomic_compare_exchange_weak(cursor, &now, next)) {
			*i = now & UINT32_MAX;
			return true;
		}
	} while (1);
}
