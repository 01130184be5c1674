/* SPDX-License-Identifier: Apache-2.0 */
/* expert_cache.c - the bytes of cached experts. */
#include "engine/expert_cache.h"
#include "sys/direct.h"

#include <k3/buf.h>
#include <k3/cache_policy.h>

#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGN = 64 };

/* Best on recorded routes, of what was tried (docs/performance.md, k3-stat sim). */
static const float decay = 0.5f;

struct k3_expert_cache {
	const struct k3_config *config;
	struct k3_cache_policy *policy;	/* NULL if there are no places */
	uint32_t places;		/* of a layer */
	unsigned char *area;		/* place by place, in each the layers with experts */
	uint64_t expert_bytes;
	/* of the layer visited last: its experts and their users, one after the other, and what became of them */
	uint32_t layer, *expert, *users, *place;
	bool *hit;
	uint32_t *at;			/* of an expert: where it stands in these lists */
};

static uint64_t align(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t matrix_bytes(const struct k3_config *c, enum k3_role role)
{
	struct k3_expert_cut m = k3_expert_cut(c, role, 0);

	return align(m.rows * m.code_bytes) + align(m.rows * m.scale_bytes);
}

static uint64_t expert_bytes(const struct k3_config *c)
{
	return matrix_bytes(c, K3_W1) + matrix_bytes(c, K3_W2) + matrix_bytes(c, K3_W3);
}

static uint32_t moe_layers(const struct k3_config *c)
{
	return c->layers - c->dense_layers;
}

uint64_t k3_expert_cache_unit(const struct k3_config *c)
{
	return moe_layers(c) * expert_bytes(c);
}

uint32_t k3_expert_cache_places(const struct k3_config *c, uint64_t bytes)
{
	/* a huge page is resident as a whole */
	uint64_t unit = k3_expert_cache_unit(c), n = unit ? k3_huge_down(bytes) / unit : 0;

	return n < c->experts ? (uint32_t)n : c->experts;
}

uint64_t k3_expert_cache_bytes(const struct k3_expert_cache *c)
{
	return c->places * k3_expert_cache_unit(c->config);
}

int k3_expert_cache_new(const struct k3_config *config, uint64_t bytes,
			struct k3_expert_cache **out, struct k3_err *err)
{
	struct k3_expert_cache *c = calloc(1, sizeof *c);
	int rc = 0;

	*out = NULL;
	if (!c)
		return k3_fail_nomem(err);
	c->config = config;
	c->expert_bytes = expert_bytes(config);
	c->places = k3_expert_cache_places(config, bytes);
	c->expert = k3_calloc(config->experts, sizeof *c->expert);
	c->users = k3_calloc(config->experts, sizeof *c->users);
	c->place = k3_calloc(config->experts, sizeof *c->place);
	c->hit = k3_calloc(config->experts, sizeof *c->hit);
	c->at = k3_calloc(config->experts, sizeof *c->at);
	if (!c->expert || !c->users || !c->place || !c->hit || !c->at)
		rc = k3_fail_nomem(err);
	if (!rc && c->places) {
		c->area = k3_huge_new(k3_expert_cache_bytes(c));
		rc = c->area ? k3_cache_policy_new(moe_layers(config), config->experts, c->places,
						   decay, &c->policy, err)
			     : k3_fail_nomem(err);
	}
	if (rc)
		k3_expert_cache_free(c);
	else
		*out = c;
	return rc;
}

void k3_expert_cache_free(struct k3_expert_cache *c)
{
	if (!c)
		return;
	k3_huge_free(c->area, k3_expert_cache_bytes(c));
	k3_cache_policy_free(c->policy);
	free(c->expert);
	free(c->users);
	free(c->place);
	free(c->hit);
	free(c->at);
	free(c);
}

void k3_expert_cache_limit(struct k3_expert_cache *c, uint64_t bytes)
{
	uint32_t places = k3_expert_cache_places(c->config, bytes);
	uint64_t end, all = k3_expert_cache_bytes(c);

	if (!c->policy)
		return;
	if (places > c->places)
		places = c->places;
	k3_cache_policy_limit(c->policy, places);
	/* a page that a place ends in stays */
	end = k3_direct_up(places * k3_expert_cache_unit(c->config));
	if (end < all)
		madvise(c->area + end, all - end, MADV_DONTNEED);
}

void k3_expert_cache_visit(struct k3_expert_cache *c, uint32_t layer, const uint64_t *first)
{
	uint32_t n = 0;

	c->layer = layer - c->config->dense_layers;
	if (!c->policy)
		return;
	for (uint32_t e = 0; e < c->config->experts; e++) {
		if (first[e] == first[e + 1])
			continue;
		c->expert[n] = e;
		c->users[n] = (uint32_t)(first[e + 1] - first[e]);
		c->at[e] = n++;
	}
	k3_cache_policy_visit(c->policy, c->layer, c->expert, c->users, n, c->place, c->hit);
}

bool k3_expert_cache_has(const struct k3_expert_cache *c, uint32_t layer, uint32_t expert)
{
	return c->policy &&
	       k3_cache_policy_has(c->policy, layer - c->config->dense_layers, expert);
}

/* Matrices in the order of use, w1, w3, w2: of each the scales, then the codes as they are in the file. */
static uint64_t offset(const struct k3_config *c, const struct k3_step *step, uint64_t i)
{
	const struct k3_expert_cut *m = &step->cut;
	uint64_t at = 0;

	if (step->role != K3_W1)
		at += matrix_bytes(c, K3_W1);
	if (step->role == K3_W2)
		at += matrix_bytes(c, K3_W3);
	if (i)
		at += align(m->rows * m->scale_bytes) + k3_cut_codes(m, i - 1);
	return at;
}

const unsigned char *k3_expert_cache_find(const struct k3_expert_cache *c,
					  const struct k3_step *step, uint64_t i,
					  unsigned char **keep)
{
	uint32_t at = c->at[step->expert];
	unsigned char *p;

	if (!c->policy || c->place[at] == K3_NO_SLOT)
		return NULL;
	p = c->area + (c->place[at] * (uint64_t)moe_layers(c->config) + c->layer) * c->expert_bytes +
	    offset(c->config, step, i);
	if (c->hit[at])
		return p;
	*keep = p;
	return NULL;
}

void k3_expert_cache_forget(struct k3_expert_cache *c, uint32_t expert)
{
	uint32_t at = c->at[expert];

	if (c->policy && c->place[at] != K3_NO_SLOT && !c->hit[at])
		k3_cache_policy_forget(c->policy, c->layer, expert);
}
