/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/index.h - where every tensor of a checkpoint lies.
 *
 * A tensor is named by a role, and where the role asks for it by a layer and an
 * expert (both zero-based).  Names and shapes follow from the config and are
 * not stored; a lookup is arithmetic.  An open index is constant: any number of
 * threads may ask it.
 */
#ifndef K3_INDEX_H
#define K3_INDEX_H

#include <k3/config.h>
#include <k3/err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum k3_dtype { K3_BF16 = 0, K3_F32 = 1, K3_U8 = 2 };

/* The order is part of the index format: new roles go to the end of their group. */
enum k3_role {
	/* of the model: layer and expert are 0 */
	K3_EMBED,		/* [vocab, hidden] BF16 */
	K3_HEAD,		/* [vocab, hidden] BF16 */
	K3_FINAL_NORM,		/* [hidden] BF16: model.norm */
	K3_OUT_MIX_NORM,	/* [hidden] BF16: output_attn_res_norm */
	K3_OUT_MIX_PROJ,	/* [1, hidden] BF16 */
	/* of every layer */
	K3_ATTN_NORM,		/* [hidden] BF16: input_layernorm */
	K3_MLP_NORM,		/* [hidden] BF16: post_attention_layernorm */
	K3_ATTN_MIX_NORM,	/* [hidden] BF16: self_attention_res_norm */
	K3_ATTN_MIX_PROJ,	/* [1, hidden] BF16 */
	K3_MLP_MIX_NORM,	/* [hidden] BF16: mlp_res_norm */
	K3_MLP_MIX_PROJ,	/* [1, hidden] BF16 */
	K3_GATE,		/* [heads * value dim, hidden] BF16: self_attn.g_proj */
	K3_OUT,			/* [hidden, heads * value dim] BF16: self_attn.o_proj */
	/* of a KDA layer; P = kda_heads * kda_dim */
	K3_KDA_Q,		/* [P, hidden] BF16 */
	K3_KDA_K,		/* [P, hidden] BF16 */
	K3_KDA_V,		/* [P, hidden] BF16 */
	K3_KDA_Q_CONV,		/* [P, 1, conv] F32 */
	K3_KDA_K_CONV,		/* [P, 1, conv] F32 */
	K3_KDA_V_CONV,		/* [P, 1, conv] F32 */
	K3_KDA_FA,		/* [kda_dim, hidden] BF16 */
	K3_KDA_FB,		/* [P, kda_dim] BF16 */
	K3_KDA_B,		/* [kda_heads, hidden] BF16 */
	K3_KDA_A_LOG,		/* [max(kda_heads, kda_dim)] F32: one a head, then padding */
	K3_KDA_DT_BIAS,		/* [P] F32 */
	K3_KDA_NORM,		/* [kda_dim] F32: o_norm */
	/* of an MLA layer */
	K3_MLA_QA,		/* [q_rank, hidden] BF16 */
	K3_MLA_QA_NORM,		/* [q_rank] BF16 */
	K3_MLA_QB,		/* [mla_heads * (nope + rope), q_rank] BF16 */
	K3_MLA_KVA,		/* [kv_rank + rope, hidden] BF16 */
	K3_MLA_KVA_NORM,	/* [kv_rank] BF16 */
	K3_MLA_KVB,		/* [mla_heads * (nope + v_dim), kv_rank] BF16 */
	/* of a dense layer */
	K3_DENSE_GATE,		/* [dense_width, hidden] BF16 */
	K3_DENSE_UP,		/* [dense_width, hidden] BF16 */
	K3_DENSE_DOWN,		/* [hidden, dense_width] BF16 */
	/* of a layer with experts; S = shared * expert_width */
	K3_ROUTER,		/* [experts, hidden] BF16: block_sparse_moe.gate */
	K3_ROUTER_BIAS,		/* [experts] F32: e_score_correction_bias */
	K3_LATENT_DOWN,		/* [latent, hidden] BF16: routed_expert_down_proj */
	K3_LATENT_NORM,		/* [latent] BF16: routed_expert_norm */
	K3_LATENT_UP,		/* [hidden, latent] BF16: routed_expert_up_proj */
	K3_SHARED_GATE,		/* [S, hidden] BF16 */
	K3_SHARED_UP,		/* [S, hidden] BF16 */
	K3_SHARED_DOWN,		/* [hidden, S] BF16 */
	/* of an expert; packed codes and their scales */
	K3_W1,			/* [expert_width, latent / 2] U8 */
	K3_W1_SCALE,		/* [expert_width, latent / 32] U8 */
	K3_W2,			/* [latent, expert_width / 2] U8 */
	K3_W2_SCALE,		/* [latent, expert_width / 32] U8 */
	K3_W3,			/* [expert_width, latent / 2] U8 */
	K3_W3_SCALE,		/* [expert_width, latent / 32] U8 */
	K3_ROLES
};

/* A tensor and its place. */
struct k3_tensor {
	enum k3_role role;
	enum k3_dtype dtype;
	uint32_t layer, expert;
	uint32_t rank;		/* 1 to 3 */
	uint64_t shape[3];
	uint64_t rows, cols;	/* as a matrix: a vector is one row; [P, 1, conv] is P rows */
	uint32_t shard;		/* for k3_index_shard_path */
	uint64_t offset;	/* of its first byte from the start of that file */
	uint64_t bytes;
};

struct k3_index;

/* The first eight bytes of an index file. */
#define K3_INDEX_MAGIC "K3INDEX\n"

/*
 * Opens the model that a program's -m names: a directory, or an index file.
 * An index that is missing is made, beside the config if that directory can be
 * written, else in $XDG_CACHE_HOME/k3 (or ~/.cache/k3).  A stale one is refused
 * with K3_ESTALE.
 */
K3_API K3_NODISCARD int k3_index_open(const char *model, struct k3_index **out,
				      struct k3_err *err);
K3_API void k3_index_close(struct k3_index *ix);

/*
 * Opens an index file without a look at its checkpoint, which may be gone or
 * changed: for programs that only report what the file says.
 */
K3_API K3_NODISCARD int k3_index_read(const char *file, struct k3_index **out,
				      struct k3_err *err);

/*
 * Makes the index of a directory, in any case, and opens it.  output is the file to write, or
 * NULL for the place where k3_index_open looks.  Sums that the file there had are kept
 * if it is an index of the same checkpoint.  A checkpoint of which shards are missing has an
 * index; one that is wrong has none.
 */
K3_API K3_NODISCARD int k3_index_build(const char *directory, const char *output,
				       struct k3_index **out, struct k3_err *err);

K3_API const struct k3_config *k3_index_config(const struct k3_index *ix);
/* The directory of the checkpoint, without a slash at its end. */
K3_API const char *k3_index_directory(const struct k3_index *ix);
/* The fingerprint: 16 bytes over config, headers and samples of all shards. */
K3_API const uint8_t *k3_index_fingerprint(const struct k3_index *ix);
K3_API uint32_t k3_index_shards(const struct k3_index *ix);
/* The path of a shard, borrowed; it may not exist if the checkpoint is incomplete. */
K3_API const char *k3_index_shard_path(const struct k3_index *ix, uint32_t shard);

/*
 * Looks a tensor up.  Errors: K3_EARG if the model has no such tensor (a
 * dense role in a layer with experts, an expert too many), K3_EDATA if it should
 * be there but its shard is missing; both name it.
 */
K3_API K3_NODISCARD int k3_index_tensor(const struct k3_index *ix, enum k3_role role,
					uint32_t layer, uint32_t expert,
					struct k3_tensor *out, struct k3_err *err);

/* How many tensors the config implies. */
K3_API uint64_t k3_index_count(const struct k3_index *ix);

/*
 * Tensor number i below k3_index_count: those of the model first, then layer by
 * layer.  False if it is missing; then offset is 0, and shard is the number of the
 * missing shard, or UINT32_MAX where that is not known.
 */
K3_API bool k3_index_at(const struct k3_index *ix, uint64_t i, struct k3_tensor *out);

/* Is that shard missing? */
K3_API bool k3_index_shard_missing(const struct k3_index *ix, uint32_t shard);

/* The file of the index. */
K3_API const char *k3_index_file(const struct k3_index *ix);

struct k3_share {
	uint64_t tensors, parameters, bytes;
};

/* What a layer consists of; trunk is all but its experts, missing is part of both. */
struct k3_layer_census {
	struct k3_share trunk, experts, missing;
};

/* layer is below the number of layers.  A layer can run if nothing of it is missing. */
K3_API void k3_index_layer(const struct k3_index *ix, uint32_t layer,
			   struct k3_layer_census *out);

/* What a model consists of, as its config implies; missing tensors are counted as if there. */
struct k3_census {
	uint32_t kda_layers, mla_layers, dense_layers, moe_layers;
	struct k3_share trunk, experts;	/* of all layers */
	struct k3_share embedding, head;
	struct k3_share output;		/* the norms and the mix in front of the head */
	struct k3_share expert;		/* one of them */
	struct k3_share missing;	/* tensors whose shards are missing */
	uint64_t vision_tensors, vision_bytes;	/* what the shards hold beside the text model */
	uint32_t missing_shards;
};

/* Counts all of it: some milliseconds for a large model. */
K3_API void k3_index_census(const struct k3_index *ix, struct k3_census *out);

/*
 * Sums of what is read from the shards while a model runs, for which no trunk file has one: every expert, over the
 * rows of its six tensors, and every row of the embedding.  See k3-index(5).
 */

/*
 * Reads all of that and writes the file of the index anew with the sums; *ix is
 * replaced by the new index, or is as before after an error.  K3_ESTALE: a shard was changed since the index was opened.
 */
K3_API K3_NODISCARD int k3_index_add_sums(struct k3_index **ix, struct k3_err *err);

/* Was the index made or last written with sums? */
K3_API bool k3_index_has_sums(const struct k3_index *ix);

/*
 * The sum of an expert; false if the index has none for it, or no such expert.
 */
K3_API bool k3_index_sum(const struct k3_index *ix, uint32_t layer, uint32_t expert,
			 uint64_t *out);

/* The sum of a row of the embedding; false if the index has none for it, or no such row. */
K3_API bool k3_index_row_sum(const struct k3_index *ix, uint64_t row, uint64_t *out);

/*
 * Reads all that has a sum and compares.  Errors: K3_EDATA without sums and
 * if anything differs, of which the first few are named; K3_EIO.
 */
K3_API K3_NODISCARD int k3_index_verify(const struct k3_index *ix, struct k3_err *err);

/* The name in the checkpoint: what snprintf would return for it. */
K3_API size_t k3_role_name(enum k3_role role, uint32_t layer, uint32_t expert,
			   char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
