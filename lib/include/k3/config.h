/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/config.h - what config.json says about a model.
 *
 * Reading it is strict: a field that the computation needs has no default, and
 * a value that the engine does not support is refused.  All complaints about one file
 * come in one sentence.
 */
#ifndef K3_CONFIG_H
#define K3_CONFIG_H

#include <k3/err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum k3_kind { K3_KDA = 0, K3_MLA = 1 };

/* The names in comments are those of config.json. */
struct k3_config {
	uint32_t hidden;		/* hidden_size */
	uint32_t layers;		/* num_hidden_layers */
	uint32_t vocab;			/* vocab_size */
	uint32_t eos;			/* eos_token_id of the top level: the stop id */
	float eps;			/* rms_norm_eps */
	float situ_beta;		/* activation_situ_beta */
	float situ_linear_beta;		/* activation_situ_linear_beta */
	uint32_t dense_layers;		/* first_k_dense_replace */
	uint32_t dense_width;		/* intermediate_size */
	uint32_t residual_block;	/* attn_res_block_size */
	/* MLA */
	uint32_t mla_heads;		/* num_attention_heads */
	uint32_t q_rank;		/* q_lora_rank */
	uint32_t kv_rank;		/* kv_lora_rank */
	uint32_t nope;			/* qk_nope_head_dim */
	uint32_t rope;			/* qk_rope_head_dim */
	uint32_t v_dim;			/* v_head_dim */
	/* KDA */
	uint32_t kda_heads;		/* linear_attn_config.num_heads */
	uint32_t kda_dim;		/* linear_attn_config.head_dim */
	uint32_t conv;			/* linear_attn_config.short_conv_kernel_size */
	float decay_bound;		/* linear_attn_config.gate_lower_bound */
	/* experts */
	uint32_t experts;		/* num_experts */
	uint32_t chosen;		/* num_experts_per_token */
	uint32_t shared;		/* num_shared_experts */
	uint32_t expert_width;		/* moe_intermediate_size */
	uint32_t latent;		/* routed_expert_hidden_size */
	float routed_scale;		/* routed_scaling_factor */
	uint64_t max_positions;		/* max_position_embeddings */
	uint8_t *kind;			/* owned: enum k3_kind of each layer, zero-based */
};

/*
 * Parses the text of a config.json; name is what errors call it.  On success
 * the caller owns *out and ends it with k3_config_free.
 * Errors: K3_EDATA (all missing, mistyped and unsupported fields in one
 * sentence), K3_ENOMEM.
 */
K3_API K3_NODISCARD int k3_config_parse(const char *text, size_t len, const char *name,
					struct k3_config *out, struct k3_err *err);
K3_API void k3_config_free(struct k3_config *c);

/* Layer L has routed experts (docs/model.md 2.6); else it is dense. */
K3_API bool k3_config_is_moe(const struct k3_config *c, uint32_t layer);

/*
 * The number of vectors in the residual stream in front of layer L (the block
 * snapshots and the running sum): ceil(L / residual_block) + 1.  L may equal
 * the number of layers: what the output mix sees.
 */
K3_API uint32_t k3_config_sources(const struct k3_config *c, uint32_t layer);

#ifdef __cplusplus
}
#endif
#endif
