/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys/direct.h - reads that go past the page cache, and memory that they go into.
 *
 * Weights are far more than the cache, so keeping them there helps nobody, and a copy costs
 * more than the disk.  Where a file system refuses direct reads they are ordinary
 * ones, and the pages are given up behind them.
 */
#ifndef K3_SYS_DIRECT_H
#define K3_SYS_DIRECT_H

#include <k3/err.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Offsets, sizes and addresses of direct reads are multiples of this. */
enum { K3_DIRECT = 4096 };

/* An open file.  Several threads may read from it. */
struct k3_direct {
	const char *path;	/* borrowed */
	int fd;			/* -1 when closed */
	atomic_bool buffered;	/* direct reads were refused */
};

K3_NODISCARD int k3_direct_open(struct k3_direct *d, const char *path, struct k3_err *err);
/* The same for a file that is open; the descriptor changes hands, and is closed after an error too. */
K3_NODISCARD int k3_direct_adopt(struct k3_direct *d, const char *path, int fd,
				 struct k3_err *err);
void k3_direct_close(struct k3_direct *d);

/*
 * Reads n bytes at offset into p, all multiples of K3_DIRECT; of these the first
 * `need` must be there, the file may end behind them.  Errors: K3_EIO, K3_EDATA.
 */
K3_NODISCARD int k3_direct_read(struct k3_direct *d, void *p, size_t n, uint64_t offset,
				size_t need, struct k3_err *err);

/*
 * Writes every line of memory that was read into and used, with what it holds, so that the next read
 * into it is fast: where a disk answers by copying, like that of a virtual machine, lines that others
 * have only read are slow to write to, being in several caches.  What was written is in one alone.
 */
void k3_direct_used(void *p, size_t n);

/* The multiple of K3_DIRECT at or below x, or at or above it. */
static inline uint64_t k3_direct_down(uint64_t x)
{
	return x / K3_DIRECT * K3_DIRECT;
}
static inline uint64_t k3_direct_up(uint64_t x)
{
	return k3_direct_down(x + K3_DIRECT - 1);
}

/* The size of a huge page: where there are any, memory on them is resident in such units. */
enum { K3_HUGE_PAGE = 2 << 20 };

static inline uint64_t k3_huge_down(uint64_t x)
{
	return x / K3_HUGE_PAGE * K3_HUGE_PAGE;
}
static inline uint64_t k3_huge_up(uint64_t x)
{
	return k3_huge_down(x + K3_HUGE_PAGE - 1);
}

/*
 * Memory on huge pages where the system has them, from a huge page's boundary on; nothing of it
 * is resident before it is touched.  NULL if it cannot be had.
 */
void *k3_huge_new(size_t n);
void k3_huge_free(void *p, size_t n);

/*
 * The whole huge pages within memory from malloc come as such when they are touched, if the system has them: 512
 * pages with one fault.
 */
void k3_huge_within(void *p, size_t n);

#endif
