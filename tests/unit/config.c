/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - every key of a config is needed, of its type and range, and all complaints
 * come at once.  The keys are written out here a second time on purpose.
 */
#include "tap.h"
#include <k3/buf.h>
#include <k3/config.h>
#include <k3/io.h>
#include <jv.h>
#include <string.h>

#define TEXT "text_config."
#define LINEAR "text_config.linear_attn_config."
#define QUANT "text_config.quantization_config."
#define GROUP "text_config.quantization_config.config_groups.group_0."

/* Needed whole numbers. */
static const char *const wholes[] = {
	"eos_token_id", TEXT "hidden_size", TEXT "num_hidden_layers", TEXT "vocab_size",
	TEXT "intermediate_size", TEXT "first_k_dense_replace", TEXT "num_attention_heads",
	TEXT "num_key_value_heads", TEXT "q_lora_rank", TEXT "kv_lora_rank",
	TEXT "qk_nope_head_dim", TEXT "qk_rope_head_dim", TEXT "v_head_dim", TEXT "num_experts",
	TEXT "num_experts_per_token", TEXT "num_shared_experts", TEXT "moe_intermediate_size",
	TEXT "routed_expert_hidden_size", TEXT "attn_res_block_size",
	TEXT "max_position_embeddings", LINEAR "num_heads", LINEAR "head_dim",
	LINEAR "short_conv_kernel_size", NULL
};
static const char *const reals[] = {
	TEXT "rms_norm_eps", TEXT "activation_situ_beta", TEXT "activation_situ_linear_beta",
	TEXT "routed_scaling_factor", LINEAR "gate_lower_bound", NULL
};
static const char *const lists[] = { LINEAR "kda_layers", LINEAR "full_attn_layers", NULL };
/* Keys of which one value is supported, with another value. */
static const char *const fixeds[][2] = {
	{ "model_type", "\"kimi_k2\"" }, { TEXT "model_type", "\"llama\"" },
	{ TEXT "hidden_act", "\"silu\"" }, { TEXT "moe_layer_freq", "2" },
	{ TEXT "mla_use_nope", "false" }, { TEXT "mla_use_output_gate", "false" },
	{ TEXT "latent_moe_use_norm", "false" }, { TEXT "moe_renormalize", "1" },
	{ TEXT "moe_router_activation_func", "\"softmax\"" }, { TEXT "num_expert_group", "8" },
	{ TEXT "topk_group", "4" }, { TEXT "tie_word_embeddings", "true" },
	{ LINEAR "use_full_rank_gate", "false" },
	{ QUANT "quant_method", "\"gptq\"" }, { QUANT "format", "\"pack-quantized\"" },
	{ GROUP "format", "\"nvfp4-pack-quantized\"" }, { GROUP "weights.group_size", "16" },
	{ GROUP "weights.num_bits", "8" }, { GROUP "weights.type", "\"int\"" },
	{ GROUP "weights.strategy", "\"channel\"" }, { GROUP "weights.symmetric", "false" },
	{ GROUP "weights.scale_dtype", "\"torch.float8_e4m3fn\"" },
};
/* The same for keys that may be missing. */
static const char *const optional[][2] = {
	{ "tie_word_embeddings", "true" }, { TEXT "use_grouped_topk", "false" },
	{ TEXT "num_nextn_predict_layers", "1" },
};

static jv demo;
static struct k3_err err;
static struct k3_config c;

/* "a.b.c" as a path. */
static jv path_of(const char *key)
{
	return jv_string_split(jv_string(key), jv_string("."));
}

/* jv_delpaths and jv_setpath on a copy of root. */
static jv without(jv root, const char *key)
{
	return jv_delpaths(root, JV_ARRAY(path_of(key)));
}

static jv with(jv root, const char *key, const char *value)
{
	return jv_setpath(root, path_of(key), jv_parse(value));
}

/* Parses root, which is freed. */
static int parse(jv root)
{
	jv text = jv_dump_string(root, 0);
	int rc = k3_config_parse(jv_string_value(text), strlen(jv_string_value(text)), "C", &c,
				 &err);

	jv_free(text);
	if (!rc)
		k3_config_free(&c);
	return rc;
}

static void refused(jv root, const char *names, const char *what)
{
	bool pass = parse(root) == K3_EDATA && strstr(err.text, names) &&
		    !strncmp(err.text, "C: ", 3);

	ok(pass, "%s: %s", what, names);
	if (!pass)
		printf("# %s\n", err.text);
}

static void deleted(const char *const *keys, const char *what)
{
	char must[128];

	for (; *keys; keys++) {
		snprintf(must, sizeof must, "%s is missing", *keys);
		refused(without(jv_copy(demo), *keys), must, what);
	}
}

static void missing_keys(void)
{
	jv all = jv_copy(demo);
	bool pass;

	deleted(wholes, "without a number");
	deleted(reals, "without a real number");
	deleted(lists, "without a list");
	for (size_t i = 0; i < sizeof fixeds / sizeof *fixeds; i++)
		refused(without(jv_copy(demo), fixeds[i][0]), fixeds[i][0],
			"without a fixed value");
	refused(without(jv_copy(demo), "text_config"), "text_config is missing", "no object");
	refused(with(jv_copy(demo), "text_config", "[]"), "text_config must be an object",
		"a list");
	refused(without(jv_copy(demo), TEXT "linear_attn_config"),
		TEXT "linear_attn_config is missing", "no object");
	refused(without(jv_copy(demo), QUANT "config_groups"), QUANT "config_groups is missing",
		"no object");

	for (int i = 0; wholes[i]; i++)
		all = without(all, wholes[i]);
	for (int i = 0; reals[i]; i++)
		all = without(all, reals[i]);
	pass = parse(all) == K3_EDATA;
	for (int i = 0; wholes[i]; i++)
		pass = pass && strstr(err.text, wholes[i]);
	for (int i = 0; reals[i]; i++)
		pass = pass && strstr(err.text, reals[i]);
	ok(pass, "all missing keys are listed at once");

	/* one level too high: every key is there, none where it belongs */
	all = jv_object_get(jv_copy(demo), jv_string("text_config"));
	all = jv_object_set(all, jv_string("model_type"), jv_string("kimi_k3"));
	refused(all, "text_config is missing", "a flat config");
}

static void wrong_values(void)
{
	static const char *const whole_values[] = {
		"null", "\"7\"", "1.5", "-1", "1e300", "true", "[4]", "4294967296.5", "{}", NULL
	};
	static const char *const no_object[] = { "null", "{}", "[]", "7", "\"mxfp4\"", NULL };
	static const char *const real_values[] = {
		"null", "\"1\"", "1e30", "0", "true", "[1]", NULL
	};

	for (int i = 0; wholes[i]; i++)
		for (int k = 0; whole_values[k]; k++)
			refused(with(jv_copy(demo), wholes[i], whole_values[k]), wholes[i],
				whole_values[k]);
	for (int i = 0; reals[i]; i++)
		for (int k = 0; real_values[k]; k++)
			refused(with(jv_copy(demo), reals[i], real_values[k]), reals[i],
				real_values[k]);
	for (int i = 1; wholes[i]; i++)
		if (strcmp(wholes[i], TEXT "first_k_dense_replace"))
			refused(with(jv_copy(demo), wholes[i], "0"), wholes[i], "zero");
	for (int i = 0; lists[i]; i++)
		refused(with(jv_copy(demo), lists[i], "3"), lists[i], "no list");
	for (size_t i = 0; i < sizeof fixeds / sizeof *fixeds; i++)
		refused(with(jv_copy(demo), fixeds[i][0], fixeds[i][1]), fixeds[i][0],
			fixeds[i][1]);
	for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
		refused(with(jv_copy(demo), optional[i][0], optional[i][1]), optional[i][0],
			optional[i][1]);
		ok(!parse(without(jv_copy(demo), optional[i][0])), "%s may be missing",
		   optional[i][0]);
	}
	ok(!parse(without(jv_copy(demo), TEXT "quantization_config")),
	   "quantization_config may be missing");
	for (int i = 0; no_object[i]; i++) {
		refused(with(jv_copy(demo), TEXT "quantization_config", no_object[i]),
			TEXT "quantization_config", no_object[i]);
		refused(with(jv_copy(demo), QUANT "config_groups", no_object[i]),
			QUANT "config_groups", no_object[i]);
	}
	refused(with(jv_copy(demo), GROUP "weights", "7"), GROUP "weights.num_bits must be 4",
		"no object");
	refused(with(jv_copy(demo), QUANT "config_groups.other", "{}"),
		"config_groups.other.format", "a second group");
	refused(with(jv_copy(demo), LINEAR "gate_lower_bound", "5"), "gate_lower_bound",
		"positive");
	refused(with(jv_copy(demo), TEXT "num_experts_per_token", "17"), "num_experts_per_token",
		"more than there are");
	refused(with(jv_copy(demo), TEXT "num_key_value_heads", "2"), "num_key_value_heads",
		"grouped");
	refused(with(jv_copy(demo), TEXT "routed_expert_hidden_size", "48"),
		"routed_expert_hidden_size must be a multiple of 32", "half a group");
	refused(with(jv_copy(demo), TEXT "moe_intermediate_size", "33"),
		"moe_intermediate_size must be a multiple of 32", "one too many");
	refused(with(jv_copy(demo), TEXT "first_k_dense_replace", "10"), "first_k_dense_replace",
		"more than there are");
	refused(with(jv_copy(demo), "eos_token_id", "2048"), "eos_token_id",
		"beyond the vocabulary");
	refused(with(with(jv_copy(demo), TEXT "num_experts", "16384"), TEXT "num_hidden_layers",
		     "4096"), "layers 1 to 4096", "layers that no list has");
	ok(!parse(with(jv_copy(demo), TEXT "top_k", "50")), "top_k means nothing");
	ok(!parse(with(jv_copy(demo), TEXT "hidden_size", "192.0")), "192.0 is a whole number");
	ok(!parse(with(jv_copy(demo), TEXT "num_experts_per_token", "16")), "all experts chosen");
	ok(!parse(with(jv_copy(demo), TEXT "first_k_dense_replace", "9")), "all layers dense");
	ok(!parse(with(jv_copy(demo), TEXT "first_k_dense_replace", "0")), "no layer dense");
}

static void layer_lists(void)
{
	static const char *const bad[][3] = {
		{ "[1,2,3,5,6,7]", "[4,8,9,9]", "layer 9 twice" },
		{ "[1,2,3,5,6,7]", "[4,8]", "1 of the layers 1 to 9, the first of them 9" },
		{ "[2,3,5,6]", "[4,8,9]", "2 of the layers 1 to 9, the first of them 1" },
		{ "[1,2,3,4,5,6,7]", "[4,8,9]", "layer 4 is in both" },
		{ "[0,1,2,4,5,6]", "[3,7,8]", "no layer from 1 to 9" },
		{ "[1,2,3,5,6,7]", "[4,8,9,10]", "no layer from 1 to 9" },
		{ "[1,2,3,5,6,\"7\"]", "[4,8,9]", "no layer from 1 to 9" },
		{ "[1,2,3,5,6,7.5]", "[4,8,9]", "no layer from 1 to 9" },
		{ "[]", "[]", "9 of the layers" },
	};
	static const uint8_t kinds[] = { 0, 0, 0, 1, 0, 0, 0, 1, 1 };
	struct k3_buf b = K3_BUF_INIT;
	jv root;
	bool pass;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		root = with(jv_copy(demo), lists[0], bad[i][0]);
		refused(with(root, lists[1], bad[i][1]), bad[i][2], "layer lists");
	}
	root = jv_dump_string(jv_copy(demo), 0);
	pass = !k3_config_parse(jv_string_value(root), strlen(jv_string_value(root)), "C", &c,
				&err);
	ok(pass && !memcmp(c.kind, kinds, 9), "the lists count from 1, the layers from 0");
	if (pass)
		k3_config_free(&c);
	jv_free(root);

	/* the released lists: every fourth layer, and the last one too */
	k3_buf_str(&b, "[");
	for (int i = 4; i <= 92; i += 4)
		k3_buf_printf(&b, "%d,", i);
	k3_buf_str(&b, "93]");
	root = with(jv_copy(demo), lists[1], b.data);
	k3_buf_clear(&b);
	k3_buf_str(&b, "[1");
	for (int i = 2; i <= 91; i++)
		if (i % 4)
			k3_buf_printf(&b, ",%d", i);
	k3_buf_str(&b, "]");
	root = with(root, lists[0], b.data);
	root = with(root, TEXT "num_hidden_layers", "93");
	refused(with(jv_copy(root), TEXT "num_experts", "16384"), "more than 1048576 experts",
		"too large");
	root = jv_dump_string(root, 0);
	pass = !k3_config_parse(jv_string_value(root), strlen(jv_string_value(root)), "C", &c,
				&err);
	for (uint32_t i = 0; pass && i < 93; i++)
		pass = c.kind[i] == (i % 4 == 3 || i == 92 ? K3_MLA : K3_KDA);
	ok(pass, "93 layers: KKKM and so on, the last two both MLA");
	if (c.kind)
		k3_config_free(&c);
	jv_free(root);
	k3_buf_free(&b);
}

static void broken_text(void)
{
	static const char *const bad[][2] = {
		{ "", "empty" },
		{ "   \n", "empty" },
		{ "{", "JSON" },
		{ "[]", "not an object" },
		{ "7", "not an object" },
		{ "null", "not an object" },
		{ "{} {}", "something follows" },
		{ "{\"model_type\":nan}", "JSON" },
		{ "{\"model_type\":1,}", "JSON" },
		{ "{\"a\":1,\"a\":2}", "\"a\" is given twice" },
		{ "{\"x\":{\"a\":1,\"b\":[],\"a\":2}}", "\"a\" is given twice" },
		{ "{\"x\":{\"a\":1},\"x\":{\"b\":2}}", "\"x\" is given twice" },
		{ "{\"x\":{\"a\":1},\"y\":{},\"x\":3}", "\"x\" is given twice" },
		{ "{\"x\":1,\"x\":{\"b\":2}}", "\"x\" is given twice" },
		{ "{\"x\":{},\"\\u0078\":{}}", "\"x\" is given twice" },
	};
	struct k3_buf b = K3_BUF_INIT;
	jv text;
	int rc;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		rc = k3_config_parse(bad[i][0], strlen(bad[i][0]), "C", &c, &err);
		if (!ok(rc == K3_EDATA && strstr(err.text, bad[i][1]), "refused: %s", bad[i][0]))
			printf("# %s\n", err.text);
	}
	for (int i = 0; i < 100000; i++)
		k3_buf_str(&b, "{\"a\":");
	rc = k3_config_parse(b.data, b.len, "C", &c, &err);
	ok(rc == K3_EDATA && strstr(err.text, "deeper than"), "deep nesting is refused");
	/* whatever is cut off, the rest is refused and nothing crashes */
	text = jv_dump_string(jv_copy(demo), 0);
	rc = K3_EDATA;
	for (size_t n = 0; rc == K3_EDATA && n < strlen(jv_string_value(text)); n++)
		rc = k3_config_parse(jv_string_value(text), n, "C", &c, &err);
	ok(rc == K3_EDATA, "every shorter text is refused");
	jv_free(text);
	k3_buf_free(&b);
}

/* If its time grew with the square of the text, this would take a quarter of an hour. */
static void long_text(void)
{
	struct k3_buf b = K3_BUF_INIT;
	jv text = jv_dump_string(jv_copy(demo), 0);
	int rc;

	k3_buf_add(&b, jv_string_value(text), strlen(jv_string_value(text)) - 1);
	k3_buf_str(&b, ",\"list\":[0");
	for (int i = 1; i < 200000; i++)
		k3_buf_printf(&b, ",%d", i);
	k3_buf_str(&b, "],\"keys\":{\"0\":0");
	for (int i = 1; i < 200000; i++)
		k3_buf_printf(&b, ",\"%d\":[%d]", i, i);
	k3_buf_str(&b, "}}");
	rc = k3_config_parse(b.data, b.len, "C", &c, &err);
	if (ok(!rc, "a list of 200000 entries and an object of as many"))
		k3_config_free(&c);
	b.len -= 2;
	k3_buf_str(&b, ",\"7\":1}}");
	rc = k3_config_parse(b.data, b.len, "C", &c, &err);
	ok(rc == K3_EDATA && strstr(err.text, "\"7\" is given twice"), "of which one comes again");
	jv_free(text);
	k3_buf_free(&b);
}

int main(void)
{
	struct k3_buf text = K3_BUF_INIT;
	int rc = k3_slurp("share/demo/config.json", 1 << 20, &text, &err);

	if (!rc)
		rc = k3_config_parse(text.data, text.len, "share/demo/config.json", &c, &err);
	if (!ok(!rc, "the demo's config is read"))
		return tap_done();
	ok(c.hidden == 192 && c.layers == 9 && c.vocab == 2048 && c.eos == 1794 &&
	   c.dense_layers == 1 && c.dense_width == 384 && c.residual_block == 4 &&
	   c.max_positions == 1048576, "its sizes");
	ok(c.eps == 1e-5f && c.situ_beta == 4 && c.situ_linear_beta == 25 &&
	   c.decay_bound == -5 && c.routed_scale == 1, "its real numbers");
	ok(c.mla_heads == 4 && c.q_rank == 64 && c.kv_rank == 64 && c.nope == 32 && c.rope == 16 &&
	   c.v_dim == 32 && c.kda_heads == 4 && c.kda_dim == 32 && c.conv == 4, "its attention");
	ok(c.experts == 16 && c.chosen == 4 && c.shared == 2 && c.expert_width == 64 &&
	   c.latent == 96, "its experts");
	ok(!k3_config_is_moe(&c, 0) && k3_config_is_moe(&c, 1) && k3_config_is_moe(&c, 8),
	   "layers with experts");
	ok(k3_config_sources(&c, 0) == 1 && k3_config_sources(&c, 1) == 2 &&
	   k3_config_sources(&c, 4) == 2 && k3_config_sources(&c, 5) == 3 &&
	   k3_config_sources(&c, 9) == 4, "vectors of the residual stream, blocks of 4");
	k3_config_free(&c);
	demo = jv_parse(text.data);
	missing_keys();
	wrong_values();
	layer_lists();
	broken_text();
	long_text();
	jv_free(demo);
	k3_buf_free(&text);
	return tap_done();
}
