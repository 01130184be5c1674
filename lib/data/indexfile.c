/* SPDX-License-Identifier: Apache-2.0 */
/* indexfile.c - the index as bytes: written, mapped, and checked. */
#include "data/index.h"
#include <k3/io.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

/* The fields of the head. */
enum {
	AT_VERSION = 8, AT_FLAGS = 12, AT_LENGTH = 16, AT_FINGERPRINT = 24, AT_ENTRIES = 40,
	AT_SHARDS = 48, AT_VISION_TENSORS = 52, AT_VISION_BYTES = 56, AT_CONFIG = 64,
	AT_CONFIG_MTIME = 72, AT_SUMS = 80, AT_DIRECTORY = 88, AT_NAMES = 92
};

uint32_t k3_index_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return le32toh(v);
}

uint64_t k3_index_u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return le64toh(v);
}

static void put32(struct k3_buf *b, uint32_t v)
{
	v = htole32(v);
	k3_buf_add(b, &v, sizeof v);
}

static void put64(struct k3_buf *b, uint64_t v)
{
	v = htole64(v);
	k3_buf_add(b, &v, sizeof v);
}

/* Fills up to a multiple of 8 and ends with the checksum of all that b holds. */
static void put_end(struct k3_buf *b)
{
	while (b->len % 8 && !b->failed)
		k3_buf_char(b, '\0');
	if (!b->failed)
		put64(b, XXH3_64bits(b->data, b->len));
}

/* The length of a file with these parts; true if it does not fit. */
static bool total_length(uint64_t shards, uint64_t entries, uint64_t sums, uint64_t strings,
			 uint64_t *out)
{
	uint64_t n, numbers;

	if (k3_add_over(entries, sums, &numbers) || k3_mul_over(numbers, 8, &numbers) ||
	    k3_mul_over(shards, K3I_SHARD, &n) || k3_add_over(n, numbers, &n) ||
	    k3_add_over(n, strings, &n) || k3_add_over(n, K3I_HEAD + 15, &n))
		return true;
	*out = (n & ~7ull);
	return false;
}

void k3_index_encode(const struct k3_content *c, struct k3_buf *out)
{
	uint64_t length = 0;
	uint32_t names = 0;

	for (uint32_t i = 0; i < c->shards; i++)
		names += (uint32_t)strlen(c->shard[i].name);
	if (total_length(c->shards, c->entries, 0, strlen(c->directory) + c->config->len + names,
			 &length))
		out->failed = true;
	k3_buf_add(out, K3_INDEX_MAGIC, 8);
	put32(out, K3I_VERSION);
	put32(out, c->beside ? K3I_BESIDE : 0);
	put64(out, length);
	k3_buf_add(out, c->fingerprint, K3_DIGEST);
	put64(out, c->entries);
	put32(out, c->shards);
	put32(out, c->vision_tensors);
	put64(out, c->vision_bytes);
	put64(out, c->config->len);
	put64(out, (uint64_t)c->config_mtime);
	put64(out, 0);
	put32(out, (uint32_t)strlen(c->directory));
	put32(out, names);
	for (uint32_t i = 0; i < c->shards; i++) {
		put64(out, c->shard[i].size);
		put64(out, (uint64_t)c->shard[i].mtime);
		put64(out, c->shard[i].header);
		put32(out, (uint32_t)strlen(c->shard[i].name));
		put32(out, c->shard[i].absent ? K3I_ABSENT : 0);
	}
	for (uint64_t i = 0; i < c->entries; i++)
		put64(out, c->entry[i]);
	k3_buf_str(out, c->directory);
	k3_buf_add(out, c->config->data, c->config->len);
	for (uint32_t i = 0; i < c->shards; i++)
		k3_buf_str(out, c->shard[i].name);
	put_end(out);
}

/* Where the sums are in a file, or would be. */
static size_t sums_at(const uint8_t *map)
{
	return K3I_HEAD + (size_t)K3I_SHARD * k3_index_u32(map + AT_SHARDS) +
	       8 * (size_t)k3_index_u64(map + AT_ENTRIES);
}

void k3_index_splice_sums(struct k3_buf *b, const uint64_t *sum, uint64_t n)
{
	struct k3_buf whole = K3_BUF_INIT;
	const uint8_t *old = (const uint8_t *)b->data;
	uint64_t was, le;
	uint32_t flags;
	size_t at;

	if (b->failed)
		return;
	at = sums_at(old);
	was = k3_index_u64(old + AT_SUMS);
	k3_buf_add(&whole, old, at);
	for (uint64_t i = 0; i < n; i++)
		put64(&whole, sum[i]);
	at += 8 * (size_t)was;
	k3_buf_add(&whole, old + at, b->len - at - 8);
	if (!whole.failed) {
		flags = htole32(k3_index_u32(old + AT_FLAGS) | K3I_SUMS);
		memcpy(whole.data + AT_FLAGS, &flags, sizeof flags);
		le = htole64(b->len + 8 * n - 8 * was);
		memcpy(whole.data + AT_LENGTH, &le, sizeof le);
		le = htole64(n);
		memcpy(whole.data + AT_SUMS, &le, sizeof le);
		put_end(&whole);
	}
	k3_buf_free(b);
	*b = whole;
}

int k3_index_write(const char *path, const struct k3_buf *b, struct k3_err *err)
{
	struct k3_outfile f;
	int rc;

	if (b->failed)
		return k3_fail_nomem(err);
	rc = k3_outfile_open(&f, path, err);
	if (!rc)
		rc = k3_write_full(f.fd, b->data, b->len, path, err);
	if (!rc)
		rc = k3_outfile_commit(&f, err);
	k3_outfile_abort(&f);
	return rc;
}

static int map_file(struct k3_index *ix, struct k3_err *err)
{
	uint64_t size;
	int64_t mtime;
	void *p;
	int fd, rc;

	rc = k3_st_open(ix->file, &fd, &size, &mtime, err);
	if (rc)
		return rc;
	if (size < K3I_HEAD + 8) {
		rc = k3_fail(err, K3_EDATA, "%s: %" PRIu64 " bytes are no k3 index", ix->file,
			     size);
	} else {
		p = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
		if (p == MAP_FAILED)
			rc = k3_fail_errno(err, "%s", ix->file);
		else
			ix->map = p;
		ix->length = size;
	}
	close(fd);
	return rc;
}

/* The head and the checksum: after this the file is what k3-index wrote. */
static int check_whole(struct k3_index *ix, struct k3_err *err)
{
	const uint8_t *m = ix->map;
	uint32_t version = k3_index_u32(m + AT_VERSION);
	uint64_t length = k3_index_u64(m + AT_LENGTH);

	if (memcmp(m, K3_INDEX_MAGIC, 8))
		return k3_fail(err, K3_EDATA, "%s: not a k3 index", ix->file);
	if (version != K3I_VERSION)
		return k3_fail(err, K3_EDATA, "%s: an index of version %" PRIu32 ", but this "
			       "program reads version %d; make it anew with k3-index", ix->file,
			       version, K3I_VERSION);
	if (length != ix->length)
		return k3_fail(err, K3_EDATA, "%s: the index has %zu bytes, but should have %"
			       PRIu64 "; make it anew with k3-index", ix->file, ix->length, length);
	if (length % 8 ||
	    XXH3_64bits(m, length - 8) != k3_index_u64(m + length - 8))
		return k3_fail(err, K3_EDATA, "%s: the checksum of the index is wrong; make it "
			       "anew with k3-index", ix->file);
	ix->flags = k3_index_u32(m + AT_FLAGS);
	if (ix->flags & ~(uint32_t)(K3I_SUMS | K3I_BESIDE))
		return k3_fail(err, K3_EDATA, "%s: unknown flags %#" PRIx32, ix->file, ix->flags);
	return 0;
}

static int inconsistent(const struct k3_index *ix, struct k3_err *err)
{
	return k3_fail(err, K3_EDATA, "%s: the parts of the index do not fit together", ix->file);
}

const char *k3_index_stored_directory(const struct k3_index *ix, size_t *n)
{
	*n = k3_index_u32(ix->map + AT_DIRECTORY);
	return (const char *)ix->map + sums_at(ix->map) + 8 * k3_index_u64(ix->map + AT_SUMS);
}

/* Finds the parts; the counts in the head must make up the length. */
static int find_parts(struct k3_index *ix, struct k3_err *err)
{
	const uint8_t *m = ix->map;
	uint64_t entries = k3_index_u64(m + AT_ENTRIES), sums = k3_index_u64(m + AT_SUMS);
	uint64_t config = k3_index_u64(m + AT_CONFIG), strings, length;
	uint32_t directory = k3_index_u32(m + AT_DIRECTORY);
	size_t n;
	int rc;

	ix->shards = k3_index_u32(m + AT_SHARDS);
	if (k3_add_over(config, (uint64_t)directory + k3_index_u32(m + AT_NAMES), &strings) ||
	    total_length(ix->shards, entries, sums, strings, &length) || length != ix->length ||
	    ix->shards >= K3I_NO_SHARD)
		return inconsistent(ix, err);
	rc = k3_config_parse(k3_index_stored_directory(ix, &n) + directory, config, ix->file,
			     &ix->config, err);
	if (!rc)
		rc = k3_layout_init(&ix->layout, &ix->config, err);
	if (rc)
		return rc;
	if (entries != ix->layout.slots ||
	    sums != (ix->flags & K3I_SUMS ? k3_index_sums(ix) : 0))
		return inconsistent(ix, err);
	ix->entry = m + K3I_HEAD + (size_t)K3I_SHARD * ix->shards;
	if (sums)
		ix->sum = ix->entry + 8 * entries;
	return 0;
}

/* Where the checkpoint is: as the caller says, around the file, or where the file says. */
static int find_directory(struct k3_index *ix, const char *directory, struct k3_err *err)
{
	const char *stored;
	char *config;
	size_t n;

	if (directory) {
		ix->directory = strdup(directory);
	} else if (ix->flags & K3I_BESIDE) {
		ix->directory = k3_index_around(ix->file);
		config = ix->directory ? k3_index_join(ix->directory, "config.json") : NULL;
		if (config && access(config, F_OK)) {
			free(ix->directory);
			ix->directory = NULL;
		}
		free(config);
	}
	if (!ix->directory) {
		stored = k3_index_stored_directory(ix, &n);
		ix->directory = strndup(stored, n);
	}
	return ix->directory ? 0 : k3_fail_nomem(err);
}

static int read_shards(struct k3_index *ix, struct k3_err *err)
{
	const uint8_t *record = ix->map + K3I_HEAD, *names;
	uint32_t left = k3_index_u32(ix->map + AT_NAMES), length;
	size_t n;

	names = (const uint8_t *)k3_index_stored_directory(ix, &n) + n;
	names += k3_index_u64(ix->map + AT_CONFIG);
	ix->path = k3_calloc(ix->shards, sizeof *ix->path);
	ix->shard = k3_calloc(ix->shards, sizeof *ix->shard);
	if (!ix->path || !ix->shard)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < ix->shards; i++, record += K3I_SHARD) {
		length = k3_index_u32(record + 24);
		if (length > left || memchr(names, '\0', length) || memchr(names, '/', length))
			return inconsistent(ix, err);
		n = strlen(ix->directory) + 1;
		ix->path[i] = k3_calloc(n + length + 1, 1);
		if (!ix->path[i])
			return k3_fail_nomem(err);
		memcpy(ix->path[i], ix->directory, n - 1);
		ix->path[i][n - 1] = '/';
		memcpy(ix->path[i] + n, names, length);
		ix->shard[i] = (struct k3_shard){
			.name = ix->path[i] + n,
			.size = k3_index_u64(record),
			.mtime = (int64_t)k3_index_u64(record + 8),
			.header = k3_index_u64(record + 16),
			.absent = k3_index_u32(record + 28) & K3I_ABSENT,
		};
		names += length;
		left -= length;
	}
	return left ? inconsistent(ix, err) : 0;
}

int k3_index_load(const char *file, const char *directory, struct k3_index **out,
		  struct k3_err *err)
{
	struct k3_index *ix = k3_calloc(1, sizeof *ix);
	int rc;

	if (!ix)
		return k3_fail_nomem(err);
	ix->file = strdup(file);
	rc = ix->file ? map_file(ix, err) : k3_fail_nomem(err);
	if (!rc)
		rc = check_whole(ix, err);
	if (!rc)
		rc = find_parts(ix, err);
	if (!rc)
		rc = find_directory(ix, directory, err);
	if (!rc)
		rc = read_shards(ix, err);
	if (rc)
		k3_index_close(ix);
	else
		*out = ix;
	return rc;
}

void k3_index_close(struct k3_index *ix)
{
	if (!ix)
		return;
	if (ix->map)
		munmap(ix->map, ix->length);
	for (uint32_t i = 0; ix->path && i < ix->shards; i++)
		free(ix->path[i]);
	free(ix->path);
	free(ix->shard);
	free(ix->directory);
	free(ix->file);
	k3_layout_free(&ix->layout);
	k3_config_free(&ix->config);
	free(ix);
}

const uint8_t *k3_index_fingerprint(const struct k3_index *ix)
{
	return ix->map + AT_FINGERPRINT;
}

void k3_index_vision(const struct k3_index *ix, uint64_t *tensors, uint64_t *bytes)
{
	*tensors = k3_index_u32(ix->map + AT_VISION_TENSORS);
	*bytes = k3_index_u64(ix->map + AT_VISION_BYTES);
}

int64_t k3_index_config_mtime(const struct k3_index *ix, uint64_t *size)
{
	*size = k3_index_u64(ix->map + AT_CONFIG);
	return (int64_t)k3_index_u64(ix->map + AT_CONFIG_MTIME);
}
