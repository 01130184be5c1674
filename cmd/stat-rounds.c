/* SPDX-License-Identifier: Apache-2.0 */
/* stat-rounds.c - of a trace, where the time and the bytes of each round went. */
#include "stat.h"

#include <inttypes.h>
#include <stdlib.h>

static double number(jv event, const char *name)
{
	jv v = jv_object_get(jv_copy(event), jv_string(name));
	double out = jv_get_kind(v) == JV_KIND_NUMBER ? jv_number_value(v) : 0;

	jv_free(v);
	return out;
}

bool stat_rounds_add(struct stat_rounds *r, jv event)
{
	struct stat_round *p = k3_reallocarray(r->round, r->n + 1, sizeof *p);

	if (!p)
		return false;
	r->round = p;
	r->round[r->n++] = (struct stat_round){
		.number = number(event, "round"), .tokens = number(event, "tokens"),
		.seconds = number(event, "seconds"), .waited = number(event, "waited"),
		.read = number(event, "trunk_bytes") + number(event, "expert_bytes"),
		.trunk_kept = number(event, "trunk_kept"),
		.expert_kept = number(event, "expert_kept"),
		.experts = number(event, "expert_bytes"), .disk = number(event, "disk_bytes"),
	};
	return true;
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static void add_json(struct k3_buf *b, const struct stat_source *s, const struct stat_round *r)
{
	stat_json_begin(b, s, "round");
	k3_buf_printf(b, ",\"round\":%.0f,\"tokens\":%.0f,\"seconds_per_token\":%.6f"
		      ",\"waited_per_token\":%.6f,\"computed_per_token\":%.6f", r->number, r->tokens,
		      ratio(r->seconds, r->tokens), ratio(r->waited, r->tokens),
		      ratio(r->seconds - r->waited, r->tokens));
	k3_buf_printf(b, ",\"read_per_token\":%.0f,\"kept_per_token\":%.0f,\"expert_hits\":%.6f"
		      ",\"disk_rate\":%.0f}\n", ratio(r->read, r->tokens),
		      ratio(r->trunk_kept + r->expert_kept, r->tokens),
		      ratio(r->expert_kept, r->expert_kept + r->experts),
		      ratio(r->disk, r->seconds));
}

static void add_row(struct k3_buf *b, const struct stat_round *r)
{
	k3_buf_printf(b, "%5.0f %7.0f %10.4f %10.4f %10.4f %12.6f %12.6f %6.3f %8.3f\n", r->number,
		      r->tokens, ratio(r->seconds, r->tokens), ratio(r->waited, r->tokens),
		      ratio(r->seconds - r->waited, r->tokens), ratio(r->read, r->tokens) * 1e-9,
		      ratio(r->trunk_kept + r->expert_kept, r->tokens) * 1e-9,
		      ratio(r->expert_kept, r->expert_kept + r->experts),
		      ratio(r->disk, r->seconds) * 1e-9);
}

void stat_rounds_print(struct stat_rounds *r, const struct stat_source *s, struct k3_buf *b)
{
	if (r->n && !s->json)
		k3_buf_str(b, "\na token: seconds, GB of weights; and the disk's GB/s\n"
			   "round  tokens    seconds     waited   computed         read         kept"
			   "   hits     disk\n");
	for (size_t i = 0; i < r->n; i++) {
		if (s->json)
			add_json(b, s, &r->round[i]);
		else
			add_row(b, &r->round[i]);
	}
	free(r->round);
	*r = (struct stat_rounds){ 0 };
}
