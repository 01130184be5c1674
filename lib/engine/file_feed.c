/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_feed.c - the feed that reads the shards with pread, each worker into
 * buffers of its own.  Nothing is mapped, and nothing larger than a block or a small tensor is
 * ever in memory.
 */
#include "engine/file_feed.h"
#include "math/kernels.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, BLOCK_MIN = 1 << 14, GROUP = 32, CODES = GROUP / 2 };

/* A worker's block: codes or bf16 rows, and scales. */
struct area {
	unsigned char *data, *scale;
	size_t data_size, scale_size;
};

struct k3_file_feed {
	struct k3_feed base;
	const struct k3_index *ix;
	uint64_t block_rows;
	unsigned workers;
	struct area *area;		/* one a worker */
	pthread_mutex_t lock;		/* of fd */
	int *fd;			/* of each shard, -1 until it is needed */
	_Atomic uint64_t trunk_bytes, expert_bytes;
};

static struct k3_file_feed *self(struct k3_feed *f)
{
	return (struct k3_file_feed *)f;
}

static int shard_fd(struct k3_file_feed *f, uint32_t shard, int *fd, struct k3_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&f->lock);
	if (f->fd[shard] < 0) {
		const char *path = k3_index_shard_path(f->ix, shard);

		f->fd[shard] = open(path, O_RDONLY | O_CLOEXEC);
		if (f->fd[shard] < 0)
			rc = k3_fail_errno(err, "%s", path);
	}
	*fd = f->fd[shard];
	pthread_mutex_unlock(&f->lock);
	return rc;
}

static int read_at(struct k3_file_feed *f, const struct k3_tensor *t, uint64_t offset,
		   void *out, uint64_t n, struct k3_err *err)
{
	int fd = -1, rc = shard_fd(f, t->shard, &fd, err);

	if (!rc)
		rc = k3_pread_full(fd, out, n, t->offset + offset,
				   k3_index_shard_path(f->ix, t->shard), err);
	if (!rc)
		atomic_fetch_add(t->role >= K3_W1 ? &f->expert_bytes : &f->trunk_bytes, n);
	return rc;
}

static int grow(unsigned char **p, size_t *size, uint64_t need, struct k3_err *err)
{
	unsigned char *q;

	if (need <= *size)
		return 0;
	q = realloc(*p, need);
	if (!q)
		return k3_fail_nomem(err);
	*p = q;
	*size = need;
	return 0;
}

/* Codes and scales of the expert roles lie next to each other in the enumeration. */
static bool is_expert(enum k3_role role)
{
	return role == K3_W1 || role == K3_W2 || role == K3_W3;
}

static uint64_t row_bytes(const struct k3_matrix *m)
{
	return m->mxfp4 ? m->cols / GROUP * (CODES + 1) : m->cols * 2;
}

/* How many rows go into a block. */
static uint64_t choose_rows(const struct k3_file_feed *f, const struct k3_matrix *m)
{
	uint64_t rows, shares = 2 * (uint64_t)f->workers;

	if (f->block_rows)
		return f->block_rows;
	rows = (m->rows + shares - 1) / shares;
	if (rows * row_bytes(m) < BLOCK_MIN)
		rows = BLOCK_MIN / row_bytes(m);
	if (rows * row_bytes(m) > BLOCK_BYTES)
		rows = BLOCK_BYTES / row_bytes(m);
	if (rows > K3_ROWS_STEP)
		rows -= rows % K3_ROWS_STEP;
	return rows ? rows : 1;
}

static int feed_matrix(struct k3_feed *base, enum k3_role role, uint32_t layer, uint32_t expert,
		       struct k3_matrix *m, struct k3_err *err)
{
	struct k3_file_feed *f = self(base);
	const struct k3_config *c = k3_index_config(f->ix);
	int rc;

	*m = (struct k3_matrix){ .role = role, .layer = layer, .expert = expert,
				 .mxfp4 = is_expert(role) };
	rc = k3_index_tensor(f->ix, role, layer, expert, &m->tensor, err);
	if (!rc && m->mxfp4)
		rc = k3_index_tensor(f->ix, role + 1, layer, expert, &m->scale, err);
	if (rc)
		return rc;
	m->rows = m->tensor.rows;
	m->cols = m->mxfp4 ? 2 * m->tensor.cols : m->tensor.cols;
	m->block_rows = choose_rows(f, m);
	m->blocks = (m->rows + m->block_rows - 1) / m->block_rows;
	if (role == K3_MLA_KVB) {
		m->block_rows = c->nope > c->v_dim ? c->nope : c->v_dim;
		m->blocks = 2 * (uint64_t)c->mla_heads;
	}
	return 0;
}

/* Scales that would make infinities or NaNs out of codes are refused where they enter (N2). */
static int check_scales(const struct k3_file_feed *f, const struct k3_matrix *m, uint64_t first,
			const unsigned char *scale, uint64_t n, struct k3_err *err)
{
	char name[256];
	uint64_t i = k3_mxfp4_bad_scale(scale, n);

	if (i == n)
		return 0;
	k3_role_name(m->scale.role, m->layer, m->expert, name, sizeof name);
	return k3_fail(err, K3_EDATA, "%s: offset %" PRIu64 ": %s: scale byte %u is above %d",
		       k3_index_shard_path(f->ix, m->scale.shard), m->scale.offset + first + i, name,
		       scale[i], K3_MXFP4_MAX_SCALE);
}

static int read_scales(struct k3_file_feed *f, struct area *a, const struct k3_matrix *m,
		       struct k3_block *b, struct k3_err *err)
{
	uint64_t width = m->cols / GROUP, n = b->rows * width;
	int rc = grow(&a->scale, &a->scale_size, n, err);

	if (!rc)
		rc = read_at(f, &m->scale, b->row * width, a->scale, n, err);
	if (!rc)
		rc = check_scales(f, m, b->row * width, a->scale, n, err);
	b->scale = a->scale;
	return rc;
}

static int feed_block(struct k3_feed *base, unsigned rank, const struct k3_matrix *m, uint64_t i,
		      struct k3_block *b, struct k3_err *err)
{
	struct k3_file_feed *f = self(base);
	struct area *a = &f->area[rank];
	uint64_t width = m->mxfp4 ? m->cols / 2 : m->cols * 2;
	int rc;

	*b = (struct k3_block){ .row = i * m->block_rows };
	b->rows = m->rows - b->row < m->block_rows ? m->rows - b->row : m->block_rows;
	if (m->role == K3_MLA_KVB)
		k3_kvb_block(k3_index_config(f->ix), i, b);
	rc = grow(&a->data, &a->data_size, b->rows * width, err);
	if (!rc)
		rc = read_at(f, &m->tensor, b->row * width, a->data, b->rows * width, err);
	b->data = a->data;
	if (!rc && m->mxfp4)
		rc = read_scales(f, a, m, b, err);
	return rc;
}

static int read_floats(struct k3_file_feed *f, const struct k3_tensor *t, uint64_t first,
		       uint64_t n, float *out, struct k3_err *err)
{
	unsigned char *raw;
	int rc;

	if (t->dtype == K3_F32)
		return read_at(f, t, first * 4, out, n * 4, err);
	raw = k3_reallocarray(NULL, n, 2);
	if (!raw)
		return k3_fail_nomem(err);
	rc = read_at(f, t, first * 2, raw, n * 2, err);
	if (!rc)
		k3_kernels()->widen_bf16(raw, n, out);
	free(raw);
	return rc;
}

static int feed_vector(struct k3_feed *base, enum k3_role role, uint32_t layer, float *out,
		       struct k3_err *err)
{
	struct k3_tensor t;
	int rc = k3_index_tensor(self(base)->ix, role, layer, 0, &t, err);

	return rc ? rc : read_floats(self(base), &t, 0, t.rows * t.cols, out, err);
}

static int feed_row(struct k3_feed *base, enum k3_role role, uint64_t row, float *out,
		    struct k3_err *err)
{
	struct k3_tensor t;
	int rc = k3_index_tensor(self(base)->ix, role, 0, 0, &t, err);

	return rc ? rc : read_floats(self(base), &t, row * t.cols, t.cols, out, err);
}

static const struct k3_feed_ops ops = { feed_matrix, feed_block, feed_vector, feed_row };

int k3_file_feed_new(const struct k3_index *ix, unsigned workers, uint64_t block_rows,
		     struct k3_file_feed **out, struct k3_err *err)
{
	struct k3_file_feed *f = calloc(1, sizeof *f);
	uint32_t shards = k3_index_shards(ix);

	*out = NULL;
	if (!f)
		return k3_fail_nomem(err);
	pthread_mutex_init(&f->lock, NULL);
	f->base.ops = &ops;
	f->ix = ix;
	f->block_rows = block_rows;
	f->workers = workers;
	f->area = k3_calloc(workers, sizeof *f->area);
	f->fd = k3_calloc(shards, sizeof *f->fd);
	for (uint32_t i = 0; f->fd && i < shards; i++)
		f->fd[i] = -1;
	if (!f->area || !f->fd) {
		k3_file_feed_free(f);
		return k3_fail_nomem(err);
	}
	*out = f;
	return 0;
}

void k3_file_feed_free(struct k3_file_feed *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; f->fd && i < k3_index_shards(f->ix); i++)
		if (f->fd[i] >= 0)
			close(f->fd[i]);
	for (unsigned i = 0; f->area && i < f->workers; i++) {
		free(f->area[i].data);
		free(f->area[i].scale);
	}
	free(f->area);
	free(f->fd);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

struct k3_feed *k3_file_feed_base(struct k3_file_feed *f)
{
	return &f->base;
}

void k3_file_feed_bytes(const struct k3_file_feed *f, uint64_t *trunk, uint64_t *experts)
{
	*trunk = f->trunk_bytes;
	*experts = f->expert_bytes;
}
