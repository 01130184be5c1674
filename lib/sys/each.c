/* SPDX-License-Identifier: Apache-2.0 */
/* each.c - threads that take the next piece until none is left. */
#include "sys/each.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MAX_THREADS = 16 };

struct pool {
	void (*work)(void *arg, size_t i);
	void *arg;
	size_t count;
	atomic_size_t next;
};

static void *run(void *arg)
{
	struct pool *p = arg;
	size_t i;

	while ((i = atomic_fetch_add(&p->next, 1)) < p->count)
		p->work(p->arg, i);
	return NULL;
}

void k3_each(size_t count, void (*work)(void *arg, size_t i), void *arg)
{
	struct pool p = { work, arg, count, 0 };
	cpu_set_t cpus;
	size_t want = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (size_t)CPU_COUNT(&cpus);
	pthread_t thread[MAX_THREADS];
	size_t n = 0;

	if (want > MAX_THREADS)
		want = MAX_THREADS;
	if (want > count)
		want = count;
	/* the calling thread is one of them, so there is always at least one */
	while (n + 1 < want && !pthread_create(&thread[n], NULL, run, &p))
		n++;
	run(&p);
	while (n)
		pthread_join(thread[--n], NULL);
}
