/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums.c - checksums of the experts and of the rows of the embedding, made and compared.
 *
 * They are read on several threads with one buffer each, so that memory stays
 * small however large the model is.
 */
#include "data/index.h"
#include "data/row_sum.h"
#include "sys/each.h"
#include <k3/io.h>

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* A piece holds a row at least: no config that is accepted has a longer one than the embedding of 2^20 values. */
enum { PIECE = 2 << 20, NAMED = 5 };

struct work {
	const struct k3_index *ix;
	uint64_t *sum;		/* of every expert and row; 0 where tensors are missing */
	int *rc;		/* of every layer, and of the embedding */
	struct k3_err *err;	/* the same */
};

/* What becomes of some rows of a tensor that were read. */
typedef void take_rows(uint64_t *sum, const struct k3_tensor *t, uint64_t first, uint64_t rows,
		       const char *bytes);

static uint64_t row_bytes(const struct k3_tensor *t)
{
	return t->bytes / t->rows;
}

static void add_rows(uint64_t *total, const struct k3_tensor *t, uint64_t first, uint64_t rows,
		     const char *bytes)
{
	*total += k3_expert_sum(t->role, first, rows, row_bytes(t), bytes);
}

static void list_rows(uint64_t *sum, const struct k3_tensor *t, uint64_t first, uint64_t rows,
		      const char *bytes)
{
	for (uint64_t i = 0; i < rows; i++)
		sum[first + i] = k3_embedding_sum(first + i, row_bytes(t), bytes + i * row_bytes(t));
}

/* Reads all rows of a tensor, a piece at a time. */
static int read_tensor(const struct k3_index *ix, const struct k3_tensor *t, char *piece,
		       take_rows *take, uint64_t *sum, struct k3_err *err)
{
	const char *path = ix->path[t->shard];
	uint64_t width = row_bytes(t), most = PIECE / width, n;
	int fd, rc = k3_index_shard_open(ix, t->shard, &fd, err);

	if (rc)
		return rc;
	for (uint64_t row = 0; !rc && row < t->rows; row += n) {
		n = t->rows - row < most ? t->rows - row : most;
		rc = k3_pread_full(fd, piece, n * width, t->offset + row * width, path, err);
		if (!rc)
			take(sum, t, row, n, piece);
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
		rc = read_tensor(ix, &t[i], piece, add_rows, &total, err);
	if (!rc)
		*out = k3_sum_stored(total);
	return rc;
}

static int sum_experts(struct work *w, uint64_t first, uint32_t layer, char *piece, struct k3_err *err)
{
	int rc = 0;

	for (uint32_t e = 0; !rc && e < w->ix->config.experts; e++)
		rc = sum_expert(w->ix, layer, e, piece, &w->sum[first + e], err);
	return rc;
}

static int sum_embedding(struct work *w, uint64_t first, char *piece, struct k3_err *err)
{
	struct k3_tensor t;
	uint64_t slot;

	if (!k3_layout_slot(&w->ix->layout, K3_EMBED, 0, 0, &slot) || !k3_index_at(w->ix, slot, &t))
		return 0;
	return read_tensor(w->ix, &t, piece, list_rows, &w->sum[first], err);
}

/* All experts of one layer, or behind the last layer the embedding, on one of the threads. */
static void sum_part(void *arg, size_t i)
{
	struct work *w = arg;
	const struct k3_config *c = &w->ix->config;
	uint32_t layer = c->dense_layers + (uint32_t)i;
	uint64_t first = i * (uint64_t)c->experts;
	char *piece = malloc(PIECE);

	if (!piece)
		w->rc[i] = k3_fail_nomem(&w->err[i]);
	else if (layer < c->layers)
		w->rc[i] = sum_experts(w, first, layer, piece, &w->err[i]);
	else
		w->rc[i] = sum_embedding(w, first, piece, &w->err[i]);
	free(piece);
}

/* All sums; the caller frees *out. */
static int sum_all(const struct k3_index *ix, uint64_t **out, struct k3_err *err)
{
	size_t parts = ix->config.layers - ix->config.dense_layers + 1;
	struct work w = {
		.ix = ix,
		.sum = k3_calloc(k3_index_sums(ix), sizeof *w.sum),
		.rc = k3_calloc(parts, sizeof *w.rc),
		.err = k3_calloc(parts, sizeof *w.err),
	};
	int rc = 0;

	if (!w.sum || !w.rc || !w.err)
		rc = k3_fail_nomem(err);
	else
		k3_each(parts, sum_part, &w);
	for (size_t i = 0; !rc && i < parts; i++)
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
	k3_index_splice_sums(&bytes, sum, k3_index_sums(*ix));
	rc = k3_index_write((*ix)->file, &bytes, err);
	if (!rc)
		rc = k3_index_load((*ix)->file, (*ix)->directory, &new, err);
	if (!rc) {
		/* the file has the times of when it was made */
		for (uint32_t i = 0; i < new->shards; i++)
			new->shard[i].mtime = (*ix)->shard[i].mtime;
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

/* The number of the sum of the embedding's first row: those of experts stand before it. */
static uint64_t first_row(const struct k3_index *ix)
{
	return k3_index_sums(ix) - ix->config.vocab;
}

/* The n-th of the sums; false if it is that of something missing. */
static bool known(const struct k3_index *ix, uint64_t n, uint64_t *out)
{
	*out = k3_index_u64(ix->sum + 8 * n);
	return *out;
}

bool k3_index_sum(const struct k3_index *ix, uint32_t layer, uint32_t expert, uint64_t *out)
{
	const struct k3_config *c = &ix->config;

	if (!ix->sum || layer >= c->layers || !k3_config_is_moe(c, layer) || expert >= c->experts)
		return false;
	return known(ix, (uint64_t)(layer - c->dense_layers) * c->experts + expert, out);
}

bool k3_index_row_sum(const struct k3_index *ix, uint64_t row, uint64_t *out)
{
	if (!ix->sum || row >= ix->config.vocab)
		return false;
	return known(ix, first_row(ix) + row, out);
}

/* What the n-th sum is of. */
static void name(const struct k3_index *ix, uint64_t n, struct k3_buf *out)
{
	const struct k3_config *c = &ix->config;

	if (n < first_row(ix))
		k3_buf_printf(out, "layer %" PRIu64 " expert %" PRIu64, n / c->experts + c->dense_layers,
			      n % c->experts);
	else
		k3_buf_printf(out, "row %" PRIu64 " of the embedding", n - first_row(ix));
}

int k3_index_verify(const struct k3_index *ix, struct k3_err *err)
{
	struct k3_buf names = K3_BUF_INIT;
	uint64_t *sum, differ = 0, want, n = k3_index_sums(ix);
	int rc;

	if (!ix->sum)
		return k3_fail(err, K3_EDATA, "%s: the index has no sums; k3-index --sum adds "
			       "them", ix->file);
	rc = sum_all(ix, &sum, err);
	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++) {
		if (!known(ix, i, &want) || sum[i] == want)
			continue;
		if (differ++ >= NAMED)
			continue;
		if (names.len)
			k3_buf_str(&names, ", ");
		name(ix, i, &names);
	}
	free(sum);
	if (names.failed)
		rc = k3_fail_nomem(err);
	else if (differ > NAMED)
		rc = k3_fail(err, K3_EDATA, "%s: what differs from its sum: %s, and %"
			     PRIu64 " more", ix->directory, names.data, differ - NAMED);
	else if (differ)
		rc = k3_fail(err, K3_EDATA, "%s: what differs from its sum: %s",
			     ix->directory, names.data);
	k3_buf_free(&names);
	return rc;
}
