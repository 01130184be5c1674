/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_ffn.c - SiTU, router, experts, shared expert: traps T16 to T22, T37 and T38 by hand values
 * and against double precision, and the order of operations (N9, N11) bit by bit.
 */
#include "math/elementary.h"
#include "model/ffn.h"
#include "rig.h"

enum {
	HIDDEN = 40, LATENT = 64, WIDTH = 32, EXPERTS = 12, CHOSEN = 5, SHARED = 2, DENSE = 50,
	TOKENS = 7
};

static const struct k3_config config = {
	.hidden = HIDDEN, .vocab = 16, .eps = 1e-5f, .situ_beta = 4, .situ_linear_beta = 25,
	.dense_layers = 0, .dense_width = DENSE, .residual_block = 4, .mla_heads = 1, .q_rank = 4,
	.kv_rank = 4, .nope = 4, .rope = 4, .v_dim = 4, .kda_heads = 1, .kda_dim = 4, .conv = 4,
	.decay_bound = -5, .experts = EXPERTS, .chosen = CHOSEN, .shared = SHARED,
	.expert_width = WIDTH, .latent = LATENT, .routed_scale = 1, .max_positions = 1 << 20,
};

static struct rig *r;
static const struct k3_kernels *math;
static struct rng g = { 17 };

static double sig(double x)
{
	return 1 / (1 + exp(-x));
}

static double situ(double a, double b)
{
	return 4 * tanh(a / 4) * sig(a) * (25 * tanh(b / 25));
}

/* ---- SiTU ---- */

static float kernel(float a, float b)
{
	float out;

	math->situ(&a, &b, 1, 4, 25, &out);
	return out;
}

static void situ_values(void)
{
	static const double a[] = { .1, 1, 4, 25, 1000, -.1, -1, -4, -25 };
	bool all = true;
	float inout[2] = { 3, -3 }, b[2] = { 5, 6 };

	for (int i = 0; i < 9; i++)
		for (int j = 0; j < 9; j++)
			all &= near(kernel((float)a[i], (float)a[j]),
				    situ((float)a[i], (float)a[j]), 2e-6);
	ok(all, "T22: SiTU of 0.1 to 1000 and -0.1 to -25");
	/* 4 * 1 * (25 tanh(1/25)) and 4 tanh(1/4) sigmoid(1) * 25, by hand */
	ok(near(kernel(100, 1), 3.99787, 1e-5), "T21: (100, 1)");
	ok(near(kernel(1, 100), 17.8925, 2e-3) && near(kernel(1, 100), situ(1, 100), 1e-6),
	   "T21: (1, 100) is another");
	ok(kernel(1000, 1000) == 100 && kernel(1000, -1000) == -100, "T22: at most 4 times 25");
	ok(kernel(-1000, 1000) == 0, "T22: the sigmoid sees the uncapped gate: nothing at -1000");
	math->situ(inout, b, 2, 4, 25, inout);
	ok(inout[0] == kernel(3, 5) && inout[1] == kernel(-3, 6), "in place");
}

/* With a first cap of 3 as well: by 4 every order of the products gives the same bits. */
static void situ_bits(void)
{
	bool all = true;

	for (int i = 0; i < 40000; i++) {
		float a = 5 * (float)rng_normal(&g), b = 20 * (float)rng_normal(&g);
		float cap = i % 2 ? 3 : 4, want, got;

		want = cap * k3_tanh(a / cap);
		want = want * k3_sigmoid(a);
		want = want * (25 * k3_tanh(b / 25));
		math->situ(&a, &b, 1, cap, 25, &got);
		all &= got == want;
	}
	ok(all, "N11: SiTU bit by bit, %s", math->name);
}

/* ---- the choice ---- */

static void choose_by_hand(void)
{
	static const float score[4] = { .875f, .75f, .125f, .25f }, bias[4] = { 0, 0, 5, 3 };
	static const float equal[6] = { .5f, .5f, .5f, .5f, .5f, .5f }, none[6] = { 0 };
	struct k3_config c = config;
	uint32_t id[6];
	float weight[6];

	c.experts = 4;
	c.chosen = 2;
	k3_choose(&c, score, bias, id, weight);
	ok(id[0] == 2 && id[1] == 3, "T16: the bias decides who is chosen");
	ok(near(weight[0], 1 / 3., 1e-6) && near(weight[1], 2 / 3., 1e-6),
	   "T16: and has no weight");
	k3_choose(&c, score, none, id, weight);
	ok(id[0] == 0 && id[1] == 1 && near(weight[0], .875 / 1.625, 1e-6), "without a bias");
	c.routed_scale = 2.5f;
	k3_choose(&c, score, bias, id, weight);
	ok(near(weight[0], 2.5 / 3, 1e-6), "T17: the weights are scaled");
	c.chosen = 4;
	k3_choose(&c, score, bias, id, weight);
	ok(id[0] == 0 && id[3] == 3 && near(weight[1], 2.5 * .75 / 2, 1e-6),
	   "T17: all experts chosen, their scores divided by their sum");
	c.routed_scale = 1;
	c.experts = 6;
	c.chosen = 3;
	k3_choose(&c, equal, none, id, weight);
	ok(id[0] == 0 && id[1] == 1 && id[2] == 2, "T37: of equal keys the lower ids win");
	c.chosen = 1;
	k3_choose(&c, (float[6]){ .1f, .2f, .9f, .2f, .9f, .1f }, none, id, weight);
	ok(id[0] == 2 && weight[0] == 1, "T37: also for the one expert that is chosen");
	c.chosen = 3;
	k3_choose(&c, (float[6]){ .1f, .3f, .9f, .3f, .9f, .3f }, none, id, weight);
	ok(id[0] == 1 && id[1] == 2 && id[2] == 4, "T37: and at the last place");
	/* score + bias is equal although neither is: 0.25 + 0.5 and 0.5 + 0.25 */
	k3_choose(&c, (float[6]){ .25f, .5f, .9f, .25f, .9f, .5f },
		  (float[6]){ .5f, .25f, 0, .5f, 0, .25f }, id, weight);
	ok(id[0] == 0 && id[1] == 2 && id[2] == 4, "T37: what is compared is the sum of both");
}

/* The released size: 16 of 896; the sum goes by id, not by rank. */
static void choose_bits(void)
{
	enum { MANY = 896, FEW = 16 };
	static float score[MANY], bias[MANY], key[MANY];
	struct k3_config c = config;
	uint32_t id[FEW];
	float weight[FEW];
	bool ids = true, weights = true, differs = false;

	c.experts = MANY;
	c.chosen = FEW;
	c.routed_scale = 1.7f;
	for (int round = 0; round < 300; round++) {
		float sum = 0, ranked = 0;
		uint32_t n = 0;

		for (int e = 0; e < MANY; e++) {
			score[e] = (float)rng_unit(&g);
			/* few different values: ties everywhere */
			bias[e] = (float)(rng_u64(&g) % 4);
			if (round % 2)
				score[e] = rintf(8 * score[e]) / 8;
			key[e] = score[e] + bias[e];
		}
		k3_choose(&c, score, bias, id, weight);
		/* an expert is chosen if fewer than FEW come before it */
		for (uint32_t e = 0; e < MANY; e++) {
			int before = 0;

			for (uint32_t o = 0; o < MANY; o++)
				before += key[o] > key[e] || (key[o] == key[e] && o < e);
			if (before < FEW)
				ids &= id[n++] == e;
		}
		ids &= n == FEW;
		for (int i = 0; i < FEW; i++)
			sum += score[id[i]];
		for (int i = FEW; i-- > 0;)
			ranked += score[id[i]];
		differs |= sum != ranked;
		for (int i = 0; i < FEW; i++)
			weights &= weight[i] == score[id[i]] / (sum + 1e-20f) * 1.7f;
	}
	ok(ids, "N9: 16 of 896 by counting who comes first, many of them equal");
	ok(differs, "N9: another order of the sum would change bits");
	ok(weights, "N9: the weights bit by bit");
	/* scores so small that 1e-20 counts */
	c.experts = c.chosen = 1;
	c.routed_scale = 1;
	k3_choose(&c, (float[]){ 1e-20f }, (float[]){ 0 }, id, weight);
	ok(near(weight[0], .5, 1e-6), "N9: 1e-20 is added to the sum");
}

/* ---- a whole layer ---- */

static void module(struct k3_worker *w, struct rig *rig, const struct k3_segment *s, uint64_t n)
{
	(void)s;
	k3_route_tile(w, &rig->pass, 0, rig->token, 0, n, true);
	if (!k3_barrier(w))
		return;
	k3_experts(w, &rig->pass, 0, NULL);
	if (k3_barrier(w))
		k3_latent_out(w, &rig->pass, 0, n);
}

static void dense_module(struct k3_worker *w, struct rig *rig, const struct k3_segment *s,
			 uint64_t n)
{
	(void)s;
	k3_dense(w, &rig->pass, 0, n);
}

/* A bench with random weights and inputs; the same on each call. */
static void bench(const struct k3_config *c, unsigned threads, uint64_t block_rows)
{
	static const enum k3_role all[] = {
		K3_ROUTER, K3_LATENT_DOWN, K3_LATENT_UP, K3_SHARED_GATE, K3_SHARED_UP,
		K3_SHARED_DOWN, K3_DENSE_GATE, K3_DENSE_UP, K3_DENSE_DOWN,
	};
	struct rng fixed = { 5 };

	if (r)
		rig_free(r);
	r = rig_new(c, K3_KDA, TOKENS, threads);
	r->block_rows = block_rows;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		put_random(r, all[i], &fixed, .3);
	put_random(r, K3_ROUTER_BIAS, &fixed, .5);
	for (uint64_t i = 0; i < LATENT; i++)
		put(r, K3_LATENT_NORM, i, 1 + .2 * rng_normal(&fixed));
	for (enum k3_role role = K3_W1; role < K3_ROLES; role++)
		put_random(r, role, &fixed, 1);
	for (uint64_t i = 0; i < TOKENS * HIDDEN; i++)
		r->tile.x.at[i / HIDDEN][i % HIDDEN] = (float)rng_normal(&fixed);
}

static void run(void)
{
	need(rig_run(r, 0, TOKENS, module), &r->err);
}

/* y = W x in double, W a tensor of the trunk with that many columns. */
static void times(enum k3_role role, const double *x, uint64_t rows, uint64_t cols, double *y)
{
	for (uint64_t i = 0; i < rows; i++) {
		y[i] = 0;
		for (uint64_t j = 0; j < cols; j++)
			y[i] += (double)get(r, role, i * cols + j) * x[j];
	}
}

static void mlp(enum k3_role gate, const double *x, uint64_t width, double *out)
{
	double a[DENSE + SHARED * WIDTH], b[DENSE + SHARED * WIDTH];

	times(gate, x, width, HIDDEN, a);
	times(gate + 1, x, width, HIDDEN, b);
	for (uint64_t i = 0; i < width; i++)
		a[i] = situ(a[i], b[i]);
	times(gate + 2, a, HIDDEN, width, out);
}

/* Model page 2.6 for token t, given the experts that were chosen. */
static void expected(uint64_t t, double *out)
{
	const struct k3_config *c = &r->config;
	const uint32_t *id = r->routed.expert + t * c->chosen;
	double x[HIDDEN], z[LATENT], acc[LATENT] = { 0 }, score[EXPERTS], up[HIDDEN], sum = 1e-20;
	double square = 0;

	for (int i = 0; i < HIDDEN; i++)
		x[i] = r->tile.x.at[t][i];
	times(K3_ROUTER, x, EXPERTS, HIDDEN, score);
	times(K3_LATENT_DOWN, x, LATENT, HIDDEN, z);
	for (uint32_t k = 0; k < c->chosen; k++)
		sum += sig(score[id[k]]);
	for (uint32_t k = 0; k < c->chosen; k++) {
		double h[WIDTH], w = sig(score[id[k]]) / sum * c->routed_scale;

		for (uint64_t i = 0; i < WIDTH; i++) {
			double a = 0, b = 0;

			for (uint64_t j = 0; j < LATENT; j++) {
				a += weight(r, K3_W1, id[k], i, j) * z[j];
				b += weight(r, K3_W3, id[k], i, j) * z[j];
			}
			h[i] = situ(a, b);
		}
		for (uint64_t i = 0; i < LATENT; i++)
			for (uint64_t j = 0; j < WIDTH; j++)
				acc[i] += w * weight(r, K3_W2, id[k], i, j) * h[j];
	}
	for (int i = 0; i < LATENT; i++)
		square += acc[i] * acc[i] / LATENT;
	for (uint64_t i = 0; i < LATENT; i++)
		acc[i] = get(r, K3_LATENT_NORM, i) * acc[i] / sqrt(square + c->eps);
	times(K3_LATENT_UP, acc, HIDDEN, LATENT, up);
	mlp(K3_SHARED_GATE, x, SHARED * WIDTH, out);
	for (int i = 0; i < HIDDEN; i++)
		out[i] += up[i];
}

/* The largest difference from the double computation, over all tokens. */
static double worst(void)
{
	double want[HIDDEN], most = 0;

	for (uint64_t t = 0; t < TOKENS; t++) {
		expected(t, want);
		for (int i = 0; i < HIDDEN; i++)
			most = fmax(most, fabs(r->shared.at[t][i] - want[i]));
	}
	return most;
}

static void experts(void)
{
	static float plain[TOKENS][HIDDEN];
	bool different = false, close = true, unscaled = true;

	bench(&config, 2, 3);
	run();
	ok(worst() < 3e-4, "T18 to T21: a layer with experts, against double: %.2g", worst());
	for (uint64_t t = 0; t < TOKENS; t++) {
		memcpy(plain[t], r->shared.at[t], sizeof plain[t]);
		different |= memcmp(r->routed.expert, r->routed.expert + t * CHOSEN,
				    CHOSEN * sizeof(uint32_t));
	}
	ok(different, "tokens chose different experts");
	/* all experts 2^10 times as large: the norm on their sum takes it off again */
	for (uint64_t i = 0; i < EXPERTS * r->bytes[K3_W2_SCALE]; i++)
		r->data[K3_W2_SCALE][i] += 10;
	run();
	for (uint64_t t = 0; t < TOKENS; t++)
		for (int i = 0; i < HIDDEN; i++)
			close &= fabsf(plain[t][i] - r->shared.at[t][i]) < 1e-3f;
	ok(close, "T19: experts 1024 times as large change nearly nothing");
	/* and 2^20 times as small: there the norm's eps tells where it stands */
	for (uint64_t i = 0; i < EXPERTS * r->bytes[K3_W2_SCALE]; i++)
		r->data[K3_W2_SCALE][i] -= 20;
	run();
	for (uint64_t t = 0; t < TOKENS; t++)
		unscaled &= fabsf(plain[t][0] - r->shared.at[t][0]) > 1e-6f;
	ok(worst() < 3e-4 && unscaled, "T19: one norm, on the weighted sum, before up_proj");
}

static void shared_alone(void)
{
	double x[HIDDEN], want[HIDDEN], most = 0;

	bench(&config, 2, 3);
	put_all(r, K3_LATENT_UP, 0);
	run();
	for (uint64_t t = 0; t < TOKENS; t++) {
		for (int i = 0; i < HIDDEN; i++)
			x[i] = r->tile.x.at[t][i];
		mlp(K3_SHARED_GATE, x, SHARED * WIDTH, want);
		for (int i = 0; i < HIDDEN; i++)
			most = fmax(most, fabs(r->shared.at[t][i] - want[i]));
	}
	ok(most < 1e-4, "T20: the shared expert alone: once, unweighted, on the full width");
}

static void dense(void)
{
	double x[HIDDEN], want[HIDDEN], most = 0;
	struct k3_config c = config;

	c.dense_layers = 1;
	bench(&c, 2, 3);
	need(rig_run(r, 0, TOKENS, dense_module), &r->err);
	for (uint64_t t = 0; t < TOKENS; t++) {
		for (int i = 0; i < HIDDEN; i++)
			x[i] = r->tile.x.at[t][i];
		mlp(K3_DENSE_GATE, x, DENSE, want);
		for (int i = 0; i < HIDDEN; i++)
			most = fmax(most, fabs(r->tile.y.at[t][i] - want[i]));
	}
	ok(most < 1e-4, "T22: a dense layer, against double: %.2g", most);
}

/* T18: scores are those of the full width in single precision. */
static void near_tie(void)
{
	struct k3_config c = config;

	c.chosen = 1;
	bench(&c, 1, 3);
	put_all(r, K3_ROUTER, 0);
	put_all(r, K3_ROUTER_BIAS, 0);
	put_all(r, K3_LATENT_DOWN, 0);
	for (uint64_t e = 0; e < EXPERTS; e++)
		put(r, K3_ROUTER, e * HIDDEN, 1);
	put(r, K3_ROUTER, 7 * HIDDEN + 1, 0x1p-13);
	for (uint64_t t = 0; t < TOKENS; t++)
		r->tile.x.at[t][0] = r->tile.x.at[t][1] = 1;
	run();
	ok(r->routed.expert[0] == 7, "T18: a lead of 1.2e-4 in a router's product decides");
	ok(r->tile.router.at[0][7] > r->tile.router.at[0][6], "T18: so the scores tell them apart");
}

/* T37: equal rows and bias at the last place that is chosen, for any number of threads. */
static void equal_experts(void)
{
	for (unsigned threads = 1; threads <= 3; threads++) {
		struct k3_config c = config;

		c.chosen = 3;
		bench(&c, threads, 1);
		for (uint64_t e = 2; e < EXPERTS; e++) {
			put(r, K3_ROUTER_BIAS, e, e == 9 || e == 10 ? 2 : 1);
			for (uint64_t i = 0; i < HIDDEN; i++)
				put(r, K3_ROUTER, e * HIDDEN + i, 0);
		}
		put(r, K3_ROUTER_BIAS, 0, -2);
		put(r, K3_ROUTER_BIAS, 1, -2);
		run();
		bool all = true;
		for (uint64_t t = 0; t < TOKENS; t++)
			all &= r->routed.expert[3 * t] == 2 && r->routed.expert[3 * t + 1] == 9 &&
			       r->routed.expert[3 * t + 2] == 10;
		ok(all, "T37: the lowest of eight equal experts, %u threads", threads);
	}
}

/* ---- bits ---- */

static float dot(const float *a, const float *b, uint64_t n)
{
	float lane[16] = { 0 };

	for (uint64_t i = 0; i < n; i++)
		lane[i % 16] = fmaf(a[i], b[i], lane[i % 16]);
	for (int half = 8; half; half /= 2)
		for (int j = 0; j < half; j++)
			lane[j] += lane[j + half];
	return lane[0];
}

/* The row of an expert's matrix, widened. */
static const float *row(enum k3_role role, uint32_t e, uint64_t i, uint64_t cols)
{
	static float w[LATENT];

	for (uint64_t j = 0; j < cols; j++)
		w[j] = (float)weight(r, role, e, i, j);
	return w;
}

static const float *trunk_row(enum k3_role role, uint64_t i, uint64_t cols)
{
	static float w[DENSE + HIDDEN + SHARED * WIDTH];

	for (uint64_t j = 0; j < cols; j++)
		w[j] = get(r, role, i * cols + j);
	return w;
}

/* N9 and N11 for one token, given experts, weights and the shared expert's result. */
static void literal(uint64_t t, float *out)
{
	float z[LATENT], acc[LATENT] = { 0 }, h[WIDTH], s[SHARED * WIDTH], inv;
	const float *x = r->tile.x.at[t];

	for (uint64_t i = 0; i < LATENT; i++)
		z[i] = dot(trunk_row(K3_LATENT_DOWN, i, HIDDEN), x, HIDDEN);
	for (uint32_t k = 0; k < CHOSEN; k++) {
		uint32_t e = r->routed.expert[t * CHOSEN + k];

		for (uint64_t i = 0; i < WIDTH; i++)
			h[i] = kernel(dot(row(K3_W1, e, i, LATENT), z, LATENT),
				      dot(row(K3_W3, e, i, LATENT), z, LATENT));
		for (uint64_t i = 0; i < LATENT; i++)
			acc[i] = fmaf(r->routed.weight[t * CHOSEN + k],
				      dot(row(K3_W2, e, i, WIDTH), h, WIDTH), acc[i]);
	}
	inv = 1.0f / sqrtf(dot(acc, acc, LATENT) / (float)LATENT + 1e-5f);
	for (uint64_t i = 0; i < LATENT; i++)
		acc[i] = get(r, K3_LATENT_NORM, i) * (acc[i] * inv);
	for (uint64_t i = 0; i < SHARED * WIDTH; i++) {
		float a = dot(trunk_row(K3_SHARED_GATE, i, HIDDEN), x, HIDDEN);

		s[i] = kernel(a, dot(trunk_row(K3_SHARED_UP, i, HIDDEN), x, HIDDEN));
	}
	for (uint64_t i = 0; i < HIDDEN; i++) {
		float shared = dot(trunk_row(K3_SHARED_DOWN, i, SHARED * WIDTH), s, SHARED * WIDTH);

		out[i] = dot(trunk_row(K3_LATENT_UP, i, LATENT), acc, LATENT) + shared;
	}
}

static void bits(void)
{
	static const unsigned threads[] = { 1, 2, 3, 16 };
	static const uint64_t rows[] = { 1, 7, 64 };
	const struct k3_kernels *set;
	static float want[TOKENS][HIDDEN];
	bool ascending = true;

	bench(&config, 1, 5);
	run();
	for (uint64_t t = 0; t < TOKENS; t++)
		literal(t, want[t]);
	for (int i = 0; i < TOKENS * CHOSEN; i++)
		ascending &= i % CHOSEN == 0 || r->routed.expert[i - 1] < r->routed.expert[i];
	ok(ascending, "N9: experts come by ascending id");
	for (int k = 0; k < 4; k++)
		for (int b = 0; b < 3; b++) {
			bool all = true;

			bench(&config, threads[k], rows[b]);
			run();
			for (uint64_t t = 0; t < TOKENS; t++)
				all &= !memcmp(r->shared.at[t], want[t], sizeof want[t]);
			ok(all, "N9, T35: bit by bit with %u threads and blocks of %d rows",
			   threads[k], (int)rows[b]);
		}
	for (unsigned i = 0; (set = k3_kernels_at(i)); i++) {
		bool all = true;

		bench(&config, 2, 5);
		r->pass.math = set;
		run();
		for (uint64_t t = 0; t < TOKENS; t++)
			all &= !memcmp(r->shared.at[t], want[t], sizeof want[t]);
		ok(all, "N9, T35: bit by bit, %s", set->name);
	}
}

/* T38: wherever a read fails, the run does. */
static void failing_reads(void)
{
	long blocks = 0;
	bool all = true;

	bench(&config, 3, 16);
	for (;; blocks++) {
		r->fail_after = blocks;
		int rc = rig_run(r, 0, TOKENS, module);
		if (!rc)
			break;
		all &= rc == K3_EIO && !strcmp(r->err.text, "the disk is gone");
	}
	ok(all && blocks > 30, "T38: each of %ld reads that fails ends the run", blocks);
}

static void not_finite(void)
{
	bench(&config, 2, 3);
	r->tile.x.at[4][0] = NAN;
	ok(rig_run(r, 0, TOKENS, module) == K3_EDATA && strstr(r->err.text, "position 4"),
	   "N14: %s", r->err.text);
}

int main(void)
{
	for (unsigned i = 0; (math = k3_kernels_at(i)); i++) {
		situ_values();
		situ_bits();
	}
	math = k3_kernels();
	choose_by_hand();
	choose_bits();
	experts();
	shared_alone();
	dense();
	near_tie();
	equal_experts();
	bits();
	failing_reads();
	not_finite();
	rig_free(r);
	return tap_done();
}
