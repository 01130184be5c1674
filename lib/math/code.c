/* SPDX-License-Identifier: Apache-2.0 */
/* code.c - coding blocks of bf16 rows, checking coded blocks, and getting the rows back. */
#include "math/code_row.h"

#include <k3/buf.h>

/*
 * A block: a head of 64 bytes; for each row 32 bits, where its escapes begin among all, and
 * its base; zeros up to a multiple of 64; the rows; the escapes; CODE_SLACK zeros.  A raw
 * block: the head and the weights.
 */
enum { HEAD = 64, VERSION = 1, CODED = 1, ENTRY = 5 };

#define MOST_WEIGHTS ((uint64_t)1 << 30)

static const unsigned char magic[4] = { 'k', '3', 'b', 'l' };

size_t k3_code_bound(size_t rows, size_t cols)
{
	uint64_t weights;

	if (!rows || !cols || k3_mul_over(rows, cols, &weights) || weights > MOST_WEIGHTS)
		return 0;
	return HEAD + 2 * (size_t)weights;
}

static size_t row_size(size_t cols)
{
	size_t end = cols % CODE_CHUNK;

	return cols / CODE_CHUNK * (CODE_CHUNK + CODE_PLANES * CODE_WIDE) + end +
	       (end + CODE_TAIL - 1) / CODE_TAIL * CODE_PLANES * CODE_NARROW;
}

static size_t body_begin(size_t rows)
{
	return (HEAD + ENTRY * rows + 63) / 64 * 64;
}

struct k3_code k3_code_view(const void *block)
{
	const unsigned char *p = block;
	struct k3_code c = { .rows = k3_get32(p + 8), .cols = k3_get32(p + 12),
			     .size = k3_get32(p + 16), .raw = p[6] != CODED };

	c.row_table = p + HEAD;
	c.row_size = c.raw ? 2 * c.cols : row_size(c.cols);
	c.body = p + (c.raw ? HEAD : body_begin(c.rows));
	c.escapes = c.body + c.rows * c.row_size;
	return c;
}

/* ---- coding ---- */

static unsigned exponent(const unsigned char *w)
{
	return (unsigned)(w[1] & 0x7f) << 1 | w[0] >> 7;
}

/* What an exponent becomes under a base: its code, and if this is CODE_ESCAPE its escape. */
struct code {
	unsigned char near, far;
};

static struct code code_of(unsigned e, unsigned base)
{
	unsigned below = (base - e) & 255, above = (e - base) & 255;

	if (below < CODE_ESCAPE)
		return (struct code){ (unsigned char)below, 0 };
	if (below < CODE_ESCAPE + CODE_BELOW)
		return (struct code){ CODE_ESCAPE, (unsigned char)(below - CODE_ESCAPE) };
	if (above <= CODE_ABOVE)
		return (struct code){ CODE_ESCAPE, (unsigned char)(CODE_BELOW + above - 1) };
	return (struct code){ CODE_ESCAPE, e ? CODE_BYTE : CODE_ZERO };
}

/* The base under which the escapes of a row take the least room, the lowest of equals. */
static unsigned char best_base(const unsigned char *w, size_t cols, size_t *nibbles)
{
	uint32_t count[256] = { 0 };
	unsigned char best = 0;

	for (size_t i = 0; i < cols; i++)
		count[exponent(w + 2 * i)]++;
	*nibbles = SIZE_MAX;
	for (unsigned base = 0; base < 256; base++) {
		size_t n = 0;

		for (unsigned e = 0; e < 256; e++)
			if (count[e]) {
				struct code c = code_of(e, base);

				n += c.near < CODE_ESCAPE ? 0 : count[e] * (c.far == CODE_BYTE ? 3u : 1u);
			}
		if (n < *nibbles) {
			*nibbles = n;
			best = (unsigned char)base;
		}
	}
	return best;
}

static void put_nibble(unsigned char *p, size_t at, unsigned v)
{
	p[at / 2] = (unsigned char)(at % 2 ? p[at / 2] | v << 4 : v);
}

/*
 * The code of one lane at a step: its low two bits go to one of two planes, for
 * steps 0 to 3 and 4 to 7, its third to the last plane.
 */
static void put_code(unsigned char *p, size_t lanes, size_t step, unsigned code)
{
	p[step / 4 * lanes] |= (unsigned char)((code & 3) << 2 * (step % 4));
	p[2 * lanes] |= (unsigned char)(code >> 2 << step);
}

/* One chunk of n weights, of steps of `lanes`; returns where the next escape goes. */
static size_t put_chunk(const unsigned char *w, size_t n, size_t lanes, unsigned base,
			unsigned char *out, unsigned char *escapes, size_t at)
{
	unsigned char *sm = out + CODE_PLANES * lanes;

	memset(out, 0, CODE_PLANES * lanes);
	for (size_t i = 0; i < n; i += lanes) {
		unsigned char order[CODE_WIDE];
		size_t k = n - i < lanes ? n - i : lanes;

		for (size_t j = 0; j < k; j++)
			order[lanes == CODE_WIDE ? code_slot(j) : j] = (unsigned char)j;
		for (size_t s = 0; s < k; s++) {
			const unsigned char *p = w + 2 * (i + order[s]);
			unsigned e = exponent(p);
			struct code c = code_of(e, base);

			sm[i + s] = (unsigned char)((p[1] & 0x80) | (p[0] & 0x7f));
			put_code(out + s, lanes, i / lanes, c.near);
			if (c.near == CODE_ESCAPE)
				put_nibble(escapes, at++, c.far);
			if (c.near == CODE_ESCAPE && c.far == CODE_BYTE) {
				put_nibble(escapes, at++, e & 15);
				put_nibble(escapes, at++, e >> 4);
			}
		}
	}
	return at;
}

/* The weights of the next chunk where there are `left` in the row. */
static size_t chunk(size_t left)
{
	return left >= CODE_CHUNK ? CODE_CHUNK : left < CODE_TAIL ? left : CODE_TAIL;
}

static size_t lanes_of(size_t n)
{
	return n == CODE_CHUNK ? CODE_WIDE : CODE_NARROW;
}

static size_t put_row(const unsigned char *w, size_t cols, unsigned base, unsigned char *out,
		      unsigned char *escapes, size_t at)
{
	for (size_t left = cols, n; left; left -= n, w += 2 * n) {
		n = chunk(left);
		at = put_chunk(w, n, lanes_of(n), base, out, escapes, at);
		out += n + CODE_PLANES * lanes_of(n);
	}
	return at;
}

size_t k3_code_encode(const void *weights, size_t rows, size_t cols, void *out)
{
	const unsigned char *w = weights;
	unsigned char *p = out, *body, *escapes;
	size_t raw = k3_code_bound(rows, cols), size, at = 0, nibbles;

	size = body_begin(rows) + rows * row_size(cols) + CODE_SLACK;
	for (size_t r = 0; r < rows && size < raw; r++) {
		best_base(w + 2 * r * cols, cols, &nibbles);
		size += (nibbles + 1) / 2;
	}
	memset(p, 0, HEAD);
	memcpy(p, magic, sizeof magic);
	p[4] = VERSION;
	p[6] = size < raw ? CODED : 0;
	k3_put32(p + 8, (uint32_t)rows);
	k3_put32(p + 12, (uint32_t)cols);
	k3_put32(p + 16, (uint32_t)(size < raw ? size : raw));
	if (size >= raw) {
		memcpy(p + HEAD, w, raw - HEAD);
		return raw;
	}
	body = p + body_begin(rows);
	escapes = body + rows * row_size(cols);
	memset(p + HEAD, 0, body_begin(rows) - HEAD);
	for (size_t r = 0; r < rows; r++) {
		unsigned char base = best_base(w + 2 * r * cols, cols, &nibbles);

		k3_put32(p + HEAD + ENTRY * r, (uint32_t)(at / 2));
		p[HEAD + ENTRY * r + 4] = base;
		at = put_row(w + 2 * r * cols, cols, base, body + r * row_size(cols), escapes, at);
		at += at % 2;
	}
	memset(escapes + at / 2, 0, CODE_SLACK);
	return size;
}

/* ---- decoding ---- */

void k3_code_decode(const void *block, size_t first, size_t rows, void *out)
{
	struct k3_code c = k3_code_view(block);
	unsigned char *p = out;
	float w[CODE_CHUNK];

	if (c.raw) {
		memcpy(out, c.body + first * c.row_size, rows * c.row_size);
		return;
	}
	for (size_t k = 0; k < rows; k++) {
		struct code_row r = code_row(&c, first + k);

		for (size_t left = c.cols, n; left; left -= n) {
			n = chunk(left);
			if (n == CODE_CHUNK)
				code_chunk(code_patch_plain, &r, CODE_WIDE, n, w);
			else
				code_chunk(code_patch_plain, &r, CODE_NARROW, n, w);
			for (size_t i = 0; i < n; i++, p += 2) {
				uint32_t bits = k3_to_bits(w[i]);

				p[0] = (unsigned char)(bits >> 16);
				p[1] = (unsigned char)(bits >> 24);
			}
		}
	}
}
