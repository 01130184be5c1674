/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_registers.h - the wide chunks of a coded row in registers; part of math/code_lanes.h.
 */
#ifndef K3_MATH_CODE_REGISTERS_H
#define K3_MATH_CODE_REGISTERS_H

/* Only the end of a row goes by way of memory. */
#define code_patch_set code_patch_plain

/* Rows side by side: the additions of one alone wait for each other. */
enum { CODE_STREAMS = 2 };

/* The wide chunks of `rows` rows times vecs vectors, added to acc[row * vecs + vector]; all r go behind them. */
static inline __attribute__((always_inline))
void code_dot_chunks(const struct k3_code *c, struct code_row *r, size_t rows,
		     const float *const *x, size_t vecs, v16 *acc)
{
	/* what is near, of rows side by side, is another of them */
	size_t ahead = rows > 1 ? k3_max(rows * c->row_size, AHEAD) : AHEAD;

	for (size_t k = 0; k < c->cols / CODE_CHUNK; k++) {
		UNROLL
		for (unsigned s = 0; s < CODE_STEPS; s++) {
			UNROLL
			for (size_t i = 0; i < rows; i++) {
				v16 w[4];

				code_fetch(r[i].body + ahead, s);
				code_weights(&r[i], s, w);
				code_dot_step(w, x, k * CODE_CHUNK + s * CODE_WIDE, vecs, acc + i * vecs);
			}
		}
		UNROLL
		for (size_t i = 0; i < rows; i++)
			r[i].body += CHUNK_SIZE;
	}
}

/* A row whose wide chunks become floats half by half. */
struct code_halves {
	struct code_row row;
};

static void code_halves_begin(struct code_halves *h, const struct k3_code *c, size_t row)
{
	h->row = code_row(c, row);
}

static inline __attribute__((always_inline))
void code_steps(struct code_row *r, unsigned first, float *out)
{
	UNROLL
	for (unsigned s = 0; s < CODE_STEPS / 2; s++) {
		v16 w[4];

		code_weights(r, first + s, w);
		code_store_step(w, out + s * CODE_WIDE);
	}
}

/* Four steps of the wide chunk at the row's place become floats. */
static void code_half(struct code_halves *h, bool second, bool more, float *out)
{
	struct code_row *r = &h->row;

	(void)more;
	code_fetch_half(r->body, second);
	/* two calls, for shifts by constants are fastest */
	if (second)
		code_steps(r, CODE_STEPS / 2, out);
	else
		code_steps(r, 0, out);
	if (second)
		r->body += CHUNK_SIZE;
}

#endif
