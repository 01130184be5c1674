/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat-index.c - k3-stat on an index: whose it is and what the model consists of.
 * k3-index has the whole report.
 */
#include "stat.h"

#include <k3/index.h>

#include <inttypes.h>
#include <string.h>

static void share(const struct stat_source *s, const char *name, const struct k3_share *n,
		  struct k3_buf *b)
{
	k3_buf_printf(b, s->json ? ",\"%s\":{\"tensors\":%" PRIu64 ",\"parameters\":%" PRIu64
				   ",\"bytes\":%" PRIu64 "}"
				 : "%-10s %8" PRIu64 " tensors %15" PRIu64 " parameters %15" PRIu64
				   " bytes\n", name, n->tensors, n->parameters, n->bytes);
}

int stat_index(struct stat_source *s, struct k3_err *err)
{
	struct k3_buf b = K3_BUF_INIT;
	struct k3_index *ix;
	struct k3_census n;
	const char *directory;
	int rc = stat_by_name(s, err);

	if (!rc)
		rc = k3_index_read(s->name, &ix, err);
	if (rc)
		return rc;
	k3_index_census(ix, &n);
	directory = k3_index_directory(ix);
	if (s->json) {
		stat_json_begin(&b, s, "index");
		k3_buf_str(&b, ",\"directory\":");
		k3_buf_json(&b, directory, strlen(directory));
		k3_buf_str(&b, ",\"model\":\"");
	} else {
		k3_buf_str(&b, "directory  ");
		stat_name(&b, directory);
		k3_buf_str(&b, "\nmodel      ");
	}
	for (int i = 0; i < 16; i++)
		k3_buf_printf(&b, "%02x", k3_index_fingerprint(ix)[i]);
	k3_buf_printf(&b, s->json ? "\",\"kda_layers\":%" PRIu32 ",\"mla_layers\":%" PRIu32
				    ",\"shards\":%" PRIu32 ",\"missing_shards\":%" PRIu32
				  : "\nlayers     %" PRIu32 " kda, %" PRIu32 " mla\nshards     %"
				    PRIu32 ", %" PRIu32 " missing\n", n.kda_layers, n.mla_layers,
		      k3_index_shards(ix), n.missing_shards);
	share(s, "trunk", &n.trunk, &b);
	share(s, "embedding", &n.embedding, &b);
	share(s, "head", &n.head, &b);
	share(s, "output", &n.output, &b);
	share(s, "experts", &n.experts, &b);
	share(s, "missing", &n.missing, &b);
	if (s->json)
		k3_buf_str(&b, "}\n");
	stat_print(&b);
	k3_buf_free(&b);
	k3_index_close(ix);
	return 0;
}
