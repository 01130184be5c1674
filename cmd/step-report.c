/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step-report.c - what k3-step tells while it works: trace events, a progress line on
 * a terminal, and the same line whenever SIGUSR1 asks for it.
 */
#include "step.h"
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

/*
 * The line that SIGUSR1 prints.  It is written into the half that the handler is
 * not reading, then the halves change places, so the handler can print at any instant.
 */
static char status[2][200];
static volatile sig_atomic_t shown;

static void on_usr1(int sig)
{
	const char *s = status[shown];
	int saved = errno;

	(void)sig;
	if (write(2, s, strlen(s)) < 0) {
		/* nobody to tell */
	}
	errno = saved;
}

K3_PRINTF(1, 2)
static void set_status(const char *fmt, ...)
{
	char *to = status[!shown];
	va_list ap;
	int n = snprintf(to, sizeof status[0], "k3-step: ");

	va_start(ap, fmt);
	vsnprintf(to + n, sizeof status[0] - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n = (int)strlen(to);
	to[n] = '\n';
	to[n + 1] = '\0';
	shown = !shown;
}

int step_report_begin(struct step_report *r, const char *trace, uint32_t first, uint32_t last)
{
	struct sigaction sa = { .sa_handler = on_usr1, .sa_flags = SA_RESTART };
	struct k3_err err;
	int fd, rc;

	r->terminal = isatty(2);
	r->first = first;
	r->last = last;
	r->trace_name = trace;
	step_report_idle(r);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGUSR1, &sa, NULL);
	if (!trace)
		return 0;
	rc = cli_create(trace, &fd, &err);
	if (!rc) {
		r->trace = fdopen(fd, "w");
		rc = r->trace ? 0 : k3_fail_nomem(&err);
	}
	return rc ? cli_error(rc, &err) : CLI_OK;
}

void step_report_idle(struct step_report *r)
{
	set_status("round %" PRIu64 ": waiting for its ids", r->round);
}

void step_report_round(struct step_report *r, const struct k3_engine *e)
{
	r->layers_done = 0;
	r->begun = cli_now();
	k3_engine_count(e, &r->counts);
	set_status("round %" PRIu64 ": in front of layer %" PRIu32, r->round, r->first);
}

/* After each layer: how far, and at the pace so far, how long still. */
static void progress(struct step_report *r, const struct k3_layer_report *l)
{
	uint32_t left = r->last - l->layer - 1;
	double seconds = cli_now() - r->begun;

	r->layers_done++;
	set_status("round %" PRIu64 ": layer %" PRIu32 " of %" PRIu32 ":%" PRIu32 " done, %" PRIu64
		   " tokens, %.1f s, about %.1f s to go", r->round, l->layer, r->first, r->last,
		   l->tokens, seconds, seconds / (double)r->layers_done * left);
	/* a round that is over in a moment needs no line */
	if (r->terminal && seconds > 1)
		fprintf(stderr, "\r\033[K%.*s%s", (int)strlen(status[shown]) - 1, status[shown],
			left ? "" : "\r\033[K");
}

static void layer_event(FILE *f, const struct step_report *r, const struct k3_layer_report *l)
{
	fprintf(f, "{\"event\":\"layer\",\"round\":%" PRIu64 ",\"layer\":%" PRIu32
		",\"kind\":\"%s\",\"mlp\":\"%s\",\"tokens\":%" PRIu64 ",\"seconds\":%.6f"
		",\"waited\":%.6f,\"trunk_bytes\":%" PRIu64 ",\"expert_bytes\":%" PRIu64
		",\"trunk_kept\":%" PRIu64 ",\"expert_kept\":%" PRIu64 ",\"experts\":%" PRIu32 "}\n",
		r->round, l->layer, l->kind == K3_KDA ? "kda" : "mla", l->moe ? "moe" : "dense",
		l->tokens, l->seconds, l->waited, l->trunk_bytes, l->expert_bytes, l->trunk_kept,
		l->expert_kept, l->experts);
}

static void route_events(FILE *f, const struct step_report *r, const struct k3_layer_report *l)
{
	for (uint64_t t = 0; l->chosen && t < l->tokens; t++) {
		fprintf(f, "{\"event\":\"route\",\"round\":%" PRIu64 ",\"layer\":%" PRIu32
			",\"sequence\":%" PRIu32 ",\"position\":%" PRIu64 ",\"experts\":[", r->round,
			l->layer, l->sequence[t], l->position[t]);
		for (uint32_t i = 0; i < l->chosen; i++)
			fprintf(f, "%s%" PRIu32, i ? "," : "", l->expert[t * l->chosen + i]);
		fputs("],\"weights\":[", f);
		for (uint32_t i = 0; i < l->chosen; i++)
			fprintf(f, "%s%.9g", i ? "," : "", (double)l->weight[t * l->chosen + i]);
		fputs("]}\n", f);
	}
}

int step_report_layer(struct step_report *r, const struct k3_layer_report *l, struct k3_err *err)
{
	progress(r, l);
	if (!r->trace)
		return 0;
	route_events(r->trace, r, l);
	layer_event(r->trace, r, l);
	if (fflush(r->trace))
		return k3_fail_errno(err, "%s", r->trace_name);
	return 0;
}

int step_report_done(struct step_report *r, const struct k3_engine *e, uint64_t tokens,
		     struct k3_err *err)
{
	struct k3_engine_counts n, *was = &r->counts;

	if (r->trace) {
		k3_engine_count(e, &n);
		fprintf(r->trace, "{\"event\":\"round\",\"round\":%" PRIu64 ",\"tokens\":%" PRIu64
			",\"seconds\":%.6f,\"waited\":%.6f,\"trunk_bytes\":%" PRIu64
			",\"expert_bytes\":%" PRIu64 ",\"trunk_kept\":%" PRIu64 ",\"expert_kept\":%"
			PRIu64 ",\"disk_bytes\":%" PRIu64, r->round, tokens, cli_now() - r->begun,
			n.waited - was->waited, n.trunk_bytes - was->trunk_bytes,
			n.expert_bytes - was->expert_bytes, n.trunk_kept - was->trunk_kept,
			n.expert_kept - was->expert_kept, n.disk_bytes - was->disk_bytes);
		if (r->lookup)
			fprintf(r->trace, ",\"drafted\":%" PRIu64 ",\"taken\":%" PRIu64, r->drafted,
				r->taken);
		fputs("}\n", r->trace);
		if (fflush(r->trace))
			return k3_fail_errno(err, "%s", r->trace_name);
	}
	r->round++;
	step_report_idle(r);
	return 0;
}

int step_report_end(struct step_report *r, struct k3_err *err)
{
	if (r->trace && fclose(r->trace))
		return k3_fail_errno(err, "%s", r->trace_name);
	return 0;
}
