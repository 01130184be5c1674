/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c - the kernels for x86 with AVX-512 (F, BW, DQ, VL): 16 lanes are one register. */
#include <immintrin.h>
#include <stddef.h>

typedef __m512 v16;

enum { ROWS = 4, VECS = 6 };

static inline v16 v16_zero(void) { return _mm512_setzero_ps(); }
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 v) { _mm512_storeu_ps(p, v); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }

static inline v16 v16_bf16(const unsigned char *p)
{
	__m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));

	return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}

/*
 * Byte b holds elements 2b (low nibble) and 2b + 1: as a quadword it is the index
 * of the first in its low half, and shifted by 28 that of the second in its high half.
 * The table look-up takes the low four bits of each.
 */
static inline v16 v16_fp4(const unsigned char *p, unsigned char s)
{
	const __m512 table = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6,
					    -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6);
	__m512i q = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const void *)p));
	__m512i index = _mm512_or_si512(q, _mm512_slli_epi64(q, 28));
	/* 2^-127 is denormal: half of 2^-126 */
	__m512i bits = _mm512_set1_epi32(s ? s << 23 : 1 << 22);

	return _mm512_mul_ps(_mm512_permutexvar_ps(index, table), _mm512_castsi512_ps(bits));
}

static inline float v16_sum(v16 v)
{
	__m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#include "math/lanes.h"

K3_TABLE(avx512);
