/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_pass.c - a pass over new positions, and its commits.  The file is written
 * only in places that no header names, and then one header is: so it is right at
 * every instant.
 */
#include "data/state_own.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A place for the residual stream that touches neither the pages nor the current one. */
static uint64_t residual_place(const struct k3_state *s, uint64_t bytes)
{
	uint64_t pages_end = k3_shape_end(&s->shape, s->head.ids);
	uint64_t end = s->head.residual_at + k3_state_residual_bytes(s);

	if (!k3_state_residual_bytes(s) || pages_end + bytes <= s->head.residual_at || end <= pages_end)
		return pages_end;
	return end;
}

static int write_head(struct k3_state *s, struct k3_err *err)
{
	s->head.commits++;
	return k3_head_write(s->fd, s->path, &s->shape, s->fingerprint, &s->head, err);
}

/*
 * The current residual stream lies behind the old pages, where new ones are to
 * go: it is moved out of their way first, by a commit of its own.
 */
static int make_room(struct k3_state *s, uint64_t positions, struct k3_err *err)
{
	uint64_t end = k3_shape_end(&s->shape, positions), bytes = k3_state_residual_bytes(s);
	uint64_t old_end = s->head.residual_at + bytes, rows;
	uint32_t sources;
	float *values;
	int rc;

	if (!bytes || s->head.residual_at >= end)
		return 0;
	rc = k3_state_residual(s, &values, &rows, &sources, err);
	if (rc)
		return rc;
	s->head.residual_at = end > old_end ? end : old_end;
	rc = k3_pwrite_full(s->fd, values, bytes, s->head.residual_at, s->path, err);
	if (!rc)
		rc = write_head(s, err);
	free(values);
	return rc;
}

static int write_ids(struct k3_state *s, const uint32_t *ids, uint64_t n, struct k3_err *err)
{
	uint32_t page[K3_PAGE];
	int rc = 0;

	for (uint64_t i = 0, k; !rc && i < n; i += k) {
		uint64_t at = s->head.ids + i, in = at % K3_PAGE;

		k = K3_PAGE - in < n - i ? K3_PAGE - in : n - i;
		for (uint64_t j = 0; j < k; j++) {
			page[j] = ids ? ids[i + j] : UINT32_MAX;
			s->head.ids_sum = k3_state_sum(&page[j], sizeof page[j], s->head.ids_sum);
		}
		rc = k3_pwrite_full(s->fd, page, k * sizeof *page,
				    k3_shape_group(&s->shape, at / K3_PAGE) + in * sizeof *page,
				    s->path, err);
	}
	return rc;
}

int k3_state_begin(struct k3_state *s, const uint32_t *ids, uint64_t n, struct k3_err *err)
{
	int rc = 0;

	if (s->path) {
		rc = make_room(s, s->head.ids + n, err);
		if (!rc)
			rc = write_ids(s, ids, n, err);
	}
	if (rc)
		return rc;
	s->head.ids += n;
	s->head.pass = n;
	s->head.next = s->shape.first;
	return 0;
}

static int write_kda(struct k3_state *s, uint32_t i, struct k3_err *err)
{
	uint64_t bytes = k3_state_slice_bytes(s);
	struct k3_state_layer *l = &s->head.layer[i];
	uint32_t old = l->slot;
	int rc = k3_pwrite_full(s->fd, s->layer[i].kda, bytes,
				k3_shape_slot(&s->shape, s->head.spare), s->path, err);

	if (rc)
		return rc;
	l->sum = k3_state_sum(s->layer[i].kda, bytes, 0);
	l->slot = s->head.spare;
	s->head.spare = old;
	return 0;
}

/* Writes the latents of positions from `from` on, which continue the sum. */
static int write_positions(struct k3_state *s, uint32_t i, uint64_t from, struct k3_err *err)
{
	struct k3_resident *r = k3_state_resident(s, i);
	uint64_t p = from;
	int rc = 0;

	while (!rc && p < s->head.ids) {
		uint64_t in = p % K3_PAGE, k = K3_PAGE - in;

		if (k > s->head.ids - p)
			k = s->head.ids - p;
		rc = k3_pwrite_full(s->fd, (char *)r->page[p / K3_PAGE] + in * k3_state_row_bytes(s),
				    k * k3_state_row_bytes(s), k3_shape_page(&s->shape, p / K3_PAGE,
				    s->mla_number[i]) + in * k3_state_row_bytes(s), s->path, err);
		p += k;
	}
	s->head.layer[i].sum = k3_state_sum_positions(s, r, from, s->head.ids, s->head.layer[i].sum);
	return rc;
}

/* The rows of the pass from one on, or at its end that of the last id alone. */
static int write_residual(struct k3_state *s, const struct k3_residual *r, uint64_t from,
			  struct k3_err *err)
{
	uint64_t bytes = r->sources * (uint64_t)s->shape.hidden * sizeof(float);
	uint64_t rows = s->head.pass - from, at = residual_place(s, rows * bytes);
	XXH64_state_t *sum = XXH64_createState();
	const float *values;
	int rc = sum ? 0 : k3_fail_nomem(err);

	if (rc)
		return rc;
	XXH64_reset(sum, 0);
	for (uint64_t i = 0; !rc && i < rows; i++) {
		rc = r->row(r->ctx, from + i, &values, err);
		if (rc)
			break;
		XXH64_update(sum, values, bytes);
		rc = k3_pwrite_full(s->fd, values, bytes, at + i * bytes, s->path, err);
	}
	s->head.residual_at = at;
	s->head.residual_rows = rows;
	s->head.residual_sources = r->sources;
	s->head.residual_sum = XXH64_digest(sum);
	XXH64_freeState(sum);
	return rc;
}

static int write_all(struct k3_state *s, struct k3_err *err)
{
	int rc = k3_head_create(s->fd, s->path, &s->shape, s->fingerprint, &s->head, err);

	for (uint32_t i = 0; !rc && i < s->shape.last - s->shape.first; i++) {
		if (s->shape.kind[i] == K3_KDA && s->layer[i].kda) {
			rc = write_kda(s, i, err);
		} else if (s->layer[i].loaded) {
			rc = write_positions(s, i, 0, err);
		}
	}
	return rc ? rc : write_head(s, err);
}

int k3_state_give_file(struct k3_state *s, const char *directory, struct k3_err *err)
{
	int rc;

	s->path = strdup(directory);
	if (!s->path)
		return k3_fail_nomem(err);
	rc = k3_unnamed_file(directory, &s->fd, err);
	s->head.commits = 2;
	return rc ? rc : write_all(s, err);
}

int k3_state_store(struct k3_state *s, uint32_t layer, struct k3_err *err)
{
	uint32_t i = layer - s->shape.first;
	struct k3_resident *r = k3_state_resident(s, i);
	int rc = 0;

	if (s->path && !r->stored)
		rc = s->shape.kind[i] == K3_KDA ? write_kda(s, i, err)
						: write_positions(s, i, k3_state_taken(s, i), err);
	if (rc)
		return rc;
	if (s->passing || s->paged)
		k3_state_forget(s, i);
	r->stored = true;
	return 0;
}

int k3_state_commit(struct k3_state *s, uint32_t layer, const struct k3_residual *residual,
		    struct k3_err *err)
{
	uint32_t i = layer - s->shape.first;
	bool last = layer + 1 == s->shape.last;
	int rc = k3_state_store(s, layer, err);

	if (!rc && s->named)
		rc = write_residual(s, residual, last ? s->head.pass - 1 : 0, err);
	if (rc)
		return rc;
	s->head.next = layer + 1;
	if (s->head.next == s->shape.last)
		s->head.pass = 0;
	if (s->path)
		rc = write_head(s, err);
	k3_state_resident(s, i)->stored = false;
	return rc;
}
