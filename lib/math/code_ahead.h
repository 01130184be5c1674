/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_ahead.h - the wide chunks of a coded row by way of memory; part of math/code_lanes.h.
 *
 * The exponents of a chunk are made in memory, its escapes are put in byte by byte, and only
 * then the weights are put together in registers.  A load that follows such small stores
 * at once would wait for them, so the exponents are always one chunk ahead; thus the
 * scalar work on escapes also goes on beside the vectors' work on weights.
 */
#ifndef K3_MATH_CODE_AHEAD_H
#define K3_MATH_CODE_AHEAD_H

/* Rows side by side: of one, vectors and scalar work overlap already. */
enum { CODE_STREAMS = 1 };

/* The wide chunks of a row (rows is 1) times vecs vectors, added to acc; r goes behind them. */
static inline __attribute__((always_inline))
void code_dot_chunks(const struct k3_code *c, struct code_row *r, size_t rows,
		     const float *const *x, size_t vecs, v16 *acc)
{
	_Alignas(64) unsigned char e[2][CODE_MEMORY];
	size_t chunks = c->cols / CODE_CHUNK;

	(void)rows;
	if (chunks)
		code_exponents(code_patch_set, r, CODE_WIDE, 0, CODE_STEPS, e[0]);
	for (size_t k = 0; k < chunks; k++) {
		const unsigned char *now = e[k % 2], *sm = r->body + CODE_PLANES * CODE_WIDE;
		unsigned char *next = e[1 - k % 2];
		bool more = k + 1 < chunks;

		if (more)
			code_near(r->body + CHUNK_SIZE, CODE_WIDE, 0, CODE_STEPS, r->base, next);
		UNROLL
		for (unsigned s = 0; s < CODE_STEPS; s++) {
			v16 w[4];

			if (more)
				code_patch_set(r, next + s * CODE_STRIDE);
			code_fetch(r->body + AHEAD, s);
			v16_join(now + s * CODE_STRIDE, sm + s * CODE_WIDE, w);
			code_dot_step(w, x, k * CODE_CHUNK + s * CODE_WIDE, vecs, acc);
		}
		r->body += CHUNK_SIZE;
	}
}

/* A row whose wide chunks become floats half by half. */
struct code_halves {
	_Alignas(64) unsigned char e[CODE_MEMORY / 2];	/* exponents of the next half */
	struct code_row row;
};

static void code_halves_begin(struct code_halves *h, const struct k3_code *c, size_t row)
{
	h->row = code_row(c, row);
	if (c->cols >= CODE_CHUNK)
		code_exponents(code_patch_set, &h->row, CODE_WIDE, 0, CODE_STEPS / 2, h->e);
}

/*
 * Four steps of the wide chunk at the row's place become floats, then the exponents of the next
 * four are made where there are such.
 */
static void code_half(struct code_halves *h, bool second, bool more, float *out)
{
	struct code_row *r = &h->row;
	const unsigned char *sm = r->body + CODE_PLANES * CODE_WIDE + (second ? STEP : 0);

	code_fetch_half(r->body, second);
	UNROLL
	for (unsigned s = 0; s < CODE_STEPS / 2; s++) {
		v16 w[4];

		v16_join(h->e + s * CODE_STRIDE, sm + s * CODE_WIDE, w);
		code_store_step(w, out + s * CODE_WIDE);
	}
	/* two calls, for shifts by constants are fastest */
	if (!second)
		code_exponents(code_patch_set, r, CODE_WIDE, CODE_STEPS / 2, CODE_STEPS / 2, h->e);
	if (second)
		r->body += CHUNK_SIZE;
	if (second && more)
		code_exponents(code_patch_set, r, CODE_WIDE, 0, CODE_STEPS / 2, h->e);
}

#endif
