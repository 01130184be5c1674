/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - the order of use of each kind of section. */
#include "data/order.h"
#include "data/roles.h"

enum { BLOCK_MIN = 1 << 14, PARTS = 16 };

uint64_t k3_block_rows(uint64_t rows, uint64_t row_bytes)
{
	uint64_t most = K3_BLOCK_BYTES / row_bytes, few = BLOCK_MIN / row_bytes;
	uint64_t part = (rows + PARTS - 1) / PARTS;

	part = part < few ? few : part;
	part = (part + K3_ROWS_STEP - 1) / K3_ROWS_STEP * K3_ROWS_STEP;
	if (most > K3_ROWS_STEP)
		most -= most % K3_ROWS_STEP;
	most = most ? most : 1;
	return part < most ? part : most;
}

uint32_t k3_section_layer(const struct k3_config *c, uint32_t section)
{
	return section < c->layers ? section : 0;
}

static struct k3_use *add(const struct k3_config *c, struct k3_order *o, enum k3_role role)
{
	struct k3_use *u = &o->use[o->uses++];
	struct k3_tensor t;

	k3_role_describe(c, role, k3_section_layer(c, o->layer), 0, &t);
	*u = (struct k3_use){ .role = role, .rows = t.rows, .cols = t.cols, .bytes = t.bytes,
			      .first = o->blocks };
	return u;
}

static void vectors(const struct k3_config *c, struct k3_order *o, const enum k3_role *role,
		    unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct k3_use *u = add(c, o, role[i]);

		u->vector = true;
		u->block_rows = u->rows;
		u->blocks = 1;
		o->blocks++;
		o->vectors++;
	}
}

static void matrix(const struct k3_config *c, struct k3_order *o, enum k3_role role,
		   uint64_t block_rows)
{
	struct k3_use *u = add(c, o, role);

	u->block_rows = block_rows ? block_rows : k3_block_rows(u->rows, u->bytes / u->rows);
	u->blocks = (u->rows + u->block_rows - 1) / u->block_rows;
	o->blocks += u->blocks;
}

/* A block a head: all key rows, or all value rows. */
static void kvb(const struct k3_config *c, struct k3_order *o, bool values)
{
	struct k3_use *u = add(c, o, K3_MLA_KVB);

	u->values = values;
	u->block_rows = values ? c->v_dim : c->nope;
	u->blocks = c->mla_heads;
	o->blocks += u->blocks;
}

#define VECTORS(...) \
	vectors(c, o, (const enum k3_role[]){ __VA_ARGS__ }, \
		sizeof(enum k3_role[]){ __VA_ARGS__ } / sizeof(enum k3_role))

static void layer_vectors(const struct k3_config *c, struct k3_order *o)
{
	VECTORS(K3_ATTN_MIX_NORM, K3_ATTN_MIX_PROJ, K3_MLP_MIX_NORM, K3_MLP_MIX_PROJ,
		K3_ATTN_NORM, K3_MLP_NORM);
	if (c->kind[o->layer] == K3_KDA)
		VECTORS(K3_KDA_Q_CONV, K3_KDA_K_CONV, K3_KDA_V_CONV, K3_KDA_DT_BIAS, K3_KDA_A_LOG,
			K3_KDA_NORM);
	else
		VECTORS(K3_MLA_QA_NORM, K3_MLA_KVA_NORM);
	if (k3_config_is_moe(c, o->layer))
		VECTORS(K3_ROUTER_BIAS, K3_LATENT_NORM);
}

static void attention(const struct k3_config *c, struct k3_order *o, uint64_t block_rows)
{
	static const enum k3_role kda[] = { K3_KDA_FA, K3_KDA_Q, K3_KDA_K, K3_KDA_V, K3_GATE,
					    K3_KDA_B, K3_KDA_FB };
	static const enum k3_role mla[] = { K3_MLA_QA, K3_MLA_KVA, K3_GATE, K3_MLA_QB };
	bool linear = c->kind[o->layer] == K3_KDA;
	const enum k3_role *role = linear ? kda : mla;

	for (size_t i = 0; i < (linear ? sizeof kda : sizeof mla) / sizeof *role; i++)
		matrix(c, o, role[i], block_rows);
	if (!linear) {
		kvb(c, o, false);
		kvb(c, o, true);
	}
	matrix(c, o, K3_OUT, block_rows);
}

/* What needs no router stands between the router and the experts: it is read while they are chosen. */
static void feed_forward(const struct k3_config *c, struct k3_order *o, uint64_t block_rows)
{
	static const enum k3_role dense[] = { K3_DENSE_GATE, K3_DENSE_UP, K3_DENSE_DOWN };
	static const enum k3_role moe[] = { K3_ROUTER, K3_LATENT_DOWN, K3_SHARED_GATE,
					    K3_SHARED_UP, K3_SHARED_DOWN };
	bool experts = k3_config_is_moe(c, o->layer);
	const enum k3_role *role = experts ? moe : dense;

	for (size_t i = 0; i < (experts ? sizeof moe : sizeof dense) / sizeof *role; i++)
		matrix(c, o, role[i], block_rows);
	o->experts_at = o->uses;
	if (experts)
		matrix(c, o, K3_LATENT_UP, block_rows);
}

void k3_order_init(const struct k3_config *c, uint32_t layer, uint64_t block_rows,
		   struct k3_order *o)
{
	*o = (struct k3_order){ .layer = layer };
	if (layer < c->layers) {
		layer_vectors(c, o);
		attention(c, o, block_rows);
		feed_forward(c, o, block_rows);
	} else {
		VECTORS(K3_OUT_MIX_NORM, K3_OUT_MIX_PROJ, K3_FINAL_NORM);
		matrix(c, o, K3_HEAD, block_rows);
		o->experts_at = o->uses;
	}
}

void k3_use_rows(const struct k3_config *c, const struct k3_use *u, uint64_t i, uint64_t *row,
		 uint64_t *rows)
{
	if (u->role == K3_MLA_KVB) {
		*row = i * ((uint64_t)c->nope + c->v_dim) + (u->values ? c->nope : 0);
		*rows = u->block_rows;
		return;
	}
	*row = i * u->block_rows;
	*rows = u->rows - *row < u->block_rows ? u->rows - *row : u->block_rows;
}

const struct k3_use *k3_order_use(const struct k3_order *o, uint64_t block)
{
	const struct k3_use *u = o->use;

	while (block >= u->first + u->blocks)
		u++;
	return u;
}

uint64_t k3_use_place(const struct k3_config *c, const struct k3_use *u, uint64_t i,
		      uint64_t *bytes)
{
	uint64_t row, rows, width = u->bytes / u->rows;

	k3_use_rows(c, u, i, &row, &rows);
	*bytes = rows * width;
	return row * width;
}
