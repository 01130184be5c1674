/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - from config.json and the headers of all shards to an index.
 *
 * The shards are read on several threads, each into a list of its own; what concerns more
 * than one shard is decided afterwards, in the order of their names, so that a checkpoint with
 * several faults is always refused with the same sentence.
 */
#include "data/index.h"
#include "data/shards.h"
#include "sys/each.h"
#include <k3/io.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMED = 5 };	/* how many of a number of unknown tensors are named */

/* A tensor of the config where a shard has it. */
struct found {
	uint64_t slot, offset;
};

/* What is in one shard. */
struct part {
	char *path;			/* owned */
	struct found *found;		/* owned */
	size_t count;
	struct k3_buf vision;		/* their names, each with its NUL */
	uint64_t vision_tensors, vision_bytes;
	struct k3_buf unknown;		/* the first names, ", " between them */
	uint64_t unknown_tensors;
	int rc;
	struct k3_err err;
};

struct build {
	const char *directory;
	char *config_path;		/* owned */
	struct k3_buf config_text;
	int64_t config_mtime;
	struct k3_config config;
	struct k3_layout layout;
	struct k3_shards shards;
	struct part *part;		/* owned; one for each shard */
	uint64_t *entry;		/* owned; one for each slot */
	uint64_t vision_tensors, vision_bytes;
};

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static void describe_shape(struct k3_buf *b, const char *dtype, uint32_t rank,
			   const uint64_t *shape)
{
	k3_buf_printf(b, "%s [", dtype);
	for (uint32_t i = 0; i < rank; i++)
		k3_buf_printf(b, "%s%" PRIu64, i ? "," : "", shape[i]);
	k3_buf_char(b, ']');
}

/* Is the tensor what the config implies for its slot? */
static int check_shape(const struct build *b, struct part *p, const char *name, uint64_t slot,
		       const struct k3_st_tensor *t)
{
	static const char *const dtypes[] = {
		[K3_BF16] = "BF16", [K3_F32] = "F32", [K3_U8] = "U8"
	};
	struct k3_buf text = K3_BUF_INIT;
	struct k3_tensor want;
	enum k3_role role;
	uint32_t layer, expert;
	int rc;

	k3_layout_role(&b->layout, slot, &role, &layer, &expert);
	k3_role_describe(&b->config, role, layer, expert, &want);
	if (!strcmp(t->dtype, dtypes[want.dtype]) && t->rank == want.rank &&
	    !memcmp(t->shape, want.shape, want.rank * sizeof *want.shape))
		return 0;
	describe_shape(&text, t->dtype, t->rank, t->shape);
	k3_buf_str(&text, " where config.json implies ");
	describe_shape(&text, dtypes[want.dtype], want.rank, want.shape);
	rc = text.failed ? k3_fail_nomem(&p->err) :
		k3_fail(&p->err, K3_EDATA, "%s: tensor %s is %s", p->path, name, text.data);
	k3_buf_free(&text);
	return rc;
}

static int sort_tensors(const struct build *b, struct part *p, const struct k3_st *st)
{
	const struct k3_st_tensor *t;
	const char *name;
	uint64_t slot;
	int rc = 0;

	p->found = k3_calloc(st->count, sizeof *p->found);
	if (!p->found)
		return k3_fail_nomem(&p->err);
	for (size_t i = 0; i < st->count && !rc; i++) {
		t = &st->tensor[i];
		name = st->names.data + t->name;
		if (k3_layout_find(&b->layout, name, t->length, &slot)) {
			rc = check_shape(b, p, name, slot, t);
			p->found[p->count++] = (struct found){ slot, t->begin };
		} else if (begins(name, "vision_tower.") || begins(name, "mm_projector.")) {
			p->vision_tensors++;
			p->vision_bytes += t->end - t->begin;
			k3_buf_add(&p->vision, name, strlen(name) + 1);
		} else if (p->unknown_tensors++ < NAMED) {
			k3_buf_printf(&p->unknown, "%s%.200s", p->unknown.len ? ", " : "", name);
		}
	}
	if (!rc && (p->vision.failed || p->unknown.failed))
		rc = k3_fail_nomem(&p->err);
	return rc;
}

/* One shard, on one of the threads. */
static void read_part(void *arg, size_t i)
{
	struct build *b = arg;
	struct part *p = &b->part[i];
	struct k3_shard *shard = &b->shards.shard[i];
	struct k3_st st;

	if (shard->absent)
		return;
	p->rc = k3_st_read(p->path, &st, &p->err);
	if (!p->rc && st.size > K3I_NO_OFFSET)
		p->rc = k3_fail(&p->err, K3_EDATA, "%s: the file is too large", p->path);
	if (!p->rc)
		p->rc = sort_tensors(b, p, &st);
	shard->size = st.size;
	shard->mtime = st.mtime;
	shard->header = st.header;
	memcpy(shard->digest, st.digest, K3_DIGEST);
	k3_st_free(&st);
}

static int read_config(struct build *b, struct k3_err *err)
{
	uint64_t size;
	int fd, rc;

	b->config_path = k3_index_join(b->directory, "config.json");
	if (!b->config_path)
		return k3_fail_nomem(err);
	rc = k3_st_open(b->config_path, &fd, &size, &b->config_mtime, err);
	if (rc)
		return rc;
	rc = k3_slurp_fd(fd, b->config_path, K3I_MAXCONFIG, &b->config_text, err);
	close(fd);
	if (!rc)
		rc = k3_config_parse(b->config_text.data, b->config_text.len, b->config_path,
				     &b->config, err);
	if (!rc)
		rc = k3_layout_init(&b->layout, &b->config, err);
	return rc;
}

static int read_parts(struct build *b, struct k3_err *err)
{
	int rc = k3_shards_find(b->directory, &b->shards, err);

	if (rc)
		return rc;
	b->part = k3_calloc(b->shards.count, sizeof *b->part);
	if (!b->part)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < b->shards.count; i++) {
		b->part[i].path = k3_index_join(b->directory, b->shards.shard[i].name);
		if (!b->part[i].path)
			return k3_fail_nomem(err);
	}
	k3_each(b->shards.count, read_part, b);
	for (uint32_t i = 0; i < b->shards.count; i++)
		if (b->part[i].rc) {
			if (err)
				*err = b->part[i].err;
			return b->part[i].rc;
		}
	return 0;
}

static int refuse_unknown(const struct build *b, struct k3_err *err)
{
	struct k3_buf names = K3_BUF_INIT;
	uint64_t total = 0, named = 0, more;
	const struct part *p;
	int rc = 0;

	for (uint32_t i = 0; i < b->shards.count; i++) {
		p = &b->part[i];
		total += p->unknown_tensors;
		if (!p->unknown_tensors || named >= NAMED)
			continue;
		named += p->unknown_tensors < NAMED ? p->unknown_tensors : NAMED;
		k3_buf_printf(&names, "%s%s in %s", names.len ? ", " : "", p->unknown.data,
			      b->shards.shard[i].name);
	}
	more = total > named ? total - named : 0;
	if (names.failed)
		rc = k3_fail_nomem(err);
	else if (total && more)
		rc = k3_fail(err, K3_EDATA, "%s: tensors that config.json does not imply: %s, and %"
			     PRIu64 " more", b->directory, names.data, more);
	else if (total)
		rc = k3_fail(err, K3_EDATA, "%s: tensors that config.json does not imply: %s",
			     b->directory, names.data);
	k3_buf_free(&names);
	return rc;
}

static int twice(const struct build *b, const char *name, uint32_t one, uint32_t other,
		 struct k3_err *err)
{
	return k3_fail(err, K3_EDATA, "%s: tensor %.200s is in both %s and %s", b->directory, name,
		       b->shards.shard[one].name, b->shards.shard[other].name);
}

/* Puts the lists of all shards together. */
static int merge(struct build *b, struct k3_err *err)
{
	char name[K3_NAME];
	uint64_t *entry;
	const struct part *p;

	b->entry = k3_calloc(b->layout.slots, sizeof *b->entry);
	if (!b->entry)
		return k3_fail_nomem(err);
	memset(b->entry, 0xff, b->layout.slots * sizeof *b->entry);
	for (uint32_t i = 0; i < b->shards.count; i++) {
		p = &b->part[i];
		b->vision_tensors += p->vision_tensors;
		b->vision_bytes += p->vision_bytes;
		for (size_t k = 0; k < p->count; k++) {
			entry = &b->entry[p->found[k].slot];
			if (*entry != K3I_UNKNOWN)
				return twice(b, k3_layout_name(&b->layout, p->found[k].slot, name),
					     (uint32_t)(*entry >> 48), i, err);
			*entry = (uint64_t)i << 48 | p->found[k].offset;
		}
	}
	return 0;
}

struct named {
	const char *name;
	uint32_t shard;
};

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->shard > y->shard) - (x->shard < y->shard);
}

/* Vision tensors have no slots; they must not be in two shards all the same. */
static int check_vision(const struct build *b, struct k3_err *err)
{
	struct named *all = k3_calloc(b->vision_tensors, sizeof *all);
	const char *p, *end;
	size_t n = 0;
	int rc = 0;

	if (!all)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < b->shards.count; i++) {
		p = b->part[i].vision.data;
		end = p ? p + b->part[i].vision.len : p;
		for (; p < end; p += strlen(p) + 1)
			all[n++] = (struct named){ p, i };
	}
	if (n)
		qsort(all, n, sizeof *all, by_name);
	for (size_t i = 1; i < n && !rc; i++)
		if (!strcmp(all[i].name, all[i - 1].name))
			rc = twice(b, all[i].name, all[i - 1].shard, all[i].shard, err);
	free(all);
	return rc;
}

/* Tensors without a place are an error, or the fault of the absent shards. */
static int check_missing(struct build *b, struct k3_err *err)
{
	char name[K3_NAME];
	uint64_t first = 0, n = 0;

	for (uint64_t i = b->layout.slots; i-- > 0;)
		if (b->entry[i] == K3I_UNKNOWN) {
			first = i;
			n++;
		}
	if (!n)
		return 0;
	if (b->shards.absent)
		return k3_shards_blame(b->directory, &b->shards, &b->layout, b->entry, err);
	k3_layout_name(&b->layout, first, name);
	if (n == 1)
		return k3_fail(err, K3_EDATA, "%s: tensor %s is in none of the shards",
			       b->directory, name);
	return k3_fail(err, K3_EDATA, "%s: tensor %s and %" PRIu64 " more are in none of the "
		       "shards", b->directory, name, n - 1);
}

static int make_directories(const char *path, struct k3_err *err)
{
	char *copy = strdup(path), *slash;
	int rc = copy ? 0 : k3_fail_nomem(err);

	for (slash = copy; !rc && (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
		*slash = '\0';
		if (mkdir(copy, 0700) && errno != EEXIST)
			rc = k3_fail_errno(err, "%s", copy);
	}
	free(copy);
	return rc;
}

/* Where the index goes when nobody says: into the directory, or into the cache. */
static int choose_output(const char *directory, const char *real, char **out, struct k3_err *err)
{
	int rc;

	if (!access(directory, W_OK)) {
		*out = k3_index_join(directory, "model.k3i");
		return *out ? 0 : k3_fail_nomem(err);
	}
	if (errno != EACCES && errno != EROFS)
		return k3_fail_errno(err, "%s", directory);
	rc = k3_index_cache_path(real, out, err);
	return rc ? rc : make_directories(*out, err);
}

/* Is this a file in that directory (both may be named in several ways)? */
static bool lies_in(const char *file, const char *real)
{
	char *around = k3_index_around(file);
	char *found = around ? realpath(around, NULL) : NULL;
	bool in = found && !strcmp(found, real);

	free(around);
	free(found);
	return in;
}

/* Reading all of the model takes long: what an index of the same checkpoint knows is not lost. */
static void keep_sums(const struct k3_index *old, struct k3_buf *bytes)
{
	uint64_t n = k3_index_sums(old), *sum = k3_calloc(n, sizeof *sum);

	for (uint64_t i = 0; sum && i < n; i++)
		sum[i] = k3_index_u64(old->sum + 8 * i);
	if (sum)
		k3_index_splice_sums(bytes, sum, n);
	else
		bytes->failed = true;
	free(sum);
}

/* Writes what was built to path and opens it; sums of the same checkpoint are kept. */
static int write_out(const struct build *b, const char *path, const char *real,
		     struct k3_index **out, struct k3_err *err)
{
	struct k3_content c = {
		.beside = lies_in(path, real), .directory = real,
		.config = &b->config_text, .config_mtime = b->config_mtime,
		.shard = b->shards.shard, .shards = b->shards.count,
		.entry = b->entry, .entries = b->layout.slots,
		.vision_tensors = (uint32_t)b->vision_tensors, .vision_bytes = b->vision_bytes,
	};
	struct k3_buf bytes = K3_BUF_INIT;
	struct k3_index *old = NULL;
	int rc;

	rc = k3_index_fingerprint_of(b->config_text.data, b->config_text.len, b->shards.shard,
				     b->shards.count, c.fingerprint, err);
	if (rc)
		return rc;
	if (!access(path, F_OK) && k3_index_load(path, b->directory, &old, NULL))
		old = NULL;
	k3_index_encode(&c, &bytes);
	if (old && old->sum && !memcmp(k3_index_fingerprint(old), c.fingerprint, K3_DIGEST))
		keep_sums(old, &bytes);
	rc = k3_index_write(path, &bytes, err);
	k3_buf_free(&bytes);
	k3_index_close(old);
	if (!rc)
		rc = k3_index_load(path, b->directory, out, err);
	return rc;
}

static void free_build(struct build *b)
{
	for (uint32_t i = 0; b->part && i < b->shards.count; i++) {
		free(b->part[i].path);
		free(b->part[i].found);
		k3_buf_free(&b->part[i].vision);
		k3_buf_free(&b->part[i].unknown);
	}
	free(b->part);
	free(b->entry);
	free(b->config_path);
	k3_buf_free(&b->config_text);
	k3_shards_free(&b->shards);
	k3_layout_free(&b->layout);
	k3_config_free(&b->config);
}

int k3_index_build(const char *directory, const char *output, struct k3_index **out,
		   struct k3_err *err)
{
	struct build b = { 0 };
	size_t n = strlen(directory);
	char *real = realpath(directory, NULL), *path = NULL, *stripped;
	int rc;

	if (!real)
		return k3_fail_errno(err, "%s", directory);
	while (n > 1 && directory[n - 1] == '/')
		n--;
	stripped = strndup(directory, n);
	b.directory = stripped;
	rc = stripped ? read_config(&b, err) : k3_fail_nomem(err);
	if (!rc)
		rc = read_parts(&b, err);
	if (!rc)
		rc = refuse_unknown(&b, err);
	if (!rc)
		rc = merge(&b, err);
	if (!rc)
		rc = check_vision(&b, err);
	if (!rc)
		rc = check_missing(&b, err);
	if (!rc && output)
		rc = (path = strdup(output)) ? 0 : k3_fail_nomem(err);
	else if (!rc)
		rc = choose_output(stripped, real, &path, err);
	if (!rc)
		rc = write_out(&b, path, real, out, err);
	free(path);
	free(real);
	free(stripped);
	free_build(&b);
	return rc;
}
