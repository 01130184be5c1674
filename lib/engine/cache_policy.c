/* SPDX-License-Identifier: Apache-2.0 */
/* cache_policy.c - decayed frequency with recency: what a layer's slots hold. */
#include <k3/buf.h>
#include <k3/cache_policy.h>

#include <stdlib.h>

#define NOBODY UINT32_MAX	/* holds a free slot */

/* What is known of an expert. */
struct past {
	float score;	/* uses, each less by the decay for every visit since */
	uint32_t slot;	/* or K3_NO_SLOT */
	uint64_t last;	/* the visit that used it last; 0: none */
};

/* What competes for slots: the better stays. */
struct rival {
	float score;
	uint32_t expert;
	uint64_t last;
};

struct k3_cache_policy {
	uint32_t layers, experts, slots;
	uint32_t limit;		/* slots that may be used */
	float decay;
	struct past *past;	/* experts of each layer */
	uint32_t *held;		/* of each slot of each layer, its expert or NOBODY */
	uint64_t *visits;	/* of each layer */
	struct rival *rival;	/* room for those of a visit: misses, then those that may go */
};

int k3_cache_policy_new(uint32_t layers, uint32_t experts, uint32_t slots_per_layer, float decay,
			struct k3_cache_policy **out, struct k3_err *err)
{
	struct k3_cache_policy *p;
	uint64_t n_past = (uint64_t)layers * experts, n_held;

	*out = NULL;
	if (!(decay >= 0 && decay <= 1))
		return k3_fail(err, K3_EARG, "a decay of %g is not from 0 to 1", (double)decay);
	p = k3_calloc(1, sizeof *p);
	if (!p)
		return k3_fail_nomem(err);
	*p = (struct k3_cache_policy){ .layers = layers, .experts = experts, .decay = decay };
	/* more slots than experts would only stay empty */
	p->slots = slots_per_layer < experts ? slots_per_layer : experts;
	p->limit = p->slots;
	n_held = (uint64_t)layers * p->slots;
	p->past = k3_calloc(n_past, sizeof *p->past);
	p->held = k3_calloc(n_held, sizeof *p->held);
	p->visits = k3_calloc(layers, sizeof *p->visits);
	p->rival = k3_calloc((size_t)experts + p->slots, sizeof *p->rival);
	if (!p->past || !p->held || !p->visits || !p->rival) {
		k3_cache_policy_free(p);
		return k3_fail_nomem(err);
	}
	for (uint64_t i = 0; i < n_past; i++)
		p->past[i].slot = K3_NO_SLOT;
	for (uint64_t i = 0; i < n_held; i++)
		p->held[i] = NOBODY;
	*out = p;
	return 0;
}

void k3_cache_policy_free(struct k3_cache_policy *p)
{
	if (!p)
		return;
	free(p->past);
	free(p->held);
	free(p->visits);
	free(p->rival);
	free(p);
}

/* Ascending worth; between experts that nothing else tells apart, the lower number is worth more. */
static int by_worth(const void *a, const void *b)
{
	const struct rival *x = a, *y = b;

	if (x->score != y->score)
		return x->score < y->score ? -1 : 1;
	if (x->last != y->last)
		return x->last < y->last ? -1 : 1;
	return x->expert > y->expert ? -1 : x->expert < y->expert;
}

/* Notes the uses of a visit; returns its number. */
static uint64_t count_uses(struct k3_cache_policy *p, uint32_t layer, const uint32_t *expert,
			   const uint32_t *users, uint32_t n)
{
	struct past *past = p->past + (uint64_t)layer * p->experts;
	uint64_t now = ++p->visits[layer];

	for (uint32_t e = 0; e < p->experts; e++)
		past[e].score *= p->decay;
	for (uint32_t i = 0; i < n; i++) {
		past[expert[i]].score += (float)users[i];
		past[expert[i]].last = now;
	}
	return now;
}

/* The experts that are to move in, the best last; returns how many. */
static uint32_t find_misses(const struct past *past, const uint32_t *expert, uint32_t n,
			    struct rival *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct past *e = &past[expert[i]];

		if (e->slot == K3_NO_SLOT)
			out[count++] = (struct rival){ e->score, expert[i], e->last };
	}
	qsort(out, count, sizeof *out, by_worth);
	return count;
}

/* The experts whose slots may be taken, the worst first; returns how many. */
static uint32_t find_victims(const struct k3_cache_policy *p, const struct past *past,
			     const uint32_t *held, uint64_t now, struct rival *out)
{
	uint32_t count = 0;

	for (uint32_t s = 0; s < p->limit; s++) {
		const struct past *e = held[s] == NOBODY ? NULL : &past[held[s]];

		if (e && e->last != now)
			out[count++] = (struct rival){ e->score, held[s], e->last };
	}
	qsort(out, count, sizeof *out, by_worth);
	return count;
}

/* Gives slots to the misses of visit `now`: first the free ones, then those of experts worth no more. */
static void move_in(struct k3_cache_policy *p, struct past *past, uint32_t *held, uint64_t now,
		    const uint32_t *expert, uint32_t n)
{
	struct rival *miss = p->rival, *victim = miss + n;
	uint32_t misses = find_misses(past, expert, n, miss);
	uint32_t victims = find_victims(p, past, held, now, victim), taken = 0, s = 0;

	while (misses) {
		struct past *in = &past[miss[--misses].expert];

		while (s < p->limit && held[s] != NOBODY)
			s++;
		if (s < p->limit) {
			in->slot = s;
		} else if (taken < victims && victim[taken].score <= in->score) {
			struct past *out = &past[victim[taken++].expert];

			in->slot = out->slot;
			out->slot = K3_NO_SLOT;
		} else {
			return;		/* the others are worth no more than this one */
		}
		held[in->slot] = (uint32_t)(in - past);
	}
}

void k3_cache_policy_visit(struct k3_cache_policy *p, uint32_t layer, const uint32_t *expert,
			   const uint32_t *users, uint32_t n, uint32_t *slot, bool *hit)
{
	struct past *past = p->past + (uint64_t)layer * p->experts;
	uint64_t now = count_uses(p, layer, expert, users, n);

	for (uint32_t i = 0; i < n; i++)
		hit[i] = past[expert[i]].slot != K3_NO_SLOT;
	move_in(p, past, p->held + (uint64_t)layer * p->slots, now, expert, n);
	for (uint32_t i = 0; i < n; i++)
		slot[i] = past[expert[i]].slot;
}

bool k3_cache_policy_has(const struct k3_cache_policy *p, uint32_t layer, uint32_t expert)
{
	return p->past[(uint64_t)layer * p->experts + expert].slot != K3_NO_SLOT;
}

void k3_cache_policy_forget(struct k3_cache_policy *p, uint32_t layer, uint32_t expert)
{
	struct past *e = &p->past[(uint64_t)layer * p->experts + expert];

	if (e->slot == K3_NO_SLOT)
		return;
	p->held[(uint64_t)layer * p->slots + e->slot] = NOBODY;
	e->slot = K3_NO_SLOT;
}

void k3_cache_policy_limit(struct k3_cache_policy *p, uint32_t slots)
{
	p->limit = slots < p->slots ? slots : p->slots;
	for (uint32_t l = 0; l < p->layers; l++)
		for (uint32_t s = p->limit; s < p->slots; s++) {
			uint32_t *held = &p->held[(uint64_t)l * p->slots + s];

			if (*held != NOBODY)
				p->past[(uint64_t)l * p->experts + *held].slot = K3_NO_SLOT;
			*held = NOBODY;
		}
}
