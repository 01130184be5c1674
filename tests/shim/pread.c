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

static ssize_t (*next)(int, void *, size_t, off_t);

__attribute__((constructor))
static void begin(void)
{
	const char *s = getenv("K3_FAULT");

	fault.when = getenv("K3_FAULT_WHEN");
	*(void **)&next = dlsym(RTLD_NEXT, "pread64");
	fault.set = s && sscanf(s, "%255[^:]:%llu:%llu:%15s", fault.name, &fault.from, &fault.to,
				fault.what) == 4;
}

static bool concerned(int fd, size_t n, off_t offset)
{
	char link[64], path[4096];
	size_t len = strlen(fault.name);
	ssize_t k;

	if (!fault.set || (fault.when && access(fault.when, F_OK)) ||
	    (unsigned long long)offset >= fault.to ||
	    (unsigned long long)offset + n <= fault.from)
		return false;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	k = readlink(link, path, sizeof path - 1);
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
	return concerned(fd, n, offset) ? faulty(fd, p, n, offset) : next(fd, p, n, offset);
}

ssize_t pread(int fd, void *p, size_t n, off_t offset)
{
	return pread64(fd, p, n, offset);
}
