/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_lanes.h - products of coded rows, on top of math/lanes.h.
 *
 * An including file defines two things more:
 *
 *	code_patch_set(r, e)	puts escapes into 64 exponents: a code_patch_fn
 *	v16_join(e, sm, w)	64 exponents, and signs and mantissas, in the order of slots,
 *				to four v16 of weights in order
 *
 * The exponents of a chunk are made in memory, its escapes are put in byte by byte, and only
 * then the weights are put together in registers.  A load that follows such small stores
 * at once would wait for them, so the exponents are always one chunk ahead; thus the
 * scalar work on escapes also goes on beside the vectors' work on weights.
 */
#ifndef K3_MATH_CODE_LANES_H
#define K3_MATH_CODE_LANES_H

#include "math/code_row.h"

/* ---- one vector ---- */

/*
 * Bytes of a wide chunk, and how far ahead of its use it is fetched: to the second cache,
 * for the vector nearly fills the first.
 */
enum { CHUNK_SIZE = CODE_CHUNK + CODE_PLANES * CODE_WIDE, AHEAD = 8 * CHUNK_SIZE };

static inline __attribute__((always_inline))
v16 code_dot_step(const unsigned char *body, unsigned step, const unsigned char *e,
		  const float *x, v16 acc)
{
	v16 w[4];

	__builtin_prefetch(body + AHEAD + step * CODE_WIDE, 0, 2);
	if (step < CODE_PLANES)
		__builtin_prefetch(body + AHEAD + CODE_CHUNK + step * CODE_WIDE, 0, 2);
	v16_join(e + step * CODE_STRIDE, body + CODE_PLANES * CODE_WIDE + step * CODE_WIDE, w);
	UNROLL
	for (size_t k = 0; k < 4; k++)
		acc = v16_fma(w[k], v16_load(x + step * CODE_WIDE + k * LANES), acc);
	return acc;
}

/* The columns behind the last wide chunk; n of them. */
static float code_dot_end(struct code_row *r, const float *x, size_t n, v16 acc)
{
	float w[CODE_TAIL];

	for (size_t k; n; n -= k, x += k) {
		size_t i = 0;

		k = n < CODE_TAIL ? n : CODE_TAIL;
		code_chunk(code_patch_set, r, CODE_NARROW, k, w);
		for (; i + LANES <= k; i += LANES)
			acc = v16_fma(v16_load(w + i), v16_load(x + i), acc);
		if (i < k)
			acc = tail(acc, w + i, x + i, k - i);
	}
	return v16_sum(acc);
}

static float dot_coded(const struct k3_code *c, size_t row, const float *x)
{
	_Alignas(64) unsigned char e[2][CODE_MEMORY];
	struct code_row r = code_row(c, row);
	size_t chunks = c->cols / CODE_CHUNK;
	v16 acc = v16_zero();

	/* read too slowly for the machine to notice that they are read */
	__builtin_prefetch(r.escapes + r.at / 2 + 256);
	__builtin_prefetch(r.escapes + r.at / 2 + 320);
	if (chunks)
		code_exponents(code_patch_set, &r, CODE_WIDE, 0, CODE_STEPS, e[0]);
	for (size_t k = 0; k < chunks; k++) {
		const unsigned char *now = e[k % 2];
		unsigned char *next = e[1 - k % 2];
		bool more = k + 1 < chunks;

		if (more)
			code_near(r.body + CHUNK_SIZE, CODE_WIDE, 0, CODE_STEPS, r.base, next);
		UNROLL
		for (unsigned s = 0; s < CODE_STEPS; s++) {
			if (more)
				code_patch_set(&r, next + s * CODE_STRIDE);
			acc = code_dot_step(r.body, s, now, x + k * CODE_CHUNK, acc);
		}
		r.body += CHUNK_SIZE;
	}
	return code_dot_end(&r, x + chunks * CODE_CHUNK, c->cols % CODE_CHUNK, acc);
}

/* ---- many vectors ---- */

_Static_assert(2 * STEP == CODE_CHUNK, "a piece of a tile is half a chunk");

/* Where the rows of a tile are; a piece of STEP columns is half a chunk. */
struct coded_rows {
	struct source source;			/* unused: what a widen_fn is given */
	const struct k3_code *code;
	size_t first;				/* the block's row that is row 0 */
	struct code_row *at;			/* DEEP */
	float (*last)[LANES];			/* DEEP: what is behind the whole lanes */
};

/* Half of a wide chunk, from step `first`. */
static inline __attribute__((always_inline))
void widen_half(struct code_row *r, unsigned first, float *out)
{
	_Alignas(64) unsigned char e[CODE_MEMORY / 2];
	const unsigned char *sm = r->body + (CODE_PLANES + first) * CODE_WIDE;

	code_exponents(code_patch_set, r, CODE_WIDE, first, CODE_STEPS / 2, e);
	UNROLL
	for (unsigned s = 0; s < CODE_STEPS / 2; s++) {
		v16 w[4];

		v16_join(e + s * CODE_STRIDE, sm + s * CODE_WIDE, w);
		UNROLL
		for (size_t k = 0; k < 4; k++)
			v16_store(out + s * CODE_WIDE + k * LANES, w[k]);
	}
}

/* A widen_fn: pieces of a row come in order. */
static void widen_row_coded(const struct source *s, size_t row, size_t at, size_t k, float *out)
{
	const struct coded_rows *c = (const struct coded_rows *)s;
	struct code_row *r = &c->at[row % DEEP];
	size_t n = c->code->cols;
	float *last = c->last[row % DEEP];

	if (!at)
		*r = code_row(c->code, c->first + row);
	if (at % STEP) {
		memcpy(out, last, k * sizeof *out);
	} else if (at < n / CODE_CHUNK * CODE_CHUNK) {
		/* two calls, for shifts by constants are fastest */
		if (at % CODE_CHUNK) {
			widen_half(r, CODE_STEPS / 2, out);
			r->body += CHUNK_SIZE;
		} else {
			widen_half(r, 0, out);
		}
	} else {
		float end[STEP];
		size_t m = n - at < STEP ? n - at : STEP;

		for (size_t i = 0; i < m; i += CODE_TAIL)
			code_chunk(code_patch_set, r, CODE_NARROW,
				   m - i < CODE_TAIL ? m - i : CODE_TAIL, end + i);
		memcpy(out, end, k * sizeof *out);
		memcpy(last, end + k, (m - k) * sizeof *out);
	}
}

/* ---- the entry of the table ---- */

static void rows_coded(const void *block, size_t first, size_t rows, const float *const *x,
		       size_t count, float *const *y)
{
	struct k3_code c = k3_code_view(block);
	struct code_row at[DEEP];
	float last[DEEP][LANES];
	struct coded_rows coded = { { 0 }, &c, first, at, last };
	size_t v;

	if (c.raw) {
		rows_bf16(c.body + first * c.row_size, rows, c.cols, x, count, y);
		return;
	}
	v = tiles(widen_row_coded, &coded.source, rows, c.cols, x, count, y);
	for (size_t u = 0; u < count; u++)
		for (size_t r = u < v ? rows / ROWS * ROWS : 0; r < rows; r++)
			y[u][r] = dot_coded(&c, first + r, x[u]);
}

#endif
