/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - file systems by their numbers, and the way from a device number down to the hardware. */
#include "sys/device.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static const struct k3_file_system known[] = {
	{ 0x0000ef53, "ext4", K3_MEDIUM_LOCAL },	/* ext2 and ext3 have the same number */
	{ 0x58465342, "xfs", K3_MEDIUM_LOCAL },
	{ 0x9123683e, "btrfs", K3_MEDIUM_LOCAL },
	{ 0xf2f52010, "f2fs", K3_MEDIUM_LOCAL },
	{ 0x2fc12fc1, "zfs", K3_MEDIUM_LOCAL },
	{ 0xca451a4e, "bcachefs", K3_MEDIUM_LOCAL },
	{ 0x3153464a, "jfs", K3_MEDIUM_LOCAL },
	{ 0x794c7630, "overlay", K3_MEDIUM_LOCAL },
	{ 0x00004d44, "vfat", K3_MEDIUM_LOCAL },
	{ 0x2011bab0, "exfat", K3_MEDIUM_LOCAL },
	{ 0x7366746e, "ntfs3", K3_MEDIUM_LOCAL },
	{ 0x00009660, "iso9660", K3_MEDIUM_LOCAL },
	{ 0x15013346, "udf", K3_MEDIUM_LOCAL },
	{ 0x73717368, "squashfs", K3_MEDIUM_LOCAL },
	{ 0xe0f5e1e2, "erofs", K3_MEDIUM_LOCAL },
	{ 0x01021994, "tmpfs", K3_MEDIUM_MEMORY },
	{ 0x858458f6, "ramfs", K3_MEDIUM_MEMORY },
	{ 0x00006969, "nfs", K3_MEDIUM_NETWORK },
	{ 0xff534d42, "cifs", K3_MEDIUM_NETWORK },
	{ 0xfe534d42, "smb2", K3_MEDIUM_NETWORK },
	{ 0x0000517b, "smb", K3_MEDIUM_NETWORK },
	{ 0x00c36400, "ceph", K3_MEDIUM_NETWORK },
	{ 0x5346414f, "afs", K3_MEDIUM_NETWORK },
	{ 0x0bd00bd0, "lustre", K3_MEDIUM_NETWORK },
	{ 0x47504653, "gpfs", K3_MEDIUM_NETWORK },
	{ 0x01161970, "gfs2", K3_MEDIUM_NETWORK },
	{ 0x7461636f, "ocfs2", K3_MEDIUM_NETWORK },
	{ 0x65735546, "fuse", K3_MEDIUM_FUSE },
	{ 0x01021997, "9p", K3_MEDIUM_SHARED },
	{ 0x786f4256, "vboxsf", K3_MEDIUM_SHARED },
};

const struct k3_file_system *k3_file_system_find(uint32_t magic)
{
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].magic == magic)
			return &known[i];
	return NULL;
}

/* Devices may lie on devices; a way that is longer than this is a circle. */
enum { MAX_DEPTH = 8 };

static void find(const char *sys, dev_t dev, struct k3_device *out, int depth);

/* The device under the file that a loop device, or a partition of one, reads. */
static void find_backing(const char *sys, const char *device, struct k3_device *out, int depth)
{
	char path[PATH_MAX + 32], backing[PATH_MAX];
	const char *const place[] = { "loop", "../loop" };
	struct stat st;
	size_t n;
	FILE *f;

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s/backing_file", device, place[i]);
		f = fopen(path, "re");
		if (!f)
			continue;
		n = fread(backing, 1, sizeof backing - 1, f);
		fclose(f);
		backing[n] = '\0';
		backing[strcspn(backing, "\n")] = '\0';
		if (!stat(backing, &st))
			find(sys, S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev, out, depth + 1);
		return;
	}
}

/* The devices that a mapped one (LVM, encryption, RAID) consists of. */
static void find_slaves(const char *sys, const char *device, struct k3_device *out, int depth)
{
	char path[2 * PATH_MAX];
	unsigned major_number, minor_number;
	struct dirent *e;
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof path, "%s/slaves", device);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		if (*e->d_name == '.')
			continue;
		snprintf(path, sizeof path, "%s/slaves/%s/dev", device, e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fscanf(f, "%u:%u", &major_number, &minor_number) == 2)
			find(sys, makedev(major_number, minor_number), out, depth + 1);
		fclose(f);
	}
	if (dir)
		closedir(dir);
}

static void find(const char *sys, dev_t dev, struct k3_device *out, int depth)
{
	char path[PATH_MAX], device[PATH_MAX];
	const char *name;

	snprintf(path, sizeof path, "%s/dev/block/%u:%u", sys, major(dev), minor(dev));
	if (depth > MAX_DEPTH || !realpath(path, device))
		return;
	name = strrchr(device, '/');
	if (strstr(device, "/usb"))
		out->usb = true;
	if (strstr(device, "/nbd") || strstr(device, "/rbd") || !strncmp(name, "/drbd", 5))
		out->network = true;
	find_backing(sys, device, out, depth);
	find_slaves(sys, device, out, depth);
}

void k3_device_find(const char *sys, dev_t dev, struct k3_device *out)
{
	*out = (struct k3_device){ false, false };
	find(sys, dev, out, 0);
}
