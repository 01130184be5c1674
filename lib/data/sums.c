/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.c - a checksum for every expert, made and compared.
 *
 * The experts are read on several threads with one buffer each, so that memory stays
 * small however large the model is.
 */
#include "data/expert_sum.h"
#include "data/index.h"
#include "sys/each.h"
#include <k3/io.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* A piece holds several rows: no config that is accepted has rows of more than 128 KB. */
enum { PIECE = 1 << 20, NAMED = 5 };

struct work {
	const struct k3_index *ix;
	uint64_t *sum;		/* of every expert; 0 where tensors of it are missing */
	int *rc;		/* of every layer */
	struct k3_err *err;	/* of every layer */
};

/* Adds one tensor to the total. */
static int add_tensor(const struct k3_index *ix, const struct k3_tensor *t, char *piece,
		      uint64_t *total, struct k3_err *err)
{
	const char *path = ix->path[t->shard];
	uint64_t row_bytes = t->bytes / t->rows, most = PIECE / row_bytes, n;
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return k3_fail_errno(err, "%s", path);
	for (uint64_t row = 0; !rc && row < t->rows; row += n) {
		n = t->rows - row < most ? t->rows - row : most;
		rc = k3_pread_full(fd, piece, n * row_bytes, t->offset + row * row_bytes, path,
				   err);
		if (!rc)
			*total += k3_expert_sum(t->role, row, n, row_bytes, piece);
	}
	close(fd);
	return rc;
}

/* The sum of one expert, or 0 if it is not all there. */
static int sum_expert(const struct k3_index *ix, uint32_t layer, uint32_t expert, char *piece,
		      uint64_t *out, struct k3_err *err)
{
	struct k3_tensor t[K3_EXPERT_TENSORS];
	uint64_t slot, total = 0;
	int rc = 0;

	*out = 0;
	for (int i = 0; i < K3_EXPERT_TENSORS; i++)
		if (!k3_layout_slot(&ix->layout, (enum k3_role)(K3_W1 + i), layer, expert, &slot) ||
		    !k3_index_at(ix, slot, &t[i]))
			return 0;
	for (int i = 0; !rc && i < K3_EXPERT_TENSORS; i++)
		rc = add_tensor(ix, &t[i], piece, &total, err);
	if (!rc)
		*out = k3_expert_sum_stored(total);
	return rc;
}

/* All experts of one layer, on one of the threads. */
static void sum_layer(void *arg, size_t i)
{
	struct work *w = arg;
	const struct k3_config *c = &w->ix->config;
	uint32_t layer = c->dense_layers + (uint32_t)i;
	char *piece = malloc(PIECE);

	w->rc[i] = piece ? 0 : k3_fail_nomem(&w->err[i]);
	for (uint32_t e = 0; !w->rc[i] && e < c->experts; e++)
		w->rc[i] = sum_expert(w->ix, layer, e, piece, &w->sum[i * c->experts + e],
				      &w->err[i]);
	free(piece);
}

/* The sums of all experts; the caller frees *out. */
static int sum_all(const struct k3_index *ix, uint64_t **out, struct k3_err *err)
{
	size_t layers = ix->config.layers - ix->config.dense_layers;
	struct work w = {
		.ix = ix,
		.sum = k3_calloc(k3_index_experts(ix), sizeof *w.sum),
		.rc = k3_calloc(layers, sizeof *w.rc),
		.err = k3_calloc(layers, sizeof *w.err),
	};
	int rc = 0;

	if (!w.sum || !w.rc || !w.err)
		rc = k3_fail_nomem(err);
	else
		k3_each(layers, sum_layer, &w);
	for (size_t i = 0; !rc && i < layers; i++)
		if (w.rc[i]) {
			rc = w.rc[i];
			if (err)
				*err = w.err[i];
		}
	free(w.rc);
	free(w.err);
	if (rc)
		free(w.sum);
	else
		*out = w.sum;
	return rc;
}

int k3_index_add_sums(struct k3_index **ix, struct k3_err *err)
{
	struct k3_buf bytes = K3_BUF_INIT;
	struct k3_index *new;
	uint64_t *sum;
	int rc = sum_all(*ix, &sum, err);

	if (rc)
		return rc;
	k3_buf_add(&bytes, (*ix)->map, (*ix)->length);
	k3_index_splice_sums(&bytes, sum, k3_index_experts(*ix));
	rc = k3_index_write((*ix)->file, &bytes, err);
	if (!rc)
		rc = k3_index_load((*ix)->file, (*ix)->directory, &new, err);
	if (!rc) {
		k3_index_close(*ix);
		*ix = new;
	}
	k3_buf_free(&bytes);
	free(sum);
	return rc;
}

bool k3_index_has_sums(const struct k3_index *ix)
{
	return ix->sum;
}

bool k3_index_sum(const struct k3_index *ix, uint32_t layer, uint32_t expert, uint64_t *out)
{
	const struct k3_config *c = &ix->config;
	uint64_t n;

	if (!ix->sum || layer >= c->layers || !k3_config_is_moe(c, layer) || expert >= c->experts)
		return false;
	n = (uint64_t)(layer - c->dense_layers) * c->experts + expert;
	*out = k3_index_u64(ix->sum + 8 * n);
	return *out != 0;
}

int k3_index_verify(const struct k3_index *ix, struct k3_err *err)
{
	struct k3_buf names = K3_BUF_INIT;
	uint64_t *sum, differ = 0, want, n = k3_index_experts(ix);
	uint32_t layer, expert;
	int rc;

	if (!ix->sum)
		return k3_fail(err, K3_EDATA, "%s: the index has no sums; k3-index --sum adds "
			       "them", ix->file);
	rc = sum_all(ix, &sum, err);
	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++) {
		layer = ix->config.dense_layers + (uint32_t)(i / ix->config.experts);
		expert = (uint32_t)(i % ix->config.experts);
		if (!k3_index_sum(ix, layer, expert, &want) || sum[i] == want)
			continue;
		if (differ++ < NAMED)
			k3_buf_printf(&names, "%slayer %" PRIu32 " expert %" PRIu32,
				      names.len ? ", " : "", layer, expert);
	}
	free(sum);
	if (names.failed)
		rc = k3_fail_nomem(err);
	else if (differ > NAMED)
		rc = k3_fail(err, K3_EDATA, "%s: experts that differ from their sums: %s, and %"
			     PRIu64 " more", ix->directory, names.data, differ - NAMED);
	else if (differ)
		rc = k3_fail(err, K3_EDATA, "%s: experts that differ from their sums: %s",
			     ix->directory, names.data);
	k3_buf_free(&names);
	return rc;
}
