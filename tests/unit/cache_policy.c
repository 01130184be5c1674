/* SPDX-License-Identifier: Apache-2.0 */
/* cache_policy.c - visits worked out by hand, and what must hold for any. */
#include "rng.h"
#include "tap.h"
#include <k3/cache_policy.h>
#include <string.h>

static struct k3_err err;

static struct k3_cache_policy *new_policy(uint32_t layers, uint32_t experts, uint32_t slots,
					  float decay)
{
	struct k3_cache_policy *p;

	return k3_cache_policy_new(layers, experts, slots, decay, &p, &err) ? NULL : p;
}

/*
 * Visits layer 0 with experts that are letters, each chosen by one token; the answer is a
 * sign for each: its slot, or -, with a + behind it where it was a hit.
 */
static const char *visit(struct k3_cache_policy *p, const char *letters)
{
	static char answer[64];
	uint32_t expert[16] = { 0 }, users[16] = { 0 }, slot[16], n = 0;
	bool hit[16];
	char *a = answer;

	for (; letters[n]; n++) {
		expert[n] = (uint32_t)(letters[n] - 'a');
		users[n] = 1;
	}
	k3_cache_policy_visit(p, 0, expert, users, n, slot, hit);
	for (uint32_t i = 0; i < n; i++) {
		*a++ = slot[i] == K3_NO_SLOT ? '-' : (char)('0' + slot[i]);
		if (hit[i])
			*a++ = '+';
	}
	*a = '\0';
	return answer;
}

static void gives(struct k3_cache_policy *p, const char *letters, const char *want)
{
	const char *got = visit(p, letters);

	ok(!strcmp(got, want), "%s: %s", letters, want);
	if (strcmp(got, want))
		printf("# got %s\n", got);
}

static void by_hand(void)
{
	struct k3_cache_policy *p = new_policy(1, 8, 2, 0.5f);

	printf("# two slots, a decay of a half\n");
	gives(p, "a", "0");
	gives(p, "b", "1");
	gives(p, "a", "0+");	/* a 1.25, b 0.5 */
	gives(p, "c", "1");	/* c 1 is worth more than b 0.25 */
	ok(k3_cache_policy_has(p, 0, 0) && !k3_cache_policy_has(p, 0, 1) && k3_cache_policy_has(p, 0, 2),
	   "a and c are there, b is not");
	gives(p, "ab", "0+1");	/* c 0.5, and a must not go */
	gives(p, "cde", "10-");	/* c 1.25 goes first, to b, which is worth less than a; then d */
	k3_cache_policy_free(p);
}

static void by_hand_recency(void)
{
	struct k3_cache_policy *p = new_policy(1, 8, 2, 1);

	printf("# two slots, no decay\n");
	gives(p, "ab", "01");
	gives(p, "b", "1+");
	gives(p, "a", "0+");	/* both 2, b is older */
	gives(p, "c", "-");	/* 1 */
	gives(p, "c", "1");	/* 2, as b, which was used before it */
	gives(p, "b", "0");	/* 3; a 2 is older than c 2 */
	gives(p, "b", "0+");
	k3_cache_policy_forget(p, 0, 1);
	k3_cache_policy_forget(p, 0, 1);
	k3_cache_policy_forget(p, 0, 7);
	gives(p, "d", "0");	/* free */
	gives(p, "b", "0");	/* b 5 has not lost its past */
	k3_cache_policy_free(p);
}

static void by_hand_lru(void)
{
	struct k3_cache_policy *p = new_policy(1, 8, 3, 0);

	printf("# three slots, all decays at once\n");
	gives(p, "abc", "012");
	gives(p, "a", "0+");
	gives(p, "d", "2");	/* b and c are as old: the higher number goes */
	gives(p, "bcd", "1+02+");
	gives(p, "efgh", "201-");
	k3_cache_policy_free(p);
}

static void users_count(void)
{
	struct k3_cache_policy *p = new_policy(2, 4, 1, 0.5f);
	uint32_t e[] = { 0, 1, 2 }, users[] = { 1, 5, 2 }, slot[3];
	bool hit[3];

	k3_cache_policy_visit(p, 1, e, users, 3, slot, hit);
	ok(slot[0] == K3_NO_SLOT && slot[1] == 0 && slot[2] == K3_NO_SLOT,
	   "what most tokens chose is kept");
	k3_cache_policy_visit(p, 0, e, users, 3, slot, hit);
	ok(!hit[0] && !hit[1] && !hit[2], "another layer knows nothing of it");
	k3_cache_policy_visit(p, 1, e + 2, users, 1, slot, hit);
	ok(!hit[0] && slot[0] == K3_NO_SLOT, "2 / 2 + 1 are less than 5 / 2");
	k3_cache_policy_visit(p, 1, e, users, 0, slot, hit);
	k3_cache_policy_visit(p, 1, e + 2, users, 1, slot, hit);
	ok(!hit[0] && slot[0] == 0, "but 2 / 4 + 1 are more than 5 / 8");
	k3_cache_policy_free(p);
}

static void edges(void)
{
	struct k3_cache_policy *p = new_policy(1, 8, 0, 0.5f);

	gives(p, "ab", "--");
	gives(p, "ab", "--");
	k3_cache_policy_free(p);
	p = new_policy(1, 3, 1000, 0.5f);
	gives(p, "abc", "012");
	gives(p, "abc", "0+1+2+");
	k3_cache_policy_free(p);
	ok(!new_policy(1, 1, 1, 1.5f) && strstr(err.text, "1.5"), "a decay above 1");
	ok(!new_policy(1, 1, 1, -0.5f), "a decay below 0");
	ok(!new_policy(1, 1, 1, 0.0f / 0.0f), "a decay that is no number");
	k3_cache_policy_free(NULL);
}

enum { LAYERS = 3, EXPERTS = 40, SLOTS = 11 };

/* Compares a visit's answer with a record of what each slot must hold. */
static bool agrees(uint32_t *held, const uint32_t *expert, uint32_t n, const uint32_t *slot,
		   const bool *hit)
{
	bool taken[SLOTS] = { false };
	uint32_t s;

	for (uint32_t i = 0; i < n; i++) {
		for (s = 0; s < SLOTS && held[s] != expert[i]; s++)
			;
		if (hit[i] != (s < SLOTS) || (hit[i] && slot[i] != s))
			return false;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (slot[i] == K3_NO_SLOT)
			continue;
		if (slot[i] >= SLOTS || taken[slot[i]])
			return false;
		taken[slot[i]] = true;
		held[slot[i]] = expert[i];
	}
	return true;
}

static void random_visits(float decay)
{
	struct k3_cache_policy *p = new_policy(LAYERS, EXPERTS, SLOTS, decay);
	struct rng g = { 7 };
	uint32_t held[LAYERS][SLOTS], expert[EXPERTS], users[EXPERTS], slot[EXPERTS];
	bool hit[EXPERTS], good = true;

	memset(held, 0xff, sizeof held);
	for (int i = 0; i < 20000 && good; i++) {
		uint32_t layer = (uint32_t)(rng_u64(&g) % LAYERS), n = 0;
		uint64_t rare = 1 + rng_u64(&g) % 12;

		for (uint32_t e = 0; e < EXPERTS; e++) {
			if (rng_u64(&g) % (rare + e / 8))
				continue;
			users[n] = 1 + (uint32_t)(rng_u64(&g) % 3);
			expert[n++] = e;
		}
		k3_cache_policy_visit(p, layer, expert, users, n, slot, hit);
		good = agrees(held[layer], expert, n, slot, hit);
		if (n && slot[0] != K3_NO_SLOT && rng_u64(&g) % 8 == 0) {
			k3_cache_policy_forget(p, layer, expert[0]);
			held[layer][slot[0]] = UINT32_MAX;
		}
	}
	ok(good, "20000 visits, decay %g: slots hold what they should, none is given twice",
	   (double)decay);
	k3_cache_policy_free(p);
}

int main(void)
{
	by_hand();
	by_hand_recency();
	by_hand_lru();
	users_count();
	edges();
	random_visits(0);
	random_visits(0.7f);
	random_visits(1);
	return tap_done();
}
