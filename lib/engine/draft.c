/* SPDX-License-Identifier: Apache-2.0 */
/* draft.c - the log of guesses. */
#include "engine/draft.h"
#include "model/kda.h"
#include "model/mla.h"

#include <k3/buf.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What an allocation costs beside its bytes, where it has pages of its own. */
enum { SLACK = 4096 };

struct k3_draft {
	const struct k3_config *config;
	uint64_t most;
	uint64_t n, taken;		/* guesses of the last sweep; those that came true */
	uint32_t id[K3_DRAFT_MOST];
	float **layer;			/* of each layer `most` rows */
	float *logits;			/* `most` rows, for the caller */
};

/* Of a KDA layer: q, k, v and z of all heads, and a beta for each; of an MLA layer: the latent. */
static uint64_t row_width(const struct k3_config *c, uint32_t layer)
{
	if (c->kind[layer] == K3_MLA)
		return (uint64_t)c->kv_rank + c->rope;
	return 4 * (uint64_t)c->kda_heads * c->kda_dim + c->kda_heads;
}

uint64_t k3_draft_bytes(const struct k3_config *c, uint64_t most)
{
	uint64_t sum = sizeof(struct k3_draft) + most * c->vocab * sizeof(float) + SLACK;

	for (uint32_t i = 0; i < c->layers; i++)
		sum += most * row_width(c, i) * sizeof(float) + sizeof(float *) + SLACK;
	return most ? sum : 0;
}

int k3_draft_new(const struct k3_config *c, uint64_t most, struct k3_draft **out,
		 struct k3_err *err)
{
	struct k3_draft *d;
	bool good;

	*out = NULL;
	if (!most || most > K3_DRAFT_MOST)
		return k3_fail(err, K3_EARG, "a draft has 1 to %d guesses, not %" PRIu64,
			       K3_DRAFT_MOST, most);
	d = calloc(1, sizeof *d);
	if (!d)
		return k3_fail_nomem(err);
	d->config = c;
	d->most = most;
	d->logits = k3_calloc(most * c->vocab, sizeof *d->logits);
	d->layer = k3_calloc(c->layers, sizeof *d->layer);
	good = d->logits && d->layer;
	for (uint32_t i = 0; good && i < c->layers; i++) {
		d->layer[i] = k3_calloc(most * row_width(c, i), sizeof **d->layer);
		good = d->layer[i];
	}
	if (!good) {
		k3_draft_free(d);
		return k3_fail_nomem(err);
	}
	*out = d;
	return 0;
}

void k3_draft_free(struct k3_draft *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; d->layer && i < d->config->layers; i++)
		free(d->layer[i]);
	free(d->layer);
	free(d->logits);
	free(d);
}

const uint32_t *k3_draft_ids(const struct k3_draft *d, uint64_t *n)
{
	*n = d->n - d->taken;
	return d->id + d->taken;
}

float *k3_draft_logits(struct k3_draft *d, uint64_t i)
{
	return d->logits + (d->taken + i) * d->config->vocab;
}

void k3_draft_take(struct k3_draft *d, uint64_t n)
{
	d->taken += n;
}

uint64_t k3_draft_most(const struct k3_draft *d)
{
	return d->most;
}

uint64_t k3_draft_taken(const struct k3_draft *d)
{
	return d->taken;
}

int k3_draft_begin(struct k3_draft *d, struct k3_state *s, const uint32_t *ids, uint64_t own,
		   uint64_t drafted, struct k3_err *err)
{
	uint32_t *all = k3_reallocarray(NULL, d->taken + own, sizeof *all);
	int rc;

	if (!all)
		return k3_fail_nomem(err);
	memcpy(all, d->id, d->taken * sizeof *all);
	memcpy(all + d->taken, ids, own * sizeof *all);
	rc = k3_state_begin(s, all, d->taken + own, err);
	free(all);
	if (rc)
		return rc;
	memcpy(d->id, ids + own, drafted * sizeof *ids);
	d->n = drafted;
	d->taken = 0;
	return 0;
}

/* Where the parts of a KDA row begin. */
static void parts(const struct k3_draft *d, uint32_t layer, uint64_t i, float *part[5])
{
	uint64_t all = (uint64_t)d->config->kda_heads * d->config->kda_dim;

	for (int k = 0; k < 5; k++)
		part[k] = d->layer[layer] + i * row_width(d->config, layer) + (uint64_t)k * all;
}

static void replay_head(const struct k3_pass *p, uint32_t layer, struct k3_draft *d, uint64_t n,
			const struct k3_slice *slice, uint64_t head, float *scratch)
{
	float *at[5][K3_DRAFT_MOST], *part[5];
	/* The outputs have been used long ago: they go where nothing needs z any more. */
	struct k3_kda_rows rows = { .q = at[0], .k = at[1], .v = at[2], .z = at[3],
				    .beta = at[4], .gate = at[3], .out = at[3] };
	struct k3_slice s = *slice;

	for (uint64_t i = 0; i < n; i++) {
		parts(d, layer, i, part);
		for (int k = 0; k < 5; k++)
			at[k][i] = part[k];
	}
	k3_kda_head(p, (uint32_t)head, &rows, n, &s, scratch);
}

uint64_t k3_draft_parts(const struct k3_config *c, uint32_t layer)
{
	return c->kind[layer] == K3_KDA ? c->kda_heads : 1;
}

void k3_draft_replay(const struct k3_pass *p, uint32_t layer, struct k3_draft *d, uint64_t n,
		     uint64_t position, const struct k3_slice *slice, uint64_t part,
		     float *scratch)
{
	uint64_t width = row_width(d->config, layer);

	if (d->config->kind[layer] == K3_KDA) {
		replay_head(p, layer, d, n, slice, part, scratch);
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		memcpy(k3_mla_position(d->config, slice, position + i), d->layer[layer] + i * width,
		       width * sizeof(float));
}

static void log_kda(const struct k3_tile *t, uint32_t layer, struct k3_draft *d, uint64_t row,
		    uint64_t i)
{
	uint64_t bytes = (uint64_t)d->config->kda_heads * d->config->kda_dim * sizeof(float);
	float *part[5];

	parts(d, layer, i, part);
	memcpy(part[0], t->q.at[row], bytes);
	memcpy(part[1], t->k.at[row], bytes);
	memcpy(part[2], t->v.at[row], bytes);
	memcpy(part[3], t->z.at[row], bytes);
	memcpy(part[4], t->beta.at[row], d->config->kda_heads * sizeof(float));
}

void k3_draft_log(const struct k3_pass *p, uint32_t layer, struct k3_draft *d,
		  const struct k3_segment *segment)
{
	uint64_t width = row_width(d->config, layer), own = segment->count - segment->drafted;

	for (uint64_t i = 0; i < segment->drafted; i++) {
		uint64_t at = segment->position + own + i;

		if (d->config->kind[layer] == K3_KDA)
			log_kda(p->tile, layer, d, segment->first + own + i, i);
		else
			memcpy(d->layer[layer] + i * width,
			       k3_mla_position(d->config, &segment->slice, at),
			       width * sizeof(float));
	}
}
