/* SPDX-License-Identifier: Apache-2.0 */
/* neon.c - the kernels for 64-bit ARM: 16 lanes are four registers. */
#include <arm_neon.h>
#include <stddef.h>

typedef struct {
	float32x4_t q[4];
} v16;

#define VECS_MAX 3
enum { ROWS = 2, VECS = VECS_MAX };

static inline v16 v16_zero(void)
{
	float32x4_t z = vdupq_n_f32(0);

	return (v16){ { z, z, z, z } };
}

static inline v16 v16_set1(float f)
{
	float32x4_t q = vdupq_n_f32(f);

	return (v16){ { q, q, q, q } };
}

static inline v16 v16_load(const float *p)
{
	return (v16){ { vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12) } };
}

static inline void v16_store(float *p, v16 v)
{
	for (int i = 0; i < 4; i++)
		vst1q_f32(p + 4 * i, v.q[i]);
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
	for (int i = 0; i < 4; i++)
		c.q[i] = vfmaq_f32(c.q[i], a.q[i], b.q[i]);
	return c;
}

static inline v16 v16_bf16(const unsigned char *p)
{
	uint16x8_t lo = vreinterpretq_u16_u8(vld1q_u8(p));
	uint16x8_t hi = vreinterpretq_u16_u8(vld1q_u8(p + 16));

	return (v16){ { vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(lo), 16)),
			vreinterpretq_f32_u32(vshll_high_n_u16(lo, 16)),
			vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(hi), 16)),
			vreinterpretq_f32_u32(vshll_high_n_u16(hi, 16)) } };
}

/* The scale in every lane. */
typedef float32x4_t fp4_table;

static inline fp4_table fp4_prepare(float scale)
{
	return vdupq_n_f32(scale);
}

/*
 * The upper two bytes of a float hold all of an E2M1 value; the top one comes from
 * a table, and so does the second.  Codes are put in order by zipping nibbles.
 */
static inline v16 v16_fp4(const unsigned char *p, fp4_table scale)
{
	static const uint8_t top[16] = { 0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
					 0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0 };
	static const uint8_t second[16] = { 0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
					    0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0 };
	uint8x8_t b = vld1_u8(p);
	uint8x8x2_t z = vzip_u8(vand_u8(b, vdup_n_u8(15)), vshr_n_u8(b, 4));
	uint8x16_t code = vcombine_u8(z.val[0], z.val[1]);
	uint8x16_t t = vqtbl1q_u8(vld1q_u8(top), code), u = vqtbl1q_u8(vld1q_u8(second), code);
	/* little-endian halves: second byte first */
	uint16x8_t lo = vreinterpretq_u16_u8(vzip1q_u8(u, t));
	uint16x8_t hi = vreinterpretq_u16_u8(vzip2q_u8(u, t));

	return (v16){ {
		vmulq_f32(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(lo), 16)), scale),
		vmulq_f32(vreinterpretq_f32_u32(vshll_high_n_u16(lo, 16)), scale),
		vmulq_f32(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(hi), 16)), scale),
		vmulq_f32(vreinterpretq_f32_u32(vshll_high_n_u16(hi, 16)), scale) } };
}

static inline float v16_sum(v16 v)
{
	float32x4_t a = vaddq_f32(v.q[0], v.q[2]), b = vaddq_f32(v.q[1], v.q[3]);
	float32x4_t c = vaddq_f32(a, b);
	float32x2_t d = vadd_f32(vget_low_f32(c), vget_high_f32(c));

	return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}

/* The sums of ROWS at once. */
static inline void v16_sums(const v16 *v, float *y)
{
	for (int r = 0; r < ROWS; r++)
		y[r] = v16_sum(v[r]);
}

#include "math/lanes.h"
#include "math/code_row.h"

/* A bit for each of 64 bytes that is v: each byte keeps its own bit, and neighbours are added. */
static inline uint64_t equal64(const unsigned char *p, unsigned char v)
{
	static const uint8_t bit[16] = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
	uint8x16_t bits = vld1q_u8(bit), value = vdupq_n_u8(v), m[4], sum;

	for (int i = 0; i < 4; i++)
		m[i] = vandq_u8(vceqq_u8(vld1q_u8(p + 16 * i), value), bits);
	sum = vpaddq_u8(vpaddq_u8(m[0], m[1]), vpaddq_u8(m[2], m[3]));
	return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}

static inline __attribute__((always_inline))
void code_patch_set(struct code_row *r, unsigned char *e)
{
	code_patch(r, equal64(e, (unsigned char)(r->base - CODE_ESCAPE)), e);
}

/* 16 slots are four floats of each of four v16. */
static inline __attribute__((always_inline))
void v16_join(const unsigned char *ep, const unsigned char *smp, v16 *w)
{
	for (int i = 0; i < 4; i++) {
		uint8x16_t e = vld1q_u8(ep + 16 * i), sm = vld1q_u8(smp + 16 * i);
		/* shift right and insert: what is above the seven bits stays */
		uint8x16_t high = vsriq_n_u8(sm, e, 1), low = vsliq_n_u8(sm, e, 7);
		uint16x8_t a = vreinterpretq_u16_u8(vzip1q_u8(low, high));
		uint16x8_t b = vreinterpretq_u16_u8(vzip2q_u8(low, high));

		w[0].q[i] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(a), 16));
		w[1].q[i] = vreinterpretq_f32_u32(vshll_high_n_u16(a, 16));
		w[2].q[i] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(b), 16));
		w[3].q[i] = vreinterpretq_f32_u32(vshll_high_n_u16(b, 16));
	}
}

#include "math/code_lanes.h"

K3_TABLE(neon);
