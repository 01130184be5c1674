/* SPDX-License-Identifier: Apache-2.0 */
/* sys/device.h - what kind of file system and device a file lies on. */
#ifndef K3_SYS_DEVICE_H
#define K3_SYS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum k3_medium {
	K3_MEDIUM_LOCAL,	/* or not known */
	K3_MEDIUM_MEMORY,
	K3_MEDIUM_NETWORK,
	K3_MEDIUM_FUSE,		/* a program answers */
	K3_MEDIUM_SHARED	/* by the host of a virtual machine */
};

struct k3_file_system {
	uint32_t magic;		/* f_type of statfs */
	const char *name;
	enum k3_medium medium;
};

/* NULL for one that is not known. */
const struct k3_file_system *k3_file_system_find(uint32_t magic);

/* What is found on the way down to the device itself, through partitions, mappings and loops. */
struct k3_device {
	bool usb, network;
};

/* sys is "/sys"; a device that is not there is nothing special. */
void k3_device_find(const char *sys, dev_t dev, struct k3_device *out);

#endif
