/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/lanes.h - DOT and its products for instruction sets with vectors.
 *
 * An including file defines first what 16 lanes of floats are and how to work on them:
 *
 *	v16			the type
 *	v16_zero()		+0 in every lane
 *	v16_load(p)		16 floats at any address
 *	v16_store(p, v)
 *	v16_set1(f)		f in every lane
 *	v16_fma(a, b, c)	one fused a * b + c a lane
 *	v16_bf16(p)		16 bf16 at any address, widened
 *	fp4_table		what decoding codes of one scale needs
 *	fp4_prepare(scale)	the table for a scale
 *	v16_fp4(p, table)	16 codes in 8 bytes, each times the scale
 *	v16_sum(v)		the tree of N3
 *	v16_sums(v, y)		ROWS of them: y[r] = v16_sum(v[r])
 *	ROWS, VECS		rows and vectors of the tile that fits the registers;
 *				VECS_MAX is VECS for the preprocessor
 *
 * A DOT's lanes are never split, merged or reordered: only which DOTs run side by
 * side differs between instruction sets, so the bits do not.
 */
#ifndef K3_MATH_LANES_H
#define K3_MATH_LANES_H

#include "math/elementwise.h"
#include "sys/small.h"

#include <stdbool.h>

enum { LANES = 16, GROUP = 32, STEP = 256 };

/* 2^(s - 127), exact: 2^-127 is the one that is denormal. */
static inline float scale_value(unsigned char s)
{
	return s ? k3_from_bits((uint32_t)s << 23) : 0x1p-127f;
}

/* The lanes of n mod 16 last elements; those beyond stay as they are (N3). */
static inline v16 tail(v16 acc, const float *a, const float *b, size_t n)
{
	float lane[LANES];

	v16_store(lane, acc);
	for (size_t j = 0; j < n; j++)
		lane[j] = k3_fma(a[j], b[j], lane[j]);
	return v16_load(lane);
}

static float dot(const float *a, const float *b, size_t n)
{
	v16 acc = v16_zero();
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		acc = v16_fma(v16_load(a + i), v16_load(b + i), acc);
	return v16_sum(i < n ? tail(acc, a + i, b + i, n - i) : acc);
}

/* ---- few vectors: weights go from memory through registers, once ---- */

/*
 * Rows that are read side by side.  Two hide the latency of an addition well enough, and
 * memory likes few streams best; decoding MXFP4 takes longer and wants four.
 */
enum { STREAMS = 2, FP4_STREAMS = 4 };

/* From this many vectors on it pays to widen rows into memory first. */
enum { FEW = 4 };

/* Rows of MXFP4 side by side for two vectors and more, as many as registers hold the sums of. */
enum { FP4_SHARED = VECS_MAX > 3 ? 4 : 2 };

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

static inline __attribute__((always_inline))
void stream_bf16(const unsigned char *w, size_t rows, size_t n, const float *x, float *y)
{
	v16 acc[STREAMS];
	size_t i = 0;

	UNROLL
	for (size_t r = 0; r < rows; r++)
		acc[r] = v16_zero();
	for (; i + LANES <= n; i += LANES) {
		v16 xi = v16_load(x + i);

		/*
		 * The rows that come next, a line for two steps; into the second cache, for the
		 * first is full of the vector.
		 */
		if (rows == STREAMS)
			__builtin_prefetch(w + 2 * ((STREAMS + i / LANES % STREAMS) * n + i), 0, 2);
		UNROLL
		for (size_t r = 0; r < rows; r++)
			acc[r] = v16_fma(v16_bf16(w + 2 * (r * n + i)), xi, acc[r]);
	}
	UNROLL
	for (size_t r = 0; r < rows; r++) {
		float last[LANES];

		widen_bf16(w + 2 * (r * n + i), n - i, last);
		y[r] = v16_sum(i < n ? tail(acc[r], last, x + i, n - i) : acc[r]);
	}
}

/* Rows from `to` on times vecs vectors, for which codes are decoded once. */
static inline __attribute__((always_inline))
void stream_fp4(const unsigned char *codes, const unsigned char *scales, size_t rows, size_t n,
		const float *const *x, size_t vecs, float *const *y, size_t to)
{
	size_t groups = n / GROUP;
	v16 acc[FP4_STREAMS * (FEW - 1)];

	codes += to * n / 2;
	scales += to * groups;
	UNROLL
	for (size_t k = 0; k < rows * vecs; k++)
		acc[k] = v16_zero();
	for (size_t g = 0; g < groups; g++) {
		/* the rows that come next, short enough for the first cache; a line holds four groups */
		if (rows > 1)
			__builtin_prefetch(codes + ((rows + g % rows) * groups + g) * (GROUP / 2));
		UNROLL
		for (size_t r = 0; r < rows; r++) {
			const unsigned char *c = codes + (r * groups + g) * (GROUP / 2);
			fp4_table t = fp4_prepare(scale_value(scales[r * groups + g]));
			v16 w0 = v16_fp4(c, t), w1 = v16_fp4(c + 8, t);

			UNROLL
			for (size_t v = 0; v < vecs; v++) {
				v16 *sum = &acc[v * rows + r];

				*sum = v16_fma(w0, v16_load(x[v] + g * GROUP), *sum);
				*sum = v16_fma(w1, v16_load(x[v] + g * GROUP + LANES), *sum);
			}
		}
	}
	UNROLL
	for (size_t k = 0; k < rows * vecs; k++)
		y[k / rows][to + k % rows] = v16_sum(acc[k]);
}

/* Rows from .. rows - 1 times vecs < FEW vectors. */
static inline __attribute__((always_inline))
void streams_fp4(const unsigned char *codes, const unsigned char *scales, size_t from, size_t rows,
		 size_t n, const float *const *x, size_t vecs, float *const *y)
{
	size_t deep = vecs > 1 ? FP4_SHARED : FP4_STREAMS, r = from;

	for (; r + deep <= rows; r += deep)
		stream_fp4(codes, scales, deep, n, x, vecs, y, r);
	for (; r < rows; r++)
		stream_fp4(codes, scales, 1, n, x, vecs, y, r);
}

/* The same for any number of vectors. */
static void few_fp4(const unsigned char *codes, const unsigned char *scales, size_t from,
		    size_t rows, size_t n, const float *const *x, size_t count, float *const *y)
{
	for (size_t k; count; x += k, y += k, count -= k) {
		k = count < FEW - 1 ? count : FEW - 1;
		switch (k) {
		case 1: streams_fp4(codes, scales, from, rows, n, x, 1, y); break;
		case 2: streams_fp4(codes, scales, from, rows, n, x, 2, y); break;
		case 3: streams_fp4(codes, scales, from, rows, n, x, 3, y); break;
		}
	}
}

/* ---- many vectors: a few rows are widened a piece at a time, and used for all of them ---- */

/* Lanes of ROWS rows, STEP floats apart, times `vecs` vectors over n columns, a multiple of 16. */
static inline __attribute__((always_inline))
void tile_step(const float *w, size_t n, const float *const *x, size_t at, size_t vecs, v16 *acc)
{
	v16 sum[ROWS * VECS];

	UNROLL
	for (size_t k = 0; k < ROWS * vecs; k++)
		sum[k] = acc[k];
	for (size_t i = 0; i < n; i += LANES) {
		v16 wi[ROWS];

		UNROLL
		for (size_t r = 0; r < ROWS; r++)
			wi[r] = v16_load(w + r * STEP + i);
		UNROLL
		for (size_t v = 0; v < vecs; v++) {
			v16 xi = v16_load(x[v] + at + i);

			UNROLL
			for (size_t r = 0; r < ROWS; r++)
				sum[v * ROWS + r] = v16_fma(wi[r], xi, sum[v * ROWS + r]);
		}
	}
	UNROLL
	for (size_t k = 0; k < ROWS * vecs; k++)
		acc[k] = sum[k];
}

/* Vectors and rows that are handled together; their lanes lie in memory between two pieces. */
enum { TILE = 32, DEEP = 8 };

/* ROWS rows of a piece times all vectors, in groups that are as even as can be. */
static void tile_piece(const float *w, size_t n, const float *const *x, size_t at, size_t count,
		       v16 *acc)
{
	size_t groups = (count + VECS - 1) / VECS;

	for (size_t v = 0; groups; groups--) {
		size_t k = (count - v + groups - 1) / groups;

		/* of four vectors or more, groups that are so even have two at least */
		switch (k) {
		case 2: tile_step(w, n, x + v, at, 2, acc + v * ROWS); break;
		case 3: tile_step(w, n, x + v, at, 3, acc + v * ROWS); break;
#if VECS_MAX > 3
		case 4: tile_step(w, n, x + v, at, 4, acc + v * ROWS); break;
		case 5: tile_step(w, n, x + v, at, 5, acc + v * ROWS); break;
		case 6: tile_step(w, n, x + v, at, 6, acc + v * ROWS); break;
#endif
		}
		v += k;
	}
}

/* Rows of weights: each `stride` elements behind the one before. */
struct source {
	const unsigned char *w, *scales;
	size_t stride;
};

/* How rows become floats: k columns (k <= STEP) from column `at` of `row` into out. */
typedef void (*widen_fn)(const struct source *s, size_t row, size_t at, size_t k, float *out);

static void widen_row_bf16(const struct source *s, size_t row, size_t at, size_t k, float *out)
{
	const unsigned char *p = s->w + 2 * (row * s->stride + at);

	k3_prefetch(p + 2 * STEP, 2 * STEP);
	widen_bf16(p, k, out);
}

static void widen_row_f32(const struct source *s, size_t row, size_t at, size_t k, float *out)
{
	const float *p = (const float *)s->w + row * s->stride + at;

	/* this piece of the rows that come next */
	k3_prefetch(p + ROWS * s->stride, STEP * sizeof *p);
	for (size_t i = 0; i < k; i++)
		out[i] = p[i];
}

static void widen_row_fp4(const struct source *s, size_t row, size_t at, size_t k, float *out)
{
	const unsigned char *c = s->w + (row * s->stride + at) / 2;
	const unsigned char *e = s->scales + (row * s->stride + at) / GROUP;

	k3_prefetch(c + STEP / 2, STEP / 2);
	for (size_t i = 0; i < k; i += GROUP) {
		fp4_table t = fp4_prepare(scale_value(e[i / GROUP]));

		v16_store(out + i, v16_fp4(c + i / 2, t));
		v16_store(out + i + LANES, v16_fp4(c + i / 2 + 8, t));
	}
}

/* The columns behind the last whole 16, into the lanes of a tile. */
static inline __attribute__((always_inline))
void last_columns(widen_fn widen, const struct source *s, size_t row, size_t deep, size_t n,
		  const float *const *x, size_t count, v16 *acc)
{
	size_t whole = n / LANES * LANES;
	float last[LANES];

	for (size_t r = 0; r < deep; r++) {
		v16 *sum = acc + r / ROWS * ROWS * count + r % ROWS;

		widen(s, row + r, whole, n - whole, last);
		for (size_t v = 0; v < count; v++)
			sum[v * ROWS] = tail(sum[v * ROWS], last, x[v] + whole, n - whole);
	}
}

/*
 * `deep` rows (a multiple of ROWS, at most DEEP) from `row`, times count <= TILE vectors.  A
 * piece of all vectors stays in the first cache while the rows pass over it.
 */
static inline __attribute__((always_inline))
void tile(widen_fn widen, const struct source *s, size_t row, size_t deep, size_t n,
	  const float *const *x, size_t count, float *const *y)
{
	_Alignas(64) float piece[ROWS * STEP];
	v16 acc[DEEP * TILE];
	size_t whole = n / LANES * LANES;

	for (size_t k = 0; k < deep * count; k++)
		acc[k] = v16_zero();
	for (size_t at = 0; at < whole; at += STEP) {
		size_t k = whole - at < STEP ? whole - at : STEP;

		for (size_t d = 0; d < deep; d += ROWS) {
			for (size_t r = 0; r < ROWS; r++)
				widen(s, row + d + r, at, k, piece + r * STEP);
			tile_piece(piece, k, x, at, count, acc + d * count);
		}
	}
	if (whole < n)
		last_columns(widen, s, row, deep, n, x, count, acc);
	for (size_t d = 0; d < deep; d += ROWS)
		for (size_t v = 0; v < count; v++)
			v16_sums(acc + d * count + v * ROWS, y[v] + row + d);
}

/*
 * All whole groups of ROWS rows times as many vectors as make tiles; returns how many
 * vectors that were.
 */
static inline __attribute__((always_inline))
size_t tiles(widen_fn widen, const struct source *s, size_t rows, size_t n,
	     const float *const *x, size_t count, float *const *y)
{
	size_t v = 0, whole = rows / ROWS * ROWS;

	while (count - v >= FEW) {
		size_t k = count - v < TILE ? count - v : TILE;

		for (size_t r = 0; r < whole; r += DEEP)
			tile(widen, s, r, whole - r < DEEP ? whole - r : DEEP, n, x + v, k, y + v);
		v += k;
	}
	return v;
}

/* ---- the entries of the table ---- */

static void rows_bf16(const void *w, size_t rows, size_t n, const float *const *x, size_t count,
		      float *const *y)
{
	const unsigned char *p = w;
	size_t v = tiles(widen_row_bf16, &(struct source){ p, NULL, n }, rows, n, x, count, y), r;

	/* what is left: all rows of the last few vectors, the last few rows of the others */
	for (size_t u = 0; u < count; u++) {
		size_t from = u < v ? rows / ROWS * ROWS : 0;

		for (r = from; r + STREAMS <= rows; r += STREAMS)
			stream_bf16(p + 2 * r * n, STREAMS, n, x[u], y[u] + r);
		for (; r < rows; r++)
			stream_bf16(p + 2 * r * n, 1, n, x[u], y[u] + r);
	}
}

static void rows_mxfp4(const void *codes, const void *scales, size_t rows, size_t n,
		       const float *const *x, size_t count, float *const *y)
{
	size_t v = tiles(widen_row_fp4, &(struct source){ codes, scales, n }, rows, n, x, count, y);

	/* what is left: the last few rows of the vectors in tiles, all rows of the others */
	few_fp4(codes, scales, rows / ROWS * ROWS, rows, n, x, v, y);
	few_fp4(codes, scales, 0, rows, n, x + v, count - v, y + v);
}

static void rows_f32(const float *w, size_t stride, size_t rows, size_t n, const float *const *x,
		     size_t count, float *const *y)
{
	struct source s = { (const unsigned char *)w, NULL, stride };
	size_t v = tiles(widen_row_f32, &s, rows, n, x, count, y), whole = rows / ROWS * ROWS;

	for (size_t u = 0; u < count; u++)
		for (size_t r = u < v ? whole : 0; r < rows; r++)
			y[u][r] = dot(w + r * stride, x[u], n);
}

/* Columns and vectors of sums that are kept in registers while the rows pass by. */
enum { WIDE = VECS_MAX > 3 ? 4 : 2 };

/* ahead: fetch the columns that come next as well. */
static inline __attribute__((always_inline))
void weigh(const float *w, size_t stride, size_t rows, size_t at, const float *const *weight,
	   size_t vecs, float *const *y, bool ahead)
{
	v16 sum[WIDE * WIDE];

	UNROLL
	for (size_t k = 0; k < vecs * WIDE; k++)
		sum[k] = v16_load(y[k / WIDE] + at + k % WIDE * LANES);
	for (size_t r = 0; r < rows; r++) {
		v16 row[WIDE];

		if (ahead)
			k3_prefetch(w + r * stride + at + WIDE * LANES,
				    WIDE * LANES * sizeof *w);
		UNROLL
		for (size_t k = 0; k < WIDE; k++)
			row[k] = v16_load(w + r * stride + at + k * LANES);
		UNROLL
		for (size_t v = 0; v < vecs; v++) {
			v16 f = v16_set1(weight[v][r]);

			UNROLL
			for (size_t k = 0; k < WIDE; k++)
				sum[v * WIDE + k] = v16_fma(f, row[k], sum[v * WIDE + k]);
		}
	}
	UNROLL
	for (size_t k = 0; k < vecs * WIDE; k++)
		v16_store(y[k / WIDE] + at + k % WIDE * LANES, sum[k]);
}

static void weighted_rows(const float *w, size_t stride, size_t rows, size_t n,
			  const float *const *weight, size_t count, float *const *y)
{
	size_t at = 0, v;

	for (; at + WIDE * LANES <= n; at += WIDE * LANES) {
		for (v = 0; v + WIDE <= count; v += WIDE)
			weigh(w, stride, rows, at, weight + v, WIDE, y + v, v == 0);
		for (; v < count; v++)
			weigh(w, stride, rows, at, weight + v, 1, y + v, v == 0);
	}
	for (v = 0; at < n && v < count; v++)
		for (size_t r = 0; r < rows; r++)
			axpy(weight[v][r], w + r * stride + at, n - at, y[v] + at);
}

#define K3_TABLE(set)							\
	const struct k3_kernels k3_kernels_##set = {			\
		.name = #set, .dot = dot, .rows_bf16 = rows_bf16,	\
		.rows_mxfp4 = rows_mxfp4, .rows_coded = rows_coded, .rows_f32 = rows_f32, \
		.weighted_rows = weighted_rows, .axpy = axpy, .axpy_bf16 = axpy_bf16, \
		.muladd = muladd, .widen_bf16 = widen_bf16, .kda_step = kda_step, \
		.exp = exp_n, .sigmoid = sigmoid_n, .silu = silu_n, .situ = situ_n, \
	}

#endif
