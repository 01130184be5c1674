/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - files, and places in them. */
#include "engine/source.h"
#include "data/index.h"
#include "engine/trunk_block.h"

#include <k3/buf.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct k3_source {
	const struct k3_index *ix;
	const struct k3_config *config;
	struct k3_trunk *trunk;		/* owned, or NULL */
	uint64_t block_rows;
	uint64_t *first;		/* of each section: the number of its first block; and of none */
	atomic_bool *good;		/* of each block of the trunk file: it has been checked once */
	struct k3_direct trunk_file;
	pthread_mutex_t lock;		/* of the shards' descriptors */
	struct k3_direct *shard;
	bool told;
};

uint64_t k3_section_bytes(const struct k3_config *c, const struct k3_trunk *trunk,
			  uint32_t section)
{
	struct k3_trunk_block block;
	struct k3_order o;
	uint64_t sum = 0;

	k3_order_init(c, section, 0, &o);
	for (uint64_t b = 0; trunk && b < o.blocks; b++) {
		k3_trunk_block(trunk, section, b, &block);
		sum += block.bytes;
	}
	/* kv_b is used twice, and each time half of it */
	for (uint32_t u = 0; !trunk && u < o.uses; u++)
		sum += o.use[u].values ? 0 : o.use[u].bytes;
	return sum;
}

static int number_blocks(struct k3_source *s, struct k3_err *err)
{
	const struct k3_config *c = s->config;
	struct k3_order o;

	s->first = k3_calloc((uint64_t)c->layers + 2, sizeof *s->first);
	if (!s->first)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i <= c->layers; i++) {
		k3_order_init(c, i, s->block_rows, &o);
		s->first[i + 1] = s->first[i] + o.blocks;
	}
	s->good = k3_calloc(s->first[c->layers + 1], sizeof *s->good);
	return s->good ? 0 : k3_fail_nomem(err);
}

static int open_trunk(struct k3_source *s, struct k3_err *err)
{
	int fd = fcntl(k3_trunk_fd(s->trunk), F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return k3_fail_errno(err, "%s", k3_trunk_path(s->trunk));
	return k3_direct_adopt(&s->trunk_file, k3_trunk_path(s->trunk), fd, err);
}

int k3_source_new(const struct k3_index *ix, struct k3_trunk *trunk, uint64_t block_rows,
		  struct k3_source **out, struct k3_err *err)
{
	struct k3_source *s = calloc(1, sizeof *s);
	uint32_t shards = k3_index_shards(ix);
	int rc;

	*out = NULL;
	if (!s) {
		k3_trunk_close(trunk);
		return k3_fail_nomem(err);
	}
	s->ix = ix;
	s->config = k3_index_config(ix);
	s->trunk = trunk;
	s->block_rows = block_rows;
	s->trunk_file.fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	s->shard = k3_calloc(shards, sizeof *s->shard);
	for (uint32_t i = 0; s->shard && i < shards; i++)
		s->shard[i].fd = -1;
	rc = s->shard ? number_blocks(s, err) : k3_fail_nomem(err);
	if (!rc && trunk)
		rc = open_trunk(s, err);
	if (rc)
		k3_source_free(s);
	else
		*out = s;
	return rc;
}

void k3_source_free(struct k3_source *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->shard && i < k3_index_shards(s->ix); i++)
		k3_direct_close(&s->shard[i]);
	k3_direct_close(&s->trunk_file);
	k3_trunk_close(s->trunk);
	pthread_mutex_destroy(&s->lock);
	free(s->shard);
	free(s->first);
	free(s->good);
	free(s);
}

bool k3_source_coded(const struct k3_source *s)
{
	return s->trunk;
}

uint64_t k3_source_blocks(const struct k3_source *s)
{
	return s->first[s->config->layers + 1];
}

uint64_t k3_source_section(const struct k3_source *s, uint32_t section)
{
	return k3_section_bytes(s->config, s->trunk, section);
}

uint64_t k3_source_number(const struct k3_source *s, const struct k3_step *step, uint64_t i)
{
	return s->first[step->section] + step->use->first + i;
}

static int shard(struct k3_source *s, uint32_t i, struct k3_direct **out, struct k3_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	if (s->shard[i].fd < 0)
		rc = k3_index_shard_direct(s->ix, i, &s->shard[i], err);
	pthread_mutex_unlock(&s->lock);
	*out = &s->shard[i];
	return rc;
}

int k3_source_tensor(struct k3_source *s, enum k3_role role, uint32_t layer, uint32_t expert,
		     struct k3_place *out, struct k3_err *err)
{
	struct k3_tensor t;
	int rc = k3_index_tensor(s->ix, role, layer, expert, &t, err);

	if (rc)
		return rc;
	out->offset = t.offset;
	out->bytes = t.bytes;
	return shard(s, t.shard, &out->file, err);
}

/* Bytes from .. from + n - 1 of a tensor. */
static int place(struct k3_source *s, enum k3_role role, uint32_t layer, uint32_t expert,
		 uint64_t from, uint64_t n, struct k3_place *out, struct k3_err *err)
{
	int rc = k3_source_tensor(s, role, layer, expert, out, err);

	if (rc)
		return rc;
	out->offset += from;
	out->bytes = n;
	return 0;
}

/* Entry 0 are all scales of the matrix, the others its blocks of codes. */
static int expert_place(struct k3_source *s, const struct k3_step *step, uint64_t i,
			struct k3_place *out, struct k3_err *err)
{
	const struct k3_expert_cut *m = &step->cut;
	uint64_t row, rows;

	if (!i)
		return place(s, step->role + 1, step->section, step->expert, 0,
			     m->rows * m->scale_bytes, out, err);
	k3_cut_rows(m, i - 1, &row, &rows);
	return place(s, step->role, step->section, step->expert, k3_cut_codes(m, i - 1),
		     rows * m->code_bytes, out, err);
}

int k3_source_place(struct k3_source *s, const struct k3_step *step, uint64_t i,
		    struct k3_place *out, struct k3_err *err)
{
	uint32_t layer = k3_section_layer(s->config, step->section);
	uint64_t from, n;

	if (!step->use)
		return expert_place(s, step, i, out, err);
	if (s->trunk) {
		struct k3_trunk_block b;

		k3_trunk_block(s->trunk, step->section, step->use->first + i, &b);
		*out = (struct k3_place){ &s->trunk_file, b.offset, b.bytes };
		return 0;
	}
	from = k3_use_place(s->config, step->use, i, &n);
	return place(s, step->role, layer, 0, from, n, out, err);
}

int k3_source_row(struct k3_source *s, enum k3_role role, uint64_t row, struct k3_place *out,
		  struct k3_err *err)
{
	struct k3_tensor t;
	int rc = k3_index_tensor(s->ix, role, 0, 0, &t, err);
	uint64_t width = rc ? 0 : t.bytes / t.rows;

	return rc ? rc : place(s, role, 0, 0, row * width, width, out, err);
}

int k3_source_check(struct k3_source *s, const struct k3_order *o, const struct k3_use *use,
		    uint64_t i, const void *bytes, struct k3_err *err)
{
	uint64_t block = use->first + i;
	atomic_bool *good;
	int rc;

	if (!s->trunk)
		return 0;
	good = &s->good[s->first[o->layer] + block];
	if (*good)
		return k3_trunk_block_sum(s->trunk, s->ix, o, block, bytes, err);
	rc = k3_trunk_block_check(s->trunk, s->ix, o, block, bytes, err);
	*good = !rc;
	return rc;
}

const char *k3_source_refused(struct k3_source *s)
{
	const char *path = NULL;

	if (s->told)
		return NULL;
	if (s->trunk && s->trunk_file.buffered)
		path = s->trunk_file.path;
	for (uint32_t i = 0; !path && i < k3_index_shards(s->ix); i++)
		if (s->shard[i].fd >= 0 && s->shard[i].buffered)
			path = s->shard[i].path;
	s->told = path;
	return path;
}
