/* SPDX-License-Identifier: Apache-2.0 */
/* step-plan.c - what the engine is asked for, and the answer of --plan. */
#include "cli.h"
#include "step.h"

#include <inttypes.h>
#include <stdlib.h>

/* /tmp may lie in memory, which is what there is too little of. */
static const char *temporary_directory(void)
{
	const char *dir = getenv("TMPDIR");

	return dir && *dir ? dir : "/var/tmp";
}

int step_engine_options(const struct step_run *r, struct k3_engine_options *out,
			struct k3_err *err)
{
	const struct step_options *o = &r->o;

	*out = (struct k3_engine_options){
		.threads = (unsigned)o->threads, .trunk = o->trunk, .memory = o->memory,
		.first = o->first, .last = o->last, .sequences = step_sequences(o),
		.passing = o->all && !o->states && !o->directory,
		.once = (o->all && !o->again) || o->until_given,
		.temporary = temporary_directory(),
		.drafted = o->lookup,
	};
	out->reserved = o->score && !o->all ? step_score_kept(r) : 0;
	return o->disk ? k3_disk_use_read(o->disk, &out->disk, err) : 0;
}

/* A number that may not be known. */
static void seconds(struct k3_buf *b, double value)
{
	if (value > 0)
		k3_buf_printf(b, "%.3f", value);
	else
		k3_buf_str(b, "null");
}

static void print(struct k3_buf *b, const struct k3_plan *p, double rate)
{
	double share = p->trunk_bytes ? (double)p->pinned / (double)p->trunk_bytes : 0;

	k3_buf_printf(b, "{\"memory\":%" PRIu64 ",\"floor\":%" PRIu64 ",\"parts\":{"
		      "\"process\":%" PRIu64 ",\"index\":%" PRIu64 ",\"states\":%" PRIu64
		      ",\"activations\":%" PRIu64 ",\"ring\":%" PRIu64 ",\"pinned\":%" PRIu64
		      ",\"cached_experts\":%" PRIu64 "},\"paged\":%s,\"spilled\":%s", p->memory, p->floor, p->process, p->index,
		      p->states, p->activations, p->ring, p->pinned, p->cached,
		      p->paged ? "true" : "false", p->spilled ? "true" : "false");
	k3_buf_printf(b, ",\"trunk\":{\"coded\":%s,\"bytes\":%" PRIu64 "},\"layers_pinned\":%.1f",
		      p->coded ? "true" : "false", p->trunk_bytes, share * p->sections);
	k3_buf_printf(b, ",\"token\":{\"bytes\":%" PRIu64 ",\"trunk_bytes\":%" PRIu64
		      ",\"expert_bytes\":%" PRIu64 ",\"seconds\":", p->token_bytes,
		      p->trunk_bytes - p->pinned, p->token_bytes - (p->trunk_bytes - p->pinned));
	seconds(b, p->token_seconds);
	k3_buf_str(b, "},\"disk_rate\":");
	seconds(b, rate);
	k3_buf_str(b, "}\n");
}

int step_print_plan(const struct step_run *r, struct k3_err *err)
{
	struct k3_buf b = K3_BUF_INIT;
	struct k3_engine_options o;
	struct k3_plan plan;
	int rc = step_engine_options(r, &o, err);

	if (!rc)
		rc = k3_plan_make(r->ix, &o, &plan, err);
	if (rc)
		return rc;
	print(&b, &plan, o.disk.rate);
	rc = b.failed ? k3_fail_nomem(err) : cli_write(b.data, b.len, err);
	k3_buf_free(&b);
	return rc;
}
