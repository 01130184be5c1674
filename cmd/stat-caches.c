/* SPDX-License-Identifier: Apache-2.0 */
/* stat-caches.c - the caches that k3-stat sim tries: how often each has what is asked for. */
#include "stat-sim.h"

#include <k3/cache_policy.h>

#include <stdlib.h>

int sim_policy(const struct sim_trace *t, uint32_t slots, float decay, uint64_t *hits,
	       struct k3_err *err)
{
	struct k3_cache_policy *p = NULL;
	uint32_t *slot = k3_calloc(t->experts, sizeof *slot);
	bool *hit = k3_calloc(t->experts, sizeof *hit);
	int rc = slot && hit ? 0 : k3_fail_nomem(err);

	if (!rc)
		rc = k3_cache_policy_new(t->layers, t->experts, slots, decay, &p, err);
	*hits = 0;
	for (size_t i = 0; !rc && i < t->n; i++) {
		const struct sim_visit *v = &t->visit[i];

		k3_cache_policy_visit(p, v->layer, t->expert + v->first, t->users + v->first, v->n,
				      slot, hit);
		for (uint32_t k = 0; k < v->n; k++)
			*hits += hit[k];
	}
	k3_cache_policy_free(p);
	free(slot);
	free(hit);
	return rc;
}

/* Calls visit with the name of each expert asked for, which no two layers share. */
static void walk(const struct sim_trace *t, void (*visit)(void *ctx, size_t i, size_t name),
		 void *ctx)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct sim_visit *v = &t->visit[i];

		for (size_t k = v->first; k < v->first + v->n; k++)
			visit(ctx, k, (size_t)v->layer * t->experts + t->expert[k]);
	}
}

/* A ring of names in the order of their use; the entry behind the last name is its anchor. */
struct lru {
	struct { size_t before, after; } *link;	/* after == the own name: not kept */
	size_t anchor;
	uint64_t room, hits;
};

static void lru_remove(struct lru *l, size_t name)
{
	l->link[l->link[name].before].after = l->link[name].after;
	l->link[l->link[name].after].before = l->link[name].before;
	l->link[name].after = name;
}

static void lru_use(void *ctx, size_t i, size_t name)
{
	struct lru *l = ctx;

	(void)i;
	if (l->link[name].after != name) {
		l->hits++;
		lru_remove(l, name);
	} else if (l->room) {
		l->room--;
	} else {
		lru_remove(l, l->link[l->anchor].after);
	}
	l->link[name].before = l->link[l->anchor].before;
	l->link[name].after = l->anchor;
	l->link[l->link[name].before].after = name;
	l->link[l->anchor].before = name;
}

int sim_global_lru(const struct sim_trace *t, uint64_t slots, uint64_t *hits, struct k3_err *err)
{
	struct lru l = { .anchor = (size_t)t->layers * t->experts, .room = slots };

	*hits = 0;
	l.link = k3_calloc(l.anchor + 1, sizeof *l.link);
	if (!l.link)
		return k3_fail_nomem(err);
	for (size_t name = 0; name <= l.anchor; name++)
		l.link[name].before = l.link[name].after = name;
	walk(t, lru_use, &l);
	free(l.link);
	*hits = l.hits;
	return 0;
}

/*
 * Each use of an expert, but its last, opens a span to its next use, where it is a hit if the
 * span was kept.  Whenever more spans are open than there are slots, the one that ends last is given
 * up.  Spans that are over lie deep in the heap and are never taken: they end before all others.
 */
struct optimal {
	size_t *next;		/* of each use, the next one of that expert, or SIZE_MAX */
	bool *kept;		/* of each use, whether the span that ends there is kept */
	size_t *heap;		/* ends of spans, the last on top */
	size_t n;
	uint64_t open, slots, hits;
};

static void heap_push(struct optimal *o, size_t end)
{
	size_t i = o->n++;

	for (; i && o->heap[(i - 1) / 2] < end; i = (i - 1) / 2)
		o->heap[i] = o->heap[(i - 1) / 2];
	o->heap[i] = end;
}

static size_t heap_pop(struct optimal *o)
{
	size_t top = o->heap[0], last = o->heap[--o->n], i = 0, child;

	while ((child = 2 * i + 1) < o->n) {
		if (child + 1 < o->n && o->heap[child + 1] > o->heap[child])
			child++;
		if (o->heap[child] <= last)
			break;
		o->heap[i] = o->heap[child];
		i = child;
	}
	o->heap[i] = last;
	return top;
}

static void optimal_use(void *ctx, size_t i, size_t name)
{
	struct optimal *o = ctx;
	size_t end = o->next[i];

	(void)name;
	if (o->kept[i]) {
		o->hits++;
		o->open--;
	}
	if (end == SIZE_MAX)
		return;
	heap_push(o, end);
	o->kept[end] = true;
	if (o->open++ == o->slots) {
		o->kept[heap_pop(o)] = false;
		o->open--;
	}
}

/* For finding the next uses: where each expert was used last. */
struct uses {
	size_t *last, *next;
};

static void note_use(void *ctx, size_t i, size_t name)
{
	struct uses *u = ctx;

	if (u->last[name])
		u->next[u->last[name] - 1] = i;
	u->last[name] = i + 1;
	u->next[i] = SIZE_MAX;
}

int sim_optimal(const struct sim_trace *t, uint64_t slots, uint64_t *hits, struct k3_err *err)
{
	struct optimal o = { .slots = slots };
	struct uses u;
	int rc = 0;

	u.last = k3_calloc((size_t)t->layers * t->experts, sizeof *u.last);
	o.next = u.next = k3_calloc(t->asked, sizeof *u.next);
	o.kept = k3_calloc(t->asked, sizeof *o.kept);
	o.heap = k3_calloc(t->asked, sizeof *o.heap);
	if (u.last && o.next && o.kept && o.heap) {
		walk(t, note_use, &u);
		walk(t, optimal_use, &o);
	} else {
		rc = k3_fail_nomem(err);
	}
	free(u.last);
	free(o.next);
	free(o.kept);
	free(o.heap);
	*hits = o.hits;
	return rc;
}
