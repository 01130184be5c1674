/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - one header from the disk through libjq into a table.
 *
 * The header is fed to the parser in pieces, so that a hundred megabytes of it do not have to
 * lie in memory, and so that a name given twice is seen.
 */
#include "data/safetensors.h"
#include "data/json.h"
#include <k3/io.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { PIECE = 65536 };

int64_t k3_st_mtime(const struct stat *s)
{
	return (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec;
}

int k3_st_open(const char *path, int *fd, uint64_t *size, int64_t *mtime, struct k3_err *err)
{
	struct stat s;
	int rc;

	/* a fifo by this name must not make us wait for its writer */
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0)
		return k3_fail_errno(err, "%s", path);
	if (fstat(*fd, &s)) {
		rc = k3_fail_errno(err, "%s", path);
	} else if (!S_ISREG(s.st_mode)) {
		rc = k3_fail(err, K3_EDATA, "%s: not a regular file", path);
	} else {
		*size = (uint64_t)s.st_size;
		*mtime = k3_st_mtime(&s);
		return 0;
	}
	close(*fd);
	*fd = -1;
	return rc;
}

/* The header under way. */
struct reader {
	const char *path;
	struct k3_st *st;
	size_t room;			/* tensors that st->tensor can hold */
	struct k3_st_tensor now;	/* the tensor that is being described */
	bool open, has_dtype, has_shape;
	bool metadata;			/* __metadata__ was there */
	unsigned offsets;		/* how many of the two offsets were there */
	uint64_t offset[2];
};

/* "FILE: tensor NAME: " and the complaint about the tensor that is being described. */
#define COMPLAIN(r, err, fmt, ...) \
	k3_fail(err, K3_EDATA, "%s: tensor %.200s: " fmt, (r)->path, \
		(r)->st->names.data + (r)->now.name, __VA_ARGS__)

/* Bytes an element, or 0 for a type that the format does not know. */
static unsigned width_of(const char *dtype)
{
	static const struct {
		const char *name;
		unsigned width;
	} known[] = {
		{ "BF16", 2 }, { "F32", 4 }, { "U8", 1 }, { "BOOL", 1 }, { "I8", 1 },
		{ "F8_E4M3", 1 }, { "F8_E5M2", 1 }, { "I16", 2 }, { "U16", 2 }, { "F16", 2 },
		{ "I32", 4 }, { "U32", 4 }, { "I64", 8 }, { "U64", 8 }, { "F64", 8 },
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(known[i].name, dtype))
			return known[i].width;
	return 0;
}

/* The description is complete: checks it by itself and adds it to the table. */
static int close_tensor(struct reader *r, struct k3_err *err)
{
	struct k3_st *st = r->st;
	struct k3_st_tensor *t = &r->now;
	uint64_t bytes, base = 8 + st->header;

	r->open = false;
	if (!r->has_dtype || !r->has_shape || r->offsets != 2)
		return COMPLAIN(r, err, "has no %s", !r->has_dtype ? "dtype" :
				!r->has_shape ? "shape" : "data_offsets of two numbers");
	bytes = width_of(t->dtype);
	if (!bytes)
		return COMPLAIN(r, err, "unknown dtype %s", t->dtype);
	for (uint32_t i = 0; i < t->rank; i++)
		if (k3_mul_over(bytes, t->shape[i], &bytes))
			return COMPLAIN(r, err, "its %s is too large", "shape");
	if (r->offset[1] < r->offset[0] || r->offset[1] - r->offset[0] != bytes)
		return COMPLAIN(r, err, "data_offsets %" PRIu64 " to %" PRIu64
				" do not hold the %" PRIu64 " bytes of its shape",
				r->offset[0], r->offset[1], bytes);
	t->begin = base + r->offset[0];
	t->end = base + r->offset[1];
	if (st->count == r->room) {
		r->room = r->room ? 2 * r->room : 256;
		t = k3_reallocarray(st->tensor, r->room, sizeof *t);
		if (!t)
			return k3_fail_nomem(err);
		st->tensor = t;
	}
	st->tensor[st->count++] = r->now;
	return 0;
}

/* A description begins: of another name than that before, or of the same name again. */
static int open_tensor(struct reader *r, jv name, struct k3_err *err)
{
	r->now = (struct k3_st_tensor){ .name = r->st->names.len };
	r->now.length = (uint32_t)jv_string_length_bytes(jv_copy(name));
	k3_buf_add(&r->st->names, jv_string_value(name), (size_t)r->now.length + 1);
	if (r->st->names.failed)
		return k3_fail_nomem(err);
	r->open = true;
	r->has_dtype = r->has_shape = false;
	r->offsets = 0;
	return 0;
}

/* A size of the shape, or the empty shape of a scalar; at is its position in the list. */
static int take_shape(struct reader *r, jv at, jv leaf, struct k3_err *err)
{
	struct k3_st_tensor *t = &r->now;
	bool scalar = !jv_is_valid(at) && jv_get_kind(leaf) == JV_KIND_ARRAY;
	bool next = jv_get_kind(at) == JV_KIND_NUMBER && jv_number_value(at) == t->rank;

	if (r->has_shape && (scalar || t->rank == 0 || !next))
		return COMPLAIN(r, err, "shape is given %s", "twice");
	r->has_shape = true;
	if (scalar)
		return 0;
	if (t->rank == K3_ST_MAXDIM)
		return COMPLAIN(r, err, "more than %d dimensions", K3_ST_MAXDIM);
	if (!next || !k3_json_u64(leaf, UINT64_MAX, &t->shape[t->rank]))
		return COMPLAIN(r, err, "shape is not a list of %s", "sizes");
	t->rank++;
	return 0;
}

static int take_offset(struct reader *r, jv at, jv leaf, struct k3_err *err)
{
	if (r->offsets == 2 || jv_get_kind(at) != JV_KIND_NUMBER ||
	    jv_number_value(at) != r->offsets ||
	    !k3_json_u64(leaf, UINT64_MAX, &r->offset[r->offsets]))
		return COMPLAIN(r, err, "data_offsets are not two numbers below %s", "2^53");
	r->offsets++;
	return 0;
}

static int take_dtype(struct reader *r, jv at, jv leaf, struct k3_err *err)
{
	if (r->has_dtype || jv_is_valid(at) || jv_get_kind(leaf) != JV_KIND_STRING ||
	    (size_t)jv_string_length_bytes(jv_copy(leaf)) >= sizeof r->now.dtype)
		return COMPLAIN(r, err, "dtype is not %s", "one short string");
	snprintf(r->now.dtype, sizeof r->now.dtype, "%s", jv_string_value(leaf));
	r->has_dtype = true;
	return 0;
}

/* Something inside the description of a tensor: path is [name, field] or [name, field, at]. */
static int take_field(struct reader *r, jv path, int n, jv leaf, struct k3_err *err)
{
	jv field = jv_array_get(jv_copy(path), 1), at = jv_array_get(jv_copy(path), 2);
	int rc;

	if (n > 3)
		rc = COMPLAIN(r, err, "is described by lists %s", "within lists");
	else if (k3_json_is(field, "dtype"))
		rc = take_dtype(r, at, leaf, err);
	else if (k3_json_is(field, "shape"))
		rc = take_shape(r, at, leaf, err);
	else if (k3_json_is(field, "data_offsets"))
		rc = take_offset(r, at, leaf, err);
	else if (jv_get_kind(field) == JV_KIND_STRING)
		rc = COMPLAIN(r, err, "unknown field %.60s", jv_string_value(field));
	else
		rc = COMPLAIN(r, err, "is described by %s", "a list");
	jv_free(field);
	jv_free(at);
	return rc;
}

/* __metadata__ may hold strings, which mean nothing to us. */
static int take_metadata(struct reader *r, int n, jv leaf, struct k3_err *err)
{
	bool whole = n == 1 && jv_get_kind(leaf) == JV_KIND_OBJECT;

	if (n == 2 && !jv_is_valid(leaf)) {
		r->metadata = true;
		return 0;
	}
	if (r->metadata || !(whole || (n == 2 && jv_get_kind(leaf) == JV_KIND_STRING)))
		return k3_fail(err, K3_EDATA, "%s: __metadata__ is not one object of strings",
			       r->path);
	r->metadata = whole;
	return 0;
}

/* A step within the description of the tensor called name. */
static int take_tensor(struct reader *r, jv name, jv path, int n, jv leaf, struct k3_err *err)
{
	int rc = r->open ? 0 : open_tensor(r, name, err);

	if (rc)
		return rc;
	if (n == 1)
		return COMPLAIN(r, err, "is not described by %s", "an object with fields");
	if (n == 2 && !jv_is_valid(leaf))
		return close_tensor(r, err);
	return jv_is_valid(leaf) ? take_field(r, path, n, leaf, err) : 0;
}

static int header_event(void *arg, jv path, jv leaf, struct k3_err *err)
{
	struct reader *r = arg;
	int n = jv_array_length(jv_copy(path)), rc = 0;
	jv name = jv_array_get(jv_copy(path), 0);

	if (n == 0 && jv_get_kind(leaf) == JV_KIND_OBJECT)
		rc = 0;		/* a header without tensors */
	else if (jv_get_kind(name) != JV_KIND_STRING)
		rc = k3_fail(err, K3_EDATA, "%s: the header is not a JSON object", r->path);
	else if (n == 1 && !jv_is_valid(leaf))
		rc = 0;		/* the end of the header */
	else if (k3_json_is(name, "__metadata__"))
		rc = take_metadata(r, n, leaf, err);
	else
		rc = take_tensor(r, name, path, n, leaf, err);
	jv_free(name);
	return rc;
}

static int read_header(struct reader *r, int fd, struct k3_err *err)
{
	uint64_t left = r->st->header, at = 8;
	struct k3_json j;
	char *piece;
	size_t n;
	int rc;

	piece = malloc(PIECE);
	if (!piece)
		return k3_fail_nomem(err);
	rc = k3_json_begin(&j, r->path, header_event, r, err);
	while (!rc && left) {
		n = left < PIECE ? (size_t)left : PIECE;
		rc = k3_pread_full(fd, piece, n, at, r->path, err);
		if (!rc)
			rc = k3_json_push(&j, piece, n, n == left, err);
		at += n;
		left -= n;
	}
	k3_json_end(&j);
	free(piece);
	return rc;
}

static int by_begin(const void *a, const void *b)
{
	const struct k3_st_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return (x->end > y->end) - (x->end < y->end);
}

/* Sorts the tensors and sees that they follow each other from the header to the end. */
static int check_places(const char *path, struct k3_st *st, struct k3_err *err)
{
	const char *names = st->names.data;
	uint64_t at = 8 + st->header;
	struct k3_st_tensor *t;

	if (st->count)
		qsort(st->tensor, st->count, sizeof *st->tensor, by_begin);
	for (size_t i = 0; i < st->count; i++) {
		t = &st->tensor[i];
		if (t->begin > at)
			return k3_fail(err, K3_EDATA, "%s: a hole of %" PRIu64 " bytes in front of "
				       "tensor %.200s at offset %" PRIu64, path, t->begin - at,
				       names + t->name, t->begin);
		if (t->begin < at)
			return k3_fail(err, K3_EDATA, "%s: tensor %.200s at offset %" PRIu64
				       " overlaps tensor %.200s", path, names + t->name, t->begin,
				       names + t[-1].name);
		at = t->end;
	}
	if (at > st->size)
		return k3_fail(err, K3_EDATA, "%s: cut short: the file has %" PRIu64
			       " bytes, its tensors end at %" PRIu64, path, st->size, at);
	if (at < st->size)
		return k3_fail(err, K3_EDATA, "%s: the file has %" PRIu64 " bytes, but its "
			       "tensors end at %" PRIu64, path, st->size, at);
	return 0;
}

struct hashed {
	uint64_t hash;
	const char *name;
};

static int by_hash(const void *a, const void *b)
{
	const struct hashed *x = a, *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Two tensors of one name, told by sorting the hashes of all names. */
static int check_names(const char *path, const struct k3_st *st, struct k3_err *err)
{
	struct hashed *h = k3_calloc(st->count, sizeof *h);
	int rc = 0;

	if (!h)
		return k3_fail_nomem(err);
	for (size_t i = 0; i < st->count; i++) {
		h[i].name = st->names.data + st->tensor[i].name;
		h[i].hash = XXH3_64bits(h[i].name, st->tensor[i].length);
	}
	if (st->count)
		qsort(h, st->count, sizeof *h, by_hash);
	for (size_t i = 1; i < st->count && !rc; i++)
		if (h[i].hash == h[i - 1].hash)
			rc = k3_fail(err, K3_EDATA, "%s: tensor %.200s is there twice", path,
				     h[i].name);
	free(h);
	return rc;
}

int k3_st_digest(int fd, const char *path, uint64_t size, uint64_t header,
		 uint8_t out[K3_DIGEST], struct k3_err *err)
{
	uint64_t start = 8 + header, data = size - start, le = htole64(size), at[3];
	uint64_t sample = data < K3_ST_SAMPLE ? data : K3_ST_SAMPLE, n;
	XXH3_state_t *state = XXH3_createState();
	uint8_t *piece = malloc(PIECE);
	XXH128_canonical_t digest;
	int rc = state && piece ? 0 : k3_fail_nomem(err);

	if (!rc)
		XXH3_128bits_reset(state);
	for (uint64_t i = 0; !rc && i < start; i += n) {
		n = start - i < PIECE ? start - i : PIECE;
		rc = k3_pread_full(fd, piece, n, i, path, err);
		if (!rc)
			XXH3_128bits_update(state, piece, n);
	}
	if (!rc)
		XXH3_128bits_update(state, &le, sizeof le);
	at[0] = start;
	at[1] = start + (data - sample) / 2;
	at[2] = size - sample;
	for (int i = 0; !rc && i < 3; i++) {
		rc = k3_pread_full(fd, piece, sample, at[i], path, err);
		if (!rc)
			XXH3_128bits_update(state, piece, sample);
	}
	if (!rc) {
		XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
		memcpy(out, digest.digest, K3_DIGEST);
	}
	XXH3_freeState(state);
	free(piece);
	return rc;
}

/* Reads the length of the header and sees that it can be one. */
static int read_length(int fd, const char *path, uint64_t size, uint64_t *header,
		       struct k3_err *err)
{
	uint64_t le;
	int rc;

	if (size < 8)
		return k3_fail(err, K3_EDATA, "%s: %" PRIu64 " bytes are no safetensors file",
			       path, size);
	rc = k3_pread_full(fd, &le, sizeof le, 0, path, err);
	if (rc)
		return rc;
	*header = le64toh(le);
	if (*header > K3_ST_MAXHEADER)
		return k3_fail(err, K3_EDATA, "%s: a header of %" PRIu64 " bytes is longer than "
			       "the %llu allowed", path, *header, K3_ST_MAXHEADER);
	if (*header > size - 8)
		return k3_fail(err, K3_EDATA, "%s: the header of %" PRIu64 " bytes does not fit "
			       "into the file of %" PRIu64, path, *header, size);
	if (!*header)
		return k3_fail(err, K3_EDATA, "%s: the header is empty", path);
	return 0;
}

int k3_st_digest_path(const char *path, uint64_t header, uint8_t out[K3_DIGEST],
		      struct k3_err *err)
{
	uint64_t size, found;
	int64_t mtime;
	int fd, rc;

	rc = k3_st_open(path, &fd, &size, &mtime, err);
	if (rc)
		return rc;
	rc = read_length(fd, path, size, &found, err);
	if (!rc && found != header)
		rc = k3_fail(err, K3_ESTALE, "%s: its header has another length than before", path);
	if (!rc)
		rc = k3_st_digest(fd, path, size, header, out, err);
	close(fd);
	return rc;
}

int k3_st_read(const char *path, struct k3_st *out, struct k3_err *err)
{
	struct reader r = { .path = path, .st = out };
	int fd, rc;

	*out = (struct k3_st){ .names = K3_BUF_INIT };
	rc = k3_st_open(path, &fd, &out->size, &out->mtime, err);
	if (rc)
		return rc;
	rc = read_length(fd, path, out->size, &out->header, err);
	if (!rc)
		rc = read_header(&r, fd, err);
	if (!rc)
		rc = check_names(path, out, err);
	if (!rc)
		rc = check_places(path, out, err);
	if (!rc)
		rc = k3_st_digest(fd, path, out->size, out->header, out->digest, err);
	close(fd);
	return rc;
}

void k3_st_free(struct k3_st *st)
{
	free(st->tensor);
	k3_buf_free(&st->names);
	st->tensor = NULL;
	st->count = 0;
}
