/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - from a device number to the hardware, in a small /sys made for it. */
#include "sys/device.h"
#include "tap.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static char sys[] = "/tmp/k3-device.XXXXXX";
static bool made = true;

/* Makes a file, or a directory if text is NULL, and what it lies in. */
static void make(const char *path, const char *text)
{
	char full[PATH_MAX];
	FILE *f;

	snprintf(full, sizeof full, "%s/%s", sys, path);
	for (char *slash = full + strlen(sys) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0777);
		*slash = '/';
	}
	if (!text) {
		mkdir(full, 0777);
		return;
	}
	f = fopen(full, "w");
	made = made && f && fputs(text, f) >= 0;
	made = made && !fclose(f);
}

/* What is found from the device with that number. */
static struct k3_device found(unsigned minor_number)
{
	struct k3_device d;

	k3_device_find(sys, makedev(100, minor_number), &d);
	return d;
}

/* dev/block/100:N leads to devices/PATH. */
static void device(unsigned minor_number, const char *path)
{
	char name[64], to[PATH_MAX], from[PATH_MAX];

	snprintf(to, sizeof to, "devices/%s", path);
	make(to, NULL);
	snprintf(to, sizeof to, "../../devices/%s", path);
	snprintf(name, sizeof name, "dev/block/100:%u", minor_number);
	snprintf(from, sizeof from, "%s/%s", sys, name);
	make("dev/block", NULL);
	made = made && !symlink(to, from);
}

static void make_tree(void)
{
	char backing[PATH_MAX], number[64];
	struct stat st;

	device(1, "pci0/nvme/nvme0/nvme0n1/nvme0n1p1");
	device(2, "pci0/usb2/2-1/host0/block/sdb/sdb1");
	device(3, "virtual/block/nbd0");
	device(4, "virtual/block/dm-0");
	make("devices/virtual/block/dm-0/slaves/nvme0n1p1/dev", "100:1\n");
	make("devices/virtual/block/dm-0/slaves/sdb1/dev", "100:2\n");
	device(5, "virtual/block/dm-1");
	make("devices/virtual/block/dm-1/slaves/dm-1/dev", "100:5\n");
	device(6, "virtual/block/loop0");
	device(7, "virtual/block/loop0/loop0p1");
	/* the file behind the loop lies on whatever /tmp is on; that is made to be USB */
	make("image", "x");
	snprintf(backing, sizeof backing, "%s/image\n", sys);
	make("devices/virtual/block/loop0/loop/backing_file", backing);
	snprintf(backing, sizeof backing, "%s/image", sys);
	made = made && !stat(backing, &st);
	snprintf(number, sizeof number, "%s/dev/block/%u:%u", sys, major(st.st_dev), minor(st.st_dev));
	made = made && !symlink("../../devices/pci0/usb2/2-1/host0/block/sdb/sdb1", number);
}

static void remove_tree(void)
{
	char command[PATH_MAX];

	snprintf(command, sizeof command, "rm -rf %s", sys);
	made = !system(command) && made;
}

int main(void)
{
	const struct k3_file_system *fs = k3_file_system_find(0xef53);

	ok(fs && !strcmp(fs->name, "ext4") && fs->medium == K3_MEDIUM_LOCAL, "ext4");
	fs = k3_file_system_find(0x6969);
	ok(fs && !strcmp(fs->name, "nfs") && fs->medium == K3_MEDIUM_NETWORK, "nfs");
	fs = k3_file_system_find(0x65735546);
	ok(fs && fs->medium == K3_MEDIUM_FUSE, "FUSE");
	ok(!k3_file_system_find(1), "a number that nothing has");

	if (!mkdtemp(sys))
		return 1;
	make_tree();
	ok(!found(1).usb && !found(1).network, "a partition of an ordinary disk");
	ok(found(2).usb && !found(2).network, "on USB");
	ok(!found(3).usb && found(3).network, "a network block device");
	ok(found(4).usb && !found(4).network, "a mapping of two, one on USB");
	ok(!found(5).usb && !found(5).network, "a circle ends");
	ok(found(6).usb, "a loop over a file on USB");
	ok(found(7).usb, "a partition of the loop");
	ok(!found(99).usb && !found(99).network, "a device that is not there");
	remove_tree();
	ok(made, "the tree was made and removed");
	return tap_done();
}
