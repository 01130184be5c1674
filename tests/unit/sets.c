/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets.c - every kernel of every instruction set that this machine has gives the bits
 * of the portable one, on random and on nasty values, at every length of a tail.
 */
#include "math/kernels.h"
#include "rng.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 11, MOST_VECS = 29, MOST_N = 700 };

static const struct k3_kernels *ref, *set;
static struct rng g = { 7 };

/* Ordinary values, and now and then a zero of either sign, a denormal, a huge one. */
static float value(void)
{
	static const float nasty[] = { 0.f, -0.f, 0x1p-149f, -0x1p-127f, 0x1p-100f, -0x1p60f, 1.f };

	if (rng_u64(&g) % 16 == 0)
		return nasty[rng_u64(&g) % 7];
	return (float)(rng_normal(&g) * exp(2 * rng_normal(&g)));
}

static void fill(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = value();
}

/* The same bits; of a NaN only that it is one. */
static bool same(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(a + i, b + i, 4) && !(isnan(a[i]) && isnan(b[i])))
			return false;
	return true;
}

/* Vectors for the products, and two sets of results. */
static float x[MOST_VECS][MOST_N + 1], got[MOST_VECS][MOST_ROWS], want[MOST_VECS][MOST_ROWS];
static const float *xs[MOST_VECS];
static float *gots[MOST_VECS], *wants[MOST_VECS];

static bool products(void (*run)(const struct k3_kernels *, size_t rows, size_t n, size_t count,
				 float *const *y), size_t rows, size_t n, size_t count)
{
	memset(got, 1, sizeof got);
	memset(want, 1, sizeof want);
	run(ref, rows, n, count, wants);
	run(set, rows, n, count, gots);
	return !memcmp(got, want, sizeof got);
}

static unsigned char weights[2 * MOST_ROWS * MOST_N + 2], scales[MOST_ROWS * MOST_N];

static void bf16(const struct k3_kernels *k, size_t rows, size_t n, size_t count, float *const *y)
{
	k->rows_bf16(weights + 1, rows, n, xs, count, y);
}

static void mxfp4(const struct k3_kernels *k, size_t rows, size_t n, size_t count,
		  float *const *y)
{
	k->rows_mxfp4(weights + 1, scales, rows, n, xs, count, y);
}

static float floats[MOST_ROWS * MOST_N];

static void f32(const struct k3_kernels *k, size_t rows, size_t n, size_t count, float *const *y)
{
	k->rows_f32(floats + 1, n + 3, rows, n, xs, count, y);
}

/* Sums of rows by weights: the vectors are the weights, the sums have a place of their own. */
static bool weighted(size_t rows, size_t n, size_t count)
{
	static float sum[2][MOST_VECS][MOST_N];
	float *at[2][MOST_VECS];

	for (size_t v = 0; v < MOST_VECS; v++) {
		fill(sum[0][v], MOST_N);
		memcpy(sum[1][v], sum[0][v], sizeof sum[0][v]);
		at[0][v] = sum[0][v];
		at[1][v] = sum[1][v];
	}
	ref->weighted_rows(floats, n + 2, rows, n, xs, count, at[0]);
	set->weighted_rows(floats, n + 2, rows, n, xs, count, at[1]);
	return !memcmp(sum[0], sum[1], sizeof sum[0]);
}

static void random_weights(bool finite)
{
	for (size_t i = 0; i < sizeof weights; i++)
		weights[i] = (unsigned char)rng_u64(&g);
	/* bf16 whose exponents are all ones are infinities and NaNs; here sums are to be compared */
	for (size_t i = 1; finite && i + 1 < sizeof weights; i += 2)
		weights[i + 1] = (unsigned char)((weights[i + 1] & 0x80) | (0x38 + rng_u64(&g) % 10));
	for (size_t i = 0; i < sizeof scales; i++)
		scales[i] = (unsigned char)(rng_u64(&g) % 8 ? 110 + rng_u64(&g) % 30
							     : rng_u64(&g) % 253);
}

static void test_products(void)
{
	bool all = true;

	random_weights(true);
	for (size_t n = 0; n <= 80; n++)
		for (size_t rows = 1; rows <= MOST_ROWS; rows++)
			for (size_t count = 1; count <= MOST_VECS; count += count < 9 ? 1 : 5)
				all &= products(bf16, rows, n, count);
	ok(all, "%s: bf16 rows of 0 to 80 weights, every number of rows and vectors", set->name);
	all = true;
	for (size_t n = 240; n <= 530; n += 7)
		all &= products(bf16, MOST_ROWS, n, MOST_VECS) && products(bf16, 5, n, 1);
	ok(all, "%s: bf16 rows longer than the pieces they are widened in", set->name);
	random_weights(false);
	all = true;
	for (size_t n = 32; n <= 672; n += 32)
		for (size_t rows = 1; rows <= MOST_ROWS; rows += 2)
			for (size_t count = 1; count <= MOST_VECS; count += count < 9 ? 1 : 5)
				all &= products(mxfp4, rows, n, count);
	ok(all, "%s: MXFP4 rows of 32 to 672 weights", set->name);
}

static void test_rows(void)
{
	bool all = true, sums = true;

	fill(floats, MOST_ROWS * MOST_N);
	for (size_t n = 0; n <= 600; n += n < 80 ? 1 : 37)
		for (size_t count = 1; count <= MOST_VECS; count += count < 9 ? 1 : 5) {
			all &= products(f32, MOST_ROWS, n, count) && products(f32, 3, n, count);
			sums &= weighted(MOST_ROWS, n, count) && weighted(1, n, count);
		}
	ok(all, "%s: rows of floats", set->name);
	ok(sums, "%s: weighted sums of rows", set->name);
}

static void test_dot(void)
{
	static float a[MOST_N], b[MOST_N];
	bool all = true;

	for (int round = 0; round < 50; round++) {
		fill(a, MOST_N);
		fill(b, MOST_N);
		for (size_t n = 0; n <= 100; n++) {
			float p = ref->dot(a + round % 3, b + round % 2, n);
			float q = set->dot(a + round % 3, b + round % 2, n);

			all &= same(&p, &q, 1);
		}
	}
	ok(all, "%s: DOT of 0 to 100 values", set->name);
}

static void test_sums(void)
{
	static float a[MOST_N], p[MOST_N], q[MOST_N];
	bool all = true;

	random_weights(true);
	for (size_t n = 0; n <= 70; n++) {
		float f = value();

		fill(a, MOST_N);
		fill(p, MOST_N);
		memcpy(q, p, sizeof p);
		ref->axpy(f, a + 1, n, p);
		set->axpy(f, a + 1, n, q);
		ref->axpy_bf16(f, weights + 1, n, p + 100);
		set->axpy_bf16(f, weights + 1, n, q + 100);
		ref->muladd(a, a + 3, n, p + 200);
		set->muladd(a, a + 3, n, q + 200);
		ref->widen_bf16(weights + 3, n, p + 300);
		set->widen_bf16(weights + 3, n, q + 300);
		all &= same(p, q, MOST_N);
	}
	ok(all, "%s: sums of products and widening, 0 to 70 elements", set->name);
}

static void test_maps(void)
{
	enum { N = 1 << 14 };
	float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
	float *p = malloc(N * sizeof *p), *q = malloc(N * sizeof *q);
	bool all = true;

	if (!a || !b || !p || !q)
		exit(1);
	for (int round = 0; round < 8; round++) {
		for (size_t i = 0; i < N; i++) {
			/* any bits at all, or the range where something happens */
			uint32_t u = (uint32_t)rng_u64(&g);

			memcpy(a + i, &u, 4);
			b[i] = (float)(20 * rng_normal(&g));
			if (round % 2)
				a[i] = (float)(30 * rng_normal(&g));
		}
		for (int map = 0; map < 4; map++) {
			size_t n = N - (size_t)round;

			if (map < 3) {
				void (*f)(const float *, size_t, float *) =
					map == 0 ? ref->exp : map == 1 ? ref->sigmoid : ref->silu;
				void (*h)(const float *, size_t, float *) =
					map == 0 ? set->exp : map == 1 ? set->sigmoid : set->silu;

				f(a, n, p);
				h(a, n, q);
				all &= same(p, q, n);
				memcpy(q, a, N * sizeof *a);
				h(q, n, q);
			} else {
				ref->situ(a, b, n, 4, 25, p);
				memcpy(q, a, N * sizeof *a);
				set->situ(q, b, n, 4, 25, q);
			}
			/* in place as well */
			all &= same(p, q, n);
		}
	}
	ok(all, "%s: exp, sigmoid, SiLU and SiTU of any bits, also in place", set->name);
	free(a);
	free(b);
	free(p);
	free(q);
}

static void test_kda(void)
{
	enum { DIM = 37 };
	static float v[4][DIM], state[2][DIM * DIM], out[2][DIM], scratch[DIM];
	bool all = true;

	fill(state[0], DIM * DIM);
	memcpy(state[1], state[0], sizeof state[0]);
	for (int round = 0; round < 100; round++) {
		size_t dim = 1 + (size_t)round % DIM;
		struct k3_kda_step s = { .q = v[0], .k = v[1], .v = v[2], .alpha = v[3],
					 .beta = .7f, .scratch = scratch };

		for (int i = 0; i < 4; i++)
			for (size_t d = 0; d < dim; d++)
				v[i][d] = (float)(i == 3 ? .5 : rng_normal(&g) / 4);
		for (int i = 0; i < 2; i++) {
			s.state = state[i];
			s.out = out[i];
			(i ? set : ref)->kda_step(&s, dim);
		}
		all &= same(out[0], out[1], dim) && same(state[0], state[1], DIM * DIM);
	}
	ok(all, "%s: the KDA step", set->name);
}

int main(void)
{
	for (size_t v = 0; v < MOST_VECS; v++) {
		fill(x[v], MOST_N + 1);
		xs[v] = x[v] + 1;
		gots[v] = got[v];
		wants[v] = want[v];
	}
	ref = k3_kernels_at(0);
	ok(!strcmp(ref->name, "portable"), "the portable set is always there");
	for (unsigned i = 1; (set = k3_kernels_at(i)); i++) {
		test_dot();
		test_products();
		test_rows();
		test_sums();
		test_maps();
		test_kda();
	}
	return tap_done();
}
