/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_row.h - the weights of a coded row, a chunk at a time, in plain C.
 *
 * Shared by the coder and the kernels of all instruction sets.  Loops are made for a compiler
 * that runs many bytes at a time; what an instruction set does better by hand, putting
 * escapes into 64 exponents, is a parameter.
 */
#ifndef K3_MATH_CODE_ROW_H
#define K3_MATH_CODE_ROW_H

#include "math/code.h"
#include "math/elementary.h"
#include "sys/le.h"

#ifdef __BMI__
#include <immintrin.h>
#endif

enum {
	CODE_STEPS = 8,			/* a chunk is 8 steps of 64 weights, */
	CODE_WIDE = 64,
	CODE_NARROW = 16,		/* or of 16, at the end of a row */
	CODE_CHUNK = CODE_STEPS * CODE_WIDE,
	CODE_TAIL = CODE_STEPS * CODE_NARROW,
	CODE_PLANES = 3,		/* bits of a code, so bytes of codes for 8 weights */
	CODE_ESCAPE = 7,		/* this code: the exponent is among the escapes */
	/* an escape of four bits: so far below the reach of codes, or above the base, or */
	CODE_BELOW = 11, CODE_ABOVE = 3,
	CODE_ZERO = 14,			/* exponent 0, or */
	CODE_BYTE = 15,			/* eight bits more are the exponent */
	CODE_ENTRY = 5,			/* bytes of a row's entry: where its escapes begin, base */
	CODE_PEEK = 15,			/* so many escapes of four bits are in 64, from wherever they begin */
	CODE_SLACK = 16,		/* bytes behind the escapes that a decoder may read */
	/* in memory, groups of 64 exponents have a gap behind them (see code_patch) */
	CODE_GROUP = 64, CODE_STRIDE = 128, CODE_MEMORY = CODE_CHUNK / CODE_GROUP * CODE_STRIDE,
};

#define CODE_BYTES 0x0101010101010101u

/* A place in a row. */
struct code_row {
	const unsigned char *body;	/* the next chunk */
	const unsigned char *escapes;	/* those of the block */
	size_t at;			/* the next of them, in units of four bits */
	unsigned char base;
	unsigned char far[16];		/* exponents of the escapes of four bits */
};

static inline struct code_row code_row(const struct k3_code *c, size_t row)
{
	const unsigned char *entry = c->row_table + CODE_ENTRY * row;
	struct code_row r = { .body = c->body + row * c->row_size, .escapes = c->escapes,
			      .at = 2 * (size_t)k3_get32(entry), .base = entry[4] };

	for (int i = 0; i < CODE_BELOW; i++)
		r.far[i] = (unsigned char)(r.base - CODE_ESCAPE - i);
	for (int i = 0; i < CODE_ABOVE; i++)
		r.far[CODE_BELOW + i] = (unsigned char)(r.base + 1 + i);
	return r;
}

static inline unsigned code_nibble(const unsigned char *p, size_t at)
{
	return p[at / 2] >> (at % 2 ? 4 : 0) & 15;
}

/* Where the byte of weight i of a wide step lies, so that unpacking puts weights in order. */
static inline size_t code_slot(size_t i)
{
	return i % 16 / 4 * 16 + i / 16 * 4 + i % 4;
}

/*
 * The exponents that codes name, as if there were no escapes, of `steps` steps from `first`.
 * Eight bytes are one word, in whatever order; a difference never borrows from the
 * next byte, for the top bit of each is set apart.
 */
static inline __attribute__((always_inline))
void code_near(const unsigned char *restrict planes, size_t lanes, unsigned first,
	       unsigned steps, unsigned char base, unsigned char *restrict e)
{
	uint64_t top = 0x80 * CODE_BYTES, from = base * CODE_BYTES | top;
	uint64_t flip = ~(base * CODE_BYTES) & top;

	_Pragma("GCC unroll 8")
	for (unsigned i = first; i < first + steps; i++) {
		const unsigned char *low = planes + i / 4 * lanes, *high = planes + 2 * lanes;
		size_t at = (i - first) * lanes;
		unsigned char *out = e + at / CODE_GROUP * CODE_STRIDE + at % CODE_GROUP;

		for (size_t s = 0; s < lanes; s += 8) {
			uint64_t two, one, code;

			memcpy(&two, low + s, 8);
			memcpy(&one, high + s, 8);
			code = (two >> 2 * (i % 4) & 3 * CODE_BYTES) |
			       ((i < 2 ? one << (2 - i) : one >> (i - 2)) & 4 * CODE_BYTES);
			code = (from - code) ^ flip;
			memcpy(out + s, &code, 8);
		}
	}
}

/* The number of the lowest bit, 64 where there is none; without a branch where that can be. */
static inline unsigned code_first(uint64_t mask)
{
#if defined(__BMI__)
	return (unsigned)_tzcnt_u64(mask);
#else
	return mask ? (unsigned)__builtin_ctzll(mask) : 64;
#endif
}

/* The lowest bit of each of CODE_PEEK escapes that is a CODE_BYTE: all four bits are set. */
static inline uint64_t code_longs(uint64_t escapes)
{
	uint64_t all = escapes & escapes >> 1;

	return all & all >> 2 & 0x111111111111111u;
}

/*
 * The next CODE_PEEK escapes of four bits, the first in the lowest bits, and whether `count` escapes
 * are simply the lowest `count` of them.
 */
static inline bool code_peek(const struct code_row *r, unsigned count, uint64_t *escapes)
{
	uint64_t v = k3_get64(r->escapes + r->at / 2) >> (r->at % 2 ? 4 : 0);

	*escapes = v;
	return count <= CODE_PEEK && !(code_longs(v) & (((uint64_t)1 << 4 * count) - 1));
}

/* Escapes of 64 exponents where mask has a bit, however many and long. */
static inline void code_patch_any(struct code_row *r, uint64_t mask, unsigned char *e)
{
	for (; mask; mask &= mask - 1) {
		unsigned v = code_nibble(r->escapes, r->at++), far;

		if (v == CODE_BYTE) {
			far = code_nibble(r->escapes, r->at) | code_nibble(r->escapes, r->at + 1) << 4;
			r->at += 2;
		} else {
			far = r->far[v];
		}
		e[__builtin_ctzll(mask)] = (unsigned char)far;
	}
}

/* So many escapes are put in whether they are there or not: a branch would be mispredicted. */
enum { CODE_FEW = 2 };

/* As code_patch_any, fast where escapes are few and short.  e[64] may be written too. */
static inline __attribute__((always_inline))
void code_patch(struct code_row *r, uint64_t mask, unsigned char *e)
{
	unsigned count = (unsigned)__builtin_popcountll(mask);
	uint64_t v;

	if (__builtin_expect(!code_peek(r, count, &v), 0)) {
		code_patch_any(r, mask, e);
		return;
	}
	r->at += count;
	_Pragma("GCC unroll 8")
	for (int i = 0; i < CODE_FEW; i++, mask &= mask - 1, v >>= 4)
		e[code_first(mask)] = r->far[v & 15];
	for (; __builtin_expect(mask != 0, 0); mask &= mask - 1, v >>= 4)
		e[code_first(mask)] = r->far[v & 15];
}

/* Puts escapes into 64 exponents where they are those of code CODE_ESCAPE. */
typedef void (*code_patch_fn)(struct code_row *r, unsigned char *e);

/* Exponents of `steps` steps of the chunk at r->body, in groups of 64; it stays there. */
static inline __attribute__((always_inline))
void code_exponents(code_patch_fn patch, struct code_row *r, size_t lanes, unsigned first,
		    unsigned steps, unsigned char *e)
{
	code_near(r->body, lanes, first, steps, r->base, e);
	for (size_t i = 0; i < steps * lanes / CODE_GROUP; i++)
		patch(r, e + i * CODE_STRIDE);
}

/* The n weights of the chunk at r->body, in order; r->body becomes the next chunk. */
static inline __attribute__((always_inline))
void code_chunk(code_patch_fn patch, struct code_row *r, size_t lanes, size_t n, float *out)
{
	_Alignas(64) unsigned char e[CODE_MEMORY];
	const unsigned char *sm = r->body + CODE_PLANES * lanes;

	code_exponents(patch, r, lanes, 0, CODE_STEPS, e);
	for (size_t i = 0; i < n; i++) {
		size_t g = i / CODE_GROUP, k = i % CODE_GROUP;
		size_t s = lanes == CODE_WIDE ? code_slot(k) : k;
		uint32_t b = sm[g * CODE_GROUP + s];

		out[i] = k3_from_bits((b & 0x80) << 24 | (uint32_t)e[g * CODE_STRIDE + s] << 23 |
				      (b & 0x7f) << 16);
	}
	r->body = sm + n;
}

/* A patch in plain C. */
static inline __attribute__((always_inline))
void code_patch_plain(struct code_row *r, unsigned char *e)
{
	uint64_t seven = (unsigned char)(r->base - CODE_ESCAPE) * CODE_BYTES, mask = 0;
	uint64_t low = 0x7f * CODE_BYTES;

	for (int i = 0; i < 8; i++) {
		uint64_t x = k3_get64(e + 8 * i) ^ seven;

		/* the top bit of a byte that is zero; then one bit of each byte, side by side */
		x = ~(((x & low) + low) | x | low);
		mask |= ((x >> 7) * 0x0102040810204080u >> 56) << 8 * i;
	}
	code_patch(r, mask, e);
}

#endif
