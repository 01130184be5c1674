/* SPDX-License-Identifier: Apache-2.0 */
/* index.c - finding the index of a model, and asking it. */
#include "data/index.h"
#include <k3/io.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

char *k3_index_join(const char *dir, const char *name)
{
	struct k3_buf b = K3_BUF_INIT;

	k3_buf_printf(&b, "%s/%s", dir, name);
	if (!b.failed)
		return b.data;
	k3_buf_free(&b);
	return NULL;
}

char *k3_index_around(const char *file)
{
	const char *slash = strrchr(file, '/');

	if (!slash)
		return strdup(".");
	return strndup(file, slash > file ? (size_t)(slash - file) : 1);
}

uint64_t k3_index_sums(const struct k3_index *ix)
{
	const struct k3_config *c = &ix->config;

	return (uint64_t)(c->layers - c->dense_layers) * c->experts + c->vocab;
}

int k3_index_fingerprint_of(const void *config, size_t n, const struct k3_shard *shard,
			    uint32_t shards, uint8_t out[K3_DIGEST], struct k3_err *err)
{
	struct k3_buf b = K3_BUF_INIT;
	XXH128_canonical_t digest;

	XXH128_canonicalFromHash(&digest, XXH3_128bits(config, n));
	k3_buf_add(&b, digest.digest, sizeof digest.digest);
	for (uint32_t i = 0; i < shards; i++) {
		if (shard[i].absent)
			continue;
		k3_buf_add(&b, shard[i].name, strlen(shard[i].name) + 1);
		k3_buf_add(&b, shard[i].digest, K3_DIGEST);
	}
	if (b.failed) {
		k3_buf_free(&b);
		return k3_fail_nomem(err);
	}
	XXH128_canonicalFromHash(&digest, XXH3_128bits(b.data, b.len));
	memcpy(out, digest.digest, K3_DIGEST);
	k3_buf_free(&b);
	return 0;
}

/* The times are others: the contents decide. */
static int same_contents(const struct k3_index *ix, const char *config, struct k3_err *err)
{
	struct k3_shard *shard = k3_calloc(ix->shards, sizeof *shard);
	struct k3_buf text = K3_BUF_INIT;
	uint8_t now[K3_DIGEST];
	int rc;

	if (!shard)
		return k3_fail_nomem(err);
	rc = k3_slurp(config, K3I_MAXCONFIG, &text, err);
	for (uint32_t i = 0; !rc && i < ix->shards; i++) {
		shard[i] = ix->shard[i];
		if (!shard[i].absent)
			rc = k3_st_digest_path(ix->path[i], shard[i].header, shard[i].digest, err);
	}
	if (!rc)
		rc = k3_index_fingerprint_of(text.data, text.len, shard, ix->shards, now, err);
	if (!rc && memcmp(now, k3_index_fingerprint(ix), K3_DIGEST))
		rc = k3_fail(err, K3_ESTALE, "%s: stale: %s is another model, or was changed since; "
			     "make the index anew with k3-index", ix->file, ix->directory);
	k3_buf_free(&text);
	free(shard);
	return rc;
}

static int other_size(const struct k3_index *ix, const char *path, uint64_t is, uint64_t was,
		      struct k3_err *err)
{
	return k3_fail(err, K3_ESTALE, "%s: stale: %s has %" PRIu64 " bytes, but had %" PRIu64
		       "; make the index anew with k3-index", ix->file, path, is, was);
}

/* Compares one file with what the index knows of it; if its time is another one, *later is set, and *mtime is that. */
static int same_file(const struct k3_index *ix, const char *path, uint64_t size, int64_t *mtime,
		     bool *later, struct k3_err *err)
{
	struct stat s;
	int64_t now;

	if (stat(path, &s)) {
		if (errno == ENOENT)
			return k3_fail(err, K3_ESTALE, "%s: stale: %s is gone; make the index anew "
				       "with k3-index", ix->file, path);
		return k3_fail_errno(err, "%s", path);
	}
	if ((uint64_t)s.st_size != size)
		return other_size(ix, path, (uint64_t)s.st_size, size, err);
	now = k3_st_mtime(&s);
	if (now != *mtime)
		*later = true;
	*mtime = now;
	return 0;
}

int k3_index_fresh(struct k3_index *ix, struct k3_err *err)
{
	char *config = k3_index_join(ix->directory, "config.json");
	uint64_t size;
	int64_t mtime = k3_index_config_mtime(ix, &size);
	bool later = false;
	int rc = config ? same_file(ix, config, size, &mtime, &later, err) : k3_fail_nomem(err);

	for (uint32_t i = 0; !rc && i < ix->shards; i++) {
		if (!ix->shard[i].absent)
			rc = same_file(ix, ix->path[i], ix->shard[i].size, &ix->shard[i].mtime,
				       &later, err);
		else if (!access(ix->path[i], F_OK))
			rc = k3_fail(err, K3_ESTALE, "%s: stale: %s was missing and is there now; "
				     "make the index anew with k3-index", ix->file, ix->path[i]);
	}
	if (!rc && later)
		rc = same_contents(ix, config, err);
	free(config);
	return rc;
}

int k3_index_shard_open(const struct k3_index *ix, uint32_t shard, int *fd, struct k3_err *err)
{
	const struct k3_shard *was = &ix->shard[shard];
	uint64_t size;
	int64_t mtime;
	int rc = k3_st_open(ix->path[shard], fd, &size, &mtime, err);

	if (rc)
		return rc;
	if (size != was->size)
		rc = other_size(ix, ix->path[shard], size, was->size, err);
	else if (mtime != was->mtime)
		rc = k3_fail(err, K3_ESTALE, "%s: stale: %s was replaced or written to since the index was read; "
			     "start again",
			     ix->file, ix->path[shard]);
	if (rc) {
		close(*fd);
		*fd = -1;
	}
	return rc;
}

int k3_index_shard_direct(const struct k3_index *ix, uint32_t shard, struct k3_direct *out,
			  struct k3_err *err)
{
	int fd, rc = k3_index_shard_open(ix, shard, &fd, err);

	return rc ? rc : k3_direct_adopt(out, ix->path[shard], fd, err);
}

int k3_index_read(const char *file, struct k3_index **out, struct k3_err *err)
{
	return k3_index_load(file, NULL, out, err);
}

/* Loads a file and sees that it is fresh.  real is the directory that it must be of, or NULL. */
static int load_fresh(const char *file, const char *directory, const char *real,
		      struct k3_index **out, struct k3_err *err)
{
	const char *stored;
	size_t n;
	int rc = k3_index_load(file, directory, out, err);

	if (rc)
		return rc;
	if (real) {
		stored = k3_index_stored_directory(*out, &n);
		if (n != strlen(real) || memcmp(stored, real, n))
			rc = k3_fail(err, K3_ESTALE, "%s: the index of another model, %.*s", file,
				     (int)n, stored);
	}
	if (!rc)
		rc = k3_index_fresh(*out, err);
	if (rc) {
		k3_index_close(*out);
		*out = NULL;
	}
	return rc;
}

int k3_index_cache_path(const char *directory, char **out, struct k3_err *err)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *name;
	struct k3_buf b = K3_BUF_INIT;

	if (base && *base == '/')
		k3_buf_str(&b, base);
	else if (home && *home == '/')
		k3_buf_printf(&b, "%s/.cache", home);
	else
		return k3_fail(err, K3_EIO, "%s: it cannot be written, and neither XDG_CACHE_HOME "
			       "nor HOME says where an index could be kept", directory);
	name = strrchr(directory, '/');
	name = name ? name + 1 : directory;
	k3_buf_printf(&b, "/k3/%.100s-%016" PRIx64 ".k3i", name,
		      (uint64_t)XXH3_64bits(directory, strlen(directory)));
	if (b.failed) {
		k3_buf_free(&b);
		return k3_fail_nomem(err);
	}
	*out = b.data;
	return 0;
}

/* A directory: its own index, else that in the cache, else a new one. */
static int open_directory(const char *directory, struct k3_index **out, struct k3_err *err)
{
	char *beside = k3_index_join(directory, "model.k3i"), *cached = NULL;
	char *real = realpath(directory, NULL);
	struct k3_err other;
	bool refused = false;
	int rc;

	*out = NULL;
	if (!beside || !real) {
		rc = beside ? k3_fail_errno(err, "%s", directory) : k3_fail_nomem(err);
		goto out;
	}
	if (!access(beside, F_OK)) {
		rc = load_fresh(beside, directory, NULL, out, err);
		/* one that could be made anew in its place is not passed over */
		if (!rc || !access(directory, W_OK))
			goto out;
		refused = true;
	}
	if (!k3_index_cache_path(real, &cached, &other) && !access(cached, F_OK))
		rc = load_fresh(cached, directory, real, out, refused ? &other : err);
	else if (!refused)
		rc = k3_index_build(directory, NULL, out, err);
out:
	free(real);
	free(beside);
	free(cached);
	return rc;
}

int k3_index_open(const char *model, struct k3_index **out, struct k3_err *err)
{
	struct stat s;
	size_t n = strlen(model);
	char *directory;
	int rc;

	if (stat(model, &s))
		return k3_fail_errno(err, "%s", model);
	if (!S_ISDIR(s.st_mode))
		return load_fresh(model, NULL, NULL, out, err);
	while (n > 1 && model[n - 1] == '/')
		n--;
	directory = strndup(model, n);
	rc = directory ? open_directory(directory, out, err) : k3_fail_nomem(err);
	free(directory);
	return rc;
}

const struct k3_config *k3_index_config(const struct k3_index *ix)
{
	return &ix->config;
}

const char *k3_index_directory(const struct k3_index *ix)
{
	return ix->directory;
}

const char *k3_index_file(const struct k3_index *ix)
{
	return ix->file;
}

uint32_t k3_index_shards(const struct k3_index *ix)
{
	return ix->shards;
}

const char *k3_index_shard_path(const struct k3_index *ix, uint32_t shard)
{
	return shard < ix->shards ? ix->path[shard] : NULL;
}

bool k3_index_shard_missing(const struct k3_index *ix, uint32_t shard)
{
	return shard < ix->shards && ix->shard[shard].absent;
}

uint64_t k3_index_count(const struct k3_index *ix)
{
	return ix->layout.slots;
}

/* The place of a tensor that is described already; false if it has none. */
static bool place(const struct k3_index *ix, uint64_t slot, struct k3_tensor *t)
{
	uint64_t entry = k3_index_u64(ix->entry + 8 * slot);
	uint64_t offset = entry & K3I_NO_OFFSET, end;
	uint32_t shard = (uint32_t)(entry >> 48);

	t->shard = shard < ix->shards ? shard : UINT32_MAX;
	t->offset = 0;
	/* one that leads out of its shard could only be forged */
	if (t->shard == UINT32_MAX || ix->shard[shard].absent || offset == K3I_NO_OFFSET ||
	    k3_add_over(offset, t->bytes, &end) || end > ix->shard[shard].size)
		return false;
	t->offset = offset;
	return true;
}

bool k3_index_at(const struct k3_index *ix, uint64_t i, struct k3_tensor *out)
{
	enum k3_role role;
	uint32_t layer, expert;

	k3_layout_role(&ix->layout, i, &role, &layer, &expert);
	k3_role_describe(&ix->config, role, layer, expert, out);
	return place(ix, i, out);
}

int k3_index_tensor(const struct k3_index *ix, enum k3_role role, uint32_t layer,
		    uint32_t expert, struct k3_tensor *out, struct k3_err *err)
{
	char name[K3_NAME];
	uint64_t slot;

	if (!k3_layout_slot(&ix->layout, role, layer, expert, &slot)) {
		if ((unsigned)role >= K3_ROLES)
			return k3_fail(err, K3_EARG, "%s: no tensor has the role %d", ix->directory,
				       (int)role);
		k3_role_name(role, layer, expert, name, sizeof name);
		return k3_fail(err, K3_EARG, "%s: the model has no tensor %s", ix->directory, name);
	}
	k3_role_describe(&ix->config, role, layer, expert, out);
	if (place(ix, slot, out))
		return 0;
	k3_role_name(role, layer, expert, name, sizeof name);
	return k3_fail(err, K3_EDATA, "%s: tensor %s is missing, as is its shard%s%s",
		       ix->directory, name, out->shard == UINT32_MAX ? "" : " ",
		       out->shard == UINT32_MAX ? "" : ix->shard[out->shard].name);
}
