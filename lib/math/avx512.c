/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c - the kernels for x86 with AVX-512 (F, BW, DQ, VL, VBMI, VBMI2): 16 lanes are one register. */
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

/* Each lane takes eight bits from where its code begins; the look-up takes the low four of them. */
static inline v16 v16_fp4(const unsigned char *p, fp4_table t)
{
	const __m512i at = _mm512_setr_epi64(0x400000000, 0xc00000008, 0x1400000010, 0x1c00000018,
					     0x2400000020, 0x2c00000028, 0x3400000030, 0x3c00000038);
	long long codes;

	__builtin_memcpy(&codes, p, 8);
	return _mm512_permutexvar_ps(_mm512_multishift_epi64_epi8(at, _mm512_set1_epi64(codes)), t);
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

#define CODE_IN_REGISTERS

/* Exponents, and signs and mantissas, of 64 weights in the order of slots, to weights in order. */
static inline void join_slots(__m512i e, __m512i sm, v16 *w)
{
	const __m512i top = _mm512_set1_epi8((char)0x80), zero = _mm512_setzero_si512();
	/* 0xca: bit by bit from the second where top is set, else from the third */
	__m512i high = _mm512_ternarylogic_epi32(top, sm, _mm512_srli_epi16(e, 1), 0xca);
	__m512i low = _mm512_ternarylogic_epi32(top, _mm512_slli_epi16(e, 7), sm, 0xca);
	__m512i a = _mm512_unpacklo_epi8(low, high), b = _mm512_unpackhi_epi8(low, high);

	w[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, a));
	w[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, a));
	w[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, b));
	w[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, b));
}

/* The codes of a step, a byte each. */
static inline __m512i step_codes(const unsigned char *planes, unsigned step)
{
	const __m512i three = _mm512_set1_epi8(3), four = _mm512_set1_epi8(4);
	__m512i two = _mm512_loadu_si512(planes + step / 4 * CODE_WIDE);
	__m512i one = _mm512_loadu_si512(planes + 2 * CODE_WIDE);

	two = _mm512_and_si512(_mm512_srli_epi16(two, 2 * (step % 4)), three);
	one = step < 2 ? _mm512_slli_epi16(one, 2 - step) : _mm512_srli_epi16(one, step - 2);
	/* 0xf8: the bits that the last two share, and those of the first */
	return _mm512_ternarylogic_epi32(two, one, four, 0xf8);
}

/* The exponents of CODE_PEEK escapes of four bits, in the lowest bytes. */
static inline __m512i far_exponents(const struct code_row *r, uint64_t escapes)
{
	/* a byte takes eight bits from here on; the look-up takes the low four of them */
	const __m128i at = _mm_setr_epi8(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
	__m128i four = _mm_multishift_epi64_epi8(at, _mm_set1_epi64x((long long)escapes));

	return _mm512_castsi128_si512(_mm_permutexvar_epi8(four, _mm_loadu_si128((const void *)r->far)));
}

/* Escapes that are many or long, one after the other. */
static __attribute__((noinline)) __m512i patch_any(struct code_row *r, uint64_t mask, __m512i e)
{
	_Alignas(64) unsigned char m[CODE_GROUP];

	_mm512_store_si512(m, e);
	code_patch_any(r, mask, m);
	return _mm512_load_si512(m);
}

static inline __attribute__((always_inline))
void code_weights(struct code_row *r, unsigned step, v16 *w)
{
	const unsigned char *sm = r->body + CODE_PLANES * CODE_WIDE + step * CODE_WIDE;
	__m512i code = step_codes(r->body, step);
	__m512i e = _mm512_sub_epi8(_mm512_set1_epi8((char)r->base), code);
	uint64_t mask = _mm512_cmpeq_epi8_mask(code, _mm512_set1_epi8(CODE_ESCAPE)), escapes;
	unsigned count = (unsigned)_mm_popcnt_u64(mask);

	if (__builtin_expect(code_peek(r, count, &escapes), 1)) {
		r->at += count;
		e = _mm512_mask_expand_epi8(e, mask, far_exponents(r, escapes));
	} else {
		e = patch_any(r, mask, e);
	}
	join_slots(e, _mm512_loadu_si512(sm), w);
}

#include "math/code_lanes.h"

K3_TABLE(avx512);
