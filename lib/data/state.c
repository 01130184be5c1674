/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c - a sequence's state: opening it, asking it, its slices in memory.
 *
 * Slices are read and checked when they are first asked for, and then stay in
 * memory.  state_pass.c has what changes them.
 */
#include "data/state_own.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t layers(const struct k3_state *s)
{
	return s->shape.last - s->shape.first;
}

/* Slices that may be in memory. */
static uint32_t residents(const struct k3_state *s)
{
	return s->passing ? 1 : layers(s);
}

/* Memory for the layers of s->shape. */
static int prepare(struct k3_state *s, struct k3_err *err)
{
	uint32_t mla = 0;

	s->layer = k3_calloc(residents(s), sizeof *s->layer);
	if (s->passing)
		return s->layer ? 0 : k3_fail_nomem(err);
	s->mla_number = k3_calloc(layers(s), sizeof *s->mla_number);
	if (!s->layer || !s->mla_number)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < layers(s); i++)
		s->mla_number[i] = s->shape.kind[i] == K3_MLA ? mla++ : 0;
	return 0;
}

/* A head for a sequence that has seen nothing: KDA layers have slots 0, 1, .., all zero. */
static int first_head(struct k3_state *s, struct k3_err *err)
{
	uint32_t slot = 0;

	s->head = (struct k3_state_head){ .next = s->shape.last };
	if (s->passing)
		return 0;
	s->head.layer = k3_calloc(layers(s), sizeof *s->head.layer);
	if (!s->head.layer)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < layers(s); i++)
		if (s->shape.kind[i] == K3_KDA)
			s->head.layer[i].slot = slot++;
	s->head.spare = slot;
	return 0;
}

static int new_state(struct k3_state **out, struct k3_err *err)
{
	*out = calloc(1, sizeof **out);
	if (!*out)
		return k3_fail_nomem(err);
	(*out)->fd = -1;
	return 0;
}

int k3_state_new(const struct k3_state_spec *spec, bool passing, struct k3_state **out,
		 struct k3_err *err)
{
	struct k3_state *s;
	int rc = new_state(&s, err);

	*out = NULL;
	if (rc)
		return rc;
	s->passing = passing;
	rc = k3_shape_init(&s->shape, spec->config, spec->first, spec->last, err);
	if (!rc)
		rc = prepare(s, err);
	if (!rc)
		rc = first_head(s, err);
	if (rc)
		k3_state_close(s);
	else
		*out = s;
	return rc;
}

/* ---- files ---- */

static int create(struct k3_state *s, const struct k3_state_spec *spec, struct k3_err *err)
{
	int rc = k3_shape_init(&s->shape, spec->config, spec->first, spec->last, err);

	if (!rc)
		rc = first_head(s, err);
	if (rc)
		return rc;
	memcpy(s->fingerprint, spec->fingerprint, 16);
	s->head.commits = 2;
	return k3_head_create(s->fd, s->path, &s->shape, s->fingerprint, &s->head, err);
}

/* A file that ends before what its header names has been cut. */
static int check_size(const struct k3_state *s, uint64_t size, struct k3_err *err)
{
	uint64_t need = 2 * s->shape.header_bytes, end;

	if (s->head.ids / K3_PAGE > (UINT64_MAX >> 2) / (s->shape.group_bytes + 1))
		return k3_fail(err, K3_EDATA, "%s: damaged: impossible number of ids", s->path);
	if (s->head.ids)
		need = k3_shape_page(&s->shape, (s->head.ids - 1) / K3_PAGE, 0);
	end = s->head.residual_at + s->head.residual_rows * s->head.residual_sources *
	      (uint64_t)s->shape.hidden * sizeof(float);
	if (end > need)
		need = end;
	if (size < need)
		return k3_fail(err, K3_EDATA, "%s: cut short: %" PRIu64 " bytes of at least %"
			       PRIu64, s->path, size, need);
	return 0;
}

static int check_spec(const struct k3_state *s, const struct k3_state_spec *spec,
		      struct k3_err *err)
{
	if (memcmp(s->fingerprint, spec->fingerprint, 16))
		return k3_fail(err, K3_ESTALE, "%s: this is a state of another model", s->path);
	if (s->shape.first != spec->first || s->shape.last != spec->last)
		return k3_fail(err, K3_ESTALE, "%s: a state of layers %" PRIu32 ":%" PRIu32
			       ", not %" PRIu32 ":%" PRIu32, s->path, s->shape.first,
			       s->shape.last, spec->first, spec->last);
	return 0;
}

static int check_ids(struct k3_state *s, struct k3_err *err)
{
	uint32_t *ids;
	int rc = k3_state_ids(s, &ids, err);

	free(ids);
	return rc;
}

/*
 * Opens what is there.  A file whose first bytes are still zero is one whose
 * creation was stopped, and so is an empty one: both become a new state.
 */
static int open_file(struct k3_state *s, const struct k3_state_spec *spec, struct k3_err *err)
{
	static const unsigned char zero[8];
	unsigned char start[8];
	struct stat st;
	int rc;

	if (fstat(s->fd, &st))
		return k3_fail_errno(err, "%s", s->path);
	if (!S_ISREG(st.st_mode))
		return k3_fail(err, K3_EDATA, "%s: a state must be a regular file", s->path);
	if (spec && st.st_size >= 8) {
		rc = k3_pread_full(s->fd, start, 8, 0, s->path, err);
		if (rc)
			return rc;
		if (!memcmp(start, zero, 8))
			st.st_size = 0;
	}
	if (spec && st.st_size == 0)
		return create(s, spec, err);
	rc = k3_head_read(s->fd, s->path, &s->shape, s->fingerprint, &s->head, err);
	if (!rc && spec)
		rc = check_spec(s, spec, err);
	if (!rc)
		rc = check_size(s, (uint64_t)st.st_size, err);
	return rc;
}

static int open_path(const char *path, const struct k3_state_spec *spec, struct k3_state **out,
		     struct k3_err *err)
{
	struct k3_state *s;
	int rc = new_state(&s, err);

	*out = NULL;
	if (rc)
		return rc;
	s->readonly = !spec;
	s->named = true;
	s->path = strdup(path);
	if (!s->path)
		rc = k3_fail_nomem(err);
	if (!rc) {
		s->fd = open(path, spec ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0666);
		if (s->fd < 0)
			rc = k3_fail_errno(err, "%s", path);
	}
	if (!rc && spec && flock(s->fd, LOCK_EX | LOCK_NB))
		rc = errno == EWOULDBLOCK
			? k3_fail(err, K3_EBUSY, "%s: in use by another process", path)
			: k3_fail_errno(err, "%s: cannot lock", path);
	if (!rc)
		rc = open_file(s, spec, err);
	if (!rc)
		rc = prepare(s, err);
	if (!rc)
		rc = check_ids(s, err);
	if (rc)
		k3_state_close(s);
	else
		*out = s;
	return rc;
}

int k3_state_open(const char *path, const struct k3_state_spec *spec, struct k3_state **out,
		  struct k3_err *err)
{
	return open_path(path, spec, out, err);
}

int k3_state_inspect(const char *path, struct k3_state **out, struct k3_err *err)
{
	return open_path(path, NULL, out, err);
}

uint64_t k3_state_slice_bytes(const struct k3_state *s)
{
	return (s->shape.kda_floats + s->shape.conv_floats) * sizeof(float);
}

void k3_state_pool(struct k3_state *s, struct k3_slice_pool *p)
{
	s->pool = p;
}

void k3_state_forget(struct k3_state *s, uint32_t i)
{
	struct k3_resident *r = k3_state_resident(s, i);

	for (uint64_t k = 0; k < r->pages; k++)
		free(r->page[k]);
	free(r->page);
	k3_slice_pool_give(s->pool, r->kda, k3_state_slice_bytes(s));
	*r = (struct k3_resident){ 0 };
}

void k3_state_close(struct k3_state *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->layer && i < residents(s); i++)
		k3_state_forget(s, i);
	if (s->fd >= 0)
		close(s->fd);
	free(s->layer);
	free(s->mla_number);
	free(s->path);
	k3_head_free(&s->head);
	k3_shape_free(&s->shape);
	free(s);
}

/* ---- queries ---- */

void k3_state_describe(const struct k3_state *s, struct k3_state_info *out)
{
	const struct k3_state_shape *h = &s->shape;

	*out = (struct k3_state_info){
		.fingerprint = s->fingerprint, .kind = h->kind, .first = h->first,
		.last = h->last, .hidden = h->hidden, .kda_heads = h->kda_heads,
		.kda_dim = h->kda_dim, .conv = h->conv, .kv_rank = h->kv_rank, .rope = h->rope,
		.commits = s->head.commits,
	};
}

uint64_t k3_state_position(const struct k3_state *s)
{
	return s->head.ids;
}

uint64_t k3_state_pending(const struct k3_state *s)
{
	return s->head.pass;
}

uint32_t k3_state_layer(const struct k3_state *s)
{
	return s->head.next;
}

int k3_state_ids(struct k3_state *s, uint32_t **out, struct k3_err *err)
{
	uint64_t n = s->head.ids, sum = 0;
	int rc = 0;

	*out = k3_reallocarray(NULL, n, sizeof **out);
	if (!*out)
		return k3_fail_nomem(err);
	for (uint64_t i = 0; !rc && s->path && i < n; i += K3_PAGE)
		rc = k3_pread_full(s->fd, *out + i, (n - i < K3_PAGE ? n - i : K3_PAGE) *
				   sizeof **out, k3_shape_group(&s->shape, i / K3_PAGE), s->path,
				   err);
	for (uint64_t i = 0; !rc && i < n; i++)
		sum = k3_state_sum(*out + i, sizeof **out, sum);
	if (!rc && s->path && sum != s->head.ids_sum)
		rc = k3_fail(err, K3_EDATA, "%s: damaged: wrong checksum of the ids", s->path);
	if (rc) {
		free(*out);
		*out = NULL;
	}
	return rc;
}

/* What malloc takes for so many bytes: a word more, rounded; for many, pages of their own. */
static uint64_t heap(uint64_t n)
{
	n += 16;
	return n < 128 << 10 ? (n + 15) & ~15ull : (n + 4095) & ~4095ull;
}

static uint64_t slice_memory(enum k3_kind kind, uint64_t slice_floats, uint64_t page_floats,
			     uint64_t positions)
{
	uint64_t pages = (positions + K3_PAGE - 1) / K3_PAGE;

	if (kind == K3_KDA)
		return heap(slice_floats * sizeof(float));
	return pages * heap(page_floats * sizeof(float)) + heap(pages * sizeof(float *));
}

/* What a state has beside its slices. */
static uint64_t own_memory(uint32_t n, bool passing)
{
	uint64_t bytes = heap(sizeof(struct k3_state)) + heap(n * sizeof(uint8_t));

	if (passing)
		return bytes + heap(sizeof(struct k3_resident));
	return bytes + heap(n * sizeof(struct k3_resident)) +
	       heap(n * sizeof(struct k3_state_layer)) + heap(n * sizeof(uint32_t));
}

/* kind: of each of n layers */
static struct k3_state_bytes memory(const uint8_t *kind, uint32_t n, bool passing,
				    uint64_t slice_floats, uint64_t page_floats, uint64_t positions)
{
	struct k3_state_bytes m = { 0, 0, own_memory(n, passing) };

	for (uint32_t i = 0; i < n; i++) {
		uint64_t bytes = slice_memory(kind[i], slice_floats, page_floats, positions);

		m.all += bytes;
		m.layer = bytes > m.layer ? bytes : m.layer;
	}
	return m;
}

struct k3_state_bytes k3_state_memory_of(const struct k3_state_spec *spec, bool passing,
					 uint64_t positions)
{
	const struct k3_config *c = spec->config;
	uint64_t all = (uint64_t)c->kda_heads * c->kda_dim;

	return memory(c->kind + spec->first, spec->last - spec->first, passing,
		      all * c->kda_dim + 3 * (c->conv - 1) * all,
		      (uint64_t)K3_PAGE * (c->kv_rank + c->rope), positions);
}

struct k3_state_bytes k3_state_memory(const struct k3_state *s, uint64_t n)
{
	return memory(s->shape.kind, layers(s), s->passing,
		      s->shape.kda_floats + s->shape.conv_floats, s->shape.page_floats,
		      s->head.ids + n + s->room);
}

int k3_state_reserve(struct k3_state *s, uint64_t n, struct k3_err *err)
{
	if (s->named)
		return k3_fail(err, K3_EARG, "%s: a state in a file has no room for guesses", s->path);
	s->room = n;
	return 0;
}

bool k3_state_passing(const struct k3_state *s)
{
	return s->passing;
}

bool k3_state_has_file(const struct k3_state *s)
{
	return s->path;
}

void k3_state_page(struct k3_state *s, bool paged)
{
	s->paged = paged && s->path;
	for (uint32_t i = 0; s->paged && i < layers(s); i++)
		k3_state_forget(s, i);
}

uint64_t k3_state_residual_bytes(const struct k3_state *s)
{
	return s->head.residual_rows * s->head.residual_sources * (uint64_t)s->shape.hidden *
	       sizeof(float);
}

int k3_state_residual(struct k3_state *s, float **out, uint64_t *rows, uint32_t *sources,
		      struct k3_err *err)
{
	uint64_t bytes = k3_state_residual_bytes(s);
	int rc;

	*rows = s->head.residual_rows;
	*sources = s->head.residual_sources;
	*out = k3_calloc(bytes, 1);
	if (!*out)
		return k3_fail_nomem(err);
	if (!bytes)
		return 0;
	rc = k3_pread_full(s->fd, *out, bytes, s->head.residual_at, s->path, err);
	if (!rc && k3_state_sum(*out, bytes, 0) != s->head.residual_sum)
		rc = k3_fail(err, K3_EDATA, "%s: damaged: wrong checksum of the residual stream",
			     s->path);
	if (rc) {
		free(*out);
		*out = NULL;
	}
	return rc;
}

/* ---- slices ---- */

uint64_t k3_state_taken(const struct k3_state *s, uint32_t i)
{
	return s->head.ids - (s->shape.first + i >= s->head.next ? s->head.pass : 0);
}

static int damaged_layer(const struct k3_state *s, uint32_t i, struct k3_err *err)
{
	return k3_fail(err, K3_EDATA, "%s: damaged: wrong checksum of layer %" PRIu32, s->path,
		       s->shape.first + i);
}

static int load_kda(struct k3_state *s, uint32_t i, struct k3_err *err)
{
	struct k3_resident *r = k3_state_resident(s, i);
	bool clear;
	int rc;

	r->kda = k3_slice_pool_take(s->pool, k3_state_slice_bytes(s), &clear);
	if (!r->kda)
		return k3_fail_nomem(err);
	if (!s->path || !k3_state_taken(s, i)) {
		if (!clear)
			memset(r->kda, 0, k3_state_slice_bytes(s));
		return 0;
	}
	rc = k3_pread_full(s->fd, r->kda, k3_state_slice_bytes(s),
			   k3_shape_slot(&s->shape, s->head.layer[i].slot), s->path, err);
	if (!rc && k3_state_sum(r->kda, k3_state_slice_bytes(s), 0) != s->head.layer[i].sum)
		rc = damaged_layer(s, i, err);
	return rc;
}

static int grow_pages(const struct k3_state *s, struct k3_resident *r, uint64_t positions,
		      struct k3_err *err)
{
	uint64_t need = (positions + K3_PAGE - 1) / K3_PAGE;
	float **page;

	if (need <= r->pages)
		return 0;
	page = k3_reallocarray(r->page, need, sizeof *page);
	if (!page)
		return k3_fail_nomem(err);
	r->page = page;
	while (r->pages < need) {
		page[r->pages] = k3_calloc(s->shape.page_floats, sizeof **page);
		if (!page[r->pages])
			return k3_fail_nomem(err);
		r->pages++;
	}
	return 0;
}

uint64_t k3_state_row_bytes(const struct k3_state *s)
{
	return ((uint64_t)s->shape.kv_rank + s->shape.rope) * sizeof(float);
}

uint64_t k3_state_sum_positions(const struct k3_state *s, const struct k3_resident *r,
				uint64_t from, uint64_t to, uint64_t seed)
{
	uint64_t width = k3_state_row_bytes(s) / sizeof(float);

	for (uint64_t p = from; p < to; p++)
		seed = k3_state_sum(r->page[p / K3_PAGE] + p % K3_PAGE * width, k3_state_row_bytes(s), seed);
	return seed;
}

static int load_pages(struct k3_state *s, uint32_t i, struct k3_err *err)
{
	struct k3_resident *r = k3_state_resident(s, i);
	uint64_t n = k3_state_taken(s, i);
	int rc = 0;

	r->loaded = true;
	if (!s->path)
		return 0;
	for (uint64_t p = 0; !rc && p < n; p += K3_PAGE)
		rc = k3_pread_full(s->fd, r->page[p / K3_PAGE],
				   (n - p < K3_PAGE ? n - p : K3_PAGE) * k3_state_row_bytes(s),
				   k3_shape_page(&s->shape, p / K3_PAGE, s->mla_number[i]), s->path,
				   err);
	if (!rc && k3_state_sum_positions(s, r, 0, n, 0) != s->head.layer[i].sum)
		rc = damaged_layer(s, i, err);
	return rc;
}

int k3_state_slice(struct k3_state *s, uint32_t layer, struct k3_slice *out, struct k3_err *err)
{
	uint32_t i = layer - s->shape.first;
	struct k3_resident *r = k3_state_resident(s, i);
	int rc = 0;

	*out = (struct k3_slice){ .positions = k3_state_taken(s, i) };
	if (s->shape.kind[i] == K3_KDA) {
		if (!r->kda)
			rc = load_kda(s, i, err);
		if (!rc) {
			out->kda = r->kda;
			out->conv = r->kda + s->shape.kda_floats;
		}
	} else {
		rc = grow_pages(s, r, s->head.ids + s->room, err);
		if (!rc && !r->loaded)
			rc = load_pages(s, i, err);
		out->page = r->page;
	}
	return rc;
}
