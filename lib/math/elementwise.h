/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/elementwise.h - kernels that treat each element by itself.
 *
 * They are written once, as plain loops, and compiled for each instruction set in
 * its own object, where the compiler runs as many elements at a time as fit.  An
 * element's operations are the same whatever is beside it, so the bits are too.
 */
#ifndef K3_MATH_ELEMENTWISE_H
#define K3_MATH_ELEMENTWISE_H

#include "math/elementary.h"
#include "math/kernels.h"

/* The output may be the input: each element is read before it is written. */
#define SIMD _Pragma("omp simd")

static inline float load_bf16(const unsigned char *p)
{
	uint16_t u;

	memcpy(&u, p, 2);
	return k3_from_bits((uint32_t)u << 16);
}

static void axpy(float a, const float *restrict x, size_t n, float *restrict y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = k3_fma(a, x[i], y[i]);
}

static void axpy_bf16(float a, const void *restrict x, size_t n, float *restrict y)
{
	const unsigned char *p = x;

	for (size_t i = 0; i < n; i++)
		y[i] = k3_fma(a, load_bf16(p + 2 * i), y[i]);
}

static void muladd(const float *restrict a, const float *restrict x, size_t n, float *restrict y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = k3_fma(a[i], x[i], y[i]);
}

static void widen_bf16(const void *restrict x, size_t n, float *restrict y)
{
	const unsigned char *p = x;

	for (size_t i = 0; i < n; i++)
		y[i] = load_bf16(p + 2 * i);
}

/* Vectorised over the value index j only, i ascending (N7). */
static void kda_step(const struct k3_kda_step *s, size_t dim)
{
	float *restrict u = s->scratch, *restrict o = s->out;

	for (size_t j = 0; j < dim; j++)
		u[j] = o[j] = 0;
	for (size_t i = 0; i < dim; i++) {
		float *restrict m = s->state + i * dim;
		float alpha = s->alpha[i], k = s->k[i];

		for (size_t j = 0; j < dim; j++) {
			m[j] *= alpha;
			u[j] = k3_fma(k, m[j], u[j]);
		}
	}
	for (size_t j = 0; j < dim; j++)
		u[j] = s->beta * (s->v[j] - u[j]);
	for (size_t i = 0; i < dim; i++) {
		float *restrict m = s->state + i * dim;
		float q = s->q[i], k = s->k[i];

		for (size_t j = 0; j < dim; j++) {
			m[j] = k3_fma(k, u[j], m[j]);
			o[j] = k3_fma(q, m[j], o[j]);
		}
	}
}

static void exp_n(const float *x, size_t n, float *out)
{
	SIMD
	for (size_t i = 0; i < n; i++)
		out[i] = k3_exp(x[i]);
}

static void sigmoid_n(const float *x, size_t n, float *out)
{
	SIMD
	for (size_t i = 0; i < n; i++)
		out[i] = k3_sigmoid(x[i]);
}

static void silu_n(const float *x, size_t n, float *out)
{
	SIMD
	for (size_t i = 0; i < n; i++)
		out[i] = x[i] * k3_sigmoid(x[i]);
}

static void situ_n(const float *a, const float *b, size_t n, float b1, float b2, float *out)
{
	SIMD
	for (size_t i = 0; i < n; i++)
		out[i] = b1 * k3_tanh(a[i] / b1) * k3_sigmoid(a[i]) * (b2 * k3_tanh(b[i] / b2));
}

#endif
