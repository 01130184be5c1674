/* SPDX-License-Identifier: Apache-2.0 */
/* sys/small.h - what is too small for a file of its own and needed in several. */
#ifndef K3_SYS_SMALL_H
#define K3_SYS_SMALL_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t k3_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t k3_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The bytes that a cache takes at a time. */
enum { K3_LINE = 64 };

/* Asks for bytes that will be wanted soon; of short pieces the hardware sees no stream. */
static inline void k3_prefetch(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i += K3_LINE)
		__builtin_prefetch((const char *)p + i);
}

/* Nanoseconds since some moment, for differences. */
static inline uint64_t k3_nanoseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
