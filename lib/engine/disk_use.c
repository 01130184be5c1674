/* SPDX-License-Identifier: Apache-2.0 */
/* disk_use.c - how to read a disk, and what a machine has, out of a file. */
#include "data/json.h"

#include <k3/buf.h>
#include <k3/engine.h>
#include <k3/io.h>

#include <inttypes.h>

/* A file longer than this is something else. */
enum { MAX = 1 << 20 };

/* Beyond these is nothing that anybody wants or has. */
static const struct {
	const char *name;
	uint64_t least, most;
} number[] = { { "ring", 1 << 20, 1ull << 34 }, { "request", 4096, 1 << 28 }, { "depth", 1, 64 },
	       { "memory", 1 << 20, 1ull << 52 } };
enum { NUMBERS = sizeof number / sizeof *number };

static int read_number(jv all, const char *path, unsigned i, uint64_t *out, struct k3_err *err)
{
	jv v = jv_object_get(jv_copy(all), jv_string(number[i].name));
	bool there = jv_is_valid(v), good = k3_json_u64(v, number[i].most, out);

	jv_free(v);
	if (!there) {
		*out = 0;
		return 0;
	}
	if (good && *out >= number[i].least)
		return 0;
	return k3_fail(err, K3_EDATA, "%s: \"%s\" must be a whole number from %" PRIu64 " to %" PRIu64,
		       path, number[i].name, number[i].least, number[i].most);
}

/* Sets *out if the member is there. */
static int read_rate(jv all, const char *path, const char *name, double *out, struct k3_err *err)
{
	jv v = jv_object_get(jv_copy(all), jv_string(name));
	bool there = jv_is_valid(v);
	double rate = jv_get_kind(v) == JV_KIND_NUMBER ? jv_number_value(v) : 0;

	jv_free(v);
	if (!there)
		return 0;
	if (!(rate > 0))
		return k3_fail(err, K3_EDATA, "%s: \"%s\" must be a number of bytes a second above 0",
			       path, name);
	*out = rate;
	return 0;
}

int k3_disk_use_read(const char *path, struct k3_disk_use *out, struct k3_err *err)
{
	struct k3_buf text = K3_BUF_INIT;
	uint64_t *const to[NUMBERS] = { &out->ring, &out->request, &out->depth, &out->memory };
	int rc = k3_slurp(path, MAX, &text, err);
	jv all;

	if (!rc)
		rc = k3_json_parse(text.data, text.len, path, &all, err);
	k3_buf_free(&text);
	if (rc)
		return rc;
	out->rate = 0;
	for (unsigned i = 0; !rc && i < NUMBERS; i++)
		rc = read_number(all, path, i, to[i], err);
	if (!rc)
		rc = read_rate(all, path, "rate", &out->rate, err);
	/* what can be hoped for when something is done with the bytes */
	if (!rc)
		rc = read_rate(all, path, "used_rate", &out->rate, err);
	jv_free(all);
	return rc;
}
