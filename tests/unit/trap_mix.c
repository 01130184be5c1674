/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_mix.c - norms, the residual mix and the running sum: traps T25, T26, T29, T42 by hand
 * values, and the order of operations (N4, N10) bit by bit against a literal version with
 * fmaf of libm.
 */
#include "math/elementary.h"
#include "model/norm.h"
#include "rig.h"

enum { HIDDEN = 37, SOURCES = 5 };

static const struct k3_config config = {
	.hidden = HIDDEN, .vocab = 16, .eps = 1e-5f, .situ_beta = 4, .situ_linear_beta = 25,
	.dense_layers = 1, .dense_width = 8, .residual_block = 4, .mla_heads = 1, .q_rank = 4,
	.kv_rank = 4, .nope = 4, .rope = 4, .v_dim = 4, .kda_heads = 1, .kda_dim = 4, .conv = 4,
	.decay_bound = -5, .experts = 2, .chosen = 1, .shared = 1, .expert_width = 32,
	.latent = 32, .routed_scale = 1, .max_positions = 1 << 20,
};

static const struct k3_kernels *math;

/*
 * Sources (2, 0) and (0, 4) with an eps of 2: the first has mean square 2, so 1/sqrt(2 + 2)
 * makes its key (1, 0).  A fold of (ln 3, 0) scores ln 3 and 0: weights 3/4 and 1/4.
 */
static void mix_by_hand(void)
{
	static const float stream[] = { 2, 0, 0, 4, 0, 0 };
	float fold[2] = { (float)log(3), 0 }, scratch[2 + 3], out[2];

	k3_mix(math, stream, 2, 2, fold, 2, scratch, out);
	ok(near(out[0], 1.5, 1e-6) && near(out[1], 1, 1e-6),
	   "T25: keys are normed, the values averaged are raw");
	ok(near(scratch[2], .75, 1e-6) && near(scratch[3], .25, 1e-6),
	   "the weights stay in scratch");
	k3_mix(math, stream, 3, 2, fold, 2, scratch, out);
	/* a source of zeros has the score 0, too: 3/5, 1/5, 1/5 */
	ok(near(out[0], 1.2, 1e-6) && near(out[1], .8, 1e-6), "T25: every source takes part");
	k3_mix(math, stream, 1, 2, fold, 2, scratch, out);
	ok(out[0] == 2 && out[1] == 0, "a single source is itself");
	fold[0] = 1000;
	k3_mix(math, stream, 2, 2, fold, 2, scratch, out);
	ok(out[0] == 2 && out[1] == 0, "a score of 1000 takes all");
}

/* The fold is the product of both vectors. */
static void fold_product(void)
{
	struct rig *r = rig_new(&config, K3_KDA, 1, 1);
	float fold[HIDDEN], norm[HIDDEN], temp[HIDDEN];
	bool all = true;

	for (uint64_t i = 0; i < HIDDEN; i++) {
		put(r, K3_ATTN_MIX_NORM, i, (double)i);
		put(r, K3_ATTN_MIX_PROJ, i, .5);
		put(r, K3_MLP_MIX_NORM, i, -2);
		put(r, K3_MLP_MIX_PROJ, i, (double)i);
		put(r, K3_OUT_MIX_NORM, i, (double)i);
		put(r, K3_OUT_MIX_PROJ, i, (double)i);
		put(r, K3_FINAL_NORM, i, 7);
		put(r, K3_ATTN_NORM, i, 3);
		put(r, K3_MLP_NORM, i, 4);
	}
	need(k3_vectors_read(&r->config, &r->feed, 0, &r->vectors, &r->err), &r->err);
	need(k3_output_vectors(&r->config, &r->feed, fold, norm, temp, &r->err), &r->err);
	for (int i = 0; i < HIDDEN; i++)
		all &= r->vectors.attn_fold[i] == .5f * (float)i &&
		       r->vectors.mlp_fold[i] == -2 * (float)i && fold[i] == (float)(i * i) &&
		       norm[i] == 7 && r->vectors.attn_norm[i] == 3 && r->vectors.mlp_norm[i] == 4;
	ok(all, "T25: a fold is norm times projection, one for each place");
	rig_free(r);
}

static void sources(void)
{
	static const uint32_t want[] = { 1, 2, 2, 2, 2, 3, 3, 3, 3, 4 };
	struct k3_config c = config;
	bool all = true;

	for (uint32_t i = 0; i < 10; i++)
		all &= k3_config_sources(&c, i) == want[i];
	ok(all, "T26: sources in front of layers 0 to 9 in blocks of 4");
	c.residual_block = 12;
	ok(k3_config_sources(&c, 0) == 1 && k3_config_sources(&c, 12) == 2 &&
	   k3_config_sources(&c, 13) == 3 && k3_config_sources(&c, 93) == 9,
	   "T26: and of the released model: 9 in front of the head");
	c.residual_block = 1;
	ok(k3_config_sources(&c, 7) == 8, "T26: in blocks of 1 every layer leaves one");
}

/* ---- the running sum ---- */

static struct {
	float *residual[2], *y[2];
	bool begin;
	bool fold;
	float *out[2];
} job;

static void add(struct k3_worker *w, struct rig *r, const struct k3_segment *s, uint64_t n)
{
	(void)s;
	k3_add_to_stream(w, &r->pass, 0, r->token, job.residual, 1, job.begin, job.y, n);
}

static void mix(struct k3_worker *w, struct rig *r, const struct k3_segment *s, uint64_t n)
{
	(void)s;
	k3_mix_and_norm(w, &r->pass, job.residual, job.fold ? 2 : 1,
			job.fold ? r->vectors.attn_fold : NULL, r->vectors.attn_norm, n, job.out);
}

static void running_sum(void)
{
	struct rig *r = rig_new(&config, K3_KDA, 2, 2);
	float stream[2][2 * HIDDEN], y[2][HIDDEN], out[2][HIDDEN];
	bool begun = true, added = true, kept = true;

	for (int i = 0; i < 2 * 2 * HIDDEN; i++)
		stream[i / (2 * HIDDEN)][i % (2 * HIDDEN)] = 5;
	for (int t = 0; t < 2; t++) {
		for (int i = 0; i < HIDDEN; i++)
			y[t][i] = (float)(i + t);
		job.residual[t] = stream[t];
		job.y[t] = y[t];
		job.out[t] = out[t];
	}
	job.begin = true;
	need(rig_run(r, 0, 2, add), &r->err);
	for (int i = 0; i < HIDDEN; i++) {
		begun &= stream[0][HIDDEN + i] == y[0][i] && stream[1][HIDDEN + i] == y[1][i];
		kept &= stream[0][i] == 5 && stream[1][i] == 5;
	}
	ok(begun, "T25: at a boundary the sum begins with the module's output");
	job.begin = false;
	need(rig_run(r, 0, 2, add), &r->err);
	for (int i = 0; i < HIDDEN; i++) {
		added &= stream[1][HIDDEN + i] == 2 * y[1][i];
		kept &= stream[0][i] == 5 && stream[1][i] == 5;
	}
	ok(added, "T28: elsewhere it is added to the sum alone");
	ok(kept, "T25: snapshots stay as they are");

	/* layer 0: no fold, the embedding goes through the norm as it is */
	put_all(r, K3_ATTN_NORM, 2);
	job.fold = false;
	need(rig_run(r, 0, 2, mix), &r->err);
	ok(near(out[0][3], 2 * 5 / sqrt(25 + 1e-5), 1e-6),
	   "T26: layer 0 takes the embedding itself");
	ok(stream[0][3] == 5, "T28: what was normed does not come back into the stream");

	y[1][7] = NAN;
	ok(rig_run(r, 0, 2, add) == K3_EDATA && strstr(r->err.text, "layer 0") &&
	   strstr(r->err.text, "position 1"), "N14: a NaN ends the run: %s", r->err.text);
	y[1][7] = INFINITY;
	ok(rig_run(r, 0, 2, add) == K3_EDATA, "N14: so does an infinity");
	rig_free(r);
}

static void rms(void)
{
	float x[4] = { 1e-3f, -1e-3f, 1e-3f, -1e-3f }, w[4] = { .5f, 1, 0, -2 }, out[4];

	k3_rms(math, x, w, 4, 1e-5f, out);
	/* 1e-3 / sqrt(1e-6 + 1e-5) */
	ok(near(out[1], -0.30151134457776363, 1e-6), "T29: eps is inside the root");
	ok(near(out[0], .5 * 0.30151134457776363, 1e-6) && out[2] == 0 &&
	   near(out[3], 2 * 0.30151134457776363, 1e-6), "T29: the weight is w, not 1 + w");
}

/* ---- literally ---- */

static float dot(const float *a, const float *b, int n)
{
	float lane[16] = { 0 };

	for (int i = 0; i < n; i++)
		lane[i % 16] = fmaf(a[i], b[i], lane[i % 16]);
	for (int half = 8; half; half /= 2)
		for (int j = 0; j < half; j++)
			lane[j] += lane[j + half];
	return lane[0];
}

static float inverse(const float *x, int n, float eps)
{
	return 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
}

/*
 * T42: eps is the float 1e-5, and the root is taken in single precision.  A
 * version in double gives other last bits now and then; the test sees to it that it would.
 */
static void rms_bits(void)
{
	float x[HIDDEN], w[HIDDEN], out[HIDDEN];
	struct rng g = { 5 };
	bool all = true, differs = false;

	for (int round = 0; round < 3000; round++) {
		float size = (float)exp(rng_normal(&g) - 5), inv, other;

		for (int i = 0; i < HIDDEN; i++) {
			x[i] = size * (float)rng_normal(&g);
			w[i] = 1 + .3f * (float)rng_normal(&g);
		}
		inv = inverse(x, HIDDEN, 1e-5f);
		other = (float)(1 / sqrt((double)(dot(x, x, HIDDEN) / (float)HIDDEN) + 1e-5));
		differs |= inv != other;
		k3_rms(math, x, w, HIDDEN, 1e-5f, out);
		for (int i = 0; i < HIDDEN; i++)
			all &= out[i] == w[i] * (x[i] * inv);
	}
	ok(differs, "T42: eps as a double would change bits");
	ok(all, "N4, T42: the norm, bit by bit, %s", math->name);
}

static void mix_bits(void)
{
	static float stream[SOURCES * HIDDEN];
	float fold[HIDDEN], scratch[HIDDEN + SOURCES], out[HIDDEN], want[HIDDEN];
	struct rng g = { 6 };
	bool all = true;

	for (int round = 0; round < 3000; round++) {
		int n = 1 + round % SOURCES;
		float p[SOURCES], key[HIDDEN], m, sum = 0;

		for (int i = 0; i < n * HIDDEN; i++)
			stream[i] = (float)(rng_normal(&g) * exp(rng_normal(&g)));
		for (int i = 0; i < HIDDEN; i++)
			fold[i] = .3f * (float)rng_normal(&g);
		for (int s = 0; s < n; s++) {
			float inv = inverse(stream + s * HIDDEN, HIDDEN, 1e-5f);

			for (int i = 0; i < HIDDEN; i++)
				key[i] = stream[s * HIDDEN + i] * inv;
			p[s] = dot(key, fold, HIDDEN);
		}
		m = p[0];
		for (int s = 1; s < n; s++)
			m = p[s] > m ? p[s] : m;
		for (int s = 0; s < n; s++) {
			p[s] = k3_exp(p[s] - m);
			sum += p[s];
		}
		for (int i = 0; i < HIDDEN; i++) {
			want[i] = 0;
			for (int s = 0; s < n; s++)
				want[i] = fmaf(p[s] / sum, stream[s * HIDDEN + i], want[i]);
		}
		k3_mix(math, stream, (uint32_t)n, HIDDEN, fold, 1e-5f, scratch, out);
		all &= !memcmp(out, want, sizeof out);
	}
	ok(all, "N10: the mix, bit by bit, of 1 to 5 sources, %s", math->name);
}

int main(void)
{
	math = k3_kernels();
	mix_by_hand();
	fold_product();
	sources();
	running_sum();
	rms();
	for (unsigned i = 0; (math = k3_kernels_at(i)); i++) {
		rms_bits();
		mix_bits();
	}
	return tap_done();
}
