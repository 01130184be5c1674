/* SPDX-License-Identifier: Apache-2.0 */
/* sys/memory.h - how much memory there is, and for this process. */
#ifndef K3_SYS_MEMORY_H
#define K3_SYS_MEMORY_H

#include <k3/err.h>
#include <stdint.h>

struct k3_memory {
	uint64_t most;		/* what the process can ever have .. */
	const char *limit;	/* .. and what says so: "the machine", "the control group", .. */
	uint64_t available;	/* what could be had now without taking it from others */
};

/* Errors: K3_EIO where the system does not tell. */
K3_NODISCARD int k3_memory_read(struct k3_memory *m, struct k3_err *err);

#endif
