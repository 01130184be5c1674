/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.h - a small random model in a scratch directory, for tests of the whole engine:
 * five layers (KDA, MLA, KDA, KDA, MLA), the first dense, three residual blocks, two shards.
 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include "data/roles.h"

#include "rng.h"
#include "tap.h"

#include <k3/buf.h>
#include <k3/index.h>

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct checkpoint {
	char directory[512];
	char shard[2][600], index[600], config_file[600];
	struct k3_config config;
	struct k3_index *ix;
	struct k3_err err;
};

/* The width of an expert. */
#ifndef CHECKPOINT_WIDTH
#define CHECKPOINT_WIDTH "32"
#endif

static const char checkpoint_config[] =
"{\"model_type\":\"kimi_k3\",\"eos_token_id\":1,\"text_config\":{\"model_type\":\"kimi_linear\","
"\"hidden_size\":44,\"num_hidden_layers\":5,\"vocab_size\":50,\"rms_norm_eps\":1e-5,"
"\"hidden_act\":\"situ\",\"activation_situ_beta\":4.0,\"activation_situ_linear_beta\":25.0,"
"\"intermediate_size\":52,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,"
"\"num_attention_heads\":3,\"num_key_value_heads\":3,\"q_lora_rank\":20,\"kv_lora_rank\":18,"
"\"qk_nope_head_dim\":9,\"qk_rope_head_dim\":5,\"v_head_dim\":7,\"mla_use_nope\":true,"
"\"mla_use_output_gate\":true,\"num_experts\":10,\"num_experts_per_token\":3,"
"\"num_shared_experts\":2,\"moe_intermediate_size\":" CHECKPOINT_WIDTH ",\"routed_expert_hidden_size\":32,"
"\"latent_moe_use_norm\":true,\"moe_router_activation_func\":\"sigmoid\",\"moe_renormalize\":true,"
"\"routed_scaling_factor\":1.0,\"num_expert_group\":1,\"topk_group\":1,\"attn_res_block_size\":2,"
"\"max_position_embeddings\":4096,\"tie_word_embeddings\":false,\"linear_attn_config\":{"
"\"num_heads\":5,\"head_dim\":12,\"short_conv_kernel_size\":4,\"gate_lower_bound\":-5.0,"
"\"use_full_rank_gate\":true,\"kda_layers\":[1,3,4],\"full_attn_layers\":[2,5]}}}";

__attribute__((unused))
static void need(int rc, const struct k3_err *err)
{
	if (!rc)
		return;
	printf("Bail out! %s\n", err->text);
	exit(1);
}

static bool is_norm(enum k3_role role)
{
	return role == K3_FINAL_NORM || role == K3_OUT_MIX_NORM || role == K3_ATTN_NORM ||
	       role == K3_MLP_NORM || role == K3_ATTN_MIX_NORM || role == K3_MLP_MIX_NORM ||
	       role == K3_KDA_NORM || role == K3_MLA_QA_NORM || role == K3_MLA_KVA_NORM ||
	       role == K3_LATENT_NORM;
}

/* Random values of a size that suits the role. */
static void add_tensor(struct k3_buf *b, const struct k3_tensor *t, struct rng *g)
{
	uint64_t n = t->rows * t->cols;

	for (uint64_t i = 0; i < n; i++) {
		double x = rng_normal(g);
		unsigned char u[4];
		float f;

		if (t->dtype == K3_U8) {
			bool scale = (t->role - K3_W1) % 2;

			k3_buf_char(b, (char)(scale ? 121 + rng_u64(g) % 4 : rng_u64(g) % 256));
			continue;
		}
		f = (float)(is_norm(t->role) ? 1 + .2 * x : t->role == K3_EMBED ? x :
			    t->dtype == K3_F32 ? .5 * x : 1.5 * x / sqrt((double)t->cols));
		memcpy(u, &f, 4);
		if (t->dtype == K3_F32)
			k3_buf_add(b, u, 4);
		else
			k3_buf_add(b, u + 2, 2);
	}
}

static void write_file(const char *path, const struct k3_buf *head, const struct k3_buf *data)
{
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(head->data, 1, head->len, f) != head->len ||
	    (data && fwrite(data->data, 1, data->len, f) != data->len) || fclose(f)) {
		printf("Bail out! cannot write %s\n", path);
		exit(1);
	}
}

/* The tensors of slots first .. end - 1. */
static void write_shard(const char *path, const struct k3_layout *l, uint64_t first, uint64_t end,
			struct rng *g)
{
	static const char *const dtype[] = { [K3_BF16] = "BF16", [K3_F32] = "F32", [K3_U8] = "U8" };
	struct k3_buf head = K3_BUF_INIT, data = K3_BUF_INIT, file = K3_BUF_INIT;
	uint64_t at = 0, size;
	char name[K3_NAME];

	for (uint64_t i = first; i < end; i++) {
		struct k3_tensor t;
		uint32_t layer, expert;
		enum k3_role role;

		k3_layout_role(l, i, &role, &layer, &expert);
		k3_role_describe(l->config, role, layer, expert, &t);
		k3_buf_printf(&head, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[",
			      i == first ? '{' : ',', k3_layout_name(l, i, name), dtype[t.dtype]);
		for (uint32_t k = 0; k < t.rank; k++)
			k3_buf_printf(&head, "%s%d", k ? "," : "", (int)t.shape[k]);
		k3_buf_printf(&head, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
			      (unsigned long long)(at + t.bytes));
		at += t.bytes;
		add_tensor(&data, &t, g);
	}
	k3_buf_char(&head, '}');
	while (head.len % 8)
		k3_buf_char(&head, ' ');
	size = head.len;
	for (int i = 0; i < 8; i++)
		k3_buf_char(&file, (char)(size >> 8 * i & 255));
	k3_buf_add(&file, head.data, head.len);
	write_file(path, &file, &data);
	k3_buf_free(&head);
	k3_buf_free(&data);
	k3_buf_free(&file);
}

/* Writes the model and opens it.  Ends the program where that does not work. */
__attribute__((unused))
static void checkpoint_new(struct checkpoint *c)
{
	struct k3_buf text = K3_BUF_INIT;
	struct k3_layout l;
	struct rng g = { 1 };
	const char *tmp = getenv("TMPDIR");

	snprintf(c->directory, sizeof c->directory, "%s/k3unit.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(c->directory)) {
		printf("Bail out! cannot make %s\n", c->directory);
		exit(1);
	}
	for (int i = 0; i < 2; i++)
		snprintf(c->shard[i], sizeof c->shard[i], "%s/model-0000%d-of-000002.safetensors",
			 c->directory, i + 1);
	snprintf(c->index, sizeof c->index, "%s/model.k3i", c->directory);
	snprintf(c->config_file, sizeof c->config_file, "%s/config.json", c->directory);
	k3_buf_str(&text, checkpoint_config);
	write_file(c->config_file, &text, NULL);
	k3_buf_free(&text);
	need(k3_config_parse(checkpoint_config, sizeof checkpoint_config - 1, "config", &c->config,
			     &c->err), &c->err);
	need(k3_layout_init(&l, &c->config, &c->err), &c->err);
	/* a cut in the middle of an expert */
	write_shard(c->shard[0], &l, 0, l.slots / 2 + 1, &g);
	write_shard(c->shard[1], &l, l.slots / 2 + 1, l.slots, &g);
	k3_layout_free(&l);
	need(k3_index_build(c->directory, NULL, &c->ix, &c->err), &c->err);
}

/*
 * Writes n bytes into a shard, which keeps its time: the index, which was read before, goes on
 * taking it for the file that it fits.  Returns whether that worked.
 */
__attribute__((unused))
static bool shard_write(const char *path, const void *bytes, size_t n, uint64_t at)
{
	int fd = open(path, O_WRONLY);
	struct stat st;
	bool good = fd >= 0 && !fstat(fd, &st) && pwrite(fd, bytes, n, (off_t)at) == (ssize_t)n &&
		    !futimens(fd, (struct timespec[]){ st.st_atim, st.st_mtim });

	return fd >= 0 && !close(fd) && good;
}

__attribute__((unused))
static void checkpoint_free(struct checkpoint *c)
{
	k3_index_close(c->ix);
	k3_config_free(&c->config);
	unlink(c->shard[0]);
	unlink(c->shard[1]);
	unlink(c->index);
	unlink(c->config_file);
	rmdir(c->directory);
}

#endif
