/* SPDX-License-Identifier: Apache-2.0 */
/* direct.c - direct reads give the bytes of the file, up to an end that is no multiple of anything. */
#include "rng.h"
#include "sys/direct.h"
#include "tap.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 5 * K3_DIRECT + 123, ROOM = 8 * K3_DIRECT };

static unsigned char content[SIZE];
static struct k3_err err;

/* Whether that many pages from a page on, with all that is there needed, are those of the file. */
static bool reads(struct k3_direct *d, unsigned char *to, size_t page, size_t pages)
{
	size_t at = page * K3_DIRECT, n = pages * K3_DIRECT;
	size_t need = at + n > SIZE ? SIZE - at : n;

	memset(to, 0xee, ROOM);
	return !k3_direct_read(d, to, n, at, need, &err) && !memcmp(to, content + at, need);
}

static void check(struct k3_direct *d, unsigned char *to, const char *how)
{
	bool all = true;

	for (size_t page = 0; page < 6; page++)
		for (size_t pages = 1; pages <= 8; pages++)
			all = reads(d, to, page, pages) && all;
	ok(all, "%s: every run of pages", how);
	ok(k3_direct_read(d, to, 2 * K3_DIRECT, 4 * K3_DIRECT, K3_DIRECT + 124, &err) == K3_EDATA &&
	   strstr(err.text, "the file ends"), "%s: one byte behind the end", how);
	ok(k3_direct_read(d, to, K3_DIRECT, 6 * K3_DIRECT, 1, &err) == K3_EDATA,
	   "%s: a page behind the end", how);
	ok(reads(d, to, 0, 8), "%s: still good after that", how);
}

int main(void)
{
	char path[] = "/tmp/k3-direct.XXXXXX";
	struct rng g = { 1 };
	struct k3_direct d;
	unsigned char *to = k3_huge_new(ROOM);
	int fd = mkstemp(path);

	for (size_t i = 0; i < SIZE; i++)
		content[i] = (unsigned char)rng_u64(&g);
	if (!to || fd < 0 || write(fd, content, SIZE) != SIZE)
		return 1;
	close(fd);
	ok((uintptr_t)to % (2 << 20) == 0, "memory begins where a huge page does");
	ok(k3_direct_open(&d, path, &err) == 0, "a file");
	printf("# %s\n", d.buffered ? "direct reads are refused here" : "direct reads");
	check(&d, to, "open");
	d.buffered = true;
	check(&d, to, "with its pages given up");
	k3_direct_close(&d);
	ok(d.fd == -1, "closed");
	k3_direct_close(&d);
	unlink(path);
	ok(k3_direct_open(&d, path, &err) == K3_EIO && strstr(err.text, path), "no file");
	ok(k3_direct_down(8191) == 4096 && k3_direct_up(8191) == 8192 && k3_direct_up(8192) == 8192 &&
	   k3_direct_down(8192) == 8192, "rounding");
	k3_huge_free(to, ROOM);
	k3_huge_free(NULL, ROOM);
	return tap_done();
}
