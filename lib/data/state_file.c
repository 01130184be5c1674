/* SPDX-License-Identifier: Apache-2.0 */
/* state_file.c - layout and headers of a state file. */
#include "data/state_file.h"
#include "sys/le.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "floats are stored as they lie in memory, which must be little-endian"
#endif

static const unsigned char magic[8] = K3_STATE_MAGIC;

enum { VERSION = 1, FIXED = 160, ENTRY = 16, ALIGN = 4096 };

static uint64_t align(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t k3_state_sum(const void *p, uint64_t bytes, uint64_t seed)
{
	return XXH64(p, bytes, seed);
}

/* Everything that follows from the numbers of the shape. */
static int derive(struct k3_state_shape *s, struct k3_err *err)
{
	uint64_t p = (uint64_t)s->kda_heads * s->kda_dim;

	s->kda_layers = s->mla_layers = 0;
	for (uint32_t i = 0; i < s->last - s->first; i++)
		if (s->kind[i] == K3_KDA)
			s->kda_layers++;
		else
			s->mla_layers++;
	if (k3_mul_over(p, s->kda_dim, &s->kda_floats) ||
	    k3_mul_over(p, 3 * (uint64_t)(s->conv - 1), &s->conv_floats) ||
	    s->kda_floats + s->conv_floats > UINT64_MAX / 8 / ((uint64_t)s->kda_layers + 1))
		return k3_fail(err, K3_EDATA, "a state of this model is too large");
	s->header_bytes = align(FIXED + (uint64_t)ENTRY * (s->last - s->first) + 8);
	s->slot_bytes = align((s->kda_floats + s->conv_floats) * sizeof(float));
	s->page_floats = (uint64_t)K3_PAGE * ((uint64_t)s->kv_rank + s->rope);
	s->group_bytes = align(K3_PAGE * sizeof(uint32_t) +
			       s->mla_layers * s->page_floats * sizeof(float));
	s->groups_at = 2 * s->header_bytes + (s->kda_layers + (uint64_t)1) * s->slot_bytes;
	return 0;
}

int k3_shape_init(struct k3_state_shape *s, const struct k3_config *c, uint32_t first,
		  uint32_t last, struct k3_err *err)
{
	*s = (struct k3_state_shape){
		.first = first, .last = last, .hidden = c->hidden, .kda_heads = c->kda_heads,
		.kda_dim = c->kda_dim, .conv = c->conv, .kv_rank = c->kv_rank, .rope = c->rope,
	};
	s->kind = k3_calloc(last - first, 1);
	if (!s->kind)
		return k3_fail_nomem(err);
	memcpy(s->kind, c->kind + first, last - first);
	return derive(s, err);
}

void k3_shape_free(struct k3_state_shape *s)
{
	free(s->kind);
	*s = (struct k3_state_shape){ 0 };
}

uint64_t k3_shape_slot(const struct k3_state_shape *s, uint32_t slot)
{
	return 2 * s->header_bytes + slot * s->slot_bytes;
}

uint64_t k3_shape_group(const struct k3_state_shape *s, uint64_t group)
{
	return s->groups_at + group * s->group_bytes;
}

uint64_t k3_shape_page(const struct k3_state_shape *s, uint64_t group, uint32_t mla)
{
	return k3_shape_group(s, group) + K3_PAGE * sizeof(uint32_t) +
	       mla * s->page_floats * sizeof(float);
}

uint64_t k3_shape_end(const struct k3_state_shape *s, uint64_t positions)
{
	return k3_shape_group(s, (positions + K3_PAGE - 1) / K3_PAGE);
}

/* The bytes of a header; out has header_bytes, zeroed. */
static void encode(const struct k3_state_shape *s, const uint8_t fingerprint[16],
		   const struct k3_state_head *h, unsigned char *out)
{
	uint32_t n = s->last - s->first;
	const uint32_t shape[] = { s->first, s->last, s->hidden, s->kda_heads, s->kda_dim,
				   s->conv, s->kv_rank, s->rope };
	const uint64_t numbers[] = { h->commits, h->ids, h->pass, h->ids_sum, h->residual_at,
				     h->residual_rows, h->residual_sum };

	memcpy(out, magic, 8);
	k3_put32(out + 8, VERSION);
	k3_put32(out + 12, (uint32_t)s->header_bytes);
	memcpy(out + 16, fingerprint, 16);
	for (int i = 0; i < 8; i++)
		k3_put32(out + 32 + 4 * i, shape[i]);
	for (int i = 0; i < 7; i++)
		k3_put64(out + 64 + 8 * i, numbers[i]);
	k3_put32(out + 120, h->next);
	k3_put32(out + 124, h->spare);
	k3_put32(out + 128, h->residual_sources);
	for (uint32_t i = 0; i < n; i++) {
		unsigned char *e = out + FIXED + (uint64_t)ENTRY * i;

		k3_put32(e, s->kind[i]);
		k3_put32(e + 4, h->layer[i].slot);
		k3_put64(e + 8, h->layer[i].sum);
	}
	k3_put64(out + s->header_bytes - 8, XXH64(out, s->header_bytes - 8, 0));
}

int k3_head_write(int fd, const char *path, const struct k3_state_shape *s,
		  const uint8_t fingerprint[16], const struct k3_state_head *head,
		  struct k3_err *err)
{
	unsigned char *bytes = k3_calloc(s->header_bytes, 1);
	int rc;

	if (!bytes)
		return k3_fail_nomem(err);
	encode(s, fingerprint, head, bytes);
	rc = k3_pwrite_full(fd, bytes, s->header_bytes, head->commits % 2 * s->header_bytes, path,
			    err);
	free(bytes);
	return rc;
}

int k3_head_create(int fd, const char *path, const struct k3_state_shape *s,
		   const uint8_t fingerprint[16], const struct k3_state_head *head,
		   struct k3_err *err)
{
	unsigned char *bytes = k3_calloc(2 * s->header_bytes, 1);
	int rc;

	if (!bytes)
		return k3_fail_nomem(err);
	encode(s, fingerprint, head, bytes);
	rc = k3_pwrite_full(fd, bytes + 8, 2 * s->header_bytes - 8, 8, path, err);
	if (!rc)
		rc = k3_pwrite_full(fd, bytes, 8, 0, path, err);
	free(bytes);
	return rc;
}

static int decode_shape(const unsigned char *in, struct k3_state_shape *s, struct k3_err *err)
{
	uint32_t *shape[] = { &s->first, &s->last, &s->hidden, &s->kda_heads, &s->kda_dim,
			      &s->conv, &s->kv_rank, &s->rope };
	uint32_t n;

	*s = (struct k3_state_shape){ 0 };
	for (int i = 0; i < 8; i++)
		*shape[i] = k3_get32(in + 32 + 4 * i);
	n = s->last - s->first;
	if (s->last <= s->first || FIXED + (uint64_t)ENTRY * n + 8 > k3_get32(in + 12) || !s->conv)
		return k3_fail(err, K3_EDATA, "impossible range of layers");
	s->kind = k3_calloc(n, 1);
	if (!s->kind)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < n; i++)
		s->kind[i] = in[FIXED + (uint64_t)ENTRY * i];
	return derive(s, err);
}

/* One of the two headers whose checksum has been found right. */
static int decode(const unsigned char *in, struct k3_state_shape *s, uint8_t fingerprint[16],
		  struct k3_state_head *h, struct k3_err *err)
{
	uint64_t *numbers[] = { &h->commits, &h->ids, &h->pass, &h->ids_sum, &h->residual_at,
				&h->residual_rows, &h->residual_sum };
	int rc = decode_shape(in, s, err);

	if (rc)
		return rc;
	memcpy(fingerprint, in + 16, 16);
	for (int i = 0; i < 7; i++)
		*numbers[i] = k3_get64(in + 64 + 8 * i);
	h->next = k3_get32(in + 120);
	h->spare = k3_get32(in + 124);
	h->residual_sources = k3_get32(in + 128);
	h->layer = k3_calloc(s->last - s->first, sizeof *h->layer);
	if (!h->layer)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < s->last - s->first; i++) {
		const unsigned char *e = in + FIXED + (uint64_t)ENTRY * i;

		h->layer[i].slot = k3_get32(e + 4);
		h->layer[i].sum = k3_get64(e + 8);
		if (s->kind[i] == K3_KDA && h->layer[i].slot > s->kda_layers)
			return k3_fail(err, K3_EDATA, "impossible slot");
	}
	if (h->pass > h->ids || h->next < s->first || h->next > s->last ||
	    h->spare > s->kda_layers || h->commits == 0)
		return k3_fail(err, K3_EDATA, "impossible numbers");
	return 0;
}

void k3_head_free(struct k3_state_head *h)
{
	free(h->layer);
	*h = (struct k3_state_head){ 0 };
}

/* Reads a header's bytes: 1 if its checksum is right, else 0. */
static int load(int fd, const char *path, uint64_t bytes, int which, unsigned char *out,
		struct k3_err *err)
{
	int rc = k3_pread_full(fd, out, bytes, which * bytes, path, err);

	if (rc)
		return rc;
	return !memcmp(out, magic, 8) && k3_get32(out + 8) == VERSION &&
	       k3_get32(out + 12) == bytes &&
	       k3_get64(out + bytes - 8) == XXH64(out, bytes - 8, 0);
}

/*
 * The size of a header, which both state in their first 16 bytes; the second one is
 * asked for it when the first was being written.
 */
static int header_size(int fd, const char *path, uint64_t *bytes, struct k3_err *err)
{
	unsigned char start[16];
	int rc = k3_pread_full(fd, start, sizeof start, 0, path, err);

	if (rc)
		return rc;
	if (memcmp(start, magic, 8))
		return k3_fail(err, K3_EDATA, "%s: not a k3 state", path);
	if (k3_get32(start + 8) != VERSION)
		return k3_fail(err, K3_EDATA, "%s: state format version %" PRIu32
			       "; this program knows version %d", path, k3_get32(start + 8),
			       VERSION);
	*bytes = k3_get32(start + 12);
	if (*bytes < ALIGN || *bytes % ALIGN || *bytes > 1 << 26)
		return k3_fail(err, K3_EDATA, "%s: damaged: impossible header size %" PRIu64, path,
			       *bytes);
	return 0;
}

static bool blank(const unsigned char *p, uint64_t n)
{
	while (n && !*p) {
		p++;
		n--;
	}
	return !n;
}

int k3_head_read(int fd, const char *path, struct k3_state_shape *s, uint8_t fingerprint[16],
		 struct k3_state_head *head, struct k3_err *err)
{
	unsigned char *bytes = NULL;
	struct k3_err why;
	uint64_t size = 0;
	int good[2], rc;

	*head = (struct k3_state_head){ 0 };
	*s = (struct k3_state_shape){ 0 };
	rc = header_size(fd, path, &size, err);
	if (rc)
		return rc;
	bytes = malloc(2 * size);
	if (!bytes)
		return k3_fail_nomem(err);
	for (int i = 0; i < 2; i++) {
		rc = good[i] = load(fd, path, size, i, bytes + i * size, err);
		if (rc < 0)
			goto out;
	}
	/*
	 * A header of one page is written whole or not at all, so a wrong one is
	 * damage; of a longer one a kill may have cut the write, and then the
	 * other is current.  The second one is blank before the first commit.
	 */
	for (int i = 0; i < 2; i++)
		if (!good[i] && (size == ALIGN || !good[1 - i]) &&
		    !(i == 1 && blank(bytes + size, size))) {
			rc = k3_fail(err, K3_EDATA, "%s: damaged: wrong checksum of a header", path);
			goto out;
		}
	if (good[0] && good[1])
		good[0] = k3_get64(bytes + 64) > k3_get64(bytes + size + 64);
	rc = decode(good[0] ? bytes : bytes + size, s, fingerprint, head, &why);
	if (rc)
		rc = k3_fail(err, rc, "%s: damaged: %s", path, why.text);
out:
	if (rc) {
		k3_head_free(head);
		k3_shape_free(s);
	}
	free(bytes);
	return rc;
}
