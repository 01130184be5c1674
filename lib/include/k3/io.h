/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/io.h - whole reads and writes, and files that appear only when complete.
 *
 * Every function takes the name that its error sentence should show.
 */
#ifndef K3_IO_H
#define K3_IO_H

#include <k3/buf.h>
#include <k3/err.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Reads n bytes unless the end comes first; *got tells how many.  Never reads
 * more than n, so that two programs can share one stream.
 */
K3_API K3_NODISCARD int k3_read_full(int fd, void *p, size_t n, size_t *got,
				     const char *name, struct k3_err *err);

/* Reads exactly n bytes at offset; the end of the file before that is K3_EDATA. */
K3_API K3_NODISCARD int k3_pread_full(int fd, void *p, size_t n, uint64_t offset,
				      const char *name, struct k3_err *err);

K3_API K3_NODISCARD int k3_write_full(int fd, const void *p, size_t n,
				      const char *name, struct k3_err *err);
K3_API K3_NODISCARD int k3_pwrite_full(int fd, const void *p, size_t n,
				       uint64_t offset, const char *name,
				       struct k3_err *err);

/* A new file without a name in a directory, open for both; it is gone when it is closed. */
K3_API K3_NODISCARD int k3_unnamed_file(const char *directory, int *fd, struct k3_err *err);

/* Appends a whole file (or all of a stream) to out; more than max bytes is K3_EDATA. */
K3_API K3_NODISCARD int k3_slurp(const char *path, size_t max, struct k3_buf *out,
				 struct k3_err *err);
K3_API K3_NODISCARD int k3_slurp_fd(int fd, const char *name, size_t max,
				    struct k3_buf *out, struct k3_err *err);

/*
 * A file under construction: it is written under a temporary name in the target's
 * directory and takes its final name in k3_outfile_commit, after fsync.  A link stays one: what
 * it leads to is replaced.  A target that is no regular file is an error.
 * k3_outfile_abort removes it; it may be called after a failed commit, and
 * does nothing after a successful one.
 */
struct k3_outfile {
	int fd;
	char *path;	/* owned */
	char *temp;	/* owned; NULL when nothing is left to remove */
};

K3_API K3_NODISCARD int k3_outfile_open(struct k3_outfile *f, const char *path,
					struct k3_err *err);
K3_API K3_NODISCARD int k3_outfile_commit(struct k3_outfile *f,
					  struct k3_err *err);
K3_API void k3_outfile_abort(struct k3_outfile *f);

#ifdef __cplusplus
}
#endif
#endif
