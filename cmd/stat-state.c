/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat-state.c - k3-stat on a state: whose it is, where it stands, and the norm of
 * what each layer keeps.  It may be in use meanwhile.
 */
#include "stat.h"

#include <k3/state.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct norm {
	double squares;
	float largest;
	uint64_t nonfinite;
};

static void add(struct norm *n, const float *v, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (!isfinite(v[i])) {
			n->nonfinite++;
			continue;
		}
		n->squares += (double)v[i] * v[i];
		if (fabsf(v[i]) > n->largest)
			n->largest = fabsf(v[i]);
	}
}

/* What a layer keeps: the memories of its heads, or the latents of its positions. */
static void measure(const struct k3_state_info *info, const struct k3_slice *s, bool kda,
		    struct norm *out)
{
	uint64_t width = (uint64_t)info->kv_rank + info->rope;

	*out = (struct norm){ 0 };
	if (kda)
		add(out, s->kda, (uint64_t)info->kda_heads * info->kda_dim * info->kda_dim);
	for (uint64_t p = 0; !kda && p < s->positions; p++)
		add(out, s->page[p / K3_PAGE] + p % K3_PAGE * width, width);
}

static void head(const struct stat_source *s, const struct k3_state *state,
		 const struct k3_state_info *info, struct k3_buf *b)
{
	uint64_t position = k3_state_position(state), pending = k3_state_pending(state);

	if (s->json) {
		stat_json_begin(b, s, "state");
		k3_buf_str(b, ",\"model\":\"");
	} else {
		k3_buf_str(b, "model     ");
	}
	for (int i = 0; i < 16; i++)
		k3_buf_printf(b, "%02x", info->fingerprint[i]);
	if (s->json) {
		k3_buf_printf(b, "\",\"first\":%" PRIu32 ",\"last\":%" PRIu32 ",\"position\":%"
			      PRIu64 ",\"pending\":%" PRIu64 ",\"layer\":%" PRIu32
			      ",\"commits\":%" PRIu64 ",\"layers\":[", info->first, info->last,
			      position, pending, k3_state_layer(state), info->commits);
		return;
	}
	k3_buf_printf(b, "\nlayers    %" PRIu32 ":%" PRIu32 "\nposition  %" PRIu64 "\n",
		      info->first, info->last, position);
	if (pending)
		k3_buf_printf(b, "pass      in front of layer %" PRIu32 " with the last %" PRIu64
			      " ids\n", k3_state_layer(state), pending);
	k3_buf_str(b, "layer  kind  positions          norm       largest\n");
}

static void row(const struct stat_source *s, uint32_t layer, bool kda, uint64_t positions,
		const struct norm *n, bool first, struct k3_buf *b)
{
	double norm = sqrt(n->squares);

	if (s->json)
		k3_buf_printf(b, "%s{\"layer\":%" PRIu32 ",\"kind\":\"%s\",\"positions\":%" PRIu64
			      ",\"norm\":%.9g,\"largest\":%.9g,\"nonfinite\":%" PRIu64 "}",
			      first ? "" : ",", layer, kda ? "kda" : "mla", positions, norm,
			      (double)n->largest, n->nonfinite);
	else
		k3_buf_printf(b, "%5" PRIu32 "  %s   %9" PRIu64 "  %12.6g  %12.6g%s\n", layer,
			      kda ? "kda" : "mla", positions, norm, (double)n->largest,
			      n->nonfinite ? "  not finite!" : "");
}

int stat_state(struct stat_source *s, struct k3_err *err)
{
	struct k3_buf b = K3_BUF_INIT;
	struct k3_state_info info;
	struct k3_state *state;
	struct k3_slice slice;
	struct norm norm;
	int rc = stat_by_name(s, err);

	if (!rc)
		rc = k3_state_inspect(s->name, &state, err);
	if (rc)
		return rc;
	k3_state_describe(state, &info);
	head(s, state, &info, &b);
	for (uint32_t l = info.first; !rc && l < info.last; l++) {
		bool kda = info.kind[l - info.first] == K3_KDA;

		rc = k3_state_slice(state, l, &slice, err);
		if (rc)
			break;
		measure(&info, &slice, kda, &norm);
		row(s, l, kda, slice.positions, &norm, l == info.first, &b);
	}
	if (s->json)
		k3_buf_str(&b, "]}\n");
	/* half an object helps nobody; the good rows of a table do */
	if (!rc || !s->json)
		stat_print(&b);
	k3_buf_free(&b);
	k3_state_close(state);
	return rc;
}
