/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c - the small tensors of a layer, and the buffers that its operators share. */
#include "model/layer.h"
#include "model/kda.h"
#include "model/mla.h"
#include "model/product.h"
#include "sys/small.h"

#include <k3/buf.h>

#include <stdlib.h>
#include <string.h>

static uint64_t kda_width(const struct k3_config *c)
{
	return (uint64_t)c->kda_heads * c->kda_dim;
}

static uint64_t dense_or_shared(const struct k3_config *c)
{
	return k3_max(c->dense_width, (uint64_t)c->shared * c->expert_width);
}

uint64_t k3_scratch_size(const struct k3_config *c, uint64_t positions)
{
	uint64_t mix = (uint64_t)c->hidden + c->layers + 2 + positions;
	uint64_t kda = K3_KDA_SCRATCH(c->kda_dim);
	uint64_t attend = K3_MLA_GROUP * (positions + 1 + K3_PAGE);
	uint64_t mla = k3_max(attend, (K3_MLA_GROUP + 1) * (uint64_t)c->v_dim);
	uint64_t combine = K3_COMBINE_TILE * k3_max(c->hidden, c->latent);

	return k3_max(k3_max(mix, kda), k3_max(mla, combine));
}

int k3_vectors_new(const struct k3_config *c, struct k3_layer_vectors *v, struct k3_err *err)
{
	uint64_t conv = kda_width(c) * c->conv;
	struct {
		float **at;
		uint64_t n;
	} all[] = {
		{ &v->attn_fold, c->hidden }, { &v->mlp_fold, c->hidden },
		{ &v->attn_norm, c->hidden }, { &v->mlp_norm, c->hidden },
		{ &v->conv[0], conv }, { &v->conv[1], conv }, { &v->conv[2], conv },
		{ &v->dt_bias, kda_width(c) }, { &v->a_log, k3_max(c->kda_heads, c->kda_dim) },
		{ &v->kda_norm, c->kda_dim }, { &v->qa_norm, c->q_rank },
		{ &v->kva_norm, c->kv_rank }, { &v->router_bias, c->experts },
		{ &v->latent_norm, c->latent }, { &v->temp, k3_max(conv, c->hidden) },
	};

	*v = (struct k3_layer_vectors){ 0 };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		*all[i].at = k3_calloc(all[i].n, sizeof(float));
		if (!*all[i].at) {
			k3_vectors_free(v);
			return k3_fail_nomem(err);
		}
	}
	return 0;
}

void k3_vectors_free(struct k3_layer_vectors *v)
{
	free(v->attn_fold);
	free(v->mlp_fold);
	free(v->attn_norm);
	free(v->mlp_norm);
	for (int i = 0; i < 3; i++)
		free(v->conv[i]);
	free(v->dt_bias);
	free(v->a_log);
	free(v->kda_norm);
	free(v->qa_norm);
	free(v->kva_norm);
	free(v->router_bias);
	free(v->latent_norm);
	free(v->temp);
	*v = (struct k3_layer_vectors){ 0 };
}

/* The weights of a residual mix: its two vectors multiplied (N10). */
static int read_fold(struct k3_feed *f, enum k3_role norm, enum k3_role proj, uint32_t layer,
		     uint64_t hidden, float *fold, float *temp, struct k3_err *err)
{
	int rc = f->ops->vector(f, norm, layer, fold, err);

	if (!rc)
		rc = f->ops->vector(f, proj, layer, temp, err);
	for (uint64_t i = 0; !rc && i < hidden; i++)
		fold[i] *= temp[i];
	return rc;
}

/* [P][conv] as stored into [conv][P], so that channels lie side by side. */
static int read_conv(const struct k3_config *c, struct k3_feed *f, enum k3_role role,
		     uint32_t layer, float *out, float *temp, struct k3_err *err)
{
	uint64_t all = kda_width(c);
	int rc = f->ops->vector(f, role, layer, temp, err);

	for (uint64_t r = 0; !rc && r < all; r++)
		for (uint64_t j = 0; j < c->conv; j++)
			out[j * all + r] = temp[r * c->conv + j];
	return rc;
}

static int read_kda(const struct k3_config *c, struct k3_feed *f, uint32_t layer,
		    struct k3_layer_vectors *v, struct k3_err *err)
{
	static const enum k3_role conv[3] = { K3_KDA_Q_CONV, K3_KDA_K_CONV, K3_KDA_V_CONV };
	int rc = 0;

	for (int i = 0; !rc && i < 3; i++)
		rc = read_conv(c, f, conv[i], layer, v->conv[i], v->temp, err);
	if (!rc)
		rc = f->ops->vector(f, K3_KDA_DT_BIAS, layer, v->dt_bias, err);
	if (!rc)
		rc = f->ops->vector(f, K3_KDA_A_LOG, layer, v->a_log, err);
	if (!rc)
		rc = f->ops->vector(f, K3_KDA_NORM, layer, v->kda_norm, err);
	return rc;
}

int k3_vectors_read(const struct k3_config *c, struct k3_feed *f, uint32_t layer,
		    struct k3_layer_vectors *v, struct k3_err *err)
{
	int rc = read_fold(f, K3_ATTN_MIX_NORM, K3_ATTN_MIX_PROJ, layer, c->hidden, v->attn_fold,
			   v->temp, err);

	if (!rc)
		rc = read_fold(f, K3_MLP_MIX_NORM, K3_MLP_MIX_PROJ, layer, c->hidden, v->mlp_fold,
			       v->temp, err);
	if (!rc)
		rc = f->ops->vector(f, K3_ATTN_NORM, layer, v->attn_norm, err);
	if (!rc)
		rc = f->ops->vector(f, K3_MLP_NORM, layer, v->mlp_norm, err);
	if (!rc && c->kind[layer] == K3_KDA)
		rc = read_kda(c, f, layer, v, err);
	if (!rc && c->kind[layer] == K3_MLA) {
		rc = f->ops->vector(f, K3_MLA_QA_NORM, layer, v->qa_norm, err);
		if (!rc)
			rc = f->ops->vector(f, K3_MLA_KVA_NORM, layer, v->kva_norm, err);
	}
	if (!rc && k3_config_is_moe(c, layer)) {
		rc = f->ops->vector(f, K3_ROUTER_BIAS, layer, v->router_bias, err);
		if (!rc)
			rc = f->ops->vector(f, K3_LATENT_NORM, layer, v->latent_norm, err);
	}
	return rc;
}

int k3_output_vectors(const struct k3_config *c, struct k3_feed *f, float *fold, float *norm,
		      float *temp, struct k3_err *err)
{
	int rc = read_fold(f, K3_OUT_MIX_NORM, K3_OUT_MIX_PROJ, 0, c->hidden, fold, temp, err);

	return rc ? rc : f->ops->vector(f, K3_FINAL_NORM, 0, norm, err);
}

struct part {
	struct k3_rows *rows;
	uint64_t width;
};

enum { TILE_PARTS = 15 };

/* Which buffers share memory is not worth the trouble: a tile is small beside the states. */
static void tile_parts(const struct k3_config *c, struct k3_tile *t, struct part part[TILE_PARTS])
{
	uint64_t p = kda_width(c), g = (uint64_t)c->mla_heads * c->v_dim;
	uint64_t q = (uint64_t)c->mla_heads * (c->nope + c->rope);
	const struct part all[TILE_PARTS] = {
		{ &t->x, c->hidden }, { &t->y, c->hidden }, { &t->q, k3_max(p, q) }, { &t->k, p },
		{ &t->v, p }, { &t->g, k3_max(p, g) }, { &t->z, p }, { &t->fa, c->kda_dim },
		{ &t->beta, c->kda_heads }, { &t->qa, c->q_rank },
		{ &t->kva, (uint64_t)c->kv_rank + c->rope }, { &t->gate, dense_or_shared(c) },
		{ &t->up, dense_or_shared(c) }, { &t->router, c->experts },
		{ &t->latent_q, (uint64_t)c->mla_heads * c->kv_rank },
	};

	memcpy(part, all, sizeof all);
}

uint64_t k3_tile_bytes(const struct k3_config *c, uint64_t n)
{
	struct part part[TILE_PARTS];
	struct k3_tile t;
	uint64_t sum = 0;

	tile_parts(c, &t, part);
	for (int i = 0; i < TILE_PARTS; i++)
		sum += k3_rows_bytes(n, part[i].width);
	return sum;
}

uint64_t k3_routed_bytes(const struct k3_config *c, uint64_t n, uint64_t group)
{
	struct k3_routed r;
	uint64_t user = sizeof *r.expert + sizeof *r.weight + sizeof *r.user +
			sizeof *r.user_latent + sizeof *r.user_sum;

	return 2 * k3_rows_bytes(2 * group, c->expert_width) + n * c->chosen * user +
	       ((uint64_t)c->experts + 1) * sizeof *r.first;
}

int k3_tile_new(const struct k3_config *c, uint64_t n, struct k3_tile *t, struct k3_err *err)
{
	struct part part[TILE_PARTS];
	int rc = 0;

	*t = (struct k3_tile){ 0 };
	tile_parts(c, t, part);
	for (int i = 0; !rc && i < TILE_PARTS; i++)
		rc = k3_rows_new(part[i].rows, n, part[i].width, err);
	if (rc)
		k3_tile_free(t);
	return rc;
}

void k3_tile_free(struct k3_tile *t)
{
	struct k3_rows *all[] = { &t->x, &t->y, &t->q, &t->k, &t->v, &t->g, &t->z, &t->fa,
				  &t->beta, &t->qa, &t->kva, &t->gate, &t->up, &t->router,
				  &t->latent_q };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		k3_rows_free(all[i]);
}

int k3_routed_new(const struct k3_config *c, uint64_t n, uint64_t group, struct k3_routed *r,
		  struct k3_err *err)
{
	uint64_t users = n * c->chosen;
	int rc;

	*r = (struct k3_routed){ .group = group };
	rc = k3_rows_new(&r->h1, 2 * group, c->expert_width, err);
	if (!rc)
		rc = k3_rows_new(&r->h3, 2 * group, c->expert_width, err);
	r->expert = k3_calloc(users, sizeof *r->expert);
	r->weight = k3_calloc(users, sizeof *r->weight);
	r->first = k3_calloc((uint64_t)c->experts + 1, sizeof *r->first);
	r->user = k3_calloc(users, sizeof *r->user);
	r->user_latent = k3_calloc(users, sizeof *r->user_latent);
	r->user_sum = k3_calloc(users, sizeof *r->user_sum);
	if (!rc && (!r->expert || !r->weight || !r->first || !r->user || !r->user_latent ||
		    !r->user_sum))
		rc = k3_fail_nomem(err);
	if (rc)
		k3_routed_free(r);
	return rc;
}

void k3_routed_free(struct k3_routed *r)
{
	k3_rows_free(&r->h1);
	k3_rows_free(&r->h3);
	free(r->expert);
	free(r->weight);
	free(r->first);
	free(r->user);
	free(r->user_latent);
	free(r->user_sum);
	*r = (struct k3_routed){ 0 };
}
