/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - config.json into struct k3_config, with every complaint in one sentence.
 *
 * The tables below are the rules: each key with its place, its type and range, or the one value
 * that the engine supports.  The ranges keep every size that is computed from them
 * far from overflow: a matrix has less than 2^50 bytes.
 */
#include <k3/buf.h>
#include <k3/config.h>
#include "data/json.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The nested objects that hold keys, each behind the one that it is in. */
enum place { TOP, TEXT, LINEAR, QUANT, PLACES };

static const char *const prefix[PLACES] = {
	"", "text_config.", "text_config.linear_attn_config.", "text_config.quantization_config."
};

/* Of all layers together: a dozen times what the released model has. */
#define MAX_EXPERTS (1u << 20)

/* What is known about the file while it is read. */
struct reader {
	jv place[PLACES];	/* owned; invalid where the object itself is missing */
	struct k3_buf wrong;	/* the complaints so far */
	unsigned count;
};

/* Adds a complaint, given as printf arguments. */
#define WRONG(r, ...) (k3_buf_str(&(r)->wrong, (r)->count++ ? "; " : ""), \
		       k3_buf_printf(&(r)->wrong, __VA_ARGS__))

/* A whole number that must be there. */
struct whole {
	enum place place;
	const char *key;
	size_t field;		/* of a uint32_t in struct k3_config */
	uint32_t min, max, multiple;
};

#define FIELD(f) offsetof(struct k3_config, f)
static const struct whole wholes[] = {
	{ TOP, "eos_token_id", FIELD(eos), 0, (1u << 24) - 1, 1 },
	{ TEXT, "hidden_size", FIELD(hidden), 1, 1u << 20, 1 },
	{ TEXT, "num_hidden_layers", FIELD(layers), 1, 1u << 12, 1 },
	{ TEXT, "vocab_size", FIELD(vocab), 1, 1u << 24, 1 },
	{ TEXT, "intermediate_size", FIELD(dense_width), 1, 1u << 22, 1 },
	{ TEXT, "first_k_dense_replace", FIELD(dense_layers), 0, 1u << 12, 1 },
	{ TEXT, "num_attention_heads", FIELD(mla_heads), 1, 1u << 14, 1 },
	{ TEXT, "q_lora_rank", FIELD(q_rank), 1, 1u << 18, 1 },
	{ TEXT, "kv_lora_rank", FIELD(kv_rank), 1, 1u << 18, 1 },
	{ TEXT, "qk_nope_head_dim", FIELD(nope), 1, 1u << 13, 1 },
	{ TEXT, "qk_rope_head_dim", FIELD(rope), 1, 1u << 13, 1 },
	{ TEXT, "v_head_dim", FIELD(v_dim), 1, 1u << 13, 1 },
	{ TEXT, "num_experts", FIELD(experts), 1, 1u << 14, 1 },
	{ TEXT, "num_experts_per_token", FIELD(chosen), 1, 1u << 14, 1 },
	{ TEXT, "num_shared_experts", FIELD(shared), 1, 1u << 8, 1 },
	{ TEXT, "moe_intermediate_size", FIELD(expert_width), 32, 1u << 18, 32 },
	{ TEXT, "routed_expert_hidden_size", FIELD(latent), 32, 1u << 18, 32 },
	{ TEXT, "attn_res_block_size", FIELD(residual_block), 1, 1u << 12, 1 },
	{ LINEAR, "num_heads", FIELD(kda_heads), 1, 1u << 14, 1 },
	{ LINEAR, "head_dim", FIELD(kda_dim), 1, 1u << 13, 1 },
	{ LINEAR, "short_conv_kernel_size", FIELD(conv), 1, 1u << 8, 1 },
};

/* A real number that must be there. */
static const struct real {
	enum place place;
	const char *key;
	size_t field;		/* of a float in struct k3_config */
	double min, max;
} reals[] = {
	{ TEXT, "rms_norm_eps", FIELD(eps), 1e-12, 0.1 },
	{ TEXT, "activation_situ_beta", FIELD(situ_beta), 1e-3, 1e6 },
	{ TEXT, "activation_situ_linear_beta", FIELD(situ_linear_beta), 1e-3, 1e6 },
	{ TEXT, "routed_scaling_factor", FIELD(routed_scale), 1e-6, 1e6 },
	{ LINEAR, "gate_lower_bound", FIELD(decay_bound), -1e3, -1e-6 },
};

/* A value that the engine supports no other of, written as JSON. */
static const struct fixed {
	enum place place;
	const char *key, *value;
	bool optional;
} fixeds[] = {
	{ TOP, "model_type", "\"kimi_k3\"", false },
	{ TOP, "tie_word_embeddings", "false", true },
	{ TEXT, "model_type", "\"kimi_linear\"", false },
	{ TEXT, "hidden_act", "\"situ\"", false },
	{ TEXT, "moe_layer_freq", "1", false },
	{ TEXT, "mla_use_nope", "true", false },
	{ TEXT, "mla_use_output_gate", "true", false },
	{ TEXT, "latent_moe_use_norm", "true", false },
	{ TEXT, "moe_router_activation_func", "\"sigmoid\"", false },
	{ TEXT, "moe_renormalize", "true", false },
	{ TEXT, "num_expert_group", "1", false },
	{ TEXT, "topk_group", "1", false },
	{ TEXT, "use_grouped_topk", "true", true },
	{ TEXT, "num_nextn_predict_layers", "0", true },
	{ TEXT, "tie_word_embeddings", "false", false },
	{ LINEAR, "use_full_rank_gate", "true", false },
	{ QUANT, "quant_method", "\"compressed-tensors\"", false },
	{ QUANT, "format", "\"mxfp4-pack-quantized\"", false },
};

/*
 * The value of a key, invalid (and complained of) if it is missing.  Where the whole object
 * is missing that has been said already.  The caller frees it.
 */
static jv get(struct reader *r, enum place place, const char *key, bool optional)
{
	jv v;

	if (!jv_is_valid(r->place[place]))
		return jv_invalid();
	v = jv_object_get(jv_copy(r->place[place]), jv_string(key));
	if (!jv_is_valid(v) && !optional)
		WRONG(r, "%s%s is missing", prefix[place], key);
	return v;
}

/* Complains that a key must be something else than v, which is freed. */
static void mistaken(struct reader *r, enum place place, const char *key, const char *must, jv v)
{
	jv text = jv_dump_string(v, 0);

	WRONG(r, "%s%s must be %s, not %.60s", prefix[place], key, must, jv_string_value(text));
	jv_free(text);
}

static void open_places(struct reader *r, jv root)
{
	static const char *const key[PLACES] = {
		NULL, "text_config", "linear_attn_config", "quantization_config"
	};
	static const enum place in[PLACES] = { TOP, TOP, TEXT, TEXT };
	jv v;

	r->place[TOP] = root;
	for (int p = TEXT; p < PLACES; p++) {
		v = get(r, in[p], key[p], p == QUANT);
		if (jv_is_valid(v) && jv_get_kind(v) != JV_KIND_OBJECT) {
			mistaken(r, in[p], key[p], "an object", v);
			v = jv_invalid();
		}
		r->place[p] = v;
	}
}

static void read_wholes(struct reader *r, struct k3_config *c)
{
	const struct whole *w;
	char must[64];
	uint64_t n;
	jv v;

	for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
		w = &wholes[i];
		v = get(r, w->place, w->key, false);
		if (!jv_is_valid(v))
			continue;
		if (!k3_json_u64(v, w->max, &n) || n < w->min || n % w->multiple) {
			snprintf(must, sizeof must, "a %s from %" PRIu32 " to %" PRIu32,
				 w->multiple > 1 ? "multiple of 32" : "whole number",
				 w->min, w->max);
			mistaken(r, w->place, w->key, must, v);
			continue;
		}
		memcpy((char *)c + w->field, &(uint32_t){ (uint32_t)n }, sizeof(uint32_t));
		jv_free(v);
	}
	v = get(r, TEXT, "max_position_embeddings", false);
	if (jv_is_valid(v) && (!k3_json_u64(v, UINT64_MAX, &c->max_positions) ||
			       !c->max_positions))
		mistaken(r, TEXT, "max_position_embeddings", "a whole number above 0", v);
	else
		jv_free(v);
}

static void read_reals(struct reader *r, struct k3_config *c)
{
	const struct real *f;
	char must[64];
	double d;
	jv v;

	for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
		f = &reals[i];
		v = get(r, f->place, f->key, false);
		if (!jv_is_valid(v))
			continue;
		d = jv_get_kind(v) == JV_KIND_NUMBER ? jv_number_value(v) : (double)NAN;
		if (!(d >= f->min && d <= f->max)) {
			snprintf(must, sizeof must, "a number from %g to %g", f->min, f->max);
			mistaken(r, f->place, f->key, must, v);
			continue;
		}
		memcpy((char *)c + f->field, &(float){ (float)d }, sizeof(float));
		jv_free(v);
	}
}

static void check_fixed(struct reader *r)
{
	const struct fixed *f;
	jv v;

	for (size_t i = 0; i < sizeof fixeds / sizeof *fixeds; i++) {
		f = &fixeds[i];
		v = get(r, f->place, f->key, f->optional);
		if (!jv_is_valid(v))
			continue;
		if (jv_equal(jv_copy(v), jv_parse(f->value)))
			jv_free(v);
		else
			mistaken(r, f->place, f->key, f->value, v);
	}
}

/* One group of quantization_config, which is freed. */
static void check_group(struct reader *r, const char *name, jv group)
{
	static const char *const want[][2] = {
		{ "format", "\"mxfp4-pack-quantized\"" },
		{ "weights.group_size", "32" }, { "weights.num_bits", "4" },
		{ "weights.type", "\"float\"" }, { "weights.strategy", "\"group\"" },
		{ "weights.symmetric", "true" }, { "weights.scale_dtype", "\"torch.uint8\"" },
	};
	jv v, text;

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		v = jv_getpath(jv_copy(group),
			       jv_string_split(jv_string(want[i][0]), jv_string(".")));
		if (jv_equal(jv_copy(v), jv_parse(want[i][1]))) {
			jv_free(v);
			continue;
		}
		if (!jv_is_valid(v)) {
			jv_free(v);
			v = jv_null();
		}
		text = jv_dump_string(v, 0);
		WRONG(r, "%sconfig_groups.%.60s.%s must be %s, not %.60s", prefix[QUANT], name,
		      want[i][0], want[i][1], jv_string_value(text));
		jv_free(text);
	}
	jv_free(group);
}

/*
 * How experts are coded, which must not contradict what names and shapes of tensors say.  These
 * alone tell which are quantised, with or without this object: its lists of targets and
 * exceptions do not match the files.
 */
static void check_quantization(struct reader *r)
{
	jv groups = get(r, QUANT, "config_groups", false);

	if (!jv_is_valid(groups))
		return;
	if (jv_get_kind(groups) == JV_KIND_OBJECT && jv_object_length(jv_copy(groups))) {
		jv_object_foreach(groups, name, group) {
			check_group(r, jv_string_value(name), group);
			jv_free(name);
		}
		jv_free(groups);
	} else {
		mistaken(r, QUANT, "config_groups", "an object that is not empty", groups);
	}
}

/* Marks the layers of one list, which counts from 1, in kind (of c->layers bytes). */
static void mark_layers(struct reader *r, struct k3_config *c, const char *key, uint8_t kind)
{
	jv list = get(r, LINEAR, key, false), v;
	uint64_t n;

	if (!jv_is_valid(list))
		return;
	if (jv_get_kind(list) != JV_KIND_ARRAY) {
		mistaken(r, LINEAR, key, "a list of layer numbers", list);
		return;
	}
	jv_array_foreach(list, i, item) {
		v = item;
		if (!k3_json_u64(v, c->layers, &n) || !n) {
			WRONG(r, "%s%s has an entry that is no layer from 1 to %" PRIu32,
			      prefix[LINEAR], key, c->layers);
		} else if (c->kind[n - 1] == kind) {
			WRONG(r, "%s%s has layer %" PRIu64 " twice", prefix[LINEAR], key, n);
		} else if (c->kind[n - 1] != UINT8_MAX) {
			WRONG(r, "layer %" PRIu64 " is in both lists of %.*s", n,
			      (int)strlen(prefix[LINEAR]) - 1, prefix[LINEAR]);
		} else {
			c->kind[n - 1] = kind;
		}
		jv_free(v);
	}
	jv_free(list);
}

/* The two lists must hold each of the layers 1 to n once. */
static int read_layers(struct reader *r, struct k3_config *c, struct k3_err *err)
{
	unsigned before = r->count;
	bool known = c->layers;
	uint32_t none = 0, first = 0;

	if (!jv_is_valid(r->place[LINEAR]))
		return 0;
	if (!known)
		c->layers = 1u << 12;	/* complained of already: take the widest range */
	c->kind = k3_calloc(c->layers, 1);
	if (!c->kind)
		return k3_fail_nomem(err);
	memset(c->kind, UINT8_MAX, c->layers);
	mark_layers(r, c, "kda_layers", K3_KDA);
	mark_layers(r, c, "full_attn_layers", K3_MLA);
	if (r->count > before || !known)
		return 0;
	for (uint32_t i = c->layers; i-- > 0;)
		if (c->kind[i] == UINT8_MAX) {
			first = i + 1;
			none++;
		}
	if (none)
		WRONG(r, "%" PRIu32 " of the layers 1 to %" PRIu32 ", the first of them %" PRIu32
		      ", are in neither list of %.*s", none, c->layers, first,
		      (int)strlen(prefix[LINEAR]) - 1, prefix[LINEAR]);
	return 0;
}

/* What involves more than one key; only of use when each of them is in order. */
static void check_together(struct reader *r, struct k3_config *c)
{
	jv v = get(r, TEXT, "num_key_value_heads", false);
	uint64_t n;

	if (jv_is_valid(v) && (!k3_json_u64(v, UINT32_MAX, &n) ||
			       (c->mla_heads && n != c->mla_heads)))
		mistaken(r, TEXT, "num_key_value_heads", "equal to num_attention_heads", v);
	else
		jv_free(v);
	if (r->count)
		return;
	if (c->chosen > c->experts)
		WRONG(r, "%snum_experts_per_token must be at most num_experts", prefix[TEXT]);
	if (c->dense_layers > c->layers)
		WRONG(r, "%sfirst_k_dense_replace must be at most num_hidden_layers",
		      prefix[TEXT]);
	if (c->eos >= c->vocab)
		WRONG(r, "eos_token_id must be below text_config.vocab_size");
	/* so that neither the index nor a count of bytes can be of absurd size */
	if ((uint64_t)c->layers * c->experts > MAX_EXPERTS)
		WRONG(r, "the model has more than %u experts", MAX_EXPERTS);
}

int k3_config_parse(const char *text, size_t len, const char *name, struct k3_config *out,
		    struct k3_err *err)
{
	struct reader r = { .wrong = K3_BUF_INIT };
	jv root;
	int rc = k3_json_parse(text, len, name, &root, err);

	if (rc)
		return rc;
	*out = (struct k3_config){ 0 };
	open_places(&r, root);
	read_wholes(&r, out);
	read_reals(&r, out);
	check_fixed(&r);
	check_quantization(&r);
	rc = read_layers(&r, out, err);
	check_together(&r, out);
	if (!rc && r.wrong.failed)
		rc = k3_fail_nomem(err);
	else if (!rc && r.count)
		rc = k3_fail(err, K3_EDATA, "%s: %s", name, r.wrong.data);
	for (int p = 0; p < PLACES; p++)
		jv_free(r.place[p]);
	k3_buf_free(&r.wrong);
	if (rc)
		k3_config_free(out);
	return rc;
}

void k3_config_free(struct k3_config *c)
{
	free(c->kind);
	c->kind = NULL;
}

bool k3_config_is_moe(const struct k3_config *c, uint32_t layer)
{
	return layer >= c->dense_layers;
}

uint32_t k3_config_sources(const struct k3_config *c, uint32_t layer)
{
	return (layer + c->residual_block - 1) / c->residual_block + 1;
}
