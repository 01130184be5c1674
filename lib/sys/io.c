/* SPDX-License-Identifier: Apache-2.0 */
/* io.c - whole reads and writes: a short one is finished or reported, never passed on. */
#include <k3/io.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int k3_read_full(int fd, void *p, size_t n, size_t *got, const char *name,
		 struct k3_err *err)
{
	ssize_t k;

	for (*got = 0; *got < n; *got += (size_t)k) {
		k = read(fd, (char *)p + *got, n - *got);
		if (k < 0 && errno == EINTR) {
			k = 0;
			continue;
		}
		if (k < 0)
			return k3_fail_errno(err, "%s", name);
		if (k == 0)
			break;
	}
	return 0;
}

int k3_pread_full(int fd, void *p, size_t n, uint64_t offset, const char *name,
		  struct k3_err *err)
{
	size_t done = 0;
	ssize_t k;

	while (done < n) {
		k = pread(fd, (char *)p + done, n - done, (off_t)(offset + done));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return k3_fail_errno(err, "%s: offset %" PRIu64, name,
					     offset + done);
		if (k == 0)
			return k3_fail(err, K3_EDATA, "%s: the file ends at or before offset %"
				       PRIu64 ", %zu bytes too early", name, offset + done,
				       n - done);
		done += (size_t)k;
	}
	return 0;
}

int k3_write_full(int fd, const void *p, size_t n, const char *name,
		  struct k3_err *err)
{
	const char *s = p;
	ssize_t k;

	while (n) {
		k = write(fd, s, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return k3_fail_errno(err, "%s", name);
		s += k;
		n -= (size_t)k;
	}
	return 0;
}

int k3_pwrite_full(int fd, const void *p, size_t n, uint64_t offset,
		   const char *name, struct k3_err *err)
{
	const char *s = p;
	ssize_t k;

	while (n) {
		k = pwrite(fd, s, n, (off_t)offset);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return k3_fail_errno(err, "%s: offset %" PRIu64, name, offset);
		s += k;
		n -= (size_t)k;
		offset += (uint64_t)k;
	}
	return 0;
}

int k3_unnamed_file(const char *directory, int *fd, struct k3_err *err)
{
	*fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return *fd < 0 ? k3_fail_errno(err, "%s: no temporary file", directory) : 0;
}

int k3_slurp_fd(int fd, const char *name, size_t max, struct k3_buf *out,
		struct k3_err *err)
{
	size_t step = 1 << 16, got, total = 0;
	char *p;
	int rc;

	for (;;) {
		p = k3_buf_reserve(out, step);
		if (!p)
			return k3_fail_nomem(err);
		rc = k3_read_full(fd, p, step, &got, name, err);
		if (rc)
			return rc;
		out->len += got;
		out->data[out->len] = '\0';
		total += got;
		if (total > max)
			return k3_fail(err, K3_EDATA, "%s: more than %zu bytes",
				       name, max);
		if (got < step)
			return 0;
	}
}

int k3_slurp(const char *path, size_t max, struct k3_buf *out, struct k3_err *err)
{
	int fd, rc;

	do
		fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return k3_fail_errno(err, "%s", path);
	rc = k3_slurp_fd(fd, path, max, out, err);
	close(fd);
	return rc;
}

/*
 * What a new file takes the place of: path itself, or the file that a link leads to.  Renaming
 * would as gladly put the file where a device or a fifo was.
 */
static int replaced(const char *path, char **out, struct k3_err *err)
{
	struct stat st;

	if (stat(path, &st)) {
		*out = strdup(path);
		return *out ? 0 : k3_fail_nomem(err);
	}
	if (!S_ISREG(st.st_mode))
		return k3_fail(err, K3_EIO, "%s: not a regular file", path);
	*out = realpath(path, NULL);
	return *out ? 0 : k3_fail_errno(err, "%s", path);
}

int k3_outfile_open(struct k3_outfile *f, const char *path, struct k3_err *err)
{
	size_t n;
	mode_t mask;
	int rc;

	*f = (struct k3_outfile){ .fd = -1 };
	rc = replaced(path, &f->path, err);
	if (rc)
		return rc;
	n = strlen(f->path);
	f->temp = malloc(n + sizeof ".XXXXXX");
	if (!f->temp) {
		free(f->path);
		*f = (struct k3_outfile){ .fd = -1 };
		return k3_fail_nomem(err);
	}
	memcpy(f->temp, f->path, n);
	memcpy(f->temp + n, ".XXXXXX", sizeof ".XXXXXX");
	f->fd = mkostemp(f->temp, O_CLOEXEC);
	if (f->fd < 0) {
		rc = k3_fail_errno(err, "%s", path);
		free(f->temp);
		f->temp = NULL;
		k3_outfile_abort(f);
		return rc;
	}
	/* mkostemp gives 0600; a new file is to look like any other */
	mask = umask(0);
	umask(mask);
	if (fchmod(f->fd, 0666 & ~mask))
		return k3_fail_errno(err, "%s", path);
	return 0;
}

int k3_outfile_commit(struct k3_outfile *f, struct k3_err *err)
{
	if (fsync(f->fd))
		return k3_fail_errno(err, "%s", f->path);
	if (close(f->fd)) {
		f->fd = -1;
		return k3_fail_errno(err, "%s", f->path);
	}
	f->fd = -1;
	if (rename(f->temp, f->path))
		return k3_fail_errno(err, "%s", f->path);
	free(f->temp);
	f->temp = NULL;
	k3_outfile_abort(f);
	return 0;
}

void k3_outfile_abort(struct k3_outfile *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->temp)
		unlink(f->temp);
	free(f->temp);
	free(f->path);
	*f = (struct k3_outfile){ .fd = -1 };
}
