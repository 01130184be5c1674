/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3-step - runs layers over the new ids of one or many sequences: rounds of
 * lines in, one record a line out, or how likely each id was.
 */
#include "cli.h"
#include "step.h"

#include <k3/cpu.h>

#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- rounds ---- */

/* A reader that has gone will never want what the next layer costs. */
static int before_layer(void *ctx, uint32_t layer, struct k3_err *err)
{
	struct pollfd p = { .fd = 1 };

	(void)ctx;
	(void)layer;
	(void)err;
	if (poll(&p, 1, 0) == 1 && p.revents & POLLERR)
		raise(SIGPIPE);
	return 0;
}

static int after_layer(void *ctx, const struct k3_layer_report *report, struct k3_err *err)
{
	struct step_run *r = ctx;
	const char *refused = k3_engine_refused(r->engine);

	if (refused)
		cli_warn("%s: direct reads are refused here; ordinary ones are slower", refused);
	return step_report_layer(&r->report, report, err);
}

static int visit(void *ctx, const struct k3_visit *v, struct k3_err *err)
{
	struct step_run *r = ctx;

	return step_taps_visit(&r->o.taps, v, err);
}

/* What a round has for stdout. */
static int write_round(struct step_run *r, struct k3_sweep *s, struct k3_err *err)
{
	if (r->o.until_given)
		return 0;
	if (r->o.score)
		return step_score_sweep(r, s, err);
	if (r->o.logits == STEP_NONE)
		return 0;
	return r->o.last < r->config->layers ? step_write_hidden(r, s, err) : step_write_sweep(r, s, err);
}

/* Runs the tokens that have been read, or the passes that states bring; quiet: without records. */
static int run_round(struct step_run *r, bool quiet, struct k3_err *err)
{
	struct k3_line *line = k3_calloc(r->lines, sizeof *line);
	uint32_t until = r->o.until_given ? (uint32_t)r->o.until : r->o.last;
	struct k3_sweep *s = NULL;
	uint64_t tokens = 0;
	int rc;

	if (!line)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < r->lines; i++)
		line[i] = (struct k3_line){
			.state = r->state[i], .n = r->tokens[i].n, .ids = r->tokens[i].ids,
			.hidden = r->tokens[i].values, .sources = r->tokens[i].sources,
		};
	step_report_round(&r->report, r->engine);
	rc = k3_sweep_new(r->engine, r->o.first, r->o.last, line, r->lines, &s, err);
	if (!rc)
		rc = k3_sweep_run(s, until, &r->watch, err);
	if (!rc && !quiet)
		rc = write_round(r, s, err);
	for (uint32_t i = 0; !rc && i < r->lines; i++)
		tokens += k3_sweep_tokens(s, i);
	k3_sweep_free(s);
	free(line);
	return rc ? rc : step_report_done(&r->report, r->engine, tokens, err);
}

/* Reads a round's lines: 1, 0 at the end of the input, or a failure. */
static int read_round(struct step_run *r, struct k3_err *err)
{
	int rc;

	for (uint32_t i = 0; i < r->lines; i++) {
		rc = step_input_line(&r->in, &r->tokens[i], err);
		if (rc == 0 && i)
			return k3_fail(err, K3_EDATA, "standard input: the end after %" PRIu32
				       " of a round's %" PRIu32 " lines", i, r->lines);
		if (rc != 1)
			return rc;
	}
	rc = step_input_pause(&r->in, err);
	return rc ? rc : 1;
}

/* Reads all lines there are, which decides how many sequences there are. */
static int read_all(struct step_run *r, struct k3_err *err)
{
	size_t room = 0;
	int rc;

	for (;;) {
		if (r->lines == room) {
			struct step_tokens *p;

			room = room ? 2 * room : 16;
			p = k3_reallocarray(r->tokens, room, sizeof *p);
			if (!p)
				return k3_fail_nomem(err);
			r->tokens = p;
		}
		r->tokens[r->lines] = (struct step_tokens){ 0 };
		rc = step_input_line(&r->in, &r->tokens[r->lines], err);
		if (rc != 1)
			break;
		r->lines++;
	}
	if (!rc && r->o.states && r->lines != r->o.states)
		rc = k3_fail(err, K3_EDATA, "standard input: %" PRIu32 " lines for %" PRIu32 " states",
			     r->lines, r->o.states);
	return rc;
}

/* Passes that an earlier process left between two layers; *any tells whether there were. */
static int finish_passes(struct step_run *r, bool quiet, bool *any, struct k3_err *err)
{
	*any = false;
	for (uint32_t i = 0; i < r->lines; i++) {
		if (!k3_state_pending(r->state[i]))
			continue;
		*any = true;
		if (r->o.until_given && k3_state_layer(r->state[i]) >= r->o.until)
			return k3_fail(err, K3_EARG, "%s: the pass in progress is in front of layer %"
				       PRIu32 " already", r->o.state[i],
				       k3_state_layer(r->state[i]));
	}
	return *any ? run_round(r, quiet, err) : 0;
}

static int rounds(struct step_run *r, struct k3_err *err)
{
	/* --again tells of finished passes too, but for residual streams: who goes on with them needs all ids of a pass */
	bool quiet = r->o.again && r->o.last == r->config->layers, finished;
	int rc = 0;

	if (r->o.all)
		rc = read_all(r, err);
	else
		r->tokens = k3_calloc(r->lines, sizeof *r->tokens);
	if (!rc && !r->tokens)
		rc = k3_fail_nomem(err);
	if (!rc)
		rc = step_states_open(r, err);
	if (!rc && r->o.all && r->o.states) {
		/* what was read belongs behind what the states still have to do */
		for (uint32_t i = 0; !rc && i < r->lines; i++)
			if (k3_state_pending(r->state[i]))
				rc = k3_fail(err, K3_EDATA, "%s: a pass is in progress, which -b all "
					     "cannot finish", r->o.state[i]);
	}
	if (!rc && r->o.score)
		rc = step_score_begin(r, err);
	if (!rc && r->o.lookup)
		rc = step_lookup_begin(r, err);
	if (!rc && r->o.all && r->o.again)
		rc = step_write_again(r, err);
	if (!rc && r->o.all)
		return r->lines ? run_round(r, false, err) : 0;
	if (!rc)
		rc = finish_passes(r, quiet, &finished, err);
	if (rc || (finished && r->o.until_given))
		return rc;
	if (r->o.again && (quiet || !finished))
		rc = step_write_again(r, err);
	while (!rc && (rc = read_round(r, err)) == 1) {
		rc = r->o.lookup ? step_lookup_round(r, err) : run_round(r, false, err);
		if (r->o.until_given)
			break;
	}
	return rc;
}

/* ---- main ---- */

static int set_up(struct step_run *r, struct k3_err *err)
{
	struct k3_engine_options eo;
	const char *cpu = getenv("K3_CPU");
	int rc = cpu && *cpu ? k3_cpu_select(cpu, err) : 0;

	if (!rc)
		rc = step_engine_options(r, &eo, err);
	if (!rc)
		rc = k3_engine_new(r->ix, &eo, &r->engine, err);
	r->lines = r->o.all ? 0 : step_sequences(&r->o);
	r->out = (struct k3_npy_stream){ .fd = 1, .name = "standard output" };
	r->watch = (struct k3_watch){ r, before_layer, after_layer, r->o.taps.n ? visit : NULL };
	step_input_begin(&r->in, r->o.first > 0, r->config->hidden, r->config->vocab);
	return rc;
}

static int run(struct step_run *r)
{
	struct k3_err err;
	int rc, status;

	rc = k3_index_open(r->o.model, &r->ix, &err);
	if (rc)
		return cli_error(rc, &err);
	r->config = k3_index_config(r->ix);
	status = step_options_check(&r->o, r->config);
	if (!status && r->o.plan) {
		rc = step_print_plan(r, &err);
		return rc ? cli_error(rc, &err) : CLI_OK;
	}
	if (!status)
		status = step_options_targets(&r->o);
	if (!status && !r->o.until_given && !r->o.score && r->o.logits != STEP_NONE &&
	    !cli_binary_stdout())
		status = CLI_USAGE;
	if (!status)
		status = step_taps_open(&r->o.taps, r->config, r->o.first, r->o.last);
	if (!status)
		status = step_report_begin(&r->report, r->o.trace, r->o.first, r->o.last);
	if (status)
		return status;
	rc = set_up(r, &err);
	if (!rc)
		rc = rounds(r, &err);
	if (!rc)
		rc = step_taps_close(&r->o.taps, &err);
	if (!rc)
		rc = step_report_end(&r->report, &err);
	return rc ? cli_error(rc, &err) : CLI_OK;
}

static void tear_down(struct step_run *r)
{
	struct k3_err ignored;

	if (step_taps_close(&r->o.taps, &ignored)) {
		/* the failure that led here has been told */
	}
	for (uint32_t i = 0; i < r->lines; i++) {
		if (r->state)
			k3_state_close(r->state[i]);
		if (r->tokens)
			step_tokens_free(&r->tokens[i]);
	}
	step_score_end(r);
	step_lookup_end(r);
	free(r->state);
	free(r->tokens);
	k3_buf_free(&r->in.ahead);
	k3_engine_free(r->engine);
	k3_index_close(r->ix);
	step_states_forget(&r->o);
}

/*
 * Large buffers come from the system and go back to it when they are freed, whatever was freed
 * before; and threads share one heap: so what is resident is what is in use.
 */
static void keep_heap_small(void)
{
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

int main(int argc, char **argv)
{
	struct step_run r = { 0 };
	int status;

	cli_start("k3-step");
	keep_heap_small();
	status = step_options_parse(&r.o, argc, argv);
	if (status < 0) {
		r.o.model = cli_model(r.o.model);
		status = r.o.model ? run(&r) : CLI_USAGE;
	}
	tear_down(&r);
	return cli_end(status);
}
