/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c - the kernels for x86 with AVX-512 (F, BW, DQ, VL): 16 lanes are one register. */
#include <immintrin.h>
#include <stddef.h>

typedef __m512 v16;

#define VECS_MAX 6
enum { ROWS = 4, VECS = VECS_MAX };

static inline v16 v16_zero(void) { return _mm512_setzero_ps(); }
static inline v16 v16_set1(float f) { return _mm512_set1_ps(f); }
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 v) { _mm512_storeu_ps(p, v); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }

static inline v16 v16_bf16(const unsigned char *p)
{
	__m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));

	return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}

/* All sixteen values, scaled. */
typedef __m512 fp4_table;

static inline fp4_table fp4_prepare(float scale)
{
	return _mm512_mul_ps(_mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6,
					    -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6),
			     _mm512_set1_ps(scale));
}

/* Each lane shifts its code down; the look-up takes the low four bits of it. */
static inline v16 v16_fp4(const unsigned char *p, fp4_table t)
{
	const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28,
						0, 4, 8, 12, 16, 20, 24, 28);
	int first, second;
	__m512i codes;

	__builtin_memcpy(&first, p, 4);
	__builtin_memcpy(&second, p + 4, 4);
	codes = _mm512_mask_set1_epi32(_mm512_set1_epi32(first), 0xff00, second);
	return _mm512_permutexvar_ps(_mm512_srlv_epi32(codes, shift), t);
}

static inline float v16_sum(v16 v)
{
	__m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/*
 * The sums of four at once.  Each step adds halves that lie side by side in one register
 * afterwards: j and j + 8 of two, then j and j + 4 of four, then within quarters.
 */
static inline void v16_sums(const v16 *v, float *y)
{
	__m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
				 _mm512_shuffle_f32x4(v[0], v[1], 0xee));
	__m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
				 _mm512_shuffle_f32x4(v[2], v[3], 0xee));
	__m512 c = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
	const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);

	c = _mm512_add_ps(c, _mm512_permute_ps(c, 0x4e));
	c = _mm512_add_ps(c, _mm512_permute_ps(c, 0xb1));
	_mm_storeu_ps(y, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, c)));
}

#include "math/lanes.h"
#include "math/code_row.h"

static inline __attribute__((always_inline))
void code_patch_set(struct code_row *r, unsigned char *e)
{
	__m512i seven = _mm512_set1_epi8((char)(r->base - CODE_ESCAPE));

	code_patch(r, _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(e), seven), e);
}

static inline __attribute__((always_inline))
void v16_join(const unsigned char *ep, const unsigned char *smp, v16 *w)
{
	const __m512i top = _mm512_set1_epi8((char)0x80), zero = _mm512_setzero_si512();
	__m512i e = _mm512_loadu_si512(ep), sm = _mm512_loadu_si512(smp);
	/* 0xca: bit by bit from the second where top is set, else from the third */
	__m512i high = _mm512_ternarylogic_epi32(top, sm, _mm512_srli_epi16(e, 1), 0xca);
	__m512i low = _mm512_ternarylogic_epi32(top, _mm512_slli_epi16(e, 7), sm, 0xca);
	__m512i a = _mm512_unpacklo_epi8(low, high), b = _mm512_unpackhi_epi8(low, high);

	w[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, a));
	w[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, a));
	w[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, b));
	w[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, b));
}

#include "math/code_lanes.h"

K3_TABLE(avx512);
