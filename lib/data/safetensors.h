/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/safetensors.h - the header of one shard, read and checked by itself.
 *
 * A shard is 8 bytes with the length of the header, the header in JSON, and the data.  What
 * its tensors should be is not known here; that each is described completely and that
 * together they fill the data without holes or overlaps is.
 */
#ifndef K3_DATA_SAFETENSORS_H
#define K3_DATA_SAFETENSORS_H

#include <k3/buf.h>
#include <k3/err.h>
#include <k3/index.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

enum { K3_ST_MAXDIM = 8, K3_ST_SAMPLE = 65536, K3_DIGEST = 16 };

/* No header of a checkpoint is longer; the reference reader has the same limit. */
#define K3_ST_MAXHEADER 100000000ull

struct k3_st_tensor {
	size_t name;			/* where it begins in names; it ends with a NUL */
	uint32_t length;		/* of the name, which may hold NULs of its own */
	char dtype[12];
	uint32_t rank;			/* 0 to K3_ST_MAXDIM */
	uint64_t shape[K3_ST_MAXDIM];
	uint64_t begin, end;		/* offsets in the file */
};

struct k3_st {
	uint64_t size;			/* of the file */
	int64_t mtime;			/* in nanoseconds */
	uint64_t header;		/* length of the JSON text */
	struct k3_st_tensor *tensor;	/* owned; ascending by begin */
	size_t count;
	struct k3_buf names;		/* owned */
	uint8_t digest[K3_DIGEST];	/* see k3_st_digest */
};

/*
 * Reads and checks the header of the file; the caller ends *out with k3_st_free, after an
 * error too.  Errors: K3_EDATA, K3_EIO, K3_ENOMEM.
 */
K3_NODISCARD int k3_st_read(const char *path, struct k3_st *out, struct k3_err *err);
void k3_st_free(struct k3_st *st);

/*
 * XXH3-128 over the first 8 + header bytes of the file, its size, and three samples of its
 * data: the first 64 KiB, the last, and those in the middle.
 */
K3_NODISCARD int k3_st_digest(int fd, const char *path, uint64_t size, uint64_t header,
			      uint8_t out[K3_DIGEST], struct k3_err *err);

/* As k3_st_digest for a file that is not open; header is the length that is expected. */
K3_NODISCARD int k3_st_digest_path(const char *path, uint64_t header, uint8_t out[K3_DIGEST],
				   struct k3_err *err);

/* When a file was changed, in nanoseconds. */
int64_t k3_st_mtime(const struct stat *s);

/* Opens a regular file for reading and tells its size and when it was changed. */
K3_NODISCARD int k3_st_open(const char *path, int *fd, uint64_t *size, int64_t *mtime,
			    struct k3_err *err);

#endif
