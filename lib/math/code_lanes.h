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

/* ---- few vectors ---- */

/*
 * Bytes of a wide chunk, and how far ahead of its use it is fetched: to the second cache,
 * for the vector nearly fills the first.
 */
enum { CHUNK_SIZE = CODE_CHUNK + CODE_PLANES * CODE_WIDE, AHEAD = 8 * CHUNK_SIZE };

/* A step of a row times `vecs` vectors from column `at`. */
static inline __attribute__((always_inline))
void code_dot_step(const unsigned char *body, unsigned step, const unsigned char *e,
		   const float *const *x, size_t at, size_t vecs, v16 *acc)
{
	v16 w[4];

	__builtin_prefetch(body + AHEAD + step * CODE_WIDE, 0, 2);
	if (step < CODE_PLANES)
		__builtin_prefetch(body + AHEAD + CODE_CHUNK + step * CODE_WIDE, 0, 2);
	v16_join(e + step * CODE_STRIDE, body + CODE_PLANES * CODE_WIDE + step * CODE_WIDE, w);
	UNROLL
	for (size_t v = 0; v < vecs; v++) {
		const float *p = x[v] + at + step * CODE_WIDE;

		UNROLL
		for (size_t k = 0; k < 4; k++)
			acc[v] = v16_fma(w[k], v16_load(p + k * LANES), acc[v]);
	}
}

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

/* One row of the block times vecs < FEW vectors; y[v][to] are the results. */
static inline __attribute__((always_inline))
void dot_coded(const struct k3_code *c, size_t row, const float *const *x, size_t vecs,
	       float *const *y, size_t to)
{
	_Alignas(64) unsigned char e[2][CODE_MEMORY];
	struct code_row r = code_row(c, row);
	size_t chunks = c->cols / CODE_CHUNK;
	v16 acc[FEW - 1], sum[FEW - 1];

	/* read too slowly for the machine to notice that they are read */
	__builtin_prefetch(r.escapes + r.at / 2 + 256);
	__builtin_prefetch(r.escapes + r.at / 2 + 320);
	UNROLL
	for (size_t v = 0; v < vecs; v++)
		acc[v] = v16_zero();
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
			code_dot_step(r.body, s, now, x, k * CODE_CHUNK, vecs, acc);
		}
		r.body += CHUNK_SIZE;
	}
	/* a copy: the sums of the loop above stay in registers */
	UNROLL
	for (size_t v = 0; v < vecs; v++)
		sum[v] = acc[v];
	code_dot_end(&r, x, chunks * CODE_CHUNK, c->cols, vecs, sum);
	UNROLL
	for (size_t v = 0; v < vecs; v++)
		y[v][to] = v16_sum(sum[v]);
}

/* Rows from to rows of those that begin at first. */
static void few_coded(const struct k3_code *c, size_t first, size_t from, size_t rows,
		      const float *const *x, size_t count, float *const *y)
{
	for (; count; x += FEW - 1, y += FEW - 1) {
		size_t k = count < FEW - 1 ? count : FEW - 1;

		for (size_t r = from; r < rows; r++)
			switch (k) {
			case 1: dot_coded(c, first + r, x, 1, y, r); break;
			case 2: dot_coded(c, first + r, x, 2, y, r); break;
			case 3: dot_coded(c, first + r, x, 3, y, r); break;
			}
		count -= k;
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
	_Alignas(64) unsigned char e[CODE_MEMORY / 2];	/* exponents of the next piece */
	struct code_row at;
	float last[LANES];			/* what is behind the whole lanes */
};

/*
 * Four steps of the wide chunk at the row's place become floats, then the exponents of the next
 * four are made where there are such.
 */
static void widen_half(struct coded_row *c, bool second, bool more, float *out)
{
	struct code_row *r = &c->at;
	const unsigned char *sm = r->body + CODE_PLANES * CODE_WIDE + (second ? STEP : 0);

	prefetch(sm + CHUNK_SIZE - CODE_PLANES * CODE_WIDE / 2, CHUNK_SIZE / 2);
	UNROLL
	for (unsigned s = 0; s < CODE_STEPS / 2; s++) {
		v16 w[4];

		v16_join(c->e + s * CODE_STRIDE, sm + s * CODE_WIDE, w);
		UNROLL
		for (size_t k = 0; k < 4; k++)
			v16_store(out + s * CODE_WIDE + k * LANES, w[k]);
	}
	/* two calls, for shifts by constants are fastest */
	if (!second)
		code_exponents(code_patch_set, r, CODE_WIDE, CODE_STEPS / 2, CODE_STEPS / 2, c->e);
	if (second)
		r->body += CHUNK_SIZE;
	if (second && more)
		code_exponents(code_patch_set, r, CODE_WIDE, 0, CODE_STEPS / 2, c->e);
}

/* A widen_fn: pieces of a row come in order. */
static void widen_row_coded(const struct source *s, size_t row, size_t at, size_t k, float *out)
{
	const struct coded_rows *rows = (const struct coded_rows *)s;
	struct coded_row *c = &rows->rows[row % DEEP];
	size_t n = rows->code->cols, wide = n / CODE_CHUNK * CODE_CHUNK;

	if (!at) {
		c->at = code_row(rows->code, rows->first + row);
		if (wide)
			code_exponents(code_patch_set, &c->at, CODE_WIDE, 0, CODE_STEPS / 2, c->e);
	}
	if (at % STEP) {
		memcpy(out, c->last, k * sizeof *out);
	} else if (at < wide) {
		widen_half(c, at % CODE_CHUNK, at + STEP < wide, out);
	} else {
		float end[STEP];
		size_t m = n - at < STEP ? n - at : STEP;

		for (size_t i = 0; i < m; i += CODE_TAIL)
			code_chunk(code_patch_set, &c->at, CODE_NARROW,
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
