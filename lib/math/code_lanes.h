/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_lanes.h - products of coded rows, on top of math/lanes.h.
 *
 * An including file defines three things more:
 *
 *	code_patch_set(r, e)	puts escapes into 64 exponents: a code_patch_fn
 *	v16_join(e, sm, w)	64 exponents, and signs and mantissas, in the order of slots,
 *				to four v16 of weights in order
 *	CODE_STREAMS		rows that are read side by side
 *
 * The exponents of a chunk are made in memory, then put together with the rest of the
 * weights in registers, so that the scalar work on escapes is hidden by the vectors' work.
 */
#ifndef K3_MATH_CODE_LANES_H
#define K3_MATH_CODE_LANES_H

#include "math/code_row.h"

/* ---- one vector ---- */

enum { AHEAD = 2 * (CODE_CHUNK + CODE_PLANES * CODE_WIDE) };	/* bytes to fetch ahead */

static inline __attribute__((always_inline))
v16 code_dot_chunk(struct code_row *r, const unsigned char *e, const float *x, v16 acc)
{
	const unsigned char *sm = r->body + CODE_PLANES * CODE_WIDE;

	UNROLL
	for (size_t s = 0; s < CODE_STEPS; s++) {
		v16 w[4];

		v16_join(e + s * CODE_STRIDE, sm + s * CODE_WIDE, w);
		UNROLL
		for (size_t k = 0; k < 4; k++)
			acc = v16_fma(w[k], v16_load(x + s * CODE_WIDE + k * LANES), acc);
	}
	r->body = sm + CODE_CHUNK;
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

static inline __attribute__((always_inline))
void stream_coded(const struct k3_code *c, size_t row, size_t rows, const float *x, float *y)
{
	_Alignas(64) unsigned char e[CODE_STREAMS][CODE_MEMORY];
	struct code_row at[CODE_STREAMS];
	v16 acc[CODE_STREAMS];
	size_t i = 0;

	UNROLL
	for (size_t r = 0; r < rows; r++) {
		at[r] = code_row(c, row + r);
		/* they are read too slowly for the machine to notice that they are read */
		__builtin_prefetch(at[r].escapes + at[r].at / 2 + 256);
		__builtin_prefetch(at[r].escapes + at[r].at / 2 + 320);
		acc[r] = v16_zero();
	}
	for (; i + CODE_CHUNK <= c->cols; i += CODE_CHUNK) {
		UNROLL
		for (size_t r = 0; r < rows; r++) {
			for (size_t k = 0; k < CODE_CHUNK + CODE_PLANES * CODE_WIDE; k += 64)
				__builtin_prefetch(at[r].body + AHEAD + k);
			code_exponents(code_patch_set, &at[r], CODE_WIDE, 0, CODE_STEPS, e[r]);
		}
		UNROLL
		for (size_t r = 0; r < rows; r++)
			acc[r] = code_dot_chunk(&at[r], e[r], x + i, acc[r]);
	}
	UNROLL
	for (size_t r = 0; r < rows; r++)
		y[r] = code_dot_end(&at[r], x + i, c->cols - i, acc[r]);
}

/* ---- many vectors ---- */

/* Where the rows of a tile are; a piece of STEP columns is half a chunk. */
struct coded_rows {
	const struct k3_code *code;
	size_t first;				/* the block's row that is row 0 */
	struct code_row *at;			/* DEEP */
	float (*last)[LANES];			/* DEEP: what is behind the whole lanes */
};

/* A widen_fn: pieces of a row come in order. */
static void widen_row_coded(const void *w, const void *none, size_t n, size_t row, size_t at,
			    size_t k, float *out)
{
	const struct coded_rows *c = w;
	struct code_row *r = &c->at[row % DEEP];
	float *last = c->last[row % DEEP];
	_Alignas(64) unsigned char e[CODE_MEMORY / 2];

	(void)none;
	if (!at)
		*r = code_row(c->code, c->first + row);
	if (at % STEP) {
		memcpy(out, last, k * sizeof *out);
	} else if (at < n / CODE_CHUNK * CODE_CHUNK) {
		unsigned half = at % CODE_CHUNK ? CODE_STEPS / 2 : 0;
		const unsigned char *sm = r->body + CODE_PLANES * CODE_WIDE + at % CODE_CHUNK;

		code_exponents(code_patch_set, r, CODE_WIDE, half, CODE_STEPS / 2, e);
		for (size_t s = 0; s < CODE_STEPS / 2; s++) {
			v16 v[4];

			v16_join(e + s * CODE_STRIDE, sm + s * CODE_WIDE, v);
			UNROLL
			for (size_t i = 0; i < 4; i++)
				v16_store(out + s * CODE_WIDE + i * LANES, v[i]);
		}
		if (half)
			r->body = sm + STEP;
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
	size_t v, r;

	if (c.raw) {
		rows_bf16(c.body + first * c.row_size, rows, c.cols, x, count, y);
		return;
	}
	v = tiles(widen_row_coded, &coded, NULL, rows, c.cols, x, count, y);
	for (size_t u = 0; u < count; u++) {
		size_t from = u < v ? rows / ROWS * ROWS : 0;

		for (r = from; r + CODE_STREAMS <= rows; r += CODE_STREAMS)
			stream_coded(&c, first + r, CODE_STREAMS, x[u], y[u] + r);
		for (; r < rows; r++)
			stream_coded(&c, first + r, 1, x[u], y[u] + r);
	}
}

#endif
