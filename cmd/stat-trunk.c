/* SPDX-License-Identifier: Apache-2.0 */
/* stat-trunk.c - k3-stat on a trunk file: whose it is, and how large its sections are. */
#include "stat.h"

#include <k3/trunk.h>

#include <inttypes.h>

static double ratio(uint64_t coded, uint64_t plain)
{
	return plain ? (double)coded / (double)plain : 0;
}

static void section(const struct stat_source *s, const struct k3_trunk *t, uint32_t i,
		    struct k3_buf *b)
{
	struct k3_trunk_section n;

	k3_trunk_section(t, i, &n);
	if (s->json)
		k3_buf_printf(b, "%s{\"section\":%" PRIu32 ",\"offset\":%" PRIu64 ",\"length\":%" PRIu64
			      ",\"blocks\":%" PRIu64 ",\"coded_bytes\":%" PRIu64 ",\"plain_bytes\":%"
			      PRIu64 "}", i ? "," : "", i, n.offset, n.length, n.blocks, n.coded,
			      n.plain);
	else
		k3_buf_printf(b, "%7" PRIu32 " %13" PRIu64 " %8" PRIu64 " %13" PRIu64 " %13" PRIu64
			      " %6.3f\n", i, n.offset, n.blocks, n.coded, n.plain,
			      ratio(n.coded, n.plain));
}

static struct k3_trunk_section total(const struct k3_trunk *t)
{
	struct k3_trunk_section all = { 0 }, n;

	for (uint32_t i = 0; i < k3_trunk_sections(t); i++) {
		k3_trunk_section(t, i, &n);
		all.blocks += n.blocks;
		all.coded += n.coded;
		all.plain += n.plain;
	}
	return all;
}

static void print(const struct stat_source *s, const struct k3_trunk *t, struct k3_buf *b)
{
	struct k3_trunk_section all = total(t);

	if (s->json) {
		stat_json_begin(b, s, "trunk");
		k3_buf_str(b, ",\"model\":\"");
	} else {
		k3_buf_str(b, "model     ");
	}
	for (int i = 0; i < 16; i++)
		k3_buf_printf(b, "%02x", k3_trunk_fingerprint(t)[i]);
	k3_buf_printf(b, s->json ? "\",\"bytes\":%" PRIu64 ",\"blocks\":%" PRIu64
				   ",\"coded_bytes\":%" PRIu64 ",\"plain_bytes\":%" PRIu64
				   ",\"ratio\":%.4f,\"sections\":["
				 : "\nbytes     %" PRIu64 "\nblocks    %" PRIu64 "\ncoded     %" PRIu64
				   " bytes\nplain     %" PRIu64 " bytes\nratio     %.4f\n"
				   "section        offset   blocks         coded         plain  ratio\n",
		      k3_trunk_length(t), all.blocks, all.coded, all.plain,
		      ratio(all.coded, all.plain));
	for (uint32_t i = 0; i < k3_trunk_sections(t); i++)
		section(s, t, i, b);
	if (s->json)
		k3_buf_str(b, "]}\n");
}

int stat_trunk(struct stat_source *s, struct k3_err *err)
{
	struct k3_buf b = K3_BUF_INIT;
	struct k3_trunk *t;
	int rc = stat_by_name(s, err);

	if (!rc)
		rc = k3_trunk_open(s->name, NULL, &t, err);
	if (rc)
		return rc;
	print(s, t, &b);
	stat_print(&b);
	k3_buf_free(&b);
	k3_trunk_close(t);
	return 0;
}
