/* SPDX-License-Identifier: Apache-2.0 */
/* each.c - every piece of work is done once, before k3_each returns. */
#include "tap.h"
#include "sys/each.h"
#include <stdatomic.h>

enum { COUNT = 10000 };

static atomic_int done[COUNT + 1];

static void work(void *arg, size_t i)
{
	atomic_fetch_add((atomic_int *)arg + i, 1);
}

static bool all(int times, size_t count)
{
	for (size_t i = 0; i <= COUNT; i++)
		if (done[i] != (i < count ? times : 0))
			return false;
	return true;
}

int main(void)
{
	k3_each(0, work, done);
	ok(all(0, 0), "nothing to do");
	k3_each(COUNT, work, done);
	ok(all(1, COUNT), "10000 pieces, each once");
	for (int i = 0; i < 100; i++)
		k3_each(COUNT, work, done);
	ok(all(101, COUNT), "and a hundred times more");
	for (size_t i = 0; i < COUNT; i++)
		done[i] = 0;
	k3_each(1, work, done);
	ok(all(1, 1), "one piece");
	return tap_done();
}
