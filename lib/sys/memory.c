/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - /proc/meminfo, the control groups above this process, and its own limits.
 *
 * A control group of either version may be in force, and any group above may be the one that
 * limits.  A file that is not there limits nothing.
 */
#include "sys/memory.h"

#include <k3/buf.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char no_limit[] = "the machine";

/* The number behind a name in a file like /proc/meminfo, in its kB. */
static bool meminfo(const char *name, uint64_t *out)
{
	FILE *f = fopen("/proc/meminfo", "re");
	size_t n = strlen(name);
	char line[256];
	bool found = false;

	while (f && !found && fgets(line, sizeof line, f))
		found = !strncmp(line, name, n) && sscanf(line + n, ": %" SCNu64, out) == 1;
	if (f)
		fclose(f);
	*out *= 1024;
	return found;
}

/* A file that holds one number; "max" and what is not there are none. */
static bool number_in(const char *path, uint64_t *out)
{
	FILE *f = fopen(path, "re");
	bool found = f && fscanf(f, "%" SCNu64, out) == 1;

	if (f)
		fclose(f);
	return found;
}

static void take(struct k3_memory *m, const char *limit, uint64_t most, uint64_t used)
{
	uint64_t left = most > used ? most - used : 0;

	if (most < m->most) {
		m->most = most;
		m->limit = limit;
	}
	if (left < m->available)
		m->available = left;
}

/* The group of that path under root, and all above it. */
static void groups(struct k3_memory *m, const char *root, char *path, const char *max,
		   const char *current)
{
	struct k3_buf name = K3_BUF_INIT;
	uint64_t most, used;
	char *slash;

	for (;;) {
		k3_buf_clear(&name);
		k3_buf_printf(&name, "%s%s/%s", root, path, max);
		if (!name.failed && number_in(name.data, &most)) {
			k3_buf_clear(&name);
			k3_buf_printf(&name, "%s%s/%s", root, path, current);
			used = 0;
			if (name.failed || !number_in(name.data, &used))
				used = 0;
			take(m, "the control group", most, used);
		}
		slash = strrchr(path, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	k3_buf_free(&name);
}

/* Lines of /proc/self/cgroup: number:controllers:path, the second empty in version 2. */
static void control_groups(struct k3_memory *m)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[4096];

	while (f && fgets(line, sizeof line, f)) {
		char *kind = strchr(line, ':'), *path = kind ? strchr(kind + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (!kind[1]) {
			groups(m, "/sys/fs/cgroup", path, "memory.max", "memory.current");
		} else if (!strcmp(kind + 1, "memory")) {
			groups(m, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
			       "memory.usage_in_bytes");
		}
	}
	if (f)
		fclose(f);
}

static void process_limit(struct k3_memory *m, int which, const char *limit)
{
	struct rlimit r;

	if (!getrlimit(which, &r) && r.rlim_cur != RLIM_INFINITY)
		take(m, limit, r.rlim_cur, 0);
}

int k3_memory_read(struct k3_memory *m, struct k3_err *err)
{
	*m = (struct k3_memory){ .limit = no_limit };
	if (!meminfo("MemTotal", &m->most) || !meminfo("MemAvailable", &m->available))
		return k3_fail(err, K3_EIO, "/proc/meminfo does not tell how much memory there is");
	control_groups(m);
	process_limit(m, RLIMIT_AS, "the limit of the address space");
	process_limit(m, RLIMIT_DATA, "the limit of the data segment");
	return 0;
}
