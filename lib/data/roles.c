/* SPDX-License-Identifier: Apache-2.0 */
/* roles.c - one table with a line for every role, and arithmetic on it. */
#include "data/roles.h"
#include <k3/buf.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that shapes are made of. */
enum dim {
	NONE, ONE, HIDDEN, VOCAB, VALUES, KDA_WIDTH, KDA_DIM, KDA_HEADS, A_LOG, CONV, Q_RANK, Q_ALL,
	KV_RANK, KV_AND_ROPE, KV_ALL, DENSE, EXPERTS, LATENT, LATENT_2, LATENT_32, SHARED, WIDTH,
	WIDTH_2, WIDTH_32
};

static const struct role {
	const char *name;	/* behind the prefix of the model, layer or expert */
	enum k3_dtype dtype;
	enum dim shape[3];
} roles[K3_ROLES] = {
	[K3_EMBED] = { "model.embed_tokens.weight", K3_BF16, { VOCAB, HIDDEN } },
	[K3_HEAD] = { "lm_head.weight", K3_BF16, { VOCAB, HIDDEN } },
	[K3_FINAL_NORM] = { "model.norm.weight", K3_BF16, { HIDDEN } },
	[K3_OUT_MIX_NORM] = { "model.output_attn_res_norm.weight", K3_BF16, { HIDDEN } },
	[K3_OUT_MIX_PROJ] = { "model.output_attn_res_proj.weight", K3_BF16, { ONE, HIDDEN } },

	[K3_ATTN_NORM] = { "input_layernorm.weight", K3_BF16, { HIDDEN } },
	[K3_MLP_NORM] = { "post_attention_layernorm.weight", K3_BF16, { HIDDEN } },
	[K3_ATTN_MIX_NORM] = { "self_attention_res_norm.weight", K3_BF16, { HIDDEN } },
	[K3_ATTN_MIX_PROJ] = { "self_attention_res_proj.weight", K3_BF16, { ONE, HIDDEN } },
	[K3_MLP_MIX_NORM] = { "mlp_res_norm.weight", K3_BF16, { HIDDEN } },
	[K3_MLP_MIX_PROJ] = { "mlp_res_proj.weight", K3_BF16, { ONE, HIDDEN } },
	[K3_GATE] = { "self_attn.g_proj.weight", K3_BF16, { VALUES, HIDDEN } },
	[K3_OUT] = { "self_attn.o_proj.weight", K3_BF16, { HIDDEN, VALUES } },

	[K3_KDA_Q] = { "self_attn.q_proj.weight", K3_BF16, { KDA_WIDTH, HIDDEN } },
	[K3_KDA_K] = { "self_attn.k_proj.weight", K3_BF16, { KDA_WIDTH, HIDDEN } },
	[K3_KDA_V] = { "self_attn.v_proj.weight", K3_BF16, { KDA_WIDTH, HIDDEN } },
	[K3_KDA_Q_CONV] = { "self_attn.q_conv1d.weight", K3_F32, { KDA_WIDTH, ONE, CONV } },
	[K3_KDA_K_CONV] = { "self_attn.k_conv1d.weight", K3_F32, { KDA_WIDTH, ONE, CONV } },
	[K3_KDA_V_CONV] = { "self_attn.v_conv1d.weight", K3_F32, { KDA_WIDTH, ONE, CONV } },
	[K3_KDA_FA] = { "self_attn.f_a_proj.weight", K3_BF16, { KDA_DIM, HIDDEN } },
	[K3_KDA_FB] = { "self_attn.f_b_proj.weight", K3_BF16, { KDA_WIDTH, KDA_DIM } },
	[K3_KDA_B] = { "self_attn.b_proj.weight", K3_BF16, { KDA_HEADS, HIDDEN } },
	[K3_KDA_A_LOG] = { "self_attn.A_log", K3_F32, { A_LOG } },
	[K3_KDA_DT_BIAS] = { "self_attn.dt_bias", K3_F32, { KDA_WIDTH } },
	[K3_KDA_NORM] = { "self_attn.o_norm.weight", K3_F32, { KDA_DIM } },

	[K3_MLA_QA] = { "self_attn.q_a_proj.weight", K3_BF16, { Q_RANK, HIDDEN } },
	[K3_MLA_QA_NORM] = { "self_attn.q_a_layernorm.weight", K3_BF16, { Q_RANK } },
	[K3_MLA_QB] = { "self_attn.q_b_proj.weight", K3_BF16, { Q_ALL, Q_RANK } },
	[K3_MLA_KVA] = { "self_attn.kv_a_proj_with_mqa.weight", K3_BF16, { KV_AND_ROPE, HIDDEN } },
	[K3_MLA_KVA_NORM] = { "self_attn.kv_a_layernorm.weight", K3_BF16, { KV_RANK } },
	[K3_MLA_KVB] = { "self_attn.kv_b_proj.weight", K3_BF16, { KV_ALL, KV_RANK } },

	[K3_DENSE_GATE] = { "mlp.gate_proj.weight", K3_BF16, { DENSE, HIDDEN } },
	[K3_DENSE_UP] = { "mlp.up_proj.weight", K3_BF16, { DENSE, HIDDEN } },
	[K3_DENSE_DOWN] = { "mlp.down_proj.weight", K3_BF16, { HIDDEN, DENSE } },

#define MOE "block_sparse_moe."
	[K3_ROUTER] = { MOE "gate.weight", K3_BF16, { EXPERTS, HIDDEN } },
	[K3_ROUTER_BIAS] = { MOE "gate.e_score_correction_bias", K3_F32, { EXPERTS } },
	[K3_LATENT_DOWN] = { MOE "routed_expert_down_proj.weight", K3_BF16, { LATENT, HIDDEN } },
	[K3_LATENT_NORM] = { MOE "routed_expert_norm.weight", K3_BF16, { LATENT } },
	[K3_LATENT_UP] = { MOE "routed_expert_up_proj.weight", K3_BF16, { HIDDEN, LATENT } },
	[K3_SHARED_GATE] = { MOE "shared_experts.gate_proj.weight", K3_BF16, { SHARED, HIDDEN } },
	[K3_SHARED_UP] = { MOE "shared_experts.up_proj.weight", K3_BF16, { SHARED, HIDDEN } },
	[K3_SHARED_DOWN] = { MOE "shared_experts.down_proj.weight", K3_BF16, { HIDDEN, SHARED } },

	[K3_W1] = { "w1.weight_packed", K3_U8, { WIDTH, LATENT_2 } },
	[K3_W1_SCALE] = { "w1.weight_scale", K3_U8, { WIDTH, LATENT_32 } },
	[K3_W2] = { "w2.weight_packed", K3_U8, { LATENT, WIDTH_2 } },
	[K3_W2_SCALE] = { "w2.weight_scale", K3_U8, { LATENT, WIDTH_32 } },
	[K3_W3] = { "w3.weight_packed", K3_U8, { WIDTH, LATENT_2 } },
	[K3_W3_SCALE] = { "w3.weight_scale", K3_U8, { WIDTH, LATENT_32 } },
};

static const char of_model[] = "language_model.";
static const char of_layer[] = "language_model.model.layers.";
static const char of_expert[] = MOE "experts.";

/* The size of one dimension; what depends on the kind of attention is asked of the layer. */
static uint64_t extent(const struct k3_config *c, uint32_t layer, enum dim d)
{
	switch (d) {
	case NONE: return 0;
	case ONE: return 1;
	case HIDDEN: return c->hidden;
	case VOCAB: return c->vocab;
	case VALUES:
		return c->kind[layer] == K3_MLA ? c->mla_heads * c->v_dim
						: c->kda_heads * c->kda_dim;
	case KDA_WIDTH: return c->kda_heads * c->kda_dim;
	case KDA_DIM: return c->kda_dim;
	case KDA_HEADS: return c->kda_heads;
	case A_LOG: return c->kda_heads > c->kda_dim ? c->kda_heads : c->kda_dim;
	case CONV: return c->conv;
	case Q_RANK: return c->q_rank;
	case Q_ALL: return c->mla_heads * (c->nope + c->rope);
	case KV_RANK: return c->kv_rank;
	case KV_AND_ROPE: return c->kv_rank + c->rope;
	case KV_ALL: return c->mla_heads * (c->nope + c->v_dim);
	case DENSE: return c->dense_width;
	case EXPERTS: return c->experts;
	case LATENT: return c->latent;
	case LATENT_2: return c->latent / 2;
	case LATENT_32: return c->latent / 32;
	case SHARED: return c->shared * c->expert_width;
	case WIDTH: return c->expert_width;
	case WIDTH_2: return c->expert_width / 2;
	case WIDTH_32: return c->expert_width / 32;
	}
	return 0;
}

void k3_role_describe(const struct k3_config *c, enum k3_role role, uint32_t layer,
		      uint32_t expert, struct k3_tensor *out)
{
	static const uint64_t width[] = { [K3_BF16] = 2, [K3_F32] = 4, [K3_U8] = 1 };
	const struct role *r = &roles[role];

	*out = (struct k3_tensor){
		.role = role, .dtype = r->dtype, .layer = layer, .expert = expert,
		.rows = 1, .cols = 1, .bytes = width[r->dtype],
	};
	for (int i = 0; i < 3 && r->shape[i] != NONE; i++) {
		out->shape[i] = extent(c, layer, r->shape[i]);
		out->bytes *= out->shape[i];
		out->rank++;
	}
	out->cols = out->shape[out->rank - 1];
	if (out->rank > 1)
		out->rows = out->shape[0];
}

size_t k3_role_name(enum k3_role role, uint32_t layer, uint32_t expert, char *out, size_t size)
{
	int n;

	if (role < K3_ATTN_NORM)
		n = snprintf(out, size, "%s%s", of_model, roles[role].name);
	else if (role < K3_W1)
		n = snprintf(out, size, "%s%" PRIu32 ".%s", of_layer, layer, roles[role].name);
	else
		n = snprintf(out, size, "%s%" PRIu32 ".%s%" PRIu32 ".%s", of_layer, layer,
			     of_expert, expert, roles[role].name);
	return (size_t)n;
}

/* The groups that a layer has, in the order of their slots; experts come last. */
struct span {
	enum k3_role first, end;
};

static void groups(const struct k3_config *c, uint32_t layer, struct span g[3])
{
	g[0] = (struct span){ K3_ATTN_NORM, K3_KDA_Q };
	g[1] = c->kind[layer] == K3_MLA ? (struct span){ K3_MLA_QA, K3_DENSE_GATE }
					: (struct span){ K3_KDA_Q, K3_MLA_QA };
	g[2] = k3_config_is_moe(c, layer) ? (struct span){ K3_ROUTER, K3_W1 }
					  : (struct span){ K3_DENSE_GATE, K3_ROUTER };
}

int k3_layout_init(struct k3_layout *l, const struct k3_config *c, struct k3_err *err)
{
	struct span g[3];
	uint64_t n = K3_ATTN_NORM;

	*l = (struct k3_layout){ .config = c };
	l->base = k3_calloc((size_t)c->layers + 1, sizeof *l->base);
	if (!l->base)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < c->layers; i++) {
		l->base[i] = n;
		groups(c, i, g);
		for (int k = 0; k < 3; k++)
			n += g[k].end - g[k].first;
		if (k3_config_is_moe(c, i))
			n += (uint64_t)K3_EXPERT_TENSORS * c->experts;
	}
	l->base[c->layers] = l->slots = n;
	return 0;
}

void k3_layout_free(struct k3_layout *l)
{
	free(l->base);
	l->base = NULL;
}

bool k3_layout_slot(const struct k3_layout *l, enum k3_role role, uint32_t layer,
		    uint32_t expert, uint64_t *slot)
{
	struct span g[3];

	if ((unsigned)role >= K3_ROLES || (role < K3_W1 && expert))
		return false;
	if (role < K3_ATTN_NORM) {
		*slot = role;
		return layer == 0;
	}
	if (layer >= l->config->layers)
		return false;
	groups(l->config, layer, g);
	*slot = l->base[layer];
	for (int k = 0; k < 3; k++) {
		if (role >= g[k].first && role < g[k].end) {
			*slot += role - g[k].first;
			return true;
		}
		*slot += g[k].end - g[k].first;
	}
	*slot += (uint64_t)K3_EXPERT_TENSORS * expert + role - K3_W1;
	return role >= K3_W1 && expert < l->config->experts &&
	       k3_config_is_moe(l->config, layer);
}

void k3_layout_role(const struct k3_layout *l, uint64_t slot, enum k3_role *role,
		    uint32_t *layer, uint32_t *expert)
{
	uint32_t lo = 0, hi = l->config->layers, mid;
	struct span g[3];

	*layer = *expert = 0;
	if (slot < K3_ATTN_NORM) {
		*role = (enum k3_role)slot;
		return;
	}
	while (hi - lo > 1) {
		mid = lo + (hi - lo) / 2;
		if (l->base[mid] <= slot)
			lo = mid;
		else
			hi = mid;
	}
	*layer = lo;
	slot -= l->base[lo];
	groups(l->config, lo, g);
	for (int k = 0; k < 3; k++) {
		if (slot < g[k].end - g[k].first) {
			*role = (enum k3_role)(g[k].first + slot);
			return;
		}
		slot -= g[k].end - g[k].first;
	}
	*expert = (uint32_t)(slot / K3_EXPERT_TENSORS);
	*role = (enum k3_role)(K3_W1 + slot % K3_EXPERT_TENSORS);
}

const char *k3_layout_name(const struct k3_layout *l, uint64_t slot, char out[K3_NAME])
{
	enum k3_role role;
	uint32_t layer, expert;

	k3_layout_role(l, slot, &role, &layer, &expert);
	k3_role_name(role, layer, expert, out, K3_NAME);
	return out;
}

/* Takes s off the front of *p; false if it is not there. */
static bool take(const char **p, const char *end, const char *s)
{
	size_t n = strlen(s);

	if ((size_t)(end - *p) < n || memcmp(*p, s, n))
		return false;
	*p += n;
	return true;
}

/* Takes a number as it is printed, without zeros in front, and the dot behind it. */
static bool take_number(const char **p, const char *end, uint32_t *out)
{
	const char *start = *p;

	*out = 0;
	while (*p < end && **p >= '0' && **p <= '9' && *p - start < 9)
		*out = *out * 10 + (uint32_t)(*(*p)++ - '0');
	if (*p == start || (*start == '0' && *p - start > 1))
		return false;
	return take(p, end, ".");
}

bool k3_layout_find(const struct k3_layout *l, const char *name, size_t n, uint64_t *slot)
{
	const char *p = name, *end = name + n;
	enum k3_role role = K3_EMBED, stop = K3_ATTN_NORM;
	uint32_t layer = 0, expert = 0;

	if (take(&p, end, of_layer)) {
		if (!take_number(&p, end, &layer))
			return false;
		role = K3_ATTN_NORM;
		stop = K3_W1;
		if (take(&p, end, of_expert)) {
			if (!take_number(&p, end, &expert))
				return false;
			role = K3_W1;
			stop = K3_ROLES;
		}
	} else if (!take(&p, end, of_model)) {
		return false;
	}
	for (n = (size_t)(end - p); role < stop; role++)
		if (strlen(roles[role].name) == n && !memcmp(roles[role].name, p, n))
			return k3_layout_slot(l, role, layer, expert, slot);
	return false;
}
