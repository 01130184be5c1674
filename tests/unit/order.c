/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - every weight of a section is in one block, once; numbers by hand for the release. */
#include "data/order.h"
#include "data/roles.h"
#include "tap.h"

#include <stdlib.h>

enum { LAYERS = 8 };

/* KDA and MLA, dense and with experts, in all combinations. */
static uint8_t kinds[LAYERS] = { K3_KDA, K3_MLA, K3_KDA, K3_MLA, K3_KDA, K3_KDA, K3_MLA, K3_MLA };

static const struct k3_config small = {
	.hidden = 44, .layers = LAYERS, .vocab = 53, .dense_layers = 2, .dense_width = 59,
	.mla_heads = 3, .q_rank = 20, .kv_rank = 18, .nope = 9, .rope = 5, .v_dim = 7,
	.kda_heads = 5, .kda_dim = 12, .conv = 4, .experts = 10, .chosen = 3, .shared = 2,
	.expert_width = 32, .latent = 32, .kind = kinds
};

/* docs/model.md */
static const struct k3_config released = {
	.hidden = 7168, .layers = LAYERS, .vocab = 163840, .dense_layers = 2, .dense_width = 33792,
	.mla_heads = 96, .q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64, .v_dim = 128,
	.kda_heads = 96, .kda_dim = 128, .conv = 4, .experts = 896, .chosen = 16, .shared = 2,
	.expert_width = 3072, .latent = 3584, .kind = kinds
};

/* Marks the rows that a use covers; false if one was marked before, or the place is wrong. */
static bool mark(const struct k3_config *c, const struct k3_use *u, unsigned char *seen)
{
	uint64_t row, rows, bytes, width = u->bytes / u->rows;

	for (uint64_t i = 0; i < u->blocks; i++) {
		k3_use_rows(c, u, i, &row, &rows);
		if (!rows || row + rows > u->rows ||
		    k3_use_place(c, u, i, &bytes) != row * width || bytes != rows * width)
			return false;
		for (; rows; rows--)
			if (seen[row++]++)
				return false;
	}
	return true;
}

/* All uses of a role in a section; true if they cover its tensor once. */
static bool covers(const struct k3_config *c, const struct k3_order *o, enum k3_role role)
{
	struct k3_tensor t;
	unsigned char *seen;
	uint64_t rows = 0;
	bool good = true;

	k3_role_describe(c, role, o->layer < c->layers ? o->layer : 0, 0, &t);
	seen = calloc(t.rows, 1);
	for (uint32_t i = 0; seen && i < o->uses; i++)
		if (o->use[i].role == role)
			good &= o->use[i].rows == t.rows && o->use[i].cols == t.cols &&
				o->use[i].bytes == t.bytes && mark(c, &o->use[i], seen);
	for (uint64_t i = 0; seen && i < t.rows; i++)
		rows += seen[i];
	free(seen);
	return good && rows == t.rows;
}

/* The roles of a section: those that have a slot there, but experts and embedding. */
static bool belongs(const struct k3_layout *l, uint32_t layer, enum k3_role role)
{
	uint64_t slot;
	bool of_model = role <= K3_OUT_MIX_PROJ;

	if (layer == l->config->layers)
		return of_model && role != K3_EMBED;
	return !of_model && role < K3_W1 && k3_layout_slot(l, role, layer, 0, &slot);
}

static bool numbered(const struct k3_order *o)
{
	uint64_t next = 0;
	bool good = true;

	for (uint32_t i = 0; i < o->uses; i++) {
		const struct k3_use *u = &o->use[i];

		good &= u->first == next && u->blocks && u->vector == (i < o->vectors);
		good &= k3_order_use(o, u->first) == u &&
			k3_order_use(o, u->first + u->blocks - 1) == u;
		next += u->blocks;
	}
	return good && next == o->blocks;
}

static void test_section(const struct k3_layout *l, uint32_t layer, uint64_t block_rows)
{
	const struct k3_config *c = l->config;
	struct k3_order o;
	unsigned uses[K3_ROLES] = { 0 }, wrong = 0;

	k3_order_init(c, layer, block_rows, &o);
	for (uint32_t i = 0; i < o.uses; i++)
		uses[o.use[i].role]++;
	for (int role = 0; role < K3_ROLES; role++) {
		unsigned want = belongs(l, layer, (enum k3_role)role);

		if (want && role == K3_MLA_KVB)
			want = 2;
		wrong += uses[role] != want || (want && !covers(c, &o, (enum k3_role)role));
	}
	ok(!wrong, "section %u, blocks of %d rows: every tensor once, every row once", layer,
	   (int)block_rows);
	ok(numbered(&o), "section %u: blocks are numbered without gaps, vectors first", layer);
	if (layer < c->layers && k3_config_is_moe(c, layer))
		ok(o.experts_at == o.uses - 1 && o.use[o.experts_at].role == K3_LATENT_UP &&
		   o.use[o.experts_at - 1].role == K3_SHARED_DOWN,
		   "section %u: experts come between the shared one and the way up", layer);
	else
		ok(o.experts_at == o.uses, "section %u: no experts", layer);
}

static void test_all(const struct k3_config *c)
{
	struct k3_layout l;
	struct k3_err err;

	if (!ok(!k3_layout_init(&l, c, &err), "a layout"))
		exit(1);
	for (uint32_t i = 0; i <= c->layers; i++) {
		test_section(&l, i, 0);
		test_section(&l, i, 1);
		test_section(&l, i, 7);
	}
	k3_layout_free(&l);
}

/* A use of a section of the release: rows of a block, blocks, rows of the last. */
static void test_cut(uint32_t layer, enum k3_role role, uint64_t rows, uint64_t blocks,
		     uint64_t last, const char *name)
{
	struct k3_order o;
	const struct k3_use *u = o.use;
	uint64_t row, left;

	k3_order_init(&released, layer, 0, &o);
	while (u < o.use + o.uses && u->role != role)
		u++;
	k3_use_rows(&released, u, u->blocks - 1, &row, &left);
	ok(u->block_rows == rows && u->blocks == blocks && left == last,
	   "%s: %d blocks of %d rows, the last of %d", name, (int)blocks, (int)rows, (int)last);
}

static void test_released(void)
{
	uint64_t bytes, most = 0;
	struct k3_order o;

	/* 2^20 / 14,336 bytes = 73.1 rows */
	test_cut(0, K3_KDA_Q, 72, 171, 48, "q_proj, 12,288 rows of 7,168");
	/* 2^20 / 24,576 = 42.7 */
	test_cut(0, K3_OUT, 40, 180, 8, "o_proj, 7,168 of 12,288");
	/* 128 / 16 */
	test_cut(0, K3_KDA_FA, 8, 16, 8, "f_a_proj, 128 of 7,168");
	/* 12,288 / 16 */
	test_cut(0, K3_KDA_FB, 768, 16, 768, "f_b_proj, 12,288 of 128");
	/* 96 / 16 = 6, which becomes 8 */
	test_cut(0, K3_KDA_B, 8, 12, 8, "b_proj, 96 of 7,168");
	/* 2^20 / 67,584 = 15.5 */
	test_cut(0, K3_DENSE_DOWN, 8, 896, 8, "dense down_proj, 7,168 of 33,792");
	/* 576 / 16 = 36, which becomes 40 */
	test_cut(1, K3_MLA_KVA, 40, 15, 16, "kv_a_proj, 576 of 7,168");
	test_cut(1, K3_MLA_KVB, 128, 96, 128, "kv_b_proj, 128 key rows a head");
	/* 896 / 16 = 56 */
	test_cut(2, K3_ROUTER, 56, 16, 56, "gate, 896 of 7,168");
	/* 2^20 / 7,168 = 146.3 */
	test_cut(2, K3_LATENT_UP, 144, 50, 112, "routed_expert_up_proj, 7,168 of 3,584");
	test_cut(LAYERS, K3_HEAD, 72, 2276, 40, "lm_head, 163,840 of 7,168");
	for (uint32_t i = 0; i <= released.layers; i++) {
		k3_order_init(&released, i, 0, &o);
		for (uint64_t b = 0; b < o.blocks; b++) {
			const struct k3_use *u = k3_order_use(&o, b);

			k3_use_place(&released, u, b - u->first, &bytes);
			most = bytes > most ? bytes : most;
		}
	}
	ok(most <= K3_BLOCK_BYTES && most > K3_BLOCK_BYTES / 10 * 9,
	   "no block of the release is above 1 MB, and some are near it");
}

static void test_rows(void)
{
	/* one row is more than a block may have */
	ok(k3_block_rows(100, (2 << 20)) == 1, "a row of 2 MB is a block");
	ok(k3_block_rows(100, 300000) == 3, "rows of 300 kB: 3, less than a group of 8");
	ok(k3_block_rows(100, 100000) == 8, "rows of 100 kB: 10 fit, so 8");
	/* 16,384 / 64 = 256 */
	ok(k3_block_rows(100, 64) == 256, "small rows make no small blocks");
	ok(k3_block_rows(1, 64) == 256, "one row");
}

static void test_config_only(void)
{
	struct k3_config other = small;
	struct k3_order a, b;
	bool same = true;

	other.vocab = 9999;
	other.experts = 33;
	k3_order_init(&small, 1, 0, &a);
	k3_order_init(&other, 1, 0, &b);
	for (uint32_t i = 0; i < a.uses; i++)
		same &= a.use[i].role == b.use[i].role && a.use[i].first == b.use[i].first &&
			a.use[i].block_rows == b.use[i].block_rows;
	ok(same && a.uses == b.uses && a.blocks == b.blocks,
	   "an order depends on the measures of its own tensors only");
}

int main(void)
{
	test_all(&small);
	test_all(&released);
	test_released();
	test_rows();
	test_config_only();
	return tap_done();
}
