/* SPDX-License-Identifier: Apache-2.0 */
/* disk_file.c - which file to measure on, and what there is to be said of the place where it lies. */
#include "sys/disk_file.h"
#include "sys/device.h"

#include <k3/buf.h>

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int k3_disk_warn(struct k3_disk_report *r, struct k3_err *err, const char *fmt, ...)
{
	char **list = k3_reallocarray(r->warning, r->warnings + 1, sizeof *list);
	va_list ap;
	int n;

	if (!list)
		return k3_fail_nomem(err);
	r->warning = list;
	va_start(ap, fmt);
	n = vasprintf(&list[r->warnings], fmt, ap);
	va_end(ap);
	if (n < 0)
		return k3_fail_nomem(err);
	r->warnings++;
	return 0;
}

/* The largest file of a directory, of equals the first by name. */
static int largest(const char *directory, char **out, struct k3_err *err)
{
	DIR *dir = opendir(directory);
	struct dirent *e;
	struct stat st;
	off_t size = -1;
	char *name = NULL, *copy;
	int rc = 0;

	if (!dir)
		return k3_fail_errno(err, "%s", directory);
	while (!rc && (e = readdir(dir))) {
		if (fstatat(dirfd(dir), e->d_name, &st, 0) || !S_ISREG(st.st_mode) ||
		    st.st_size < size ||
		    (st.st_size == size && name && strcmp(e->d_name, name) > 0))
			continue;
		size = st.st_size;
		copy = strdup(e->d_name);
		if (!copy)
			rc = k3_fail_nomem(err);
		free(name);
		name = copy;
	}
	closedir(dir);
	if (!rc && !name)
		rc = k3_fail(err, K3_EDATA, "%s: there is no file in it", directory);
	if (!rc && asprintf(out, "%s/%s", directory, name) < 0) {
		*out = NULL;
		rc = k3_fail_nomem(err);
	}
	free(name);
	return rc;
}

static int choose(const char *path, char **out, struct k3_err *err)
{
	struct stat st;

	if (stat(path, &st))
		return k3_fail_errno(err, "%s", path);
	if (S_ISDIR(st.st_mode))
		return largest(path, out, err);
	if (!S_ISREG(st.st_mode))
		return k3_fail(err, K3_EDATA, "%s: neither a file nor a directory", path);
	*out = strdup(path);
	return *out ? 0 : k3_fail_nomem(err);
}

/*
 * The longest part without holes, which read as fast as memory.  Where a file system cannot
 * tell, that is all.
 */
static void find_data(struct k3_disk_file *f, uint64_t size)
{
	off_t start = 0, end;

	f->start = 0;
	f->size = 0;
	while ((start = lseek(f->file.fd, start, SEEK_DATA)) >= 0) {
		end = lseek(f->file.fd, start, SEEK_HOLE);
		if (end <= start)
			break;
		if ((uint64_t)(end - start) > f->size) {
			f->start = (uint64_t)start;
			f->size = (uint64_t)(end - start);
		}
		start = end;
	}
	if (!f->size && start < 0 && lseek(f->file.fd, 0, SEEK_HOLE) < 0)
		f->size = size;
	size = f->start + f->size;
	f->start = k3_direct_up(f->start);
	f->size = size > f->start ? size - f->start : 0;
}

static int check_size(struct k3_disk_file *f, const struct stat *st, struct k3_disk_report *r,
		      struct k3_err *err)
{
	uint64_t size = (uint64_t)st->st_size, there = (uint64_t)st->st_blocks * 512;

	if (size < K3_DISK_LEAST)
		return k3_fail(err, K3_EDATA, "%s: with %" PRIu64 " bytes it is too small to measure a "
			       "disk, which takes %d", r->path, size, K3_DISK_LEAST);
	find_data(f, size);
	if (f->size < K3_DISK_LEAST)
		return k3_fail(err, K3_EDATA, "%s: it is full of holes, and no %d bytes without one are "
			       "there to measure a disk", r->path, K3_DISK_LEAST);
	if (there >= size - size / 16)
		return 0;
	return k3_disk_warn(r, err, "of its %" PRIu64 " bytes only %" PRIu64 " are on the disk: it has "
			    "holes or is compressed; measured is a part of %" PRIu64 " bytes without "
			    "holes", size, there, f->size);
}

static int check_place(const struct stat *st, const struct k3_file_system *fs,
		       struct k3_disk_report *r, struct k3_err *err)
{
	static const char *const tell[] = {
		[K3_MEDIUM_MEMORY] = "lies in memory, and this is no disk",
		[K3_MEDIUM_NETWORK] = "lies across a network, which is seldom as fast as a disk and never as steady",
		[K3_MEDIUM_FUSE] = "is made by a program (FUSE), which copies all that is read",
		[K3_MEDIUM_SHARED] = "is shared by the host of this virtual machine, which copies all that is read",
	};
	struct k3_device device;
	int rc = 0;

	if (fs && tell[fs->medium])
		rc = k3_disk_warn(r, err, "the file system (%s) %s", fs->name, tell[fs->medium]);
	k3_device_find("/sys", st->st_dev, &device);
	if (!rc && device.usb)
		rc = k3_disk_warn(r, err, "the disk hangs on USB, which is slow and may slow down with heat");
	if (!rc && device.network)
		rc = k3_disk_warn(r, err, "the disk is reached across a network");
	return rc;
}

static int check(struct k3_disk_file *f, struct k3_disk_report *r, struct k3_err *err)
{
	const struct k3_file_system *fs;
	struct statfs sfs;
	struct stat st;
	int rc;

	if (fstat(f->file.fd, &st) || fstatfs(f->file.fd, &sfs))
		return k3_fail_errno(err, "%s", r->path);
	fs = k3_file_system_find((uint32_t)sfs.f_type);
	if (fs)
		r->file_system = strdup(fs->name);
	else if (asprintf(&r->file_system, "0x%x", (unsigned)sfs.f_type) < 0)
		r->file_system = NULL;
	if (!r->file_system)
		return k3_fail_nomem(err);
	rc = check_size(f, &st, r, err);
	return rc ? rc : check_place(&st, fs, r, err);
}

int k3_disk_file_open(const char *path, struct k3_disk_report *r, struct k3_disk_file *out,
		      struct k3_err *err)
{
	int rc = choose(path, &r->path, err);

	out->file.fd = -1;
	if (!rc)
		rc = k3_direct_open(&out->file, r->path, err);
	if (!rc)
		rc = check(out, r, err);
	if (rc)
		k3_direct_close(&out->file);
	return rc;
}
