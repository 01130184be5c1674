/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/kernels.h - the arithmetic of docs/numerics.md, behind one table.
 *
 * Each instruction set fills its own table in an object of its own; all of them give the
 * same bits.  Vectors are fp32 and need no alignment beyond that of a float;
 * weights may lie at any byte.
 */
#ifndef K3_MATH_KERNELS_H
#define K3_MATH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* DOT, and the sum of a softmax over positions, are kept in this many lanes (N3, N8). */
enum { K3_LANES = 16 };

/* lane[j] += lane[j+8], then 4, 2, 1: the tree at their end; the lanes are used up. */
static inline float k3_fold_lanes(float lane[K3_LANES])
{
	for (int half = K3_LANES / 2; half; half /= 2)
		for (int j = 0; j < half; j++)
			lane[j] += lane[j + half];
	return lane[0];
}

/* One token of a KDA head: one step of the recurrence (N7). */
struct k3_kda_step {
	const float *q, *k, *v;		/* dim each; q and k normalised, q scaled */
	const float *alpha;		/* dim: decay of each key channel */
	float beta;
	float *state;			/* [key dim][value dim], updated */
	float *out;			/* dim */
	float *scratch;			/* dim */
};

struct k3_kernels {
	const char *name;

	/* N3: the one reduction */
	float (*dot)(const float *a, const float *b, size_t n);

	/*
	 * y[v][r] = DOT(row r, x[v]) for each of count vectors; rows lie one after
	 * the other, n weights each.
	 */
	void (*rows_bf16)(const void *w, size_t rows, size_t n, const float *const *x,
			  size_t count, float *const *y);
	/* The same for MXFP4: n/2 bytes of codes and n/32 scale bytes a row; n % 32 == 0. */
	void (*rows_mxfp4)(const void *codes, const void *scales, size_t rows, size_t n,
			   const float *const *x, size_t count, float *const *y);

	/*
	 * The same for rows first to first + rows of a coded block (math/code.h): the bits of
	 * rows_bf16 on what was coded.
	 */
	void (*rows_coded)(const void *block, size_t first, size_t rows, const float *const *x,
			   size_t count, float *const *y);

	/* The same for floats whose rows begin stride elements apart. */
	void (*rows_f32)(const float *w, size_t stride, size_t rows, size_t n,
			 const float *const *x, size_t count, float *const *y);

	/*
	 * y[v][i] = fma(weight[v][r], row r[i], y[v][i]), r ascending, for n elements of
	 * rows that begin stride elements apart and each of count sums.
	 */
	void (*weighted_rows)(const float *w, size_t stride, size_t rows, size_t n,
			      const float *const *weight, size_t count, float *const *y);

	/* y[i] = fma(a, x[i], y[i]) */
	void (*axpy)(float a, const float *x, size_t n, float *y);
	void (*axpy_bf16)(float a, const void *x, size_t n, float *y);

	/* y[i] = fma(a[i], x[i], y[i]) */
	void (*muladd)(const float *a, const float *x, size_t n, float *y);

	/* Exact widening. */
	void (*widen_bf16)(const void *x, size_t n, float *y);

	void (*kda_step)(const struct k3_kda_step *s, size_t dim);

	/* Element by element; out may be the input. */
	void (*exp)(const float *x, size_t n, float *out);
	void (*sigmoid)(const float *x, size_t n, float *out);
	/* c * sigmoid(c) */
	void (*silu)(const float *x, size_t n, float *out);
	/* ((b1 * tanh(a / b1)) * sigmoid(a)) * (b2 * tanh(b / b2)) */
	void (*situ)(const float *a, const float *b, size_t n, float b1, float b2, float *out);
};

/* The table in use: the best for this machine, or what k3_cpu_select chose. */
const struct k3_kernels *k3_kernels(void);

/* All tables of this build that this machine can run, the best last; NULL at i = count. */
const struct k3_kernels *k3_kernels_at(unsigned i);

/* A scale byte above this overflows with the largest code, or is NaN (N2). */
enum { K3_MXFP4_MAX_SCALE = 252 };

/* The first of n scale bytes that is above it, or n. */
size_t k3_mxfp4_bad_scale(const unsigned char *scale, size_t n);

#endif
