/* SPDX-License-Identifier: Apache-2.0 */
/* sys/disk_file.h - finds a file under a path on which a disk can be measured. */
#ifndef K3_SYS_DISK_FILE_H
#define K3_SYS_DISK_FILE_H

#include <k3/disk.h>
#include "sys/direct.h"

/* What is smaller says nothing of a disk. */
enum { K3_DISK_LEAST = 64 << 20 };

struct k3_disk_file {
	struct k3_direct file;	/* its path is that of the report */
	uint64_t start, size;	/* of the part to read, which has no holes; start is a multiple of K3_DIRECT */
};

/* Fills in the path, the file system and the warnings of the report.  Close what was opened with k3_direct_close. */
K3_NODISCARD int k3_disk_file_open(const char *path, struct k3_disk_report *r,
				   struct k3_disk_file *out, struct k3_err *err);

/* Adds a sentence to the report.  Errors: K3_ENOMEM. */
K3_NODISCARD int k3_disk_warn(struct k3_disk_report *r, struct k3_err *err, const char *fmt, ...)
	K3_PRINTF(3, 4);

#endif
