/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/elementary.h - exp, sigmoid and tanh of docs/numerics.md, N5.
 *
 * The same operations in every instruction set, within 2 ulp for every input,
 * denormal results included; a NaN stays a NaN.  There are no branches, so that
 * a compiler or a hand can run many at once.
 */
#ifndef K3_MATH_ELEMENTARY_H
#define K3_MATH_ELEMENTARY_H

#include "math/fma.h"

static inline float k3_from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static inline uint32_t k3_to_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

/*
 * e^x = 2^n e^r with n = round(x / ln 2).  e^r = 1 + (r + r^2 q(r)), q of degree
 * 4 by a minimax fit on |r| <= ln(2)/2.  2^n is two factors, since n reaches 128 and -150.
 */
static inline float k3_exp(float x)
{
	const float magic = 0x1.8p23f;
	float shifted, n, r, rest, q, y;
	int32_t k;

	/* as selects: beyond these the result is inf or 0 anyway, and a NaN passes */
	x = x > 89.0f ? 89.0f : x;
	x = x < -104.0f ? -104.0f : x;
	shifted = k3_fma(x, 0x1.715476p+0f, magic);
	n = shifted - magic;
	/* x - n hi is exact; rest is what r, and then 1 + r, lose by rounding */
	y = k3_fma(n, -0x1.62e43p-1f, x);
	r = k3_fma(n, 0x1.05c61p-29f, y);
	rest = k3_fma(n, 0x1.05c61p-29f, y - r);
	q = 0x1.6db3dcp-10f;
	q = k3_fma(q, r, 0x1.123b4ep-7f);
	q = k3_fma(q, r, 0x1.55545ep-5f);
	q = k3_fma(q, r, 0x1.55549p-3f);
	q = k3_fma(q, r, 0.5f);
	y = 1.0f + r;
	y += ((1.0f - y) + r) + k3_fma(q * r, r, rest);
	/* the low bits of the shifted sum are n in two's complement */
	k = (int32_t)(k3_to_bits(shifted) - k3_to_bits(magic));
	int32_t half = (k - (int32_t)((uint32_t)k & 1)) / 2;
	return y * k3_from_bits((uint32_t)(half + 127) << 23)
		 * k3_from_bits((uint32_t)(k - half + 127) << 23);
}

/*
 * 1 / (1 + e^-x), by e^-|x| so that nothing overflows and small results keep their
 * bits.  The quotient is corrected once by its remainder, to which belongs what
 * the sum 1 + e lost.
 */
static inline float k3_sigmoid(float x)
{
	float e = k3_exp(-k3_from_bits(k3_to_bits(x) & 0x7fffffff));
	float d = 1.0f + e, lost = (1.0f - d) + e, r = 1.0f / d;
	float above = x < 0 ? e : 1.0f, y = above * r;

	return k3_fma(k3_fma(-y, lost, k3_fma(-y, d, above)), r, y);
}

/* x + x^3 q(x^2) near zero, by a minimax fit; 1 - 2 / (e^2|x| + 1) elsewhere */
static inline float k3_tanh(float x)
{
	uint32_t sign = k3_to_bits(x) & 0x80000000;
	float a = k3_from_bits(k3_to_bits(x) ^ sign);
	float z = a * a, q, small, big;

	q = -0x1.76d15ap-8f;
	q = k3_fma(q, z, 0x1.5261d2p-6f);
	q = k3_fma(q, z, -0x1.b84684p-5f);
	q = k3_fma(q, z, 0x1.110778p-3f);
	q = k3_fma(q, z, -0x1.555534p-2f);
	small = k3_fma(q * z, a, a);
	big = 1.0f - 2.0f / (k3_exp(a + a) + 1.0f);
	return k3_from_bits(k3_to_bits(a < 0.625f ? small : big) | sign);
}

#endif
