/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.c - the kernels for x86 with AVX2 and FMA: 16 lanes are two registers. */
#include <immintrin.h>
#include <stddef.h>

typedef struct {
	__m256 lo, hi;
} v16;

#define VECS_MAX 3
enum { ROWS = 2, VECS = VECS_MAX };

static inline v16 v16_zero(void) { return (v16){ _mm256_setzero_ps(), _mm256_setzero_ps() }; }

static inline v16 v16_set1(float f) { return (v16){ _mm256_set1_ps(f), _mm256_set1_ps(f) }; }

static inline v16 v16_load(const float *p)
{
	return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}

static inline void v16_store(float *p, v16 v)
{
	_mm256_storeu_ps(p, v.lo);
	_mm256_storeu_ps(p + 8, v.hi);
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
	return (v16){ _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi) };
}

static inline __m256 widen8(const unsigned char *p)
{
	__m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));

	return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}

static inline v16 v16_bf16(const unsigned char *p)
{
	return (v16){ widen8(p), widen8(p + 16) };
}

/* The eight magnitudes, scaled. */
typedef __m256 fp4_table;

static inline fp4_table fp4_prepare(float scale)
{
	return _mm256_mul_ps(_mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6), _mm256_set1_ps(scale));
}

/*
 * Four bytes are eight codes.  Each lane shifts its code down; the look-up takes
 * the low three bits, and bit 3 becomes the sign.
 */
static inline __m256 fp4x8(const unsigned char *p, fp4_table t)
{
	const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
	int four;
	__m256i code;
	__m256 sign;

	__builtin_memcpy(&four, p, 4);
	code = _mm256_srlv_epi32(_mm256_set1_epi32(four), shift);
	sign = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(code, 28)), _mm256_set1_ps(-0.f));
	return _mm256_or_ps(_mm256_permutevar8x32_ps(t, code), sign);
}

static inline v16 v16_fp4(const unsigned char *p, fp4_table t)
{
	return (v16){ fp4x8(p, t), fp4x8(p + 4, t) };
}

static inline float v16_sum(v16 v)
{
	__m256 a = _mm256_add_ps(v.lo, v.hi);
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* The sums of ROWS at once. */
static inline void v16_sums(const v16 *v, float *y)
{
	for (int r = 0; r < ROWS; r++)
		y[r] = v16_sum(v[r]);
}

#include "math/lanes.h"
#include "math/code_row.h"

static inline __attribute__((always_inline))
void code_patch_set(struct code_row *r, unsigned char *e)
{
	const __m256i *p = (const __m256i *)e;
	__m256i seven = _mm256_set1_epi8((char)(r->base - CODE_ESCAPE));
	unsigned lo = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(p[0], seven));
	unsigned hi = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(p[1], seven));

	code_patch(r, lo | (uint64_t)hi << 32, e);
}

/* 32 slots are the lower, or the upper, halves of four v16. */
static inline void join32(const unsigned char *ep, const unsigned char *smp, __m256 *w)
{
	const __m256i top = _mm256_set1_epi8((char)0x80), zero = _mm256_setzero_si256();
	__m256i e = _mm256_load_si256((const void *)ep), sm = _mm256_loadu_si256((const void *)smp);
	__m256i high = _mm256_or_si256(_mm256_and_si256(top, sm),
				       _mm256_andnot_si256(top, _mm256_srli_epi16(e, 1)));
	__m256i low = _mm256_or_si256(_mm256_and_si256(top, _mm256_slli_epi16(e, 7)),
				      _mm256_andnot_si256(top, sm));
	__m256i a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);

	w[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, a));
	w[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, a));
	w[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, b));
	w[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, b));
}

static inline __attribute__((always_inline))
void v16_join(const unsigned char *e, const unsigned char *sm, v16 *w)
{
	__m256 lo[4], hi[4];

	join32(e, sm, lo);
	join32(e + 32, sm + 32, hi);
	for (int k = 0; k < 4; k++)
		w[k] = (v16){ lo[k], hi[k] };
}

#include "math/code_lanes.h"

K3_TABLE(avx2);
