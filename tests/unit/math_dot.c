/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math_dot.c - of each instruction set: DOT (N3) against a literal one with fmaf of libm; rows
 * of bf16 and of MXFP4 (T23) against DOT over widened weights; sums of products element by
 * element.
 */
#include "math/kernels.h"
#include "rng.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 256 };

static const struct k3_kernels *math;

static bool same(float a, float b)
{
	return !memcmp(&a, &b, 4);
}

/* N3 as it is written. */
static float literal_dot(const float *a, const float *b, size_t n)
{
	float lane[16] = { 0 };

	for (size_t i = 0; i < n; i++)
		lane[i % 16] = fmaf(a[i], b[i], lane[i % 16]);
	for (int j = 0; j < 8; j++)
		lane[j] += lane[j + 8];
	for (int j = 0; j < 4; j++)
		lane[j] += lane[j + 4];
	for (int j = 0; j < 2; j++)
		lane[j] += lane[j + 2];
	return lane[0] + lane[1];
}

static void fill(struct rng *g, float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(rng_normal(g) * exp(2 * rng_normal(g)));
}

static void dot_of_every_length(void)
{
	struct rng g = { 1 };
	float a[MOST + 1], b[MOST + 1];
	bool all = true;

	for (int round = 0; round < 200; round++) {
		fill(&g, a, MOST + 1);
		fill(&g, b, MOST + 1);
		for (size_t n = 0; n <= 80; n++)
			all &= same(math->dot(a + round % 2, b + round / 2 % 2, n),
				    literal_dot(a + round % 2, b + round / 2 % 2, n));
	}
	ok(all, "DOT of 0 to 80 values, tails of every length");
	ok(same(math->dot(a, b, 0), 0.f), "DOT of nothing is +0");
}

/*
 * Lanes beyond the end are not touched.  All products are -2^-200, which rounds
 * to -0 in a lane; were the others padded with zeros they would become +0.
 */
static void dot_keeps_minus_zero(void)
{
	float a[32], b[32];
	bool all = true;

	for (int i = 0; i < 32; i++) {
		a[i] = -0x1p-100f;
		b[i] = 0x1p-100f;
	}
	for (size_t n = 16; n <= 32; n++)
		all &= same(math->dot(a, b, n), -0.f);
	ok(all, "minus zeros in lanes beyond the end stay, for 16 to 32 values");
	ok(same(math->dot(a, b, 15), 0.f), "DOT of fifteen is +0: one lane was never touched");
}

/* Rounding happens once a step: 1 + 2^-24 twice is 1 in lanes of one element, not fused more. */
static void dot_is_fused(void)
{
	float a[17] = { [0] = 1 + 0x1p-12f, [16] = -1 }, b[17] = { [0] = 1 - 0x1p-12f, [16] = 1 };

	/* (1 - 2^-24) - 1, by hand; a product rounded by itself would be 1 - 2^-24 too */
	ok(same(math->dot(a, b, 17), -0x1p-24f), "one lane in order");
	a[0] = -1;
	b[0] = 1;
	a[16] = 1 + 0x1p-13f;
	b[16] = 1 - 0x1p-13f;
	/* 1 - 2^-26 is no float: only a fused step keeps what is left of it */
	ok(same(math->dot(a, b, 17), -0x1p-26f), "the product is not rounded");
}

static uint16_t bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return (uint16_t)(u >> 16);
}

static float widened(uint16_t w)
{
	uint32_t u = (uint32_t)w << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* Rows of random weights at any byte, for several vectors, against DOT. */
static void rows_bf16(void)
{
	enum { ROWS = 5, VECTORS = 3 };
	struct rng g = { 2 };
	unsigned char *bytes = malloc(ROWS * MOST * 2 + 1);
	float x[VECTORS][MOST], wide[ROWS][MOST], got[VECTORS][ROWS], axpy[MOST], spread[MOST];
	const float *xs[VECTORS] = { x[0], x[1], x[2] };
	float *ys[VECTORS] = { got[0], got[1], got[2] };
	bool rows = true, widen = true, added = true;

	for (size_t n = 1; n <= 70; n++) {
		unsigned char *w = bytes + n % 2;

		for (size_t i = 0; i < ROWS * n; i++) {
			uint16_t u = bf16((float)rng_normal(&g));

			w[2 * i] = (unsigned char)u;
			w[2 * i + 1] = (unsigned char)(u >> 8);
			wide[i / n][i % n] = widened(u);
		}
		for (int v = 0; v < VECTORS; v++)
			fill(&g, x[v], n);
		math->rows_bf16(w, ROWS, n, xs, VECTORS, ys);
		for (int i = 0; i < ROWS * VECTORS; i++)
			rows &= same(got[i % VECTORS][i / VECTORS],
				     literal_dot(wide[i / VECTORS], x[i % VECTORS], n));
		math->widen_bf16(w, n, spread);
		widen &= !memcmp(spread, wide[0], n * sizeof(float));
		memcpy(axpy, x[1], n * sizeof(float));
		math->axpy_bf16(x[0][0], w, n, axpy);
		for (size_t i = 0; i < n; i++)
			added &= same(axpy[i], fmaf(x[0][0], wide[0][i], x[1][i]));
	}
	ok(rows, "rows of bf16 are DOT, 1 to 70 columns, at odd addresses too");
	ok(widen, "bf16 is widened exactly");
	ok(added, "sums of bf16 rows are fused, element by element");
	free(bytes);
}

static void every_bf16(void)
{
	bool all = true;

	for (uint32_t u = 0; u < 65536; u++) {
		unsigned char w[2] = { (unsigned char)u, (unsigned char)(u >> 8) };
		float got;

		math->widen_bf16(w, 1, &got);
		all &= same(got, widened((uint16_t)u));
	}
	ok(all, "each of the 65,536 values of bf16");
}

/* Written down from the format's definition. */
static double code_value(unsigned code)
{
	static const double value[8] = { 0, .5, 1, 1.5, 2, 3, 4, 6 };

	return code & 8 ? -value[code & 7] : value[code & 7];
}

/* Reads weight col of a row of n by a vector with a single one in it. */
static float weight(const unsigned char *codes, const unsigned char *scales, size_t n, size_t col)
{
	float x[MOST] = { 0 }, y;
	const float *xs = x;
	float *ys = &y;

	x[col] = 1;
	math->rows_mxfp4(codes, scales, 1, n, &xs, 1, &ys);
	return y;
}

/*
 * T23 with hand values: codes 0 to 15 twice in a group, low nibble first, and a
 * scale of its own for each of three groups: 2^0, 2^-3, 2^4.
 */
static void mxfp4_by_hand(void)
{
	static const unsigned char scales[3] = { 127, 124, 131 };
	static const float group_of_one[16] = {
		0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6
	};
	static const float factor[3] = { 1, .125f, 16 };
	unsigned char codes[48];
	bool all = true;

	for (int i = 0; i < 48; i++)
		codes[i] = (unsigned char)(2 * i % 16 | (2 * i + 1) % 16 << 4);
	for (size_t col = 0; col < 96; col++)
		all &= weight(codes, scales, 96, col) == group_of_one[col % 16] * factor[col / 32];
	ok(all, "codes 0 to 15 under three scales, by hand");
	ok(weight(codes, scales, 96, 1) == .5f && weight(codes, scales, 96, 2) == 1,
	   "the low nibble comes first");
	ok(weight(codes, scales, 96, 31) == -6 && weight(codes, scales, 96, 33) == .0625f,
	   "a scale begins with its group");
}

static void every_scale(void)
{
	unsigned char codes[16], scale;
	bool all = true, kept = true;

	for (int i = 0; i < 16; i++)
		codes[i] = (unsigned char)(2 * i % 16 | (2 * i + 1) % 16 << 4);
	for (int s = 0; s <= K3_MXFP4_MAX_SCALE; s++) {
		scale = (unsigned char)s;
		for (size_t col = 0; col < 32; col++) {
			double want = ldexp(code_value(col % 16), s - 127);

			all &= weight(codes, &scale, 32, col) == (float)want;
			/* exact: nothing is lost, the denormals of scale 0 included */
			kept &= (double)(float)want == want;
		}
	}
	ok(K3_MXFP4_MAX_SCALE == 252, "the largest scale byte is 252");
	ok(all, "every scale byte up to it, with every code");
	ok(kept, "all of them are floats");
}

/* The sign of zero: code 8 is -0, and -0 * x + -0 shows it. */
static void mxfp4_minus_zero(void)
{
	unsigned char codes[16], scale = 127;
	float x[32], y;
	const float *xs = x;
	float *ys = &y;

	/* -0.5 times 2^-149 rounds to -0; then -0 times 1 keeps it, +0 would not */
	for (int i = 0; i < 16; i++) {
		codes[i] = i < 8 ? 0x99 : 0x88;
		x[2 * i] = x[2 * i + 1] = i < 8 ? 0x1p-149f : 1;
	}
	math->rows_mxfp4(codes, &scale, 1, 32, &xs, 1, &ys);
	ok(same(y, -0.f), "code 8 is -0");
	for (int i = 8; i < 16; i++)
		codes[i] = 0;
	math->rows_mxfp4(codes, &scale, 1, 32, &xs, 1, &ys);
	ok(same(y, 0.f), "code 0 is +0");
}

/* A row of n codes as floats. */
static void widen_row(const unsigned char *codes, const unsigned char *scales, size_t n, float *out)
{
	for (size_t i = 0; i < n; i++) {
		unsigned code = i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15u;

		out[i] = (float)ldexp(code_value(code), scales[i / 32] - 127);
	}
}

static void rows_mxfp4(void)
{
	enum { ROWS = 3, VECTORS = 4, GROUPS = MOST / 32 };
	struct rng g = { 3 };
	unsigned char codes[ROWS * MOST / 2 + 1], scales[ROWS * GROUPS + 1];
	float x[VECTORS][MOST], wide[MOST], got[VECTORS][ROWS];
	const float *xs[VECTORS] = { x[0], x[1], x[2], x[3] };
	float *ys[VECTORS] = { got[0], got[1], got[2], got[3] };
	bool all = true;

	for (size_t n = 32; n <= MOST; n += 32)
		for (size_t odd = 0; odd < 2; odd++) {
			unsigned char *c = codes + odd, *s = scales + odd;

			for (size_t i = 0; i < ROWS * n / 2; i++)
				c[i] = (unsigned char)rng_u64(&g);
			for (size_t i = 0; i < ROWS * n / 32; i++)
				s[i] = (unsigned char)(110 + rng_u64(&g) % 20);
			for (int v = 0; v < VECTORS; v++)
				fill(&g, x[v], n);
			math->rows_mxfp4(c, s, ROWS, n, xs, VECTORS, ys);
			for (size_t r = 0; r < ROWS; r++) {
				widen_row(c + r * n / 2, s + r * n / 32, n, wide);
				for (int v = 0; v < VECTORS; v++)
					all &= same(got[v][r], literal_dot(wide, x[v], n));
			}
		}
	ok(all, "rows of MXFP4 are DOT over the widened weights, at odd addresses too");
}

/* Shapes that are worked on in tiles of rows, vectors and columns, and what is left over. */
static void tiles(void)
{
	enum { ROWS = 11, VECTORS = 61, COLS = 608 };
	static const size_t cols[] = { 32, 64, 224, 256, 288, 512, COLS };
	static unsigned char codes[ROWS * COLS / 2], scales[ROWS * COLS / 32], bf[ROWS * COLS * 2];
	static float x[VECTORS][COLS], wide[COLS], got[VECTORS][ROWS];
	const float *xs[VECTORS];
	float *ys[VECTORS];
	struct rng g = { 5 };
	bool packed = true, plain = true;

	for (int v = 0; v < VECTORS; v++) {
		fill(&g, x[v], COLS);
		xs[v] = x[v];
		ys[v] = got[v];
	}
	for (size_t i = 0; i < sizeof bf; i++)
		/* no exponent that overflows or makes a NaN */
		bf[i] = (unsigned char)(i % 2 ? (rng_u64(&g) & 0x81) | 0x3e : rng_u64(&g));
	for (size_t i = 0; i < sizeof codes; i++)
		codes[i] = (unsigned char)rng_u64(&g);
	for (size_t i = 0; i < sizeof scales; i++)
		scales[i] = (unsigned char)(110 + rng_u64(&g) % 20);
	for (int round = 0; round < 60; round++) {
		size_t n = cols[rng_u64(&g) % 7], rows = 1 + rng_u64(&g) % ROWS;
		size_t count = 1 + rng_u64(&g) % VECTORS, odd = n - rng_u64(&g) % 17;

		math->rows_mxfp4(codes, scales, rows, n, xs, count, ys);
		for (size_t r = 0; r < rows; r++) {
			widen_row(codes + r * n / 2, scales + r * n / 32, n, wide);
			for (size_t v = 0; v < count; v++)
				packed &= same(got[v][r], literal_dot(wide, x[v], n));
		}
		math->rows_bf16(bf, rows, odd, xs, count, ys);
		for (size_t r = 0; r < rows; r++) {
			for (size_t i = 0; i < odd; i++)
				wide[i] = widened((uint16_t)(bf[2 * (r * odd + i)] |
							     bf[2 * (r * odd + i) + 1] << 8));
			for (size_t v = 0; v < count; v++)
				plain &= same(got[v][r], literal_dot(wide, x[v], odd));
		}
	}
	ok(packed, "MXFP4: up to 11 rows of 608 columns times 61 vectors");
	ok(plain, "bf16: the same with columns that are no multiple of 16");
}

/* Rows of floats that lie apart: DOT of each with many vectors, and their weighted sums. */
static void rows_f32(void)
{
	enum { ROWS = 70, VECTORS = 17, STRIDE = 90 };
	static float w[ROWS * STRIDE], x[VECTORS][STRIDE], weights[VECTORS][ROWS];
	static float got[VECTORS][ROWS], sum[VECTORS][STRIDE], want[VECTORS][STRIDE];
	const float *xs[VECTORS], *ws[VECTORS];
	float *ys[VECTORS], *sums[VECTORS];
	struct rng g = { 6 };
	bool dots = true, added = true;

	for (int round = 0; round < 200; round++) {
		size_t n = 1 + rng_u64(&g) % STRIDE, rows = 1 + rng_u64(&g) % ROWS;
		size_t count = 1 + rng_u64(&g) % VECTORS;
		size_t stride = n + rng_u64(&g) % (STRIDE - n + 1);

		fill(&g, w, ROWS * STRIDE);
		for (size_t v = 0; v < count; v++) {
			fill(&g, x[v], n);
			fill(&g, weights[v], rows);
			fill(&g, sum[v], STRIDE);
			memcpy(want[v], sum[v], sizeof sum[v]);
			xs[v] = x[v];
			ws[v] = weights[v];
			ys[v] = got[v];
			sums[v] = sum[v];
		}
		math->rows_f32(w, stride, rows, n, xs, count, ys);
		math->weighted_rows(w, stride, rows, n, ws, count, sums);
		for (size_t v = 0; v < count; v++) {
			for (size_t r = 0; r < rows; r++) {
				const float *row = w + r * stride;

				dots &= same(got[v][r], literal_dot(row, x[v], n));
				for (size_t i = 0; i < n; i++)
					want[v][i] = fmaf(weights[v][r], row[i], want[v][i]);
			}
			added &= !memcmp(want[v], sum[v], sizeof sum[v]);
		}
	}
	ok(dots, "rows of floats are DOT, whatever lies between them");
	ok(added, "weighted sums of rows are fused, rows ascending");
}

static void sums(void)
{
	struct rng g = { 4 };
	float a[41], x[41], y[41], p[41], q[41];
	bool all = true;

	for (size_t n = 0; n <= 40; n++) {
		fill(&g, a, 41);
		fill(&g, x, 41);
		fill(&g, y, 41);
		memcpy(p, y, sizeof p);
		memcpy(q, y, sizeof q);
		math->axpy(a[0], x, n, p);
		math->muladd(a, x, n, q);
		for (size_t i = 0; i < 41; i++)
			all &= same(p[i], i < n ? fmaf(a[0], x[i], y[i]) : y[i]) &&
			       same(q[i], i < n ? fmaf(a[i], x[i], y[i]) : y[i]);
	}
	ok(all, "axpy and muladd are fused, element by element");
}

int main(void)
{
	for (unsigned i = 0; (math = k3_kernels_at(i)); i++) {
		printf("# %s\n", math->name);
		dot_of_every_length();
		dot_keeps_minus_zero();
		dot_is_fused();
		rows_bf16();
		every_bf16();
		mxfp4_by_hand();
		every_scale();
		mxfp4_minus_zero();
		rows_mxfp4();
		tiles();
		rows_f32();
		sums();
	}
	return tap_done();
}
