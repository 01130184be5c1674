/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code.c - the code of a block: what it gives back, how small it is, its bytes, its
 * products in every instruction set, and what happens to damaged blocks.
 */
#include "math/code.h"
#include "math/kernels.h"
#include "rng.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 19, MOST_COLS = 2100, MOST = MOST_ROWS * MOST_COLS, MOST_VECS = 18 };

static struct rng g = { 11 };
static unsigned char weights[2 * MOST], back[2 * MOST];

static double normal(void)
{
	return sqrt(-2 * log(1 - rng_unit(&g))) * cos(6.283185307179586 * rng_unit(&g));
}

/* bf16, rounded to nearest. */
static void put(unsigned char *p, double v)
{
	float f = (float)v;
	uint32_t u;

	memcpy(&u, &f, 4);
	u += 0x7fff + (u >> 16 & 1);
	p[0] = (unsigned char)(u >> 16);
	p[1] = (unsigned char)(u >> 24);
}

static void put_bits(unsigned char *p, unsigned v)
{
	p[0] = (unsigned char)v;
	p[1] = (unsigned char)(v >> 8);
}

/* ---- kinds of weights ---- */

enum kind {
	NORMAL, SCALED, OUTLIERS, ZEROS, CONSTANT, DENORMAL, EDGES, SPREAD, BYTES, SPECIAL, KINDS
};

static const char *const kind_name[KINDS] = {
	"normal", "normal with row scales", "normal with outliers", "a third zeros", "constant",
	"denormal", "at the ends of what is near and far", "of 12 equally common exponents",
	"random bytes", "infinities and NaNs among others",
};

static void put_weight(unsigned char *p, enum kind kind, double scale)
{
	/* distances from the base where a code, and an escape of four bits, begin and end */
	static const unsigned edge[] = { 0, 6, 7, 17, 18, 99, 256 - 1, 256 - 3, 256 - 4 };
	unsigned sm = (unsigned)rng_u64(&g) & 0x807f;

	switch (kind) {
	case NORMAL: put(p, normal()); break;
	case SCALED: put(p, scale * normal()); break;
	case OUTLIERS: put(p, normal() * (rng_u64(&g) % 50 ? 1 : exp2(60 * rng_unit(&g) - 20))); break;
	case ZEROS: put(p, rng_u64(&g) % 3 ? 0.02 * normal() : rng_u64(&g) % 2 ? 0. : -0.); break;
	case CONSTANT: put(p, -0.0471); break;
	case DENORMAL: put_bits(p, sm | (rng_u64(&g) % 4 ? 0 : 0x80)); break;
	case EDGES:
		put_bits(p, sm | ((rng_u64(&g) % 8 ? 120 : 120 - edge[rng_u64(&g) % 9]) & 255) << 7);
		break;
	case SPREAD: put_bits(p, sm | (unsigned)(100 + rng_u64(&g) % 12) << 7); break;
	case BYTES: put_bits(p, (unsigned)rng_u64(&g)); break;
	case SPECIAL: put_bits(p, rng_u64(&g) % 3 ? sm | 0x3c00 : sm | 0x7f80); break;
	case KINDS: break;
	}
}

static void fill(enum kind kind, size_t rows, size_t cols)
{
	for (size_t r = 0; r < rows; r++) {
		double scale = exp2(4 * rng_unit(&g));

		for (size_t c = 0; c < cols; c++)
			put_weight(weights + 2 * (r * cols + c), kind, scale);
	}
}

/* The block of the weights that are there; owned by the caller, of exactly *size bytes. */
static unsigned char *encode(size_t rows, size_t cols, size_t *size)
{
	size_t bound = k3_code_bound(rows, cols);
	unsigned char *p = malloc(bound), *q;

	if (!bound || !p)
		exit(1);
	*size = k3_code_encode(weights, rows, cols, p);
	if (*size > bound || !(q = malloc(*size)))
		exit(1);
	memcpy(q, p, *size);
	free(p);
	return q;
}

/* ---- the same weights come back ---- */

static bool returns(enum kind kind, size_t rows, size_t cols)
{
	struct k3_err err;
	size_t size, first = rows / 2;
	unsigned char *block;
	bool good;

	fill(kind, rows, cols);
	block = encode(rows, cols, &size);
	good = !k3_code_check(block, size, "block", &err);
	if (!good)
		printf("# %s\n", err.text);
	if (good) {
		k3_code_decode(block, 0, rows, back);
		good = !memcmp(back, weights, 2 * rows * cols);
		k3_code_decode(block, first, rows - first, back);
		good &= !memcmp(back, weights + 2 * first * cols, 2 * (rows - first) * cols);
	}
	free(block);
	return good;
}

static void test_return(void)
{
	for (enum kind k = 0; k < KINDS; k++) {
		bool all = true;

		for (size_t cols = 1; cols <= 300; cols += cols < 140 ? 1 : 7)
			all &= returns(k, 1 + cols % MOST_ROWS, cols);
		for (size_t cols = 511; cols <= MOST_COLS; cols += cols < 660 ? 1 : 127)
			all &= returns(k, 1 + cols % 4, cols);
		ok(all, "weights that are %s come back", kind_name[k]);
	}
}

/* ---- size ---- */

static double share(enum kind kind, double sigma, size_t rows, size_t cols)
{
	unsigned char *out = malloc(k3_code_bound(rows, cols)), *w = malloc(2 * rows * cols);
	double size;

	if (!out || !w)
		exit(1);
	for (size_t r = 0; r < rows; r++) {
		double scale = sigma * (kind == SCALED ? exp2(4 * rng_unit(&g)) : 1);

		for (size_t c = 0; c < cols; c++)
			put(w + 2 * (r * cols + c), scale * normal());
	}
	size = (double)k3_code_encode(w, rows, cols, out);
	free(w);
	free(out);
	return size / (2. * (double)(rows * cols));
}

static void test_size(void)
{
	double worst = 0, s;
	size_t size;

	for (double sigma = 0.0125; sigma < 0.025; sigma *= 1.19) {
		s = share(NORMAL, sigma, 36, 7168);
		worst = s > worst ? s : worst;
	}
	s = share(NORMAL, 0.02, 73, 7168);
	ok(s <= 0.70, "normal weights of deviation 0.02 take %.4f of their bf16", s);
	ok(worst <= 0.70, "of whatever deviation, at most %.4f", worst);
	s = share(NORMAL, 0.02, 256, 1536);
	ok(s <= 0.70, "rows of 1536 columns, %.4f", s);
	s = share(SCALED, 0.02, 73, 7168);
	ok(s <= 0.72, "with row scales over a factor of 16, %.4f", s);
	fill(BYTES, 7, 1000);
	free(encode(7, 1000, &size));
	ok(size == k3_code_bound(7, 1000), "random bytes are stored raw");
	ok(!k3_code_bound(0, 5) && !k3_code_bound(5, 0) && !k3_code_bound(1 << 20, 1025) &&
	   !k3_code_bound(SIZE_MAX, SIZE_MAX) && k3_code_bound(1 << 20, 1024),
	   "there is no block without weights, or of more than 2^30");
}

/* ---- bytes ---- */

/*
 * By hand: 512 ones but for -1.5 at 0, 2 at 5, 2^-40 at 17 and 2^-7 at 70.  Their exponents are
 * 127, 127, 128, 87 and 120; the base that is least in need of escapes is 128.
 */
static void test_bytes(void)
{
	enum { ROW = 128, SM = ROW + 192, ESCAPES = SM + 512, SIZE = ESCAPES + 2 + 16 };
	static const unsigned char head[20] = "k3bl\1\0\1\0\1\0\0\0\0\2\0\0\122\3\0";
	unsigned char want[SIZE] = { 0 }, *block;
	size_t size;

	for (size_t c = 0; c < 512; c++)
		put(weights + 2 * c, c == 0 ? -1.5 : c == 5 ? 2 : c == 17 ? 0x1p-40 : c == 70 ? 0x1p-7 : 1);
	memcpy(want, head, sizeof head);
	want[68] = 128;				/* its escapes begin at 0 */
	memset(want + ROW, 0x55, 128);		/* code 1 at all steps */
	want[ROW + 5] = 0x57;			/* weight 17, slot 5: step 0 is an escape */
	want[ROW + 17] = 0x54;			/* weight 5, slot 17: code 0 */
	want[ROW + 18] = 0x5d;			/* weight 70 = 64 + 6, slot 18: step 1 */
	want[ROW + 128 + 5] = 1;		/* the high bits of the two escapes */
	want[ROW + 128 + 18] = 2;
	want[SM] = 0xc0;
	want[ESCAPES] = 0x7f;			/* 15, and 87 = 0x57 */
	want[ESCAPES + 1] = 0x15;		/* 120 = 128 - 7 - 1 */
	block = encode(1, 512, &size);
	ok(size == SIZE && !memcmp(block, want, SIZE), "a block has the bytes of the format");
	free(block);
}

/* The next four bits of escapes that go to unit `end`; without them it is not right. */
static unsigned unit(const unsigned char *escapes, size_t *at, size_t end, bool *right)
{
	size_t n = (*at)++;

	*right &= n < end;
	return *right ? escapes[n / 2] >> (n % 2 ? 4 : 0) & 15u : 0;
}

static size_t four_bytes(const unsigned char *p)
{
	return p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
}

/*
 * A row of a coded block of `size` bytes, read as docs/kernels.md has it, a weight at a time.  False if its
 * escapes are not those that its codes ask for, or codes without a weight are not 0.
 */
static bool read_row(const unsigned char *b, size_t size, size_t rows, size_t cols, size_t row,
		     unsigned *out)
{
	size_t tail = cols % 512, row_size = cols / 512 * 704 + tail + (tail + 127) / 128 * 48;
	size_t begin = (64 + 5 * rows + 63) / 64 * 64, all = size - 16 - begin - rows * row_size;
	const unsigned char *p = b + begin + row * row_size, *escapes = b + begin + rows * row_size;
	const unsigned char *entry = b + 64 + 5 * row;
	size_t from = four_bytes(entry), to = row + 1 < rows ? four_bytes(entry + 5) : all;
	size_t at = 2 * from, lanes, n, slots;
	bool right = from <= to && to <= all && (row || !from);

	for (; cols; cols -= n, out += n, p += 3 * lanes + n) {
		lanes = cols >= 512 ? 64 : 16;
		n = cols >= 512 ? 512 : cols < 128 ? cols : 128;
		slots = cols >= 512 ? 512 : 128;
		for (size_t i = 0; i < slots; i++) {
			size_t step = i / lanes, s = i % lanes, w = i;
			unsigned code = (p[step / 4 * lanes + s] >> 2 * (step % 4) & 3u) +
					4 * (p[2 * lanes + s] >> step & 1u);
			unsigned e = entry[4] - code, v;

			if (lanes == 64)
				w = 64 * step + 16 * (s / 4 % 4) + 4 * (s / 16) + s % 4;
			if (w >= n) {
				right &= !code;
				continue;
			}
			if (code == 7) {
				v = unit(escapes, &at, 2 * to, &right);
				e = v < 11 ? entry[4] - 7u - v : v < 14 ? entry[4] + v - 10 : 0;
				if (v == 15) {
					e = unit(escapes, &at, 2 * to, &right);
					e += 16 * unit(escapes, &at, 2 * to, &right);
				}
			}
			out[w] = (p[3 * lanes + i] & 0x80u) << 8 | (e & 255) << 7 | (p[3 * lanes + i] & 0x7fu);
		}
	}
	if (at % 2 && unit(escapes, &at, 2 * to, &right))
		return false;
	return right && at == 2 * to;
}

static void test_format(void)
{
	static const size_t cols[] = { 90, 128, 130, 250, 400, 512, 600, 650, 1050, 1700 };
	unsigned out[MOST_COLS];
	bool all = true;

	for (enum kind kind = 0; kind < KINDS; kind++)
		for (size_t i = 0, size, coded = 0; i < sizeof cols / sizeof *cols; i++) {
			unsigned char *block;

			fill(kind, MOST_ROWS, cols[i]);
			block = encode(MOST_ROWS, cols[i], &size);
			coded += block[6];
			for (size_t r = 0; block[6] && r < MOST_ROWS; r++) {
				const unsigned char *w = weights + 2 * r * cols[i];

				all &= read_row(block, size, MOST_ROWS, cols[i], r, out);
				for (size_t c = 0; c < cols[i]; c++)
					all &= out[c] == w[2 * c] + 256u * w[2 * c + 1];
			}
			free(block);
			/* the narrowest may be raw, and some kinds; not these */
			if (i == 9 && kind < CONSTANT)
				all &= coded >= 9;
		}
	ok(all, "another reader of the format finds the same weights");
}

/* ---- products ---- */

static float x[MOST_VECS][MOST_COLS];
static const float *xs[MOST_VECS];
static float got[MOST_VECS][MOST_ROWS], want[MOST_VECS][MOST_ROWS];
static float *gots[MOST_VECS], *wants[MOST_VECS];

/* The same bits; of a NaN only that it is one. */
static bool same(size_t rows, size_t count)
{
	for (size_t v = 0; v < count; v++)
		for (size_t r = 0; r < rows; r++)
			if (memcmp(&got[v][r], &want[v][r], 4) &&
			    !(isnan(got[v][r]) && isnan(want[v][r])))
				return false;
	return true;
}

static bool product(const struct k3_kernels *k, enum kind kind, size_t rows, size_t cols,
		    size_t count)
{
	size_t size, first = rows / 4;
	unsigned char *block;
	bool good;

	fill(kind, rows, cols);
	block = encode(rows, cols, &size);
	k3_kernels_at(0)->rows_bf16(weights, rows, cols, xs, count, wants);
	k->rows_coded(block, 0, rows, xs, count, gots);
	good = same(rows, count);
	k3_kernels_at(0)->rows_bf16(weights + 2 * first * cols, rows - first, cols, xs, count, wants);
	k->rows_coded(block, first, rows - first, xs, count, gots);
	good &= same(rows - first, count);
	free(block);
	return good;
}

static void test_products(const struct k3_kernels *k)
{
	static const size_t wide[] = { 512, 513, 530, 639, 656, 767, 768, 769, 1100, 1536, 2064 };
	bool all = true;

	for (size_t cols = 1; cols <= 300; cols += cols > 60 && cols < 150 ? 1 : 13)
		for (size_t count = 1; count <= MOST_VECS; count += count < 5 ? 1 : 6)
			all &= product(k, cols % 2 ? NORMAL : EDGES, 12 + cols % 8, cols, count);
	ok(all, "%s: rows of 1 to 300 coded weights", k->name);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		all = true;
		for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
			all &= product(k, kind, 1 + i, wide[i], 1);
			all &= product(k, kind, MOST_ROWS - i % 3, wide[i], 3 + i);
			/* six rows and five: kernels take them in pairs */
			for (size_t count = 1; count <= 3; count++)
				all &= product(k, kind, 6, wide[i], count);
		}
		ok(all, "%s: longer rows, %s", k->name, kind_name[kind]);
	}
}

/* ---- damage ---- */

/* A block that passes is decoded and multiplied, wherever that leads inside it. */
static bool use(const unsigned char *block, size_t size, size_t rows, size_t cols)
{
	struct k3_err err = { "" };
	const struct k3_kernels *k;

	if (k3_code_check(block, size, "block", &err))
		return !strncmp(err.text, "block: ", 7);
	if (k3_code_view(block).rows != rows || k3_code_view(block).cols != cols)
		return false;
	k3_code_decode(block, 0, rows, back);
	for (unsigned i = 0; (k = k3_kernels_at(i)); i++) {
		k->rows_coded(block, 0, rows, xs, 1, gots);
		k->rows_coded(block, 0, rows, xs, 5, gots);
	}
	return true;
}

static void test_damage(void)
{
	static const unsigned char flips[] = { 1, 0x10, 0x80, 0xff };
	struct k3_err err;
	bool all = true;
	size_t size;
	unsigned char *block, *cut;

	fill(EDGES, 4, 700);
	block = encode(4, 700, &size);
	ok(size < k3_code_bound(4, 700), "the block to be damaged is a coded one");
	for (size_t i = 0; i < size; i++)
		for (size_t f = 0; f < sizeof flips; f++) {
			block[i] ^= flips[f];
			all &= use(block, size, 4, 700);
			block[i] ^= flips[f];
		}
	ok(all, "each of its %zu bytes changed: refused with its name, or harmless", size);
	all = true;
	for (size_t n = 0; n < size; n++) {
		cut = malloc(n + !n);
		if (!cut)
			exit(1);
		memcpy(cut, block, n);
		all &= k3_code_check(cut, n, "block", &err) == K3_EDATA;
		free(cut);
	}
	ok(all, "cut anywhere it is refused");
	all = true;
	for (int round = 0; round < 3000; round++) {
		cut = malloc(size);
		if (!cut)
			exit(1);
		memcpy(cut, block, size);
		for (uint64_t n = 1 + rng_u64(&g) % 8; n; n--)
			cut[rng_u64(&g) % (round % 2 ? 160 : size)] = (unsigned char)rng_u64(&g);
		all &= use(cut, size, 4, 700);
		free(cut);
	}
	ok(all, "several bytes changed at once: the same");
	free(block);
}

/* Whether all rows of a block with a good head are right. */
static bool is_right(const unsigned char *block, size_t size, size_t rows, size_t cols)
{
	unsigned out[MOST_COLS];
	bool right = true;

	for (size_t r = 0; r < rows; r++)
		right &= read_row(block, size, rows, cols, r, out);
	return right;
}

/* Half a byte of rows, escapes or the table changed: the check refuses it if and only if it is wrong. */
static void test_refusals(void)
{
	static const size_t cols[] = { 100, 130, 700, 1100, 2048 };
	enum { ROWS = 5 };

	for (enum kind kind = 0; kind < BYTES; kind++) {
		size_t wrong = 0, harmless = 0, differ = 0, size;

		for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
			unsigned char *block;

			fill(kind, ROWS, cols[i]);
			block = encode(ROWS, cols[i], &size);
			for (int round = 0; block[6] && round < 3000; round++) {
				/* a third of them where escapes are, or the end of the rows */
				size_t last = size - 17, from = round % 3 ? 128 : last - last / 8, at;
				struct k3_err err;
				unsigned char old;
				bool right;

				at = round % 50 ? from + rng_u64(&g) % (last - from + 1) : 64 + rng_u64(&g) % (5 * ROWS);
				old = block[at];
				block[at] ^= (unsigned char)((1 + rng_u64(&g) % 15) << (rng_u64(&g) % 2 ? 4 : 0));
				right = is_right(block, size, ROWS, cols[i]);
				differ += right != !k3_code_check(block, size, "a", &err);
				wrong += !right;
				harmless += right;
				block[at] = old;
			}
			free(block);
		}
		ok(!differ && wrong > 100 && harmless > 100, "%s: %zu changes are refused and %zu are not",
		   kind_name[kind], wrong, harmless);
	}
}

static void refused(unsigned char *block, size_t size, size_t at, unsigned char v, const char *text)
{
	struct k3_err err = { "" };
	unsigned char old = block[at];

	block[at] = v;
	ok(k3_code_check(block, size, "a", &err) == K3_EDATA && !strcmp(err.text, text), "%s", text);
	if (strcmp(err.text, text))
		printf("# %s\n", err.text);
	block[at] = old;
}

static void test_sentences(void)
{
	size_t size;
	unsigned char *block;

	/* 850 bytes; test_bytes has left its weights */
	block = encode(1, 512, &size);
	refused(block, size, 0, 'K', "a: not a block of weights");
	refused(block, size, 4, 2, "a: a block of version 2; this program reads version 1");
	refused(block, size, 7, 1, "a: the head of a block has unknown marks");
	refused(block, size, 8, 0, "a: a block of 0 rows of 512 columns cannot be");
	refused(block, size, 16, 0x53, "a: a block of 851 bytes where there are 850");
	refused(block, size, 6, 0, "a: a raw block of 1 rows of 512 columns cannot have 850 bytes");
	refused(block, size, 13, 3, "a: a coded block of 1 rows of 768 columns cannot have 850 bytes");
	refused(block, size, 64, 1, "a: the escapes of row 0 lie at 1 to 2 of 2 bytes");
	refused(block, size, 128 + 128 + 5, 0,
		"a: the escapes of row 0 are not the 2 bytes that its codes ask for");
	refused(block, size, 849, 1, "a: bytes that must be zero are not");
	free(block);
	fill(CONSTANT, 8, 250);
	block = encode(8, 250, &size);
	/* the last row's second chunk: 122 weights, steps of 16; its last lane has 7 */
	refused(block, size, size - 16 - 122 - 48 + 31, 0x40, "a: row 7 has codes beyond its 250 columns");
	free(block);
}

int main(void)
{
	const struct k3_kernels *k;

	for (size_t v = 0; v < MOST_VECS; v++) {
		for (size_t i = 0; i < MOST_COLS; i++)
			x[v][i] = (float)normal();
		xs[v] = x[v];
		gots[v] = got[v];
		wants[v] = want[v];
	}
	test_return();
	test_size();
	for (unsigned i = 0; (k = k3_kernels_at(i)); i++)
		test_products(k);
	test_damage();
	test_refusals();
	test_format();
	test_bytes();
	test_sentences();
	return tap_done();
}
