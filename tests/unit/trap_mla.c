/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_mla.c - multi-head latent attention: traps T11 to T15 by hand values, and the order of
 * its operations (N8) bit by bit against a literal version with fmaf of libm.
 *
 * The bench has a residual width of one value for each of heads * v_dim outputs, and an
 * output projection that is the identity, so that y shows what the heads gave.
 */
#include "math/elementary.h"
#include "model/mla.h"
#include "model/norm.h"
#include "rig.h"

enum {
	HEADS = 3, NOPE = 3, ROPE = 1, VALUE = 2, RANK = 2, Q_RANK = 2,
	WIDTH = RANK + ROPE, HIDDEN = HEADS * VALUE, TOKENS = 6, ROWS = NOPE + VALUE
};

static const struct k3_config small = {
	.hidden = HIDDEN, .vocab = 16, .eps = 1e-5f, .situ_beta = 4, .situ_linear_beta = 25,
	.dense_layers = 1, .dense_width = 8, .residual_block = 4, .mla_heads = HEADS,
	.q_rank = Q_RANK, .kv_rank = RANK, .nope = NOPE, .rope = ROPE, .v_dim = VALUE,
	.kda_heads = 1, .kda_dim = 4, .conv = 4, .decay_bound = -5, .experts = 2, .chosen = 1,
	.shared = 1, .expert_width = 32, .latent = 32, .routed_scale = 1,
	.max_positions = 1 << 20,
};

static struct rig *r;

static void module(struct k3_worker *w, struct rig *rig, const struct k3_segment *s, uint64_t n)
{
	k3_mla(w, &rig->pass, 0, s, 1, n);
}

/* Tensor element [row][col]. */
static void at(enum k3_role role, uint64_t row, uint64_t col, double value)
{
	struct k3_tensor t;

	k3_role_describe(&r->config, role, 0, 0, &t);
	put(r, role, row * t.cols + col, value);
}

/* A bench of that config whose gates let a half through and whose norms weigh 1. */
static void bench(const struct k3_config *c, uint64_t tokens, unsigned threads)
{
	if (r)
		rig_free(r);
	r = rig_new(c, K3_MLA, tokens, threads);
	for (uint64_t i = 0; i < c->hidden; i++)
		at(K3_OUT, i, i, 1);
	put_all(r, K3_MLA_QA_NORM, 1);
	put_all(r, K3_MLA_KVA_NORM, 1);
}

static void run(uint64_t position, uint64_t n)
{
	need(rig_run(r, position, n, module), &r->err);
}

/*
 * One head for one token: its rows of kv_b (keys, then values) and its query, nope
 * and rope values.  scratch: kv_rank + position + 1 + K3_PAGE floats.
 */
static void one_head(const struct k3_pass *p, const unsigned char *rows, const float *q,
		     float *const *page, uint64_t position, float *scratch, float *out)
{
	const struct k3_config *c = p->config;
	float *latent = scratch;
	const float *rope = q + c->nope, *context = latent;

	k3_mla_absorb(p, rows, q, latent);
	k3_mla_attend(p, &latent, &rope, 1, page, position, scratch + c->kv_rank);
	p->math->rows_bf16(rows + (uint64_t)c->nope * c->kv_rank * 2, c->v_dim, c->kv_rank,
			   &context, 1, &out);
}

/* One head's block of kv_b: garbage for keys, the identity for values. */
static void identity_values(unsigned char *block, float keys)
{
	for (int i = 0; i < ROWS * RANK; i++) {
		float f = i < NOPE * RANK ? keys : (i - NOPE * RANK) % (RANK + 1) == 0;
		uint32_t u;

		memcpy(&u, &f, 4);
		block[2 * i] = (unsigned char)(u >> 16);
		block[2 * i + 1] = (unsigned char)(u >> 24);
	}
}

/*
 * Rope keys 0 and 2 ln 3 under a rope query of 1 and a scale of 1/2 give scores 0
 * and ln 3: weights 1/4 and 3/4 of the latents (1, 0) and (0, 1).
 */
static void rope_slots(void)
{
	static float latents[K3_PAGE * WIDTH] = { 1, 0, 0, 0, 1, 0 };
	float *page = latents, scratch[RANK + 4 + K3_PAGE], out[VALUE];
	float q[NOPE + ROPE] = { 0, 0, 0, 1 };
	unsigned char block[ROWS * RANK * 2];

	latents[WIDTH + RANK] = (float)(2 * log(3));
	for (int i = 2 * WIDTH; i < K3_PAGE * WIDTH; i++)
		latents[i] = NAN;
	identity_values(block, 0);
	one_head(&r->pass, block, q, &page, 1, scratch, out);
	ok(near(out[0], .25, 1e-6) && near(out[1], .75, 1e-6),
	   "T11: the rope slots attend, unrotated, under the scale of nope + rope");
	one_head(&r->pass, block, q, &page, 0, scratch, out);
	ok(out[0] == 1 && out[1] == 0, "T11: position 0 sees itself alone");

	/* nope keys 1 everywhere: query (1, 0, 0) meets lat_0 + lat_1, which is 1 at both */
	identity_values(block, 1);
	q[0] = 5;
	one_head(&r->pass, block, q, &page, 1, scratch, out);
	ok(near(out[0], .25, 1e-6) && near(out[1], .75, 1e-6),
	   "T11: what is the same for all positions changes nothing");
}

/* No positions: earlier latents in another order give the same attention. */
static void permutation(void)
{
	static float one[K3_PAGE * WIDTH], two[K3_PAGE * WIDTH];
	float *page[2] = { one, two }, scratch[RANK + 20 + K3_PAGE], out[2][VALUE];
	float q[NOPE + ROPE] = { .3f, -.7f, .2f, 1.1f };
	unsigned char block[ROWS * RANK * 2];
	struct rng g = { 3 };
	const int n = 16;

	for (int i = 0; i < n * WIDTH; i++)
		one[i] = (float)rng_normal(&g);
	for (int s = 0; s < n; s++)
		memcpy(two + (s == n - 1 ? s : (s * 7 + 3) % (n - 1)) * WIDTH, one + s * WIDTH,
		       WIDTH * sizeof(float));
	identity_values(block, .5f);
	for (int i = 0; i < 2; i++)
		one_head(&r->pass, block, q, page + i, (uint64_t)n - 1, scratch, out[i]);
	ok(fabsf(out[0][0] - out[1][0]) < 1e-6f && fabsf(out[0][1] - out[1][1]) < 1e-6f,
	   "T11: the order of earlier tokens does not matter");
}

/* x = (1, 0, ...): latent (3, 4) and a rope key, through kv_a and its norm. */
static void latent_norm(void)
{
	float plain[RANK], *page = r->slice.page[0];

	r->tile.x.at[0][0] = 1;
	at(K3_MLA_KVA, 0, 0, 3);
	at(K3_MLA_KVA, 1, 0, 4);
	at(K3_MLA_KVA, 2, 0, 5);
	run(0, 1);
	memcpy(plain, page, sizeof plain);
	ok(near(page[0], 3 / sqrt(12.5), 1e-6) && near(page[1], 4 / sqrt(12.5), 1e-6),
	   "T12: the norm is that of the latent alone");
	ok(page[RANK] == 5, "T12: the rope key is kept as it is");
	at(K3_MLA_KVA, 2, 0, 1e6);
	run(0, 1);
	ok(!memcmp(plain, page, sizeof plain), "T12: a huge rope key leaves the latent alone");
	at(K3_MLA_KVA, 2, 0, 0);
}

/* Both latent norms have an eps of 1e-6, which shows where the latent is small. */
static void latent_eps(void)
{
	static const double size[] = { 1e-3, 1e-4, 1e-2 };
	const float *page = r->slice.page[0], *qa = r->tile.qa.at[0];

	ok(K3_LATENT_EPS == 1e-6f, "T13: the eps of the latent norms is the float 1e-6");
	r->config.eps = .5f;
	for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
		double s = size[i];

		r->tile.x.at[0][0] = (float)s;
		r->tile.x.at[0][1] = 0;
		at(K3_MLA_KVA, 0, 0, 1);
		at(K3_MLA_KVA, 1, 0, -1);
		at(K3_MLA_QA, 0, 0, 1);
		at(K3_MLA_QA, 1, 0, 1);
		run(0, 1);
		ok(near(page[0], s / sqrt(s * s + 1e-6), 1e-5) && page[1] == -page[0],
		   "T13: the key latent at rms %g", s);
		ok(near(qa[0], s / sqrt(s * s + 1e-6), 1e-5), "T13: the query latent at rms %g", s);
	}
	r->config.eps = 1e-5f;
}

/* kv_b and q_b have their rows by head: keys of a head, then its values. */
static void heads_interleaved(void)
{
	const float *y = r->tile.y.at[0];

	bench(&small, TOKENS, 3);
	/* two tokens: latents (1, 0) and (0, 1) before their norm, which makes them sqrt 2 */
	r->tile.x.at[0][0] = r->tile.x.at[1][1] = 1;
	at(K3_MLA_KVA, 0, 0, 1);
	at(K3_MLA_KVA, 1, 1, 1);
	at(K3_MLA_KVA, 2, 1, 2.1875);
	for (uint64_t h = 0; h < HEADS; h++)
		for (uint64_t d = 0; d < VALUE; d++)
			at(K3_MLA_KVB, h * ROWS + NOPE + d, d, pow(4, (double)h));
	run(0, 1);
	y = r->tile.y.at[0];
	for (uint64_t h = 0; h < HEADS; h++)
		ok(near(y[h * VALUE], .5 * pow(4, (double)h) * sqrt(2), 1e-5) &&
		   y[h * VALUE + 1] == 0,
		   "T14: head %d takes its own rows of kv_b", (int)h);
	/* queries: latent (sqrt 2, 0) of token 1; only head 1 looks at the rope slot */
	at(K3_MLA_QA, 0, 1, 1);
	at(K3_MLA_QB, 1 * (NOPE + ROPE) + NOPE, 0, 1);
	run(0, 2);
	y = r->tile.y.at[1];
	double w = exp(2.1875 * sqrt(2) / 2);
	ok(near(y[0], .25 * sqrt(2), 1e-5) && near(y[1], .25 * sqrt(2), 1e-5) &&
	   near(y[4], 4 * sqrt(2), 1e-5), "T14: heads without a query see both alike");
	ok(near(y[2], 2 * sqrt(2) / (1 + w), 1e-5) && near(y[3], 2 * sqrt(2) * w / (1 + w), 1e-5),
	   "T14: head 1 takes its own rows of q_b");
}

/* With gate weights of zero exactly half comes out; a gate acts on each value by itself. */
static void gates(void)
{
	const float *y = r->tile.y.at[0];
	float half[HIDDEN];

	bench(&small, TOKENS, 1);
	r->tile.x.at[0][0] = 1;
	at(K3_MLA_KVA, 0, 0, 2);
	at(K3_MLA_KVA, 1, 0, 2);
	for (uint64_t h = 0; h < HEADS; h++)
		for (uint64_t d = 0; d < VALUE; d++)
			at(K3_MLA_KVB, h * ROWS + NOPE + d, d, 1);
	run(0, 1);
	y = r->tile.y.at[0];
	ok(y[0] == .5f * r->slice.page[0][0] && y[5] == .5f * r->slice.page[0][1],
	   "T15: a gate of zero lets exactly half through");
	memcpy(half, y, sizeof half);
	at(K3_GATE, 3, 0, 1.5);
	/* an output that mixes two values tells before from after */
	at(K3_OUT, 0, 3, 8);
	run(0, 1);
	ok(near(y[3], 2 * half[3] / (1 + exp(-1.5)), 1e-6) && y[4] == half[4],
	   "T15: a gate belongs to one value");
	ok(near(y[0], half[0] + 8 * y[3], 1e-6), "T15: it comes before the output projection");
}

/* ---- N8, literally ---- */

enum { L_RANK = 20, L_NOPE = 5, L_ROPE = 18, L_VALUE = 3, L_TOKENS = 150,
	L_WIDTH = L_RANK + L_ROPE };

static float fold(float *lane)
{
	for (int half = 8; half; half /= 2)
		for (int j = 0; j < half; j++)
			lane[j] += lane[j + half];
	return lane[0];
}

static float dot(const float *a, const float *b, int n)
{
	float lane[16] = { 0 };

	for (int i = 0; i < n; i++)
		lane[i % 16] = fmaf(a[i], b[i], lane[i % 16]);
	return fold(lane);
}

static void literal_head(const float w[][L_RANK], const float *q, const float lat[][L_WIDTH],
			 int n, float *out)
{
	float qa[L_RANK] = { 0 }, ctx[L_RANK] = { 0 }, e[L_TOKENS], m, lane[16] = { 0 }, sum;
	float scale = (float)(1 / sqrt((double)(L_NOPE + L_ROPE)));

	for (int i = 0; i < L_NOPE; i++)
		for (int c = 0; c < L_RANK; c++)
			qa[c] = fmaf(q[i], w[i][c], qa[c]);
	for (int s = 0; s < n; s++)
		e[s] = (dot(qa, lat[s], L_RANK) + dot(q + L_NOPE, lat[s] + L_RANK, L_ROPE)) * scale;
	m = e[0];
	for (int s = 1; s < n; s++)
		m = e[s] > m ? e[s] : m;
	for (int s = 0; s < n; s++) {
		e[s] = k3_exp(e[s] - m);
		lane[s % 16] += e[s];
	}
	sum = fold(lane);
	for (int s = 0; s < n; s++)
		for (int c = 0; c < L_RANK; c++)
			ctx[c] = fmaf(e[s], lat[s][c], ctx[c]);
	for (int c = 0; c < L_RANK; c++)
		ctx[c] = ctx[c] / sum;
	for (int i = 0; i < L_VALUE; i++)
		out[i] = dot(w[L_NOPE + i], ctx, L_RANK);
}

static void literal_bits(const struct k3_kernels *math)
{
	static float lat[L_TOKENS][L_WIDTH], pages[3][K3_PAGE * L_WIDTH];
	static float scratch[L_RANK + L_TOKENS + K3_PAGE];
	float *page[3] = { pages[0], pages[1], pages[2] }, q[L_NOPE + L_ROPE];
	float got[L_VALUE], want[L_VALUE], w[L_NOPE + L_VALUE][L_RANK];
	unsigned char block[sizeof w / 2];
	struct k3_config c = small;
	struct k3_pass pass = { .config = &c, .math = math };
	struct rng g = { 11 };
	bool all = true;

	c.kv_rank = L_RANK;
	c.nope = L_NOPE;
	c.rope = L_ROPE;
	c.v_dim = L_VALUE;
	for (int s = 0; s < L_TOKENS; s++) {
		for (int i = 0; i < L_WIDTH; i++)
			lat[s][i] = (float)rng_normal(&g);
		memcpy(page[s / K3_PAGE] + s % K3_PAGE * L_WIDTH, lat[s], sizeof lat[s]);
	}
	for (int n = 1; n <= L_TOKENS; n++) {
		for (int i = 0; i < (L_NOPE + L_VALUE) * L_RANK; i++) {
			float f = (float)rng_normal(&g);
			uint32_t u;

			memcpy(&u, &f, 4);
			u &= 0xffff0000;
			memcpy(&w[i / L_RANK][i % L_RANK], &u, 4);
			block[2 * i] = (unsigned char)(u >> 16);
			block[2 * i + 1] = (unsigned char)(u >> 24);
		}
		for (int i = 0; i < L_NOPE + L_ROPE; i++)
			q[i] = (float)rng_normal(&g);
		one_head(&pass, block, q, page, (uint64_t)n - 1, scratch, got);
		literal_head((const float (*)[L_RANK])w, q, (const float (*)[L_WIDTH])lat, n, want);
		all &= !memcmp(got, want, sizeof got);
	}
	ok(all, "N8: bit by bit, 1 to 150 positions, %s", math->name);
}

/* Heads that go over the pages together give the bits of each by itself. */
static void groups(const struct k3_kernels *math)
{
	enum { MOST = K3_MLA_GROUP };
	static float pages[3][K3_PAGE * L_WIDTH], scratch[MOST * (L_TOKENS + K3_PAGE)];
	static const uint64_t positions[] = { 0, 1, 62, 63, 64, 127, 128, 149 };
	float *page[3] = { pages[0], pages[1], pages[2] }, *latents[MOST];
	float alone[MOST][L_RANK], together[MOST][L_RANK], q[MOST][L_ROPE];
	const float *rope[MOST];
	struct k3_config c = small;
	struct k3_pass pass = { .config = &c, .math = math };
	struct rng g = { 12 };
	bool all = true;

	c.kv_rank = L_RANK;
	c.nope = L_NOPE;
	c.rope = L_ROPE;
	for (int i = 0; i < 3 * K3_PAGE * L_WIDTH; i++)
		pages[i / (K3_PAGE * L_WIDTH)][i % (K3_PAGE * L_WIDTH)] = (float)rng_normal(&g);
	for (uint64_t heads = 1; heads <= MOST; heads++)
		for (int k = 0; k < 8; k++) {
			for (uint64_t v = 0; v < heads; v++) {
				for (int i = 0; i < L_RANK + L_ROPE; i++)
					*(i < L_RANK ? &alone[v][i] : &q[v][i - L_RANK]) =
						(float)rng_normal(&g);
				memcpy(together[v], alone[v], sizeof alone[v]);
				rope[v] = q[v];
				latents[v] = alone[v];
				k3_mla_attend(&pass, latents + v, rope + v, 1, page, positions[k],
					      scratch);
				latents[v] = together[v];
			}
			k3_mla_attend(&pass, latents, rope, heads, page, positions[k], scratch);
			all &= !memcmp(alone, together, heads * sizeof alone[0]);
		}
	ok(all, "N8: up to %d heads together, %s", MOST, math->name);
}

/* Scores of several hundred: the largest is taken off before exp. */
static void large_scores(void)
{
	static float latents[K3_PAGE * WIDTH] = { 1, 0, 2000, 0, 1, 2004 };
	float *page = latents, scratch[RANK + 4 + K3_PAGE], out[VALUE];
	float q[NOPE + ROPE] = { 0, 0, 0, 1 };
	unsigned char block[ROWS * RANK * 2];

	identity_values(block, 0);
	one_head(&r->pass, block, q, &page, 1, scratch, out);
	/* scores 1000 and 1002 */
	ok(near(out[0], 1 / (1 + exp(2)), 1e-5) && near(out[1], 1 / (1 + exp(-2)), 1e-5),
	   "scores around 1000 are no trouble");
}

int main(void)
{
	bench(&small, TOKENS, 2);
	rope_slots();
	permutation();
	large_scores();
	latent_norm();
	latent_eps();
	heads_interleaved();
	gates();
	for (unsigned i = 0; k3_kernels_at(i); i++) {
		literal_bits(k3_kernels_at(i));
		groups(k3_kernels_at(i));
	}
	rig_free(r);
	return tap_done();
}
