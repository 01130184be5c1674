/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_lanes.h - products of coded rows, on top of math/lanes.h.
 *
 * An including file defines more:
 *
 *	code_patch_set(r, e)	puts escapes into 64 exponents in memory: a code_patch_fn
 *	code_begin(r, first, steps, e)
 *				prepares so many steps of the wide chunk at r->body, and may use
 *				CODE_MEMORY bytes at e, aligned to 64
 *	v16_step(r, first, step, e, w)
 *				four v16 with the weights of a step; those that were prepared
 *				come in order, each once
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
v16 code_dot_step(struct code_row *r, unsigned step, const unsigned char *e, const float *x,
		  v16 acc)
{
	v16 w[4];

	__builtin_prefetch(r->body + AHEAD + step * CODE_WIDE, 0, 2);
	if (step < CODE_PLANES)
		__builtin_prefetch(r->body + AHEAD + CODE_CHUNK + step * CODE_WIDE, 0, 2);
	v16_step(r, 0, step, e, w);
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
	_Alignas(64) unsigned char e[CODE_MEMORY];
	struct code_row r = code_row(c, row);
	v16 acc = v16_zero();
	size_t i = 0;

	/* read too slowly for the machine to notice that they are read */
	__builtin_prefetch(r.escapes + r.at / 2 + 256);
	__builtin_prefetch(r.escapes + r.at / 2 + 320);
	for (; i + CODE_CHUNK <= c->cols; i += CODE_CHUNK) {
		code_begin(&r, 0, CODE_STEPS, e);
		UNROLL
		for (unsigned s = 0; s < CODE_STEPS; s++)
			acc = code_dot_step(&r, s, e, x + i, acc);
		r.body += CHUNK_SIZE;
	}
	return code_dot_end(&r, x + i, c->cols - i, acc);
}

/* ---- many vectors ---- */

/* Where the rows of a tile are; a piece of STEP columns is half a chunk. */
struct coded_rows {
	const struct k3_code *code;
	size_t first;				/* the block's row that is row 0 */
	struct code_row *at;			/* DEEP */
	float (*last)[LANES];			/* DEEP: what is behind the whole lanes */
};

static inline __attribute__((always_inline))
void widen_half(struct code_row *r, unsigned first, float *out)
{
	_Alignas(64) unsigned char e[CODE_MEMORY];

	code_begin(r, first, CODE_STEPS / 2, e);
	UNROLL
	for (unsigned s = 0; s < CODE_STEPS / 2; s++) {
		v16 w[4];

		v16_step(r, first, first + s, e, w);
		UNROLL
		for (size_t k = 0; k < 4; k++)
			v16_store(out + s * CODE_WIDE + k * LANES, w[k]);
	}
}

/* A widen_fn: pieces of a row come in order. */
static void widen_row_coded(const void *w, const void *none, size_t n, size_t row, size_t at,
			    size_t k, float *out)
{
	const struct coded_rows *c = w;
	struct code_row *r = &c->at[row % DEEP];
	float *last = c->last[row % DEEP];

	(void)none;
	if (!at)
		*r = code_row(c->code, c->first + row);
	if (at % STEP) {
		memcpy(out, last, k * sizeof *out);
	} else if (at < n / CODE_CHUNK * CODE_CHUNK) {
		bool second = at % CODE_CHUNK;

		/* steps are constants in each, as some instructions want their shifts */
		if (second)
			widen_half(r, CODE_STEPS / 2, out);
		else
			widen_half(r, 0, out);
		if (second)
			r->body += CHUNK_SIZE;
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
	struct coded_rows coded = { &c, first, at, last };
	size_t v;

	if (c.raw) {
		rows_bf16(c.body + first * c.row_size, rows, c.cols, x, count, y);
		return;
	}
	v = tiles(widen_row_coded, &coded, NULL, rows, c.cols, x, count, y);
	for (size_t u = 0; u < count; u++)
		for (size_t r = u < v ? rows / ROWS * ROWS : 0; r < rows; r++)
			y[u][r] = dot_coded(&c, first + r, x[u]);
}

#endif
