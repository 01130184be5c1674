/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pread.c - to be preloaded: a disk with faults.
 *
 * K3_FAULT is NAME:FROM:TO:WHAT.  Reads of files whose name ends in NAME that touch the bytes
 * FROM .. TO - 1 of it
 *	eio	fail
 *	eof	find the end of the file at FROM
 *	short	return a page at a time
 *	stall	take two seconds, the first time
 *	hang	take a minute; the file of K3_FAULT_WHEN is removed, which tells that it began
 *	direct	are refused if they are direct
 *	flip	return byte FROM with its lowest bit changed
 *	once	fail the first time only
 * With K3_FAULT_WHEN=FILE only while that file exists.
 *
 * With K3_READS=FILE all reads are written there, a line for each: file, offset, bytes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };

static struct {
	char name[256], what[16];
	unsigned long long from, to;
	const char *when;
	bool set;
} fault;
static atomic_int hits;
static int reads = -1;

static ssize_t (*next)(int, void *, size_t, off_t);

__attribute__((constructor))
static void begin(void)
{
	const char *s = getenv("K3_FAULT"), *log = getenv("K3_READS");

	if (log)
		reads = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	fault.when = getenv("K3_FAULT_WHEN");
	*(void **)&next = dlsym(RTLD_NEXT, "pread64");
	fault.set = s && sscanf(s, "%255[^:]:%llu:%llu:%15s", fault.name, &fault.from, &fault.to,
				fault.what) == 4;
}

/* The path of an open file; its length, or -1. */
static ssize_t path_of(int fd, char *path, size_t size)
{
	char link[64];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return readlink(link, path, size);
}

static void note(int fd, size_t n, off_t offset)
{
	char path[4096];
	ssize_t k = reads < 0 ? -1 : path_of(fd, path, sizeof path);

	if (k >= 0)
		dprintf(reads, "%.*s %lld %zu\n", (int)k, path, (long long)offset, n);
}

static bool concerned(int fd, size_t n, off_t offset)
{
	char path[4096];
	size_t len = strlen(fault.name);
	ssize_t k;

	if (!fault.set || (fault.when && access(fault.when, F_OK)) ||
	    (unsigned long long)offset >= fault.to ||
	    (unsigned long long)offset + n <= fault.from)
		return false;
	k = path_of(fd, path, sizeof path);
	return k >= (ssize_t)len && !memcmp(path + k - (ssize_t)len, fault.name, len);
}

static bool is(const char *what)
{
	return !strcmp(fault.what, what);
}

static ssize_t faulty(int fd, void *p, size_t n, off_t offset)
{
	int before = atomic_fetch_add(&hits, 1);
	ssize_t k, left;

	if (is("eio") || (is("once") && !before)) {
		errno = EIO;
		return -1;
	}
	if (is("direct") && fcntl(fd, F_GETFL) & O_DIRECT) {
		errno = EINVAL;
		return -1;
	}
	if (is("eof")) {
		if ((unsigned long long)offset >= fault.from)
			return 0;
		k = next(fd, p, n, offset);
		left = (ssize_t)(fault.from - (unsigned long long)offset);
		return k > left ? left : k;
	}
	if (is("stall") && !before)
		sleep(2);
	if (is("hang")) {
		if (fault.when)
			unlink(fault.when);
		sleep(60);
	}
	k = next(fd, p, is("short") && n > PAGE ? PAGE : n, offset);
	if (is("flip") && k > 0 && (unsigned long long)offset <= fault.from &&
	    (unsigned long long)(offset + k) > fault.from)
		((char *)p)[fault.from - (unsigned long long)offset] ^= 1;
	return k;
}

ssize_t pread64(int fd, void *p, size_t n, off_t offset);
ssize_t pread64(int fd, void *p, size_t n, off_t offset)
{
	note(fd, n, offset);
	return concerned(fd, n, offset) ? faulty(fd, p, n, offset) : next(fd, p, n, offset);
}

ssize_t pread(int fd, void *p, size_t n, off_t offset)
{
	return pread64(fd, p, n, offset);
}
