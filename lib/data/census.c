/* SPDX-License-Identifier: Apache-2.0 */
/* census.c - what a model consists of, counted from its config and its index. */
#include "data/index.h"

/*
 * The parameters of a tensor: a byte of packed codes holds two, and scales, which
 * belong to their codes, are none.
 */
static uint64_t parameters(const struct k3_tensor *t)
{
	switch (t->role) {
	case K3_W1:
	case K3_W2:
	case K3_W3:
		return 2 * t->bytes;
	case K3_W1_SCALE:
	case K3_W2_SCALE:
	case K3_W3_SCALE:
		return 0;
	default:
		return t->rows * t->cols;
	}
}

static void add(struct k3_share *s, const struct k3_tensor *t, uint64_t times)
{
	s->tensors += times;
	s->parameters += times * parameters(t);
	s->bytes += times * t->bytes;
}

static void join(struct k3_share *s, const struct k3_share *part)
{
	s->tensors += part->tensors;
	s->parameters += part->parameters;
	s->bytes += part->bytes;
}

/* What is missing in a range of slots. */
static void add_missing(const struct k3_index *ix, uint64_t first, uint64_t end,
			struct k3_share *s)
{
	struct k3_tensor t;

	for (uint64_t i = first; i < end; i++)
		if (!k3_index_at(ix, i, &t))
			add(s, &t, 1);
}

void k3_index_layer(const struct k3_index *ix, uint32_t layer, struct k3_layer_census *out)
{
	struct k3_tensor t;
	uint64_t slot;

	*out = (struct k3_layer_census){ 0 };
	for (enum k3_role role = K3_ATTN_NORM; role < K3_ROLES; role++) {
		if (!k3_layout_slot(&ix->layout, role, layer, 0, &slot))
			continue;
		k3_role_describe(&ix->config, role, layer, 0, &t);
		if (role < K3_W1)
			add(&out->trunk, &t, 1);
		else
			add(&out->experts, &t, ix->config.experts);
	}
	add_missing(ix, ix->layout.base[layer], ix->layout.base[layer + 1], &out->missing);
}

void k3_index_census(const struct k3_index *ix, struct k3_census *out)
{
	const struct k3_config *c = &ix->config;
	struct k3_layer_census layer;
	struct k3_tensor t;

	*out = (struct k3_census){ 0 };
	for (enum k3_role role = K3_EMBED; role < K3_ATTN_NORM; role++) {
		k3_role_describe(c, role, 0, 0, &t);
		add(role == K3_EMBED ? &out->embedding : role == K3_HEAD ? &out->head :
		    &out->output, &t, 1);
	}
	add_missing(ix, 0, K3_ATTN_NORM, &out->missing);
	for (uint32_t i = 0; i < c->layers; i++) {
		*(c->kind[i] == K3_MLA ? &out->mla_layers : &out->kda_layers) += 1;
		*(k3_config_is_moe(c, i) ? &out->moe_layers : &out->dense_layers) += 1;
		k3_index_layer(ix, i, &layer);
		join(&out->trunk, &layer.trunk);
		join(&out->experts, &layer.experts);
		join(&out->missing, &layer.missing);
	}
	for (enum k3_role role = K3_W1; role < K3_ROLES; role++) {
		k3_role_describe(c, role, 0, 0, &t);
		add(&out->expert, &t, 1);
	}
	for (uint32_t i = 0; i < ix->shards; i++)
		out->missing_shards += ix->shard[i].absent;
	k3_index_vision(ix, &out->vision_tensors, &out->vision_bytes);
}
