/* SPDX-License-Identifier: Apache-2.0 */
/* sys/each.h - independent pieces of work on several threads. */
#ifndef K3_SYS_EACH_H
#define K3_SYS_EACH_H

#include <stddef.h>

/*
 * Calls work(arg, i) once for every i below count, on as many threads as this process may
 * have processors (16 at most), and returns when all calls have returned.  The order is not
 * defined; what a call finds out it leaves in a place of its own.  Fewer threads than wished
 * for do the same work.
 */
void k3_each(size_t count, void (*work)(void *arg, size_t i), void *arg);

#endif
