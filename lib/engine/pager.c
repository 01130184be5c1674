/* SPDX-License-Identifier: Apache-2.0 */
/* pager.c - the thread that reads and writes slices. */
#include "engine/pager.h"

#include <k3/buf.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct job {
	struct k3_state *state;
	uint32_t layer;
	bool store;
};

struct k3_pager {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more, idle;
	struct job *job;		/* first .. n - 1 are still to do */
	size_t first, n, room;
	bool end;
	int status;			/* of the first one that failed */
	struct k3_err err;
};

static int do_job(const struct job *j, struct k3_err *err)
{
	struct k3_slice slice;

	return j->store ? k3_state_store(j->state, j->layer, err)
			: k3_state_slice(j->state, j->layer, &slice, err);
}

static void *work(void *arg)
{
	struct k3_pager *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->end) {
		struct k3_err err;
		struct job j;
		int rc;

		if (p->first == p->n || p->status) {
			p->first = p->n = 0;
			pthread_cond_broadcast(&p->idle);
			pthread_cond_wait(&p->more, &p->lock);
			continue;
		}
		j = p->job[p->first];
		pthread_mutex_unlock(&p->lock);
		rc = do_job(&j, &err);
		pthread_mutex_lock(&p->lock);
		p->first++;
		if (rc) {
			p->status = rc;
			p->err = err;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int k3_pager_new(struct k3_pager **out, struct k3_err *err)
{
	struct k3_pager *p = calloc(1, sizeof *p);

	*out = NULL;
	if (!p)
		return k3_fail_nomem(err);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	pthread_cond_init(&p->idle, NULL);
	if (pthread_create(&p->thread, NULL, work, p)) {
		free(p);
		return k3_fail(err, K3_EIO, "cannot start a thread");
	}
	*out = p;
	return 0;
}

void k3_pager_free(struct k3_pager *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->end = true;
	pthread_cond_signal(&p->more);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->more);
	pthread_cond_destroy(&p->idle);
	free(p->job);
	free(p);
}

static int add(struct k3_pager *p, struct job j, struct k3_err *err)
{
	struct job *bigger;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	if (p->n == p->room) {
		bigger = k3_reallocarray(p->job, p->room ? 2 * p->room : 16, sizeof j);
		if (bigger) {
			p->job = bigger;
			p->room = p->room ? 2 * p->room : 16;
		}
	}
	if (p->n < p->room)
		p->job[p->n++] = j;
	else
		rc = k3_fail_nomem(err);
	pthread_cond_signal(&p->more);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

int k3_pager_load(struct k3_pager *p, struct k3_state *s, uint32_t layer, struct k3_err *err)
{
	return add(p, (struct job){ s, layer, false }, err);
}

int k3_pager_store(struct k3_pager *p, struct k3_state *s, uint32_t layer, struct k3_err *err)
{
	return add(p, (struct job){ s, layer, true }, err);
}

int k3_pager_wait(struct k3_pager *p, struct k3_err *err)
{
	int rc;

	pthread_mutex_lock(&p->lock);
	while (p->n && !p->status)
		pthread_cond_wait(&p->idle, &p->lock);
	rc = p->status;
	if (rc)
		*err = p->err;
	p->status = 0;
	p->n = p->first = 0;
	pthread_mutex_unlock(&p->lock);
	return rc;
}
