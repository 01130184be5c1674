/* SPDX-License-Identifier: Apache-2.0 */
/* code.c - coding blocks of bf16 rows, checking coded blocks, and getting the rows back. */
#include "math/code_row.h"
#include "sys/small.h"

#include <k3/buf.h>

/*
 * A block: a head of 64 bytes; for each row 32 bits, where its escapes begin among all, and
 * its base; zeros up to a multiple of 64; the rows; the escapes; CODE_SLACK zeros.  A raw
 * block: the head and the weights.
 */
enum { HEAD = 64, VERSION = 1, RAW = 0, CODED = 1 };

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
	return (HEAD + CODE_ENTRY * rows + 63) / 64 * 64;
}

struct k3_code k3_code_view(const void *block)
{
	const unsigned char *p = block;
	struct k3_code c = { .rows = k3_get32(p + 8), .cols = k3_get32(p + 12),
			     .size = k3_get32(p + 16), .raw = p[6] == RAW };

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

/* The escape of an exponent that is out of the reach of codes under a base. */
static unsigned escape_of(unsigned e, unsigned base)
{
	unsigned below = (base - e) & 255, above = (e - base) & 255;

	if (below < CODE_ESCAPE + CODE_BELOW)
		return below - CODE_ESCAPE;
	if (above <= CODE_ABOVE)
		return CODE_BELOW + above - 1;
	return e ? CODE_BYTE : CODE_ZERO;
}

/* How often each exponent is in a row; four counts side by side do not wait for each other. */
static void count_exponents(const unsigned char *w, size_t cols, uint32_t count[256])
{
	uint32_t part[4][256] = { 0 };
	size_t whole = cols / 4 * 4;

	for (size_t i = 0; i < whole; i += 4)
		for (size_t k = 0; k < 4; k++)
			part[k][exponent(w + 2 * (i + k))]++;
	for (size_t i = whole; i < cols; i++)
		part[0][exponent(w + 2 * i)]++;
	for (unsigned e = 0; e < 256; e++)
		count[e] = part[0][e] + part[1][e] + part[2][e] + part[3][e];
}

/*
 * The base under which the escapes of a row take the least room, the lowest of equals.  Escapes of
 * four bits reach so far below the codes and above the base; those of three times four are the rest,
 * but for exponents of zero.  sum[e] is how many exponents are below e, going round twice.
 */
static unsigned char best_base(const unsigned char *w, size_t cols, size_t *nibbles)
{
	enum { REACH = CODE_BELOW + CODE_ESCAPE + CODE_ABOVE };
	uint32_t count[256], sum[512 + 1] = { 0 };
	unsigned char best = 0;

	count_exponents(w, cols, count);
	for (unsigned e = 0; e < 512; e++)
		sum[e + 1] = sum[e] + count[e & 255];
	*nibbles = SIZE_MAX;
	for (unsigned base = 0; base < 256; base++) {
		unsigned lowest = (base - CODE_BELOW - CODE_ESCAPE + 1) & 255, codes = lowest + CODE_BELOW;
		size_t near = sum[codes + CODE_ESCAPE] - sum[codes];
		size_t four = sum[lowest + REACH] - sum[lowest] - near, n;

		if (((0 - lowest) & 255) >= REACH)
			four += count[0];
		n = four + 3 * (cols - near - four);
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

/* Takes n weights apart: the exponents, and signs with mantissas. */
static void split(const unsigned char *w, size_t n, unsigned char *restrict e,
		  unsigned char *restrict sm)
{
	for (size_t i = 0; i < n; i++) {
		unsigned v = w[2 * i] | (unsigned)w[2 * i + 1] << 8;

		e[i] = (unsigned char)(v >> 7);
		sm[i] = (unsigned char)((v >> 8 & 0x80) | (v & 0x7f));
	}
}

/* Puts the bytes of the weights of a chunk of wide steps where the slots are. */
static void to_slots(const unsigned char *restrict in, unsigned char *restrict out)
{
	for (size_t step = 0; step < CODE_CHUNK; step += CODE_WIDE)
		for (size_t i = 0; i < CODE_WIDE; i += 4)
			memcpy(out + step + code_slot(i), in + step + i, 4);
}

/*
 * The codes of a chunk, steps of `lanes` one after the other: the low two bits of steps 0 to 3 and
 * 4 to 7 go to one of two planes, the third bits to the last.  Eight slots at a time.
 */
static void put_codes(const unsigned char *restrict near, size_t lanes, unsigned char *restrict out)
{
	for (size_t j = 0; j < lanes; j += 8) {
		uint64_t plane[CODE_PLANES] = { 0 }, c;

		for (unsigned s = 0; s < CODE_STEPS; s++) {
			memcpy(&c, near + s * lanes + j, 8);
			plane[s / 4] |= (c & 3 * CODE_BYTES) << 2 * (s % 4);
			plane[2] |= (c >> 2 & CODE_BYTES) << s;
		}
		for (unsigned k = 0; k < CODE_PLANES; k++)
			memcpy(out + k * lanes + j, &plane[k], 8);
	}
}

/* The escapes of the codes that ask for one; returns where the next escape goes. */
static size_t put_escapes(const unsigned char *near, const unsigned char *e, size_t n,
			  unsigned base, unsigned char *escapes, size_t at)
{
	for (size_t i = 0; i < n; i += 8) {
		/* codes are below 8: adding 1 sets bit 3 of those that are CODE_ESCAPE */
		uint64_t hit = (k3_get64(near + i) + CODE_BYTES) & CODE_BYTES << 3;

		for (; hit; hit &= hit - 1) {
			unsigned x = e[i + (size_t)__builtin_ctzll(hit) / 8];
			unsigned escape = escape_of(x, base);

			put_nibble(escapes, at++, escape);
			if (escape == CODE_BYTE) {
				put_nibble(escapes, at++, x & 15);
				put_nibble(escapes, at++, x >> 4);
			}
		}
	}
	return at;
}

/* One chunk of n weights, of steps of `lanes`; returns where the next escape goes. */
static size_t put_chunk(const unsigned char *w, size_t n, size_t lanes, unsigned base,
			unsigned char *out, unsigned char *escapes, size_t at)
{
	unsigned char e[CODE_CHUNK], near[CODE_CHUNK], in_order[2][CODE_CHUNK];
	unsigned char *sm = out + CODE_PLANES * lanes;

	if (lanes == CODE_WIDE) {
		split(w, CODE_CHUNK, in_order[0], in_order[1]);
		to_slots(in_order[0], e);
		to_slots(in_order[1], sm);
	} else {
		split(w, n, e, sm);
	}
	for (size_t i = 0; i < n; i++) {
		unsigned char below = (unsigned char)(base - e[i]);

		near[i] = below < CODE_ESCAPE ? below : CODE_ESCAPE;
	}
	memset(near + n, 0, CODE_STEPS * lanes - n);
	put_codes(near, lanes, out);
	return put_escapes(near, e, n, base, escapes, at);
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

static void put_row(const unsigned char *w, size_t cols, unsigned base, unsigned char *out,
		    unsigned char *escapes, size_t at)
{
	for (size_t left = cols, n; left; left -= n, w += 2 * n) {
		n = chunk(left);
		at = put_chunk(w, n, lanes_of(n), base, out, escapes, at);
		out += n + CODE_PLANES * lanes_of(n);
	}
}

static void put_head(unsigned char *p, size_t rows, size_t cols, int kind, size_t size)
{
	memset(p, 0, HEAD);
	memcpy(p, magic, sizeof magic);
	p[4] = VERSION;
	p[6] = (unsigned char)kind;
	k3_put32(p + 8, (uint32_t)rows);
	k3_put32(p + 12, (uint32_t)cols);
	k3_put32(p + 16, (uint32_t)size);
}

/*
 * Chooses the bases and writes the rows' table; returns the size that the block will
 * have, or something not smaller than `most` where coding does not pay.
 */
static size_t put_table(const unsigned char *w, size_t rows, size_t cols, unsigned char *p,
			size_t most)
{
	size_t size = body_begin(rows) + rows * row_size(cols) + CODE_SLACK, escapes = 0, nibbles;

	if (size >= most)
		return size;	/* the table might not even fit */
	memset(p + HEAD, 0, body_begin(rows) - HEAD);
	for (size_t r = 0; r < rows && size + escapes < most; r++) {
		unsigned char *entry = p + HEAD + CODE_ENTRY * r;

		entry[4] = best_base(w + 2 * r * cols, cols, &nibbles);
		k3_put32(entry, (uint32_t)escapes);
		escapes += (nibbles + 1) / 2;
	}
	return size + escapes;
}

size_t k3_code_encode(const void *weights, size_t rows, size_t cols, void *out)
{
	const unsigned char *w = weights;
	unsigned char *p = out, *body, *escapes;
	size_t raw = k3_code_bound(rows, cols), size = put_table(w, rows, cols, p, raw);

	if (size >= raw) {
		put_head(p, rows, cols, RAW, raw);
		memcpy(p + HEAD, w, raw - HEAD);
		return raw;
	}
	put_head(p, rows, cols, CODED, size);
	body = p + body_begin(rows);
	escapes = body + rows * row_size(cols);
	for (size_t r = 0; r < rows; r++) {
		const unsigned char *entry = p + HEAD + CODE_ENTRY * r;

		put_row(w + 2 * r * cols, cols, entry[4], body + r * row_size(cols), escapes,
			2 * (size_t)k3_get32(entry));
	}
	memset(p + size - CODE_SLACK, 0, CODE_SLACK);
	return size;
}

/* ---- checking ---- */

static bool zero(const unsigned char *p, const unsigned char *end)
{
	for (; p < end; p++)
		if (*p)
			return false;
	return true;
}

/* Pairs of bits that are both set become the low four bits of each byte, one for each pair. */
static uint64_t both_set(uint64_t pairs)
{
	uint64_t x = pairs & pairs >> 1 & 0x55 * CODE_BYTES;

	x = (x | x >> 1) & 0x33 * CODE_BYTES;
	return (x | x >> 2) & 0x0f * CODE_BYTES;
}

/* How many bits of each byte are set. */
static uint64_t bits_of_bytes(uint64_t x)
{
	x -= x >> 1 & 0x55 * CODE_BYTES;
	x = (x & 0x33 * CODE_BYTES) + (x >> 2 & 0x33 * CODE_BYTES);
	return (x + (x >> 4)) & 0x0f * CODE_BYTES;
}

/* How many codes of a chunk are CODE_ESCAPE, which is all three bits; put_codes tells where they are. */
static size_t count_chunk(const unsigned char *planes, size_t lanes)
{
	uint64_t count = 0, low = 0x00ff00ff00ff00ff;

	_Static_assert(CODE_ESCAPE == 7 && CODE_WIDE / 8 * CODE_STEPS < 256, "a byte can count them");
	for (size_t j = 0; j < lanes; j += 8)
		count += bits_of_bytes((both_set(k3_get64(planes + j)) |
					both_set(k3_get64(planes + lanes + j)) << 4) &
				       k3_get64(planes + 2 * lanes + j));
	count = (count & low) + (count >> 8 & low);
	return (size_t)(count * 0x0001000100010001 >> 48);
}

/* Whether the codes of a narrow chunk behind its n weights are all 0. */
static bool ends_with(const unsigned char *planes, size_t n)
{
	for (size_t i = n; i < CODE_TAIL; i++) {
		size_t step = i / CODE_NARROW, lane = i % CODE_NARROW;
		unsigned two = planes[step / 4 * CODE_NARROW + lane] >> step % 4 * 2 & 3;

		if (two || planes[2 * CODE_NARROW + lane] >> step & 1)
			return false;
	}
	return true;
}

/* How many codes of a row are CODE_ESCAPE; SIZE_MAX if there are codes without a weight. */
static size_t count_escapes(const unsigned char *body, size_t cols)
{
	size_t count = 0;

	for (size_t left = cols, n, lanes; left; left -= n, body += n + CODE_PLANES * lanes) {
		n = chunk(left);
		lanes = lanes_of(n);
		if (lanes == CODE_NARROW && !ends_with(body, n))
			return SIZE_MAX;
		count += count_chunk(body, lanes);
	}
	return count;
}

/*
 * The place behind `count` escapes from `at` on, in units of four bits; something beyond `end` if they do not
 * end before that.
 */
static size_t behind_escapes(const unsigned char *escapes, size_t at, size_t count, size_t end)
{
	while (count && at < end) {
		uint64_t longs = code_longs(k3_get64(escapes + at / 2) >> (at % 2 ? 4 : 0));
		size_t n = k3_min(count, longs ? (size_t)__builtin_ctzll(longs) / 4 : CODE_PEEK);

		at += n;
		count -= n;
		if (count && n < CODE_PEEK) {
			at += 3;
			count--;
		}
	}
	return count ? SIZE_MAX : at;
}

/* The escapes of a row must end where those of the next begin. */
static int check_row(const struct k3_code *c, size_t row, size_t escapes, const char *name,
		     struct k3_err *err)
{
	const unsigned char *entry = c->row_table + CODE_ENTRY * row;
	size_t begin = k3_get32(entry), end = escapes, count, at;

	if (row + 1 < c->rows)
		end = k3_get32(entry + CODE_ENTRY);
	if (begin > end || end > escapes || (!row && begin))
		return k3_fail(err, K3_EDATA, "%s: the escapes of row %zu lie at %zu to %zu of %zu bytes",
			       name, row, begin, end, escapes);
	count = count_escapes(c->body + row * c->row_size, c->cols);
	if (count == SIZE_MAX)
		return k3_fail(err, K3_EDATA, "%s: row %zu has codes beyond its %zu columns", name, row,
			       c->cols);
	at = behind_escapes(c->escapes, 2 * begin, count, 2 * end);
	if (at / 2 + at % 2 != end || (at % 2 && code_nibble(c->escapes, at)))
		return k3_fail(err, K3_EDATA, "%s: the escapes of row %zu are not the %zu bytes that "
			       "its codes ask for", name, row, end - begin);
	return 0;
}

static int check_coded(const struct k3_code *c, const unsigned char *p, const char *name,
		       struct k3_err *err)
{
	uint64_t least = body_begin(c->rows) + (uint64_t)c->rows * c->row_size + CODE_SLACK;

	if (c->size < least || c->size >= k3_code_bound(c->rows, c->cols))
		return k3_fail(err, K3_EDATA, "%s: a coded block of %zu rows of %zu columns cannot "
			       "have %zu bytes", name, c->rows, c->cols, c->size);
	if (!zero(c->row_table + CODE_ENTRY * c->rows, c->body) ||
	    !zero(p + c->size - CODE_SLACK, p + c->size))
		return k3_fail(err, K3_EDATA, "%s: bytes that must be zero are not", name);
	for (size_t r = 0; r < c->rows; r++) {
		int rc = check_row(c, r, (size_t)(c->size - least), name, err);

		if (rc)
			return rc;
	}
	return 0;
}

int k3_code_check(const void *block, size_t size, const char *name, struct k3_err *err)
{
	const unsigned char *p = block;
	struct k3_code c;

	if (size < HEAD)
		return k3_fail(err, K3_EDATA, "%s: %zu bytes are too few for a block of weights", name,
			       size);
	if (memcmp(p, magic, sizeof magic))
		return k3_fail(err, K3_EDATA, "%s: not a block of weights", name);
	if (p[4] != VERSION || p[5])
		return k3_fail(err, K3_EDATA, "%s: a block of version %u; this program reads version %d",
			       name, p[4] | p[5] << 8, VERSION);
	if (p[6] > CODED || p[7] || !zero(p + 20, p + HEAD))
		return k3_fail(err, K3_EDATA, "%s: the head of a block has unknown marks", name);
	if (!k3_code_bound(k3_get32(p + 8), k3_get32(p + 12)))
		return k3_fail(err, K3_EDATA, "%s: a block of %u rows of %u columns cannot be", name,
			       (unsigned)k3_get32(p + 8), (unsigned)k3_get32(p + 12));
	c = k3_code_view(block);
	if (c.size != size)
		return k3_fail(err, K3_EDATA, "%s: a block of %zu bytes where there are %zu", name,
			       c.size, size);
	if (!c.raw)
		return check_coded(&c, p, name, err);
	if (size != k3_code_bound(c.rows, c.cols))
		return k3_fail(err, K3_EDATA, "%s: a raw block of %zu rows of %zu columns cannot have "
			       "%zu bytes", name, c.rows, c.cols, size);
	return 0;
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
