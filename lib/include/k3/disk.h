/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/disk.h - how fast the device under a file can be read, and how it wants to be asked.
 *
 * Three things decide: the size of a request, how many are under way at a time, and over how
 * much memory the answers are spread, for a small ring stays in the processor's caches.
 * Nothing is ever written.
 */
#ifndef K3_DISK_H
#define K3_DISK_H

#include <k3/err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum k3_disk_pattern {
	K3_DISK_SEQUENTIAL,
	K3_DISK_RANDOM		/* pieces of the size of a released expert, at any place */
};

/* One way to ask, and what it gave. */
struct k3_disk_row {
	enum k3_disk_pattern pattern;
	uint32_t depth;		/* requests under way at a time */
	uint64_t request;	/* bytes of each */
	uint64_t ring;		/* bytes of memory that they go to in turn */
	double rate;		/* bytes a second */
};

struct k3_disk_report {
	char *path;		/* of the file that was read; owned, like all that follows */
	char *file_system;
	bool direct;		/* past the page cache */
	char **warning;		/* sentences: why the rates may not be those of a disk of one's own */
	size_t warnings;
	struct k3_disk_row best;	/* sequential; of those within 1 % the one with the smallest ring */
	struct k3_disk_row random;	/* pieces, asked for in the same way */
	double used_rate;		/* of the best way, a mean, when every byte is looked at */
	struct k3_disk_row *row;	/* all that was measured, each way once, the best rate seen */
	size_t rows;
};

/*
 * Measures the device under a file, or under the largest file of a directory, for about so many seconds.
 * The report is the caller's to free, after an error too.  Errors: K3_EIO, K3_EDATA (a file
 * too small for it), K3_ENOMEM.
 */
K3_API K3_NODISCARD int k3_disk_measure(const char *path, double seconds,
					struct k3_disk_report *out, struct k3_err *err);
K3_API void k3_disk_report_free(struct k3_disk_report *r);

#ifdef __cplusplus
}
#endif
#endif
