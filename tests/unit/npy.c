/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - records: headers good and bad, cut streams, exact reads. */
#include "tap.h"

#include <k3/io.h>
#include <k3/npy.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file in memory with these bytes, read from its start. */
static int file_of(const void *bytes, size_t n)
{
	struct k3_err err;
	int fd = memfd_create("npy", 0);

	if (fd < 0 || k3_write_full(fd, bytes, n, "npy", &err) || lseek(fd, 0, SEEK_SET))
		abort();
	return fd;
}

/* Puts magic, version and length in front of a dict; returns the whole size. */
static size_t record(unsigned char *out, const char *dict, size_t n)
{
	memcpy(out, "\x93NUMPY\x01\0", 8);
	out[8] = (unsigned char)(n & 255);
	out[9] = (unsigned char)(n >> 8);
	memcpy(out + 10, dict, n);
	return n + 10;
}

static int next_of(const char *dict, size_t n, struct k3_npy *h, struct k3_err *err)
{
	unsigned char b[70000];
	struct k3_npy_stream s = { .name = "x" };
	int rc;

	s.fd = file_of(b, record(b, dict, n));
	rc = k3_npy_next(&s, h, err);
	close(s.fd);
	return rc;
}

static void good(const char *dict, uint32_t rank, const uint64_t *shape, uint64_t count)
{
	struct k3_npy h = { 0 };
	struct k3_err err = { "" };
	int rc = next_of(dict, strlen(dict), &h, &err);

	if (!ok(rc == 1 && h.rank == rank && h.count == count &&
		!memcmp(h.shape, shape, rank * sizeof *shape), "read: %.*s", (int)strcspn(dict, "\n"), dict))
		printf("# %d %s\n", rc, err.text);
}

static void bad(const char *dict, const char *why)
{
	struct k3_npy h;
	struct k3_err err = { "" };
	int rc = next_of(dict, strlen(dict), &h, &err);

	if (!ok(rc == K3_EDATA && strstr(err.text, why) && strstr(err.text, "record 0"),
		"refused: %.*s", (int)strcspn(dict, "\n"), dict))
		printf("# %d %s\n", rc, err.text);
}

#define SHAPE(...) (const uint64_t[]){ __VA_ARGS__ }
#define START "{'descr': '<f4', 'fortran_order': False, 'shape': "

static void test_headers(void)
{
	struct k3_err err;
	struct k3_npy h;

	good(START "(1, 2048), }          \n", 2, SHAPE(1, 2048), 2048);
	good(START "(7,), }\n", 1, SHAPE(7), 7);
	good(START "(0, 5)}", 2, SHAPE(0, 5), 0);
	good(START "(2,3,4,5,)}\n", 4, SHAPE(2, 3, 4, 5), 120);
	good("{\"shape\":(3,4),\"descr\":\"<f4\",\"fortran_order\":False}", 2, SHAPE(3, 4), 12);
	good(" {\t'fortran_order' :False , 'shape': ( 3 , 4 ) ,\n 'descr' : \"<f4\" , } \r\n", 2,
	     SHAPE(3, 4), 12);
	good(START "(2305843009213693951,)}", 1, SHAPE(2305843009213693951), 2305843009213693951);

	bad("", "no '{'");
	bad("{", "quoted string");
	bad("{}", "'descr' is missing");
	bad("{'descr': '<f4', 'shape': (1,)}", "'fortran_order' is missing");
	bad("{'descr': '<f4', 'fortran_order': False}", "'shape' is missing");
	bad(START "(1,), 'x': 1}", "unknown key 'x'");
	bad(START "(1,), 'descr': '<f4'}", "twice");
	bad(START "(1,)} x", "behind it");
	bad(START "(1,) ", "no ',' between keys");
	bad(START "(1,)", "no ',' between keys");
	bad(START "(1,),,}", "quoted string");
	bad("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", "'<f8', not '<f4'");
	bad("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", "'>f4', not '<f4'");
	bad("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "descr is not");
	bad("{'descr': '<f4\", 'fortran_order': False, 'shape': (1,)}", "not '<f4'");
	bad("{'descr' '<f4'}", "no ':'");
	bad("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", "Fortran order");
	bad("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "neither False nor True");
	bad("{'descr': '<f4', 'fortran_order': Falsey, 'shape': (1,)}", "no ','");
	bad("{'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa': 1}", "short quoted string");
	bad(START "()}", "no dimensions");
	bad(START "(5)}", "not a tuple");
	bad(START "5}", "no '('");
	bad(START "(-1,)}", "not a tuple");
	bad(START "(1.5,)}", "between dimensions");
	bad(START "(1 2)}", "between dimensions");
	bad(START "(1,,2)}", "not a tuple");
	bad(START "(1, 2", "between dimensions");
	bad(START "(1,1,1,1,1)}", "more than 4");
	bad(START "(99999999999999999999999999,)}", "too large");
	bad(START "(9223372036854775808,)}", "too large");
	bad(START "(2305843009213693952,)}", "too large");
	bad(START "(4294967296, 4294967296)}", "too large");
	bad(START "(0, 4294967296, 4294967296)}", "too large");
	ok(next_of(START "(1,)}\0", strlen(START) + 6, &h, &err) == K3_EDATA &&
	   strstr(err.text, "NUL"), "refused: a NUL behind the dict");
}

/* The longest header that the format can have is read like any other. */
static void test_longest(void)
{
	static char dict[65535];
	struct k3_npy h;
	struct k3_err err;

	memset(dict, ' ', sizeof dict);
	memcpy(dict, START "(3, 2), }", strlen(START "(3, 2), }"));
	dict[sizeof dict - 1] = '\n';
	ok(next_of(dict, sizeof dict, &h, &err) == 1 && h.count == 6, "a header of 65535 bytes");
}

static void refused_bytes(const char *bytes, size_t n, const char *why, const char *text)
{
	struct k3_npy_stream s = { .fd = file_of(bytes, n), .name = "x" };
	struct k3_npy h;
	struct k3_err err = { "" };
	int rc = k3_npy_next(&s, &h, &err);

	if (!ok(rc == K3_EDATA && strstr(err.text, why), "%s", text))
		printf("# %d %s\n", rc, err.text);
	close(s.fd);
}

static void test_leads(void)
{
	refused_bytes("hello, world", 12, "not an npy record", "text is no record");
	refused_bytes("1", 1, "not an npy record", "one wrong byte is no record");
	refused_bytes("\x93NUM", 4, "byte 4, inside the header", "a cut magic");
	refused_bytes("\x93NUMPY\x01\0\x40", 9, "byte 9, inside the header", "a cut length");
	refused_bytes("\x93NUMPY\x01\0\x40\0{'descr'", 18, "byte 18, inside the header",
		      "a cut dict");
	refused_bytes("\x93NUMPY\x02\0\x40\0\0\0", 12, "version 2.0, not 1.0", "version 2.0");
	refused_bytes("\x93NUMPY\x03\0\x40\0\0\0", 12, "version 3.0, not 1.0", "version 3.0");
}

/* Two records through a pipe: nothing behind the record is taken. */
static void test_pipe(void)
{
	const float v[6] = { 1, 2, 3, 4, 5, 6 };
	float got[6] = { 0 };
	struct k3_err err = { "" };
	struct k3_npy h;
	char rest[8];
	int p[2];

	if (pipe(p))
		abort();
	struct k3_npy_stream out = { .fd = p[1], .name = "out" }, in = { .fd = p[0], .name = "in" };
	ok(!k3_npy_begin(&out, 2, SHAPE(2, 3), &err) && !k3_npy_put(&out, v, 2, &err) &&
	   !k3_npy_put(&out, v + 2, 4, &err) && !k3_npy_begin(&out, 2, SHAPE(0, 3), &err),
	   "a record in two pieces and one without values");
	ok(out.record == 2 && out.offset == 128 + 24 + 128, "the writer's position");
	if (write(p[1], "rest", 4) != 4)
		abort();
	close(p[1]);
	ok(k3_npy_next(&in, &h, &err) == 1 && h.rank == 2 && h.shape[0] == 2 && h.shape[1] == 3,
	   "its header comes through the pipe");
	ok(k3_npy_next(&in, &h, &err) == K3_EARG, "no second header before the values");
	ok(k3_npy_values(&in, got, 7, &err) == K3_EARG, "no more values than there are");
	ok(!k3_npy_values(&in, got, 5, &err) && !k3_npy_values(&in, got + 5, 1, &err) &&
	   !memcmp(v, got, sizeof v), "the values are the same");
	ok(k3_npy_next(&in, &h, &err) == 1 && h.count == 0 && in.record == 2 &&
	   in.offset == out.offset, "the empty record");
	ok(read(p[0], rest, sizeof rest) == 4 && !memcmp(rest, "rest", 4),
	   "what follows the records is still in the pipe");
	ok(k3_npy_next(&in, &h, &err) == 0, "the end between two records is the end");
	close(p[0]);
}

static void test_cut(void)
{
	unsigned char b[256];
	size_t n = record(b, START "(3,)}", strlen(START "(3,)}"));
	struct k3_npy_stream s = { .name = "x" };
	struct k3_err err = { "" };
	struct k3_npy h;
	float v[3];
	char want[64];

	memset(b + n, 0, 11);
	s.fd = file_of(b, n + 11);
	snprintf(want, sizeof want, "byte %zu, inside the values of record 0", n + 11);
	ok(k3_npy_next(&s, &h, &err) == 1 && k3_npy_values(&s, v, 3, &err) == K3_EDATA &&
	   strstr(err.text, want), "a record cut in its last value");
	close(s.fd);
}

/* A caller that has looked at the first bytes hands them over. */
static void test_head(void)
{
	unsigned char b[256];
	size_t n = record(b, START "(1,)}", strlen(START "(1,)}"));
	struct k3_npy_stream s = { .name = "x", .head_len = K3_NPY_MAGIC };
	struct k3_err err = { "" };
	struct k3_npy h;
	float one = 1, v;

	memcpy(b + n, &one, 4);
	s.fd = file_of(b, n + 4);
	if (read(s.fd, s.head, K3_NPY_MAGIC) != K3_NPY_MAGIC)
		abort();
	ok(k3_npy_next(&s, &h, &err) == 1 && !k3_npy_values(&s, &v, 1, &err) && v == 1 &&
	   s.offset == n + 4 && k3_npy_next(&s, &h, &err) == 0, "a stream whose head was read");
	close(s.fd);
}

static void test_write_errors(void)
{
	struct k3_npy_stream s = { .fd = -1, .name = "x" };
	struct k3_err err = { "" };
	float v[2] = { 0 };
	int p[2], rc;

	ok(k3_npy_begin(&s, 0, SHAPE(1), &err) == K3_EARG, "no record without dimensions");
	ok(k3_npy_begin(&s, 5, SHAPE(1, 1, 1, 1, 1), &err) == K3_EARG, "nor with five");
	ok(k3_npy_begin(&s, 2, SHAPE(1ull << 40, 1ull << 40), &err) == K3_EARG, "nor too large");
	s.fd = memfd_create("npy", 0);
	ok(!k3_npy_begin(&s, 1, SHAPE(1), &err) && k3_npy_put(&s, v, 2, &err) == K3_EARG,
	   "no more values than the shape says");
	ok(k3_npy_begin(&s, 1, SHAPE(1), &err) == K3_EARG, "nor fewer");
	close(s.fd);
	signal(SIGPIPE, SIG_IGN);
	if (pipe(p))
		abort();
	close(p[0]);
	s = (struct k3_npy_stream){ .fd = p[1], .name = "x" };
	rc = k3_npy_begin(&s, 1, SHAPE(1), &err);
	ok(rc == K3_EIO && errno == EPIPE, "a reader that has gone is EPIPE");
	close(p[1]);
}

/* Bytes that NumPy 1.24 writes for an array of this shape. */
static void test_numpy_bytes(void)
{
	static const char want[] = "\x93NUMPY\x01\0v\0" START "(1, 2048), }"
		"                       "
		"                                \n";
	struct k3_npy_stream s = { .fd = memfd_create("npy", 0), .name = "x" };
	struct k3_err err = { "" };
	char b[256];

	ok(!k3_npy_begin(&s, 2, SHAPE(1, 2048), &err) && s.offset == 128 &&
	   pread(s.fd, b, sizeof b, 0) == 128 && !memcmp(b, want, 128), "the header NumPy writes");
	close(s.fd);
}

/* With shapes as arguments (3x4), writes a header for each: tests/cmd/npy-numpy.t compares. */
static int write_headers(char **shapes)
{
	struct k3_npy_stream s = { .fd = 1, .name = "standard output" };
	struct k3_err err;
	uint64_t shape[K3_NPY_MAXDIM];
	uint32_t rank;
	char *p;

	for (; *shapes; shapes++, s.left = 0) {
		for (rank = 0, p = *shapes; *p && rank < K3_NPY_MAXDIM; p += *p == 'x')
			shape[rank++] = strtoull(p, &p, 10);
		if (k3_npy_begin(&s, rank, shape, &err)) {
			fprintf(stderr, "%s\n", err.text);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return write_headers(argv + 1);
	test_headers();
	test_longest();
	test_leads();
	test_pipe();
	test_cut();
	test_head();
	test_write_errors();
	test_numpy_bytes();
	return tap_done();
}
