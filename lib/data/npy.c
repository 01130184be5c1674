/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy.c - records of a vector stream.
 *
 * The header is a Python dict literal.  It is parsed strictly, as a literal of the three
 * keys that the format knows, but in any order and with the blanks, quotes and
 * trailing commas that writers other than NumPy may choose.
 */
#include <k3/io.h>
#include <k3/npy.h>
#include <k3/num.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Values go between memory and stream as they are, so memory must be little-endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(float) == 4,
	       "a big-endian machine needs swaps here");

static const unsigned char magic[K3_NPY_MAGIC] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0 };

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

/* The text of a header and what makes it wrong, if anything. */
struct literal {
	const char *p;		/* ends with a NUL; no other NUL is inside */
	struct k3_err why;
};

static void blanks(struct literal *t)
{
	t->p += strspn(t->p, " \t\n\r");
}

static bool take(struct literal *t, char c)
{
	blanks(t);
	if (*t->p != c)
		return false;
	t->p++;
	return true;
}

static bool expect(struct literal *t, char c, const char *where)
{
	if (take(t, c))
		return true;
	k3_fail(&t->why, 0, "no '%c' %s", c, where);
	return false;
}

/* A quoted string; no key or dtype that we know has an escape in it. */
static bool quoted(struct literal *t, char *out, size_t size, const char *what)
{
	const char *end;
	char quote;

	blanks(t);
	quote = *t->p;
	end = quote == '\'' || quote == '"' ? strchr(t->p + 1, quote) : NULL;
	if (!end || (size_t)(end - t->p) > size) {
		k3_fail(&t->why, 0, "%s is not a short quoted string", what);
		return false;
	}
	memcpy(out, t->p + 1, (size_t)(end - t->p) - 1);
	out[end - t->p - 1] = '\0';
	t->p = end + 1;
	return true;
}

static bool one_dtype(struct literal *t)
{
	char name[32];

	if (!quoted(t, name, sizeof name, "descr"))
		return false;
	if (!strcmp(name, "<f4"))
		return true;
	k3_fail(&t->why, 0, "its values are '%s', not '<f4'", name);
	return false;
}

static bool one_order(struct literal *t)
{
	blanks(t);
	if (!strncmp(t->p, "False", 5)) {
		t->p += 5;
		return true;
	}
	if (!strncmp(t->p, "True", 4))
		k3_fail(&t->why, 0, "it is in Fortran order");
	else
		k3_fail(&t->why, 0, "fortran_order is neither False nor True");
	return false;
}

static bool one_size(struct literal *t, struct k3_npy *h)
{
	size_t n = strspn(t->p, "0123456789");
	char digits[24];

	if (!n) {
		k3_fail(&t->why, 0, "shape is not a tuple of whole numbers");
		return false;
	}
	if (h->rank == K3_NPY_MAXDIM) {
		k3_fail(&t->why, 0, "it has more than %d dimensions", K3_NPY_MAXDIM);
		return false;
	}
	if (n < sizeof digits) {
		memcpy(digits, t->p, n);
		digits[n] = '\0';
	}
	if (n >= sizeof digits || !k3_num_u64(digits, INT64_MAX, &h->shape[h->rank])) {
		k3_fail(&t->why, 0, "a dimension is too large");
		return false;
	}
	h->rank++;
	t->p += n;
	return true;
}

static bool one_shape(struct literal *t, struct k3_npy *h)
{
	bool comma = true;

	if (!expect(t, '(', "before the shape"))
		return false;
	while (!take(t, ')')) {
		if (!comma) {
			k3_fail(&t->why, 0, "no ',' between dimensions");
			return false;
		}
		if (!one_size(t, h))
			return false;
		comma = take(t, ',');
	}
	if (!h->rank)
		k3_fail(&t->why, 0, "it has no dimensions");
	else if (h->rank == 1 && !comma)
		/* to Python, (5) is a number */
		k3_fail(&t->why, 0, "shape is not a tuple of whole numbers");
	else
		return true;
	return false;
}

static bool one_entry(struct literal *t, struct k3_npy *h, unsigned *seen)
{
	unsigned key;
	char name[32];

	if (!quoted(t, name, sizeof name, "a key"))
		return false;
	key = !strcmp(name, "descr") ? DESCR :
	      !strcmp(name, "fortran_order") ? ORDER :
	      !strcmp(name, "shape") ? SHAPE : 0;
	if (!key || *seen & key) {
		k3_fail(&t->why, 0, key ? "the key '%s' comes twice" : "unknown key '%s'", name);
		return false;
	}
	*seen |= key;
	if (!expect(t, ':', "behind a key"))
		return false;
	return key == DESCR ? one_dtype(t) : key == ORDER ? one_order(t) : one_shape(t, h);
}

static bool parse(struct literal *t, struct k3_npy *h)
{
	unsigned seen = 0;
	bool comma = true;

	*h = (struct k3_npy){ 0 };
	if (!expect(t, '{', "at its start"))
		return false;
	while (!take(t, '}')) {
		if (!comma) {
			k3_fail(&t->why, 0, "no ',' between keys");
			return false;
		}
		if (!one_entry(t, h, &seen))
			return false;
		comma = take(t, ',');
	}
	blanks(t);
	if (*t->p)
		k3_fail(&t->why, 0, "there is text behind it");
	else if (seen != ALL)
		k3_fail(&t->why, 0, "the key '%s' is missing",
			!(seen & DESCR) ? "descr" : !(seen & ORDER) ? "fortran_order" : "shape");
	else
		return true;
	return false;
}

/*
 * The number of values, unless their bytes are more than 63 bits can count.
 * Also a shape with a zero must not be absurd in its other dimensions.
 */
static bool count_values(struct k3_npy *h)
{
	uint64_t count = 1, total = 4;
	uint32_t i;

	for (i = 0; i < h->rank; i++) {
		count *= h->shape[i];
		if (k3_mul_over(total, h->shape[i] ? h->shape[i] : 1, &total))
			return false;
	}
	h->count = count;
	return total <= INT64_MAX;
}

/* Reads n bytes, first those that somebody has read before us. */
static int pull(struct k3_npy_stream *s, void *p, size_t n, size_t *got, struct k3_err *err)
{
	size_t held = s->head_len < n ? s->head_len : n;
	int rc;

	memcpy(p, s->head, held);
	memmove(s->head, s->head + held, s->head_len - held);
	s->head_len -= (uint32_t)held;
	rc = k3_read_full(s->fd, (char *)p + held, n - held, got, s->name, err);
	*got += held;
	s->offset += *got;
	return rc;
}

int k3_npy_next(struct k3_npy_stream *s, struct k3_npy *h, struct k3_err *err)
{
	unsigned char lead[K3_NPY_MAGIC + 2];
	char text[UINT16_MAX + 1];
	uint64_t start = s->offset;
	size_t got, len;
	struct literal t = { .p = text };
	int rc;

	if (s->left)
		return k3_fail(err, K3_EARG, "%s: %" PRIu64 " values of record %" PRIu64
			       " were not read", s->name, s->left, s->record - 1);
	rc = pull(s, lead, sizeof lead, &got, err);
	if (rc || !got)
		return rc;
	if (memcmp(lead, magic, got < 6 ? got : 6))
		return k3_fail(err, K3_EDATA, "%s: record %" PRIu64 " at byte %" PRIu64
			       " is not an npy record", s->name, s->record, start);
	if (got >= K3_NPY_MAGIC && memcmp(lead, magic, sizeof magic))
		return k3_fail(err, K3_EDATA, "%s: record %" PRIu64 " at byte %" PRIu64
			       " is npy version %d.%d, not 1.0", s->name, s->record, start,
			       lead[6], lead[7]);
	len = got < sizeof lead ? 1 : (size_t)lead[8] | (size_t)lead[9] << 8;
	if (got == sizeof lead)
		rc = pull(s, text, len, &got, err);
	else
		got = 0;
	if (rc)
		return rc;
	if (got < len)
		return k3_fail(err, K3_EDATA, "%s: the stream ends at byte %" PRIu64
			       ", inside the header of record %" PRIu64, s->name, s->offset,
			       s->record);
	text[len] = '\0';
	if (strlen(text) < len)
		k3_fail(&t.why, 0, "there is a NUL in it");
	else if (parse(&t, h) && !count_values(h))
		k3_fail(&t.why, 0, "its shape is too large");
	if (t.why.text[0])
		return k3_fail(err, K3_EDATA, "%s: header of record %" PRIu64 " at byte %" PRIu64
			       ": %s", s->name, s->record, start, t.why.text);
	s->record++;
	s->left = h->count;
	return 1;
}

int k3_npy_values(struct k3_npy_stream *s, float *values, uint64_t n, struct k3_err *err)
{
	size_t got;
	int rc;

	if (n > s->left)
		return k3_fail(err, K3_EARG, "%s: record %" PRIu64 " has %" PRIu64
			       " values left, not %" PRIu64, s->name, s->record - 1, s->left, n);
	rc = pull(s, values, (size_t)n * sizeof *values, &got, err);
	if (rc)
		return rc;
	if (got < n * sizeof *values)
		return k3_fail(err, K3_EDATA, "%s: the stream ends at byte %" PRIu64
			       ", inside the values of record %" PRIu64, s->name, s->offset,
			       s->record - 1);
	s->left -= n;
	return 0;
}

/*
 * As NumPy since 1.23: keys sorted, room for the first dimension to grow to 21
 * digits in place, then blanks up to the next multiple of 64, at least one.
 */
static void format_header(struct k3_buf *b, uint32_t rank, const uint64_t *shape)
{
	int first = snprintf(NULL, 0, "%" PRIu64, shape[0]);
	size_t len;
	uint32_t i;

	k3_buf_add(b, magic, sizeof magic);
	k3_buf_add(b, "\0", 2);
	k3_buf_str(b, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
	for (i = 0; i < rank; i++)
		k3_buf_printf(b, "%s%" PRIu64, i ? ", " : "", shape[i]);
	k3_buf_printf(b, "%s), }%*s", rank == 1 ? "," : "", 21 - first, "");
	k3_buf_printf(b, "%*s\n", 64 - (int)((b->len + 1) % 64), "");
	if (b->failed)
		return;
	len = b->len - K3_NPY_MAGIC - 2;
	b->data[K3_NPY_MAGIC] = (char)(len & 255);
	b->data[K3_NPY_MAGIC + 1] = (char)(len >> 8);
}

int k3_npy_begin(struct k3_npy_stream *s, uint32_t rank, const uint64_t *shape,
		 struct k3_err *err)
{
	struct k3_npy h = { .rank = rank };
	struct k3_buf b = K3_BUF_INIT;
	int rc;

	if (s->left)
		return k3_fail(err, K3_EARG, "%s: %" PRIu64 " values of record %" PRIu64
			       " were not written", s->name, s->left, s->record - 1);
	if (!rank || rank > K3_NPY_MAXDIM)
		return k3_fail(err, K3_EARG, "%s: a record of %u dimensions", s->name, rank);
	memcpy(h.shape, shape, rank * sizeof *shape);
	if (!count_values(&h))
		return k3_fail(err, K3_EARG, "%s: the shape of record %" PRIu64 " is too large",
			       s->name, s->record);
	format_header(&b, rank, shape);
	rc = b.failed ? k3_fail_nomem(err) : k3_write_full(s->fd, b.data, b.len, s->name, err);
	if (!rc) {
		s->record++;
		s->offset += b.len;
		s->left = h.count;
	}
	k3_buf_free(&b);
	return rc;
}

int k3_npy_put(struct k3_npy_stream *s, const float *values, uint64_t n, struct k3_err *err)
{
	int rc;

	if (n > s->left)
		return k3_fail(err, K3_EARG, "%s: record %" PRIu64 " has room for %" PRIu64
			       " values, not %" PRIu64, s->name, s->record - 1, s->left, n);
	rc = k3_write_full(s->fd, values, (size_t)n * sizeof *values, s->name, err);
	if (rc)
		return rc;
	s->offset += n * sizeof *values;
	s->left -= n;
	return 0;
}
