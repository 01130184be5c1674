/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - direct reads, and huge pages. */
#include "sys/direct.h"
#include "sys/small.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

int k3_direct_adopt(struct k3_direct *d, const char *path, int fd, struct k3_err *err)
{
	int flags = fcntl(fd, F_GETFL);

	d->path = path;
	d->fd = -1;
	if (flags < 0) {
		close(fd);
		return k3_fail_errno(err, "%s", path);
	}
	d->fd = fd;
	d->buffered = fcntl(fd, F_SETFL, flags | O_DIRECT) != 0;
	return 0;
}

int k3_direct_open(struct k3_direct *d, const char *path, struct k3_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	d->path = path;
	d->fd = -1;
	return fd < 0 ? k3_fail_errno(err, "%s", path) : k3_direct_adopt(d, path, fd, err);
}

void k3_direct_close(struct k3_direct *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

/* True if the file can be read in the ordinary way from now on. */
static bool fall_back(struct k3_direct *d)
{
	int flags = fcntl(d->fd, F_GETFL);

	/* not direct (any more): another thread was here first, and a second try tells the rest */
	if (flags >= 0 && !(flags & O_DIRECT))
		return true;
	if (flags < 0 || fcntl(d->fd, F_SETFL, flags & ~O_DIRECT))
		return false;
	d->buffered = true;
	return true;
}

int k3_direct_read(struct k3_direct *d, void *p, size_t n, uint64_t offset, size_t need,
		   struct k3_err *err)
{
	bool refused = false;
	size_t done = 0;
	ssize_t k;

	while (done < need) {
		k = pread(d->fd, (char *)p + done, n - done, (off_t)(offset + done));
		if (k < 0 && errno == EINTR)
			continue;
		/* a short read may have left an offset that is no multiple: the rest is read as it can be */
		if (k < 0 && errno == EINVAL && !refused && fall_back(d)) {
			refused = true;
			continue;
		}
		if (k < 0)
			return k3_fail_errno(err, "%s: offset %" PRIu64, d->path, offset + done);
		if (k == 0)
			return k3_fail(err, K3_EDATA, "%s: the file ends at or before offset %" PRIu64
				       ", %zu bytes too early", d->path, offset + done, need - done);
		done += (size_t)k;
	}
	if (d->buffered)
		(void)posix_fadvise(d->fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
	return 0;
}

void k3_direct_used(void *p, size_t n)
{
	volatile unsigned char *line = p;

	for (size_t i = 0; i < n; i += K3_LINE)
		line[i] = line[i];
	if (n)
		line[n - 1] = line[n - 1];
}

void k3_huge_within(void *p, size_t n)
{
	uintptr_t begin = k3_huge_up((uintptr_t)p), end = k3_huge_down((uintptr_t)p + n);

	if (begin < end)
		(void)madvise((char *)p + (begin - (uintptr_t)p), end - begin, MADV_HUGEPAGE);
}

void *k3_huge_new(size_t n)
{
	size_t size = k3_huge_up(n), before;
	char *p = mmap(NULL, size + K3_HUGE_PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	before = (K3_HUGE_PAGE - (uintptr_t)p % K3_HUGE_PAGE) % K3_HUGE_PAGE;
	if (before)
		munmap(p, before);
	munmap(p + before + size, K3_HUGE_PAGE - before);
	/* without huge pages it works as well, only slower */
	(void)madvise(p + before, size, MADV_HUGEPAGE);
	return p + before;
}

void k3_huge_free(void *p, size_t n)
{
	if (p)
		munmap(p, k3_huge_up(n));
}
