/* SPDX-License-Identifier: Apache-2.0 */
/* portable.c - the kernels in plain C: what every other instruction set must equal. */
#include "math/code_row.h"
#include "math/elementwise.h"

enum { LANES = K3_LANES, GROUP = 32 };

static float dot(const float *a, const float *b, size_t n)
{
	float lane[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int j = 0; j < LANES; j++)
			lane[j] = k3_fma(a[i + j], b[i + j], lane[j]);
	for (size_t j = 0; i + j < n; j++)
		lane[j] = k3_fma(a[i + j], b[i + j], lane[j]);
	return k3_fold_lanes(lane);
}

static float dot_bf16(const unsigned char *w, const float *x, size_t n)
{
	float lane[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (size_t j = 0; j < LANES; j++)
			lane[j] = k3_fma(load_bf16(w + 2 * (i + j)), x[i + j], lane[j]);
	for (size_t j = 0; i + j < n; j++)
		lane[j] = k3_fma(load_bf16(w + 2 * (i + j)), x[i + j], lane[j]);
	return k3_fold_lanes(lane);
}

static void rows_bf16(const void *w, size_t rows, size_t n, const float *const *x, size_t count,
		      float *const *y)
{
	const unsigned char *p = w;

	for (size_t r = 0; r < rows; r++, p += 2 * n)
		for (size_t v = 0; v < count; v++)
			y[v][r] = dot_bf16(p, x[v], n);
}

static const float e2m1[16] = {
	0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6,
};

/* 2^(s - 127), exact: 2^-127 is the one that is denormal */
static float scale_value(unsigned char s)
{
	return s ? k3_from_bits((uint32_t)s << 23) : 0x1p-127f;
}

static float dot_mxfp4(const unsigned char *codes, const unsigned char *scales, const float *x,
		       size_t n)
{
	float lane[LANES] = { 0 }, w[GROUP];

	for (size_t g = 0; g < n / GROUP; g++) {
		float s = scale_value(scales[g]);

		for (size_t b = 0; b < GROUP / 2; b++) {
			unsigned char c = codes[g * (GROUP / 2) + b];

			w[2 * b] = e2m1[c & 15] * s;
			w[2 * b + 1] = e2m1[c >> 4] * s;
		}
		for (size_t i = 0; i < GROUP; i += LANES)
			for (size_t j = 0; j < LANES; j++)
				lane[j] = k3_fma(w[i + j], x[g * GROUP + i + j], lane[j]);
	}
	return k3_fold_lanes(lane);
}

static void rows_mxfp4(const void *codes, const void *scales, size_t rows, size_t n,
		       const float *const *x, size_t count, float *const *y)
{
	const unsigned char *c = codes, *s = scales;

	for (size_t r = 0; r < rows; r++, c += n / 2, s += n / GROUP)
		for (size_t v = 0; v < count; v++)
			y[v][r] = dot_mxfp4(c, s, x[v], n);
}

/* Chunks are whole lanes but for the last. */
static float dot_coded(struct code_row r, const float *x, size_t n)
{
	float lane[LANES] = { 0 }, w[CODE_CHUNK];

	for (size_t k; n; n -= k, x += k) {
		if (n >= CODE_CHUNK)
			code_chunk(code_patch_plain, &r, CODE_WIDE, k = CODE_CHUNK, w);
		else
			code_chunk(code_patch_plain, &r, CODE_NARROW, k = n < CODE_TAIL ? n : CODE_TAIL,
				   w);
		for (size_t i = 0; i < k; i++)
			lane[i % LANES] = k3_fma(w[i], x[i], lane[i % LANES]);
	}
	return k3_fold_lanes(lane);
}

static void rows_coded(const void *block, size_t first, size_t rows, const float *const *x,
		       size_t count, float *const *y)
{
	struct k3_code c = k3_code_view(block);

	if (c.raw) {
		rows_bf16(c.body + first * c.row_size, rows, c.cols, x, count, y);
		return;
	}
	for (size_t r = 0; r < rows; r++)
		for (size_t v = 0; v < count; v++)
			y[v][r] = dot_coded(code_row(&c, first + r), x[v], c.cols);
}

static void rows_f32(const float *w, size_t stride, size_t rows, size_t n, const float *const *x,
		     size_t count, float *const *y)
{
	for (size_t r = 0; r < rows; r++)
		for (size_t v = 0; v < count; v++)
			y[v][r] = dot(w + r * stride, x[v], n);
}

static void weighted_rows(const float *w, size_t stride, size_t rows, size_t n,
			  const float *const *weight, size_t count, float *const *y)
{
	for (size_t r = 0; r < rows; r++)
		for (size_t v = 0; v < count; v++)
			axpy(weight[v][r], w + r * stride, n, y[v]);
}

const struct k3_kernels k3_kernels_portable = {
	.name = "portable",
	.dot = dot,
	.rows_bf16 = rows_bf16,
	.rows_mxfp4 = rows_mxfp4,
	.rows_coded = rows_coded,
	.rows_f32 = rows_f32,
	.weighted_rows = weighted_rows,
	.axpy = axpy,
	.axpy_bf16 = axpy_bf16,
	.muladd = muladd,
	.widen_bf16 = widen_bf16,
	.kda_step = kda_step,
	.exp = exp_n,
	.sigmoid = sigmoid_n,
	.silu = silu_n,
	.situ = situ_n,
};
