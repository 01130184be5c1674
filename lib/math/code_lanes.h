/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_lanes.h - products of coded rows, on top of math/lanes.h.
 *
 * An including file defines, where its registers can put escapes in between codes,
 *
 *	CODE_IN_REGISTERS
 *	code_weights(r, step, w)	the weights of a step of the wide chunk at r->body, in
 *				order, into four v16; steps come in order, and r->body stays
 *
 * and otherwise
 *
 *	code_patch_set(r, e)	puts escapes into 64 exponents in memory: a code_patch_fn
 *	v16_join(e, sm, w)	64 exponents, and signs and mantissas, in the order of slots,
 *				to four v16 of weights in order
 */
#ifndef K3_MATH_CODE_LANES_H
#define K3_MATH_CODE_LANES_H

#include "math/code_row.h"

/* Bytes of a wide chunk, and how far ahead of its use it is fetched at least. */
enum { CHUNK_SIZE = CODE_CHUNK + CODE_PLANES * CODE_WIDE, AHEAD = 8 * CHUNK_SIZE };

/* Fetches what belongs to a step of the chunk there: to the second cache, for the vector nearly fills the first. */
static inline void code_fetch(const unsigned char *body, unsigned step)
{
	__builtin_prefetch(body + step * CODE_WIDE, 0, 2);
	if (step < CODE_PLANES)
		__builtin_prefetch(body + CODE_CHUNK + step * CODE_WIDE, 0, 2);
}

/* The same for a half of a chunk, a chunk behind this one. */
static inline void code_fetch_half(const unsigned char *body, bool second)
{
	k3_prefetch(body + CHUNK_SIZE + CODE_PLANES * CODE_WIDE / 2 + (second ? STEP : 0), CHUNK_SIZE / 2);
}

/* The weights of a step times `vecs` vectors from column `at`. */
static inline __attribute__((always_inline))
void code_dot_step(const v16 *w, const float *const *x, size_t at, size_t vecs, v16 *acc)
{
	UNROLL
	for (size_t v = 0; v < vecs; v++) {
		UNROLL
		for (size_t k = 0; k < 4; k++)
			acc[v] = v16_fma(w[k], v16_load(x[v] + at + k * LANES), acc[v]);
	}
}

/* The weights of a step become floats. */
static inline void code_store_step(const v16 *w, float *out)
{
	UNROLL
	for (size_t k = 0; k < 4; k++)
		v16_store(out + k * LANES, w[k]);
}

#ifdef CODE_IN_REGISTERS
#include "math/code_registers.h"
#else
#include "math/code_ahead.h"
#endif

/* ---- few vectors ---- */

/* The columns from `at` to n, behind the last wide chunk. */
static void code_dot_end(struct code_row *r, const float *const *x, size_t at, size_t n,
			 size_t vecs, v16 *acc)
{
	float w[CODE_TAIL];

	for (size_t k; at < n; at += k) {
		k = n - at < CODE_TAIL ? n - at : CODE_TAIL;
		code_chunk(code_patch_set, r, CODE_NARROW, k, w);
		for (size_t v = 0; v < vecs; v++) {
			size_t i = 0;

			for (; i + LANES <= k; i += LANES)
				acc[v] = v16_fma(v16_load(w + i), v16_load(x[v] + at + i), acc[v]);
			if (i < k)
				acc[v] = tail(acc[v], w + i, x[v] + at + i, k - i);
		}
	}
}

/* Rows of the block from `row` on times vecs < FEW vectors; y[v][to + i] are the results. */
static inline __attribute__((always_inline))
void dot_coded(const struct k3_code *c, size_t row, size_t rows, const float *const *x, size_t vecs,
	       float *const *y, size_t to)
{
	struct code_row r[CODE_STREAMS];
	v16 acc[CODE_STREAMS * (FEW - 1)], sum[FEW - 1];

	UNROLL
	for (size_t i = 0; i < rows; i++) {
		r[i] = code_row(c, row + i);
		/* read too slowly for the machine to notice that they are read */
		__builtin_prefetch(r[i].escapes + r[i].at / 2 + 256);
		__builtin_prefetch(r[i].escapes + r[i].at / 2 + 320);
	}
	UNROLL
	for (size_t k = 0; k < rows * vecs; k++)
		acc[k] = v16_zero();
	code_dot_chunks(c, r, rows, x, vecs, acc);
	UNROLL
	for (size_t i = 0; i < rows; i++) {
		/* a copy: the sums of the loop above stay in registers */
		UNROLL
		for (size_t v = 0; v < vecs; v++)
			sum[v] = acc[i * vecs + v];
		code_dot_end(&r[i], x, c->cols / CODE_CHUNK * CODE_CHUNK, c->cols, vecs, sum);
		UNROLL
		for (size_t v = 0; v < vecs; v++)
			y[v][to + i] = v16_sum(sum[v]);
	}
}

/* Rows from .. rows - 1 of those that begin at first, times vecs < FEW vectors. */
static inline __attribute__((always_inline))
void streams_coded(const struct k3_code *c, size_t first, size_t from, size_t rows,
		   const float *const *x, size_t vecs, float *const *y)
{
	size_t r = from;

	for (; r + CODE_STREAMS <= rows; r += CODE_STREAMS)
		dot_coded(c, first + r, CODE_STREAMS, x, vecs, y, r);
	for (; r < rows; r++)
		dot_coded(c, first + r, 1, x, vecs, y, r);
}

/* The same for any number of vectors. */
static void few_coded(const struct k3_code *c, size_t first, size_t from, size_t rows,
		      const float *const *x, size_t count, float *const *y)
{
	for (size_t k; count; x += k, y += k, count -= k) {
		k = count < FEW - 1 ? count : FEW - 1;
		switch (k) {
		case 1: streams_coded(c, first, from, rows, x, 1, y); break;
		case 2: streams_coded(c, first, from, rows, x, 2, y); break;
		case 3: streams_coded(c, first, from, rows, x, 3, y); break;
		}
	}
}

/* ---- many vectors ---- */

_Static_assert(2 * STEP == CODE_CHUNK, "a piece of a tile is half a chunk");

/* Where the rows of a tile are; a piece of STEP columns is half a chunk. */
struct coded_rows {
	struct source source;			/* unused: what a widen_fn is given */
	const struct k3_code *code;
	size_t first;				/* the block's row that is row 0 */
	struct coded_row *rows;			/* DEEP */
};

struct coded_row {
	struct code_halves of;
	float last[LANES];			/* what is behind the whole lanes */
};

/* A widen_fn: pieces of a row come in order. */
static void widen_row_coded(const struct source *s, size_t row, size_t at, size_t k, float *out)
{
	const struct coded_rows *rows = (const struct coded_rows *)s;
	struct coded_row *c = &rows->rows[row % DEEP];
	size_t n = rows->code->cols, wide = n / CODE_CHUNK * CODE_CHUNK;

	if (!at)
		code_halves_begin(&c->of, rows->code, rows->first + row);
	if (at % STEP) {
		memcpy(out, c->last, k * sizeof *out);
	} else if (at < wide) {
		code_half(&c->of, at % CODE_CHUNK, at + STEP < wide, out);
	} else {
		float end[STEP];
		size_t m = n - at < STEP ? n - at : STEP;

		for (size_t i = 0; i < m; i += CODE_TAIL)
			code_chunk(code_patch_set, &c->of.row, CODE_NARROW,
				   m - i < CODE_TAIL ? m - i : CODE_TAIL, end + i);
		memcpy(out, end, k * sizeof *out);
		memcpy(c->last, end + k, (m - k) * sizeof *out);
	}
}

/* ---- the entry of the table ---- */

static void rows_coded(const void *block, size_t first, size_t rows, const float *const *x,
		       size_t count, float *const *y)
{
	struct k3_code c = k3_code_view(block);
	struct coded_row deep[DEEP];
	struct coded_rows coded = { { 0 }, &c, first, deep };
	size_t v;

	if (c.raw) {
		rows_bf16(c.body + first * c.row_size, rows, c.cols, x, count, y);
		return;
	}
	v = tiles(widen_row_coded, &coded.source, rows, c.cols, x, count, y);
	few_coded(&c, first, rows / ROWS * ROWS, rows, x, v, y);
	few_coded(&c, first, 0, rows, x + v, count - v, y + v);
}

#endif
