/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_kda.c - Kimi Delta Attention: traps T2 to T10 and T36 by hand values, and the order of
 * its operations (N4, N6, N7) bit by bit against a literal version with fmaf of libm.
 *
 * Unless a test says otherwise the short convolutions pass their newest input on, so that q, k
 * and v are the SiLU of what the rows hold.
 */
#include "math/elementary.h"
#include "model/kda.h"
#include "rig.h"

enum { HEADS = 3, DIM = 20, ALL = HEADS * DIM, CONV = 4, TOKENS = 6 };

static struct k3_config config = {
	.hidden = 8, .vocab = 16, .eps = 1e-5f, .situ_beta = 4, .situ_linear_beta = 25,
	.dense_layers = 1, .dense_width = 8, .residual_block = 4, .mla_heads = 1, .q_rank = 4,
	.kv_rank = 4, .nope = 4, .rope = 4, .v_dim = 4, .kda_heads = HEADS, .kda_dim = DIM,
	.conv = CONV, .decay_bound = -5, .experts = 2, .chosen = 1, .shared = 1,
	.expert_width = 32, .latent = 32, .routed_scale = 1, .max_positions = 1 << 20,
};

static struct rig *r;
static struct rng g = { 7 };
static float scratch[K3_KDA_SCRATCH(DIM)];

static double sig(double x)
{
	return 1 / (1 + exp(-x));
}

/* silu(x) = y for y >= 0, by Newton's method. */
static float before_silu(double y)
{
	double x = y > 1 ? y : 2 * y;

	for (int i = 0; i < 60; i++) {
		double s = sig(x);

		x -= (x * s - y) / (s + x * s * (1 - s));
	}
	return (float)x;
}

/* Fresh state; newest input only; no decay; beta 1; norm weights 1; gate open. */
static void reset(void)
{
	uint64_t all = ALL;

	memset(r->slice.kda, 0, all * DIM * sizeof(float));
	memset(r->slice.conv, 0, 3 * (CONV - 1) * all * sizeof(float));
	for (int i = 0; i < 3; i++)
		for (uint64_t k = 0; k < CONV * all; k++)
			r->vectors.conv[i][k] = k >= (CONV - 1) * all;
	for (uint64_t i = 0; i < ALL; i++)
		r->vectors.dt_bias[i] = 0;
	for (uint64_t i = 0; i < DIM; i++) {
		r->vectors.a_log[i] = 0;
		r->vectors.kda_norm[i] = 1;
	}
	for (uint64_t t = 0; t < TOKENS; t++) {
		for (uint64_t i = 0; i < ALL; i++) {
			r->tile.q.at[t][i] = r->tile.k.at[t][i] = r->tile.v.at[t][i] = 0;
			r->tile.z.at[t][i] = -1e4f;
			r->tile.g.at[t][i] = 1e4f;
		}
		for (uint64_t i = 0; i < HEADS; i++)
			r->tile.beta.at[t][i] = 1e4f;
	}
	r->config.eps = 1e-5f;
}

/* The head's tokens from .. from + n - 1, the last ones guesses; the output replaces the gate. */
static void run_guesses(uint32_t head, uint64_t from, uint64_t n, uint64_t drafted)
{
	struct k3_kda_rows rows = {
		.q = r->tile.q.at + from, .k = r->tile.k.at + from, .v = r->tile.v.at + from,
		.gate = r->tile.g.at + from, .z = r->tile.z.at + from,
		.beta = r->tile.beta.at + from, .out = r->tile.g.at + from,
		.drafted = drafted,
	};

	k3_kda_head(&r->pass, head, &rows, n, &r->slice, scratch);
}

static void run(uint32_t head, uint64_t from, uint64_t n)
{
	run_guesses(head, from, n, 0);
}

static float *state(uint32_t head)
{
	return r->slice.kda + head * DIM * DIM;
}

/* The decay that a token with z = `z` in all channels does to a state of ones. */
static float decay(uint32_t head, float z)
{
	for (int i = 0; i < DIM * DIM; i++)
		state(head)[i] = 1;
	for (int i = 0; i < DIM; i++)
		r->tile.z.at[0][head * DIM + (unsigned)i] = z;
	run(head, 0, 1);
	for (int i = 1; i < DIM * DIM; i++)
		if (state(head)[i] != state(head)[0])
			return NAN;
	return state(head)[0];
}

static void decay_per_head(void)
{
	reset();
	r->vectors.a_log[0] = 0;
	r->vectors.a_log[1] = logf(3);
	r->vectors.a_log[2] = logf(9);
	for (int i = HEADS; i < DIM; i++)
		r->vectors.a_log[i] = NAN;
	for (int i = 0; i < ALL; i++)
		r->vectors.dt_bias[i] = .25f;
	for (uint32_t h = 0; h < HEADS; h++)
		ok(near(decay(h, .5f), exp(-5 * sig(pow(3, h) * .75)), 1e-5),
		   "T2: A_log belongs to head %u, its padding to nobody", h);
}

static void decay_form(void)
{
	reset();
	ok(near(decay(0, 0), exp(-2.5), 1e-6), "T3: g is -2.5 at s = 0");
	ok(decay(0, -1e4f) == 1, "T3: g is 0 far below");
	ok(near(decay(0, 1e4f), exp(-5), 1e-6), "T3: g is -5 far above");
	ok(near(decay(0, -1), exp(-5 * sig(-1)), 1e-6), "T3: and -5 sigmoid(s) between");
	r->vectors.a_log[1] = 1;
	for (int i = 0; i < ALL; i++)
		r->vectors.dt_bias[i] = 3;
	ok(near(decay(1, -2), exp(-5 * sig(exp(1) * 1)), 1e-5),
	   "T4: dt_bias is added before the product with exp(A_log)");
	r->vectors.a_log[1] = -3;
	ok(near(decay(1, 0), exp(-5 * sig(exp(-3) * 3)), 1e-6), "T4: at z = 0, too");
	r->config.decay_bound = -2;
	ok(near(decay(0, 1e4f), exp(-2), 1e-6), "the bound is the config's");
	r->config.decay_bound = -5;
}

/* Sets q, k and v of a token, given as their values after SiLU. */
static void token(uint64_t t, uint32_t head, int one_hot, double v0, double v1)
{
	uint64_t at = head * DIM;

	r->tile.q.at[t][at + (unsigned)one_hot] = before_silu(1000);
	r->tile.k.at[t][at + (unsigned)one_hot] = before_silu(1000);
	r->tile.v.at[t][at] = before_silu(v0);
	r->tile.v.at[t][at + 1] = before_silu(v1);
}

/* k is the unit vector of channel 2, so that row 2 of the state is what a read along k gives. */
static void delta_rule(void)
{
	float *read = state(1) + 2 * DIM;
	const float *out = r->tile.g.at[0] + DIM;

	reset();
	token(0, 1, 2, 3, 5);
	token(1, 1, 2, 7, 1);
	run(1, 0, 1);
	ok(near(read[0], 3, 1e-5) && near(read[1], 5, 1e-5), "the first token stores its value");
	/* RMS over 20 channels of (3, 5, 0, ...): divided by sqrt(34 / 20) */
	ok(near(out[0], 3 / sqrt(34 / 20.), 1e-3) && near(out[1], 5 / sqrt(34 / 20.), 1e-3),
	   "T5: it is read after it was written");
	run(1, 1, 1);
	ok(near(read[0], 7, 1e-5) && near(read[1], 1, 1e-5),
	   "T5: under the same key the second value replaces the first");

	reset();
	token(0, 1, 2, 3, 5);
	token(1, 1, 2, 7, 1);
	for (int i = 0; i < DIM; i++)
		r->tile.z.at[1][DIM + i] = 0;
	run(1, 0, 2);
	ok(near(read[0], 7, 1e-5) && near(read[1], 1, 1e-5),
	   "T5: the error is that of the decayed state");

	reset();
	token(0, 1, 2, 4, 2);
	r->tile.beta.at[0][0] = 1e4f;
	r->tile.beta.at[0][1] = 0;
	run(1, 0, 1);
	ok(near(read[0], 2, 1e-5) && near(read[1], 1, 1e-5),
	   "beta is the sigmoid of the head's own");
}

/*
 * T6: a key with one channel of size y is stored as y / sqrt(y^2 + 1e-6).
 * With a mean instead of the sum, or the eps outside of the root, small ones differ much.
 */
static void l2_eps(void)
{
	static const double size[] = { 1e-5, 1e-4, 1e-3, 1e-2, 1 };

	for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
		double y = size[i], unit = y / sqrt(y * y + 1e-6);

		reset();
		r->tile.k.at[0][5] = before_silu(y);
		r->tile.v.at[0][0] = before_silu(2);
		run(0, 0, 1);
		ok(near(state(0)[5 * DIM], 2 * unit, 1e-5), "T6: a key of size %g", y);

		/* the same for q, whose size the output shows when eps is large */
		reset();
		r->config.eps = 1;
		token(0, 0, 5, 2, 0);
		r->tile.q.at[0][5] = before_silu(y);
		run(0, 0, 1);
		double o = 2 * unit / sqrt(DIM);
		ok(near(r->tile.g.at[0][0], o / sqrt(o * o / DIM + 1), 1e-5),
		   "T6: a query of size %g", y);
	}
	/* two channels: the sum of squares, not their mean */
	reset();
	r->tile.k.at[0][0] = before_silu(3);
	r->tile.k.at[0][1] = before_silu(4);
	r->tile.v.at[0][0] = before_silu(1);
	run(0, 0, 1);
	ok(near(state(0)[0], .6, 1e-5) && near(state(0)[DIM], .8, 1e-5),
	   "T6: 3, 4 becomes 0.6, 0.8");
}

static void query_scale(void)
{
	double o = 10 / sqrt(DIM);

	reset();
	r->config.eps = 1;
	token(0, 0, 3, 10, 0);
	run(0, 0, 1);
	/* the query has length 1 before it is scaled by 1/sqrt(20) */
	ok(near(r->tile.g.at[0][0], o / sqrt(o * o / DIM + 1), 1e-5),
	   "T7: q is scaled after its norm");
	o = 10 / sqrt(DIM) * .6;
	reset();
	r->config.eps = 1;
	token(0, 0, 3, 10, 0);
	r->tile.q.at[0][3] = before_silu(300);
	r->tile.q.at[0][4] = before_silu(400);
	run(0, 0, 1);
	ok(near(r->tile.g.at[0][0], o / sqrt(o * o / DIM + 1), 1e-5), "T7: whatever its length");
}

static void gate(void)
{
	double norm = sqrt((16 + 4) / 20.);

	reset();
	token(0, 0, 1, 4, 2);
	for (int i = 0; i < DIM; i++)
		r->tile.g.at[0][i] = -3;
	run(0, 0, 1);
	ok(near(r->tile.g.at[0][0] * norm / 4, sig(-3), 1e-3),
	   "T8: a gate of -3 lets 0.0474 through");
	/* were the gate before the norm, closing one channel would lift the other */
	reset();
	token(0, 0, 1, 4, 2);
	r->tile.g.at[0][0] = -1e4f;
	run(0, 0, 1);
	ok(r->tile.g.at[0][0] == 0 && near(r->tile.g.at[0][1], 2 / norm, 1e-3),
	   "T8: the norm comes before the gate");
}

static void norm_per_head(void)
{
	float small[DIM];

	reset();
	for (int i = 0; i < DIM; i++)
		r->vectors.kda_norm[i] = (float)(i + 1);
	for (uint32_t h = 0; h < HEADS; h++)
		token(0, h, 1, 4, 2);
	for (uint32_t h = 0; h < HEADS; h++)
		run(h, 0, 1);
	ok(near(r->tile.g.at[0][2 * DIM + 1], 2 * 2, 1e-3), "T9: heads share their norm's weights");
	memcpy(small, r->tile.g.at[0] + DIM, sizeof small);

	reset();
	for (int i = 0; i < DIM; i++)
		r->vectors.kda_norm[i] = (float)(i + 1);
	for (uint32_t h = 0; h < HEADS; h++)
		token(0, h, 1, h == 1 ? 4 : 4000, h == 1 ? 2 : 2000);
	for (uint32_t h = 0; h < HEADS; h++)
		run(h, 0, 1);
	ok(!memcmp(small, r->tile.g.at[0] + DIM, sizeof small),
	   "T9: heads that are 1000 times as large do not change another");
}

/* An impulse through the kernel (1, 10, 100, 1000): its newest tap comes last. */
static void impulse(void)
{
	static const double want[5] = { 1000, 100, 9.99954602131297566, .731058578630004879, 0 };
	bool all = true, history = true;

	reset();
	for (int j = 0; j < CONV; j++)
		for (int i = 0; i < ALL; i++)
			r->vectors.conv[2][j * ALL + i] = (float)pow(10, j);
	for (uint64_t t = 0; t < 5; t++)
		r->tile.k.at[t][DIM + 2] = before_silu(1000);
	r->tile.v.at[0][DIM] = 1;
	for (uint64_t t = 0; t < 5; t++) {
		run(1, t, 1);
		all &= fabs(state(1)[2 * DIM] - want[t]) <= 1e-5 * want[t] + 1e-4;
		/* inputs as they were, oldest first: the impulse moves towards the front */
		for (uint64_t j = 0; j < CONV - 1; j++)
			history &= r->slice.conv[(2 * (CONV - 1) + j) * ALL + DIM] ==
				   (j + t == CONV - 2);
	}
	ok(all, "T10: the newest input meets the last tap, then SiLU");
	ok(history, "T10: what is kept are the inputs before the convolution");
}

/* ---- literal arithmetic ---- */

static float fold(float *lane)
{
	for (int half = 8; half; half /= 2)
		for (int j = 0; j < half; j++)
			lane[j] += lane[j + half];
	return lane[0];
}

static float squares(const float *x)
{
	float lane[16] = { 0 };

	for (int i = 0; i < DIM; i++)
		lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
	return fold(lane);
}

/* N6 and N4 for one head: in[t][channel] are the inputs, t0 of them before the first token. */
static void literal_conv(const float in[][DIM], const float *taps, uint32_t head, float *out)
{
	for (int d = 0; d < DIM; d++) {
		float c = 0;

		for (int j = 0; j < CONV; j++)
			c = fmaf(taps[j * ALL + (int)head * DIM + d], in[j][d], c);
		out[d] = c * k3_sigmoid(c);
	}
}

static void literal_unit(float *x, float scale)
{
	float inv = 1.0f / sqrtf(squares(x) + 1e-6f);

	for (int i = 0; i < DIM; i++)
		x[i] = x[i] * inv * scale;
}

/* N7 and the rest of a token of one head; m is its state. */
static void literal_token(uint32_t head, const float *q, const float *k, const float *v,
			  const float *z, float b, const float *gate_in, float *m, float *out)
{
	const struct k3_layer_vectors *w = &r->vectors;
	float beta = k3_sigmoid(b), rate = k3_exp(w->a_log[head]), inv;

	for (int j = 0; j < DIM; j++) {
		float u = 0, e;

		out[j] = 0;
		for (int i = 0; i < DIM; i++) {
			float s = rate * (z[i] + w->dt_bias[(int)head * DIM + i]);

			m[i * DIM + j] *= k3_exp(r->config.decay_bound * k3_sigmoid(s));
			u = fmaf(k[i], m[i * DIM + j], u);
		}
		e = beta * (v[j] - u);
		for (int i = 0; i < DIM; i++) {
			m[i * DIM + j] = fmaf(k[i], e, m[i * DIM + j]);
			out[j] = fmaf(q[i], m[i * DIM + j], out[j]);
		}
	}
	inv = 1.0f / sqrtf(squares(out) / (float)DIM + r->config.eps);
	for (int j = 0; j < DIM; j++)
		out[j] = w->kda_norm[j] * (out[j] * inv) * k3_sigmoid(gate_in[j]);
}

static void randomise(void)
{
	float **rows[5] = { r->tile.q.at, r->tile.k.at, r->tile.v.at, r->tile.z.at, r->tile.g.at };

	reset();
	for (int i = 0; i < 3 * CONV * ALL; i++)
		r->vectors.conv[i / (CONV * ALL)][i % (CONV * ALL)] = (float)rng_normal(&g);
	for (int i = 0; i < ALL; i++)
		r->vectors.dt_bias[i] = (float)rng_normal(&g);
	for (int i = 0; i < DIM; i++) {
		r->vectors.kda_norm[i] = 1 + .2f * (float)rng_normal(&g);
		r->vectors.a_log[i] = (float)rng_normal(&g);
	}
	for (uint64_t t = 0; t < TOKENS; t++) {
		for (int k = 0; k < 5 * ALL; k++)
			rows[k / ALL][t][k % ALL] = (float)rng_normal(&g);
		for (int h = 0; h < HEADS; h++)
			r->tile.beta.at[t][h] = (float)rng_normal(&g);
	}
}

static void literal_bits(void)
{
	static float m[DIM * DIM];
	float in[3][CONV][DIM], x[3][DIM], want[TOKENS][DIM];
	float *const *row[3] = { r->tile.q.at, r->tile.k.at, r->tile.v.at };
	const uint32_t head = 1;
	bool all = true;

	for (int round = 0; round < 20; round++) {
		randomise();
		memset(m, 0, sizeof m);
		memset(in, 0, sizeof in);
		for (uint64_t t = 0; t < TOKENS; t++) {
			for (int i = 0; i < 3; i++) {
				memmove(in[i][0], in[i][1], (CONV - 1) * sizeof in[i][0]);
				memcpy(in[i][CONV - 1], row[i][t] + head * DIM, sizeof in[i][0]);
				literal_conv((const float (*)[DIM])in[i], r->vectors.conv[i], head,
					     x[i]);
			}
			literal_unit(x[0], (float)(1 / sqrt((double)DIM)));
			literal_unit(x[1], 1);
			literal_token(head, x[0], x[1], x[2], r->tile.z.at[t] + head * DIM,
				      r->tile.beta.at[t][head], r->tile.g.at[t] + head * DIM, m,
				      want[t]);
		}
		run(head, 0, TOKENS);
		for (uint64_t t = 0; t < TOKENS; t++)
			all &= !memcmp(want[t], r->tile.g.at[t] + head * DIM, sizeof want[t]);
		all &= !memcmp(m, state(head), sizeof m);
	}
	ok(all, "N4, N6, N7: bit by bit, %s", r->pass.math->name);
}

/* All tokens at once, their outputs into `out`. */
static void run_all(float out[TOKENS][ALL])
{
	randomise();
	for (uint32_t h = 0; h < HEADS; h++)
		run(h, 0, TOKENS);
	for (uint64_t t = 0; t < TOKENS; t++)
		memcpy(out[t], r->tile.g.at[t], sizeof out[t]);
}

/* T10, T33: six tokens at once, and cut at every place. */
static void split(void)
{
	float whole[TOKENS][ALL], kda[ALL * DIM], conv[3 * (CONV - 1) * ALL];
	struct rng saved = g;

	run_all(whole);
	memcpy(kda, r->slice.kda, sizeof kda);
	memcpy(conv, r->slice.conv, sizeof conv);
	for (uint64_t cut = 1; cut < TOKENS; cut++) {
		bool same = true;

		g = saved;
		randomise();
		for (uint32_t h = 0; h < HEADS; h++)
			run(h, 0, cut);
		for (uint32_t h = 0; h < HEADS; h++)
			run(h, cut, TOKENS - cut);
		for (uint64_t t = 0; t < TOKENS; t++)
			same &= !memcmp(whole[t], r->tile.g.at[t], sizeof whole[t]);
		same &= !memcmp(kda, r->slice.kda, sizeof kda);
		same &= !memcmp(conv, r->slice.conv, sizeof conv);
		ok(same, "T10, T33: the same bits when cut behind token %d", (int)cut);
	}
}

/* Guesses have the outputs of tokens, and the state stays what it is in front of them. */
static void guesses(void)
{
	float whole[TOKENS][ALL], kda[ALL * DIM], conv[3 * (CONV - 1) * ALL];
	struct rng saved = g;

	run_all(whole);
	for (uint64_t own = 1; own <= TOKENS; own++) {
		bool outputs = true;

		g = saved;
		randomise();
		for (uint32_t h = 0; h < HEADS; h++)
			run(h, 0, own);
		memcpy(kda, r->slice.kda, sizeof kda);
		memcpy(conv, r->slice.conv, sizeof conv);
		g = saved;
		randomise();
		for (uint32_t h = 0; h < HEADS; h++)
			run_guesses(h, 0, TOKENS, TOKENS - own);
		for (uint64_t t = 0; t < TOKENS; t++)
			outputs &= !memcmp(whole[t], r->tile.g.at[t], sizeof whole[t]);
		ok(outputs, "%d guesses have the outputs of tokens", (int)(TOKENS - own));
		ok(!memcmp(kda, r->slice.kda, sizeof kda) && !memcmp(conv, r->slice.conv, sizeof conv),
		   "and leave no trace in the state");
	}
}

/* T36: 2^-7 a step: after 20 steps 2^-140 is left, a denormal; after 22 nothing. */
static void denormal_worker(struct k3_worker *w, void *arg)
{
	float alpha[2] = { 0x1p-7f, 0x1p-7f }, zero[2] = { 0 }, m[4] = { 1, 1, 1, 1 };
	float out[2], spare[2];
	struct k3_kda_step step = { zero, zero, zero, alpha, 1, m, out, spare };
	bool *good = (bool *)arg + w->rank;

	for (int i = 0; i < 20; i++)
		r->pass.math->kda_step(&step, 2);
	*good = m[0] > 0 && m[3] == 0x1p-140f;
	step.q = step.k = (float[]){ 0x1p60f, 0 };
	step.alpha = (float[]){ 1, 1 };
	step.beta = 0;
	r->pass.math->kda_step(&step, 2);
	*good &= out[0] == 0x1p-80f;
}

static void denormals(void)
{
	bool good[3] = { false };

	need(k3_team_run(r->team, denormal_worker, good, &r->err), &r->err);
	ok(good[0] && good[1] && good[2], "T36: denormal states are kept, by every thread, %s",
	   r->pass.math->name);
}

int main(void)
{
	r = rig_new(&config, K3_KDA, TOKENS, 3);
	decay_per_head();
	decay_form();
	delta_rule();
	l2_eps();
	query_scale();
	gate();
	norm_per_head();
	impulse();
	split();
	guesses();
	for (unsigned i = 0; k3_kernels_at(i); i++) {
		r->pass.math = k3_kernels_at(i);
		literal_bits();
		denormals();
	}
	rig_free(r);
	return tap_done();
}
