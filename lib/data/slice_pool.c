/* SPDX-License-Identifier: Apache-2.0 */
/* slice_pool.c - a list of free slices, all of one size. */
#include "data/slice_pool.h"
#include "sys/direct.h"

#include <pthread.h>
#include <stdlib.h>

/* In the first bytes of a slice that nobody uses. */
struct unused {
	struct unused *next;
};

struct k3_slice_pool {
	pthread_mutex_t lock;
	struct unused *first;
	uint64_t bytes;		/* of each */
};

int k3_slice_pool_new(struct k3_slice_pool **out, struct k3_err *err)
{
	struct k3_slice_pool *p = calloc(1, sizeof *p);

	*out = p;
	if (!p)
		return k3_fail_nomem(err);
	pthread_mutex_init(&p->lock, NULL);
	return 0;
}

void k3_slice_pool_free(struct k3_slice_pool *p)
{
	if (!p)
		return;
	while (p->first) {
		struct unused *next = p->first->next;

		free(p->first);
		p->first = next;
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* Much memory comes clear from the system, and is touched first by those who work on it. */
static void *new_slice(uint64_t bytes)
{
	void *out = calloc(1, bytes);

	if (out)
		k3_huge_within(out, bytes);
	return out;
}

void *k3_slice_pool_take(struct k3_slice_pool *p, uint64_t bytes, bool *clear)
{
	struct unused *found = NULL;

	if (p) {
		pthread_mutex_lock(&p->lock);
		if (p->bytes == bytes && p->first) {
			found = p->first;
			p->first = found->next;
		}
		pthread_mutex_unlock(&p->lock);
	}
	*clear = !found;
	return found ? (void *)found : new_slice(bytes);
}

void k3_slice_pool_give(struct k3_slice_pool *p, void *slice, uint64_t bytes)
{
	struct unused *u = slice;

	if (!u)
		return;
	if (p && bytes >= sizeof *u) {
		pthread_mutex_lock(&p->lock);
		if (!p->first)
			p->bytes = bytes;
		if (p->bytes == bytes) {
			u->next = p->first;
			p->first = u;
			u = NULL;
		}
		pthread_mutex_unlock(&p->lock);
	}
	free(u);
}
