/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/fma.h - fused multiply-add in single precision, the same bits everywhere.
 *
 * Where the instruction exists (the object is compiled for it) it is used.  Elsewhere it
 * is computed: the product of two floats is exact in double; its sum with the
 * addend is rounded to odd, and what is rounded to odd with at least two more
 * bits can be rounded again to float without error.
 */
#ifndef K3_MATH_FMA_H
#define K3_MATH_FMA_H

#include <stdint.h>
#include <string.h>

#if __FLT_EVAL_METHOD__ != 0
#error "double arithmetic must not have excess precision"
#endif

static inline float k3_fma_portable(float a, float b, float c)
{
	double p = (double)a * b, d = c;
	double s = p + d;
	/* TwoSum: s + e is the exact sum; e is NaN where s is not finite */
	double t = s - p;
	double e = (p - (s - t)) + (d - t);
	uint64_t bits, ebits;

	memcpy(&bits, &s, 8);
	memcpy(&ebits, &e, 8);
	/*
	 * Inexact and even: step to the odd neighbour on the side of e, which
	 * is away from zero when s and e have the same sign.
	 */
	uint64_t inexact = (uint64_t)((e > 0) | (e < 0));
	uint64_t toward_zero = (bits ^ ebits) >> 63;
	bits += (inexact & ~bits & 1) * (1 - 2 * toward_zero);
	memcpy(&s, &bits, 8);
	return (float)s;
}

static inline float k3_fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
	return __builtin_fmaf(a, b, c);
#else
	return k3_fma_portable(a, b, c);
#endif
}

#endif
