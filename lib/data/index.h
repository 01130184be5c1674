/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/index.h - the index file (k3-index(5)) from inside.
 *
 * Everything in the file is little-endian and at a place that follows from the counts
 * in its head; nothing in it is trusted before the checksum at its end is right.
 */
#ifndef K3_DATA_INDEX_H
#define K3_DATA_INDEX_H

#include "data/roles.h"
#include "data/safetensors.h"
#include "sys/direct.h"
#include <k3/buf.h>
#include <k3/index.h>
#include <stdbool.h>
#include <stddef.h>

enum {
	K3I_VERSION = 3,
	K3I_SUMS = 1,		/* flag: there are sums */
	K3I_BESIDE = 2,		/* flag: the file lies in the directory of the checkpoint */
	K3I_HEAD = 96,		/* bytes of the head */
	K3I_SHARD = 32,		/* bytes of the record of a shard */
	K3I_ABSENT = 1,		/* flag of a shard: it was missing */
	K3I_NO_SHARD = 0xffff	/* in an entry: the shard is not known */
};

/* A config.json is not longer. */
#define K3I_MAXCONFIG (1u << 20)

/* An entry has the shard in its upper 16 bits, and in the others the offset or this. */
#define K3I_NO_OFFSET ((1ull << 48) - 1)
#define K3I_UNKNOWN UINT64_MAX	/* neither shard nor offset */

/* A shard as it was when the index was made; its time as it was when k3_index_fresh last looked. */
struct k3_shard {
	char *name;		/* owned where this stands in k3_shards */
	bool absent;
	uint64_t size, header;
	int64_t mtime;
	uint8_t digest[K3_DIGEST];
};

struct k3_index {
	struct k3_config config;
	struct k3_layout layout;
	char *file;		/* owned */
	char *directory;	/* owned */
	char **path;		/* owned: of each shard */
	struct k3_shard *shard;	/* owned; name points into path, digest is not set */
	uint32_t shards;
	uint32_t flags;
	uint8_t *map;		/* the file */
	size_t length;
	const uint8_t *entry, *sum;	/* in map; sum may be NULL */
};

/* What goes into a file. */
struct k3_content {
	bool beside;
	const char *directory;		/* absolute */
	const struct k3_buf *config;	/* the text of config.json */
	int64_t config_mtime;
	const struct k3_shard *shard;
	uint32_t shards;
	const uint64_t *entry;
	uint64_t entries;
	uint32_t vision_tensors;
	uint64_t vision_bytes;
	uint8_t fingerprint[K3_DIGEST];
};

/* Appends the file to out; out->failed tells of a lack of memory. */
void k3_index_encode(const struct k3_content *c, struct k3_buf *out);

/* Puts n sums into the file in b, in place of those it may have. */
void k3_index_splice_sums(struct k3_buf *b, const uint64_t *sum, uint64_t n);

/* Numbers out of the file. */
uint32_t k3_index_u32(const uint8_t *p);
uint64_t k3_index_u64(const uint8_t *p);

/*
 * Maps and checks a file.  directory is where the checkpoint lies, or NULL: then the
 * file tells.  Whether the checkpoint is still the same is not looked at.
 */
K3_NODISCARD int k3_index_load(const char *file, const char *directory, struct k3_index **out,
			       struct k3_err *err);

/* The directory that is written in the file, not ended by a NUL. */
const char *k3_index_stored_directory(const struct k3_index *ix, size_t *n);

/* How much of vision_tower and mm_projector there was. */
void k3_index_vision(const struct k3_index *ix, uint64_t *tensors, uint64_t *bytes);

/* When config.json was changed last, in nanoseconds, and its size. */
int64_t k3_index_config_mtime(const struct k3_index *ix, uint64_t *size);

/* How many sums there are, if any: one for each expert of all layers, then one for each row of the embedding. */
uint64_t k3_index_sums(const struct k3_index *ix);

/* K3_ESTALE unless the checkpoint is what it was when the index was made. */
K3_NODISCARD int k3_index_fresh(struct k3_index *ix, struct k3_err *err);

/*
 * Opens a shard for reading; the caller closes *fd.  K3_ESTALE if it was replaced or written to since
 * k3_index_fresh: the offsets of the index mean nothing in another file.
 */
K3_NODISCARD int k3_index_shard_open(const struct k3_index *ix, uint32_t shard, int *fd,
				     struct k3_err *err);
/* The same for direct reads; the path is the index's. */
K3_NODISCARD int k3_index_shard_direct(const struct k3_index *ix, uint32_t shard,
				       struct k3_direct *out, struct k3_err *err);

/* XXH3-128 over that of the config, and name and digest of every shard that is there. */
K3_NODISCARD int k3_index_fingerprint_of(const void *config, size_t n,
					 const struct k3_shard *shard, uint32_t shards,
					 uint8_t out[K3_DIGEST], struct k3_err *err);

/* dir/name, and the directory that a file is in, in memory of their own, or NULL. */
char *k3_index_join(const char *dir, const char *name);
char *k3_index_around(const char *file);

/* Where the index of a directory (its real path) is kept if it cannot be written there. */
K3_NODISCARD int k3_index_cache_path(const char *directory, char **out, struct k3_err *err);

/* Writes the file so that it appears only when complete. */
K3_NODISCARD int k3_index_write(const char *path, const struct k3_buf *b, struct k3_err *err);

#endif
