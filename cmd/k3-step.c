/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3-step - runs layers over the new ids of one or many sequences: rounds of
 * lines in, one record a line out.
 */
#include "cli.h"
#include "step.h"

#include <k3/cpu.h>
#include <k3/io.h>
#include <k3/num.h>

#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum logits { LAST, ALL, NONE };

struct options {
	const char *model, *trace;
	const char **state;		/* files */
	uint32_t states;
	bool all;			/* -b all */
	uint64_t batch;			/* 0: not given */
	const char *layers;
	uint32_t first, last;
	bool until_given, at_given, logits_given, again;
	uint64_t until, at, threads;
	enum logits logits;
	struct step_taps taps;
};

struct run {
	struct options o;
	struct k3_index *ix;
	const struct k3_config *config;
	struct k3_engine *engine;
	struct step_input in;
	struct step_report report;
	uint32_t lines;
	struct k3_state **state;
	struct step_tokens *tokens;
	struct k3_npy_stream out;
	struct k3_watch watch;
};

static const char usage[] =
"usage: k3-step [-m MODEL] [-b B|all] [-s STATE]... [option]...\n"
"Runs rounds of lines of ids through the model; writes one record a line.\n"
"\n"
"  -m, --model MODEL     directory or index of the model (default: $K3_MODEL)\n"
"  -b, --batch B         lines in a round (default: one for each -s, else 1);\n"
"                        'all': the whole input is one round\n"
"  -s, --state FILE      state of a sequence, made or gone on from; one for each line\n"
"      --at P            each state must hold P ids\n"
"      --again           first write the records of the states' last ids once more\n"
"      --until N         take one round, stop in front of layer N and keep it in the states\n"
"      --layers A:B      run only layers A to B-1; where A > 0 input is the records that\n"
"                        another k3-step wrote, where B is not the end so is the output\n"
"      --logits WHICH    of the 'last' id of a line (default), of 'all', or 'none'\n"
"      --tap SITE@LAYERS=FILE[,rows=last]\n"
"                        write values of a site (resid) of some layers into FILE\n"
"      --trace FILE      write what happens in each layer into FILE, as JSON Lines\n"
"  -t, --threads N       threads to compute with (default: all processors)\n"
"  -h, --help            print this\n"
"  -V, --version         print the version; with -v also the instruction set\n";

/* ---- options ---- */

enum { OPT_AT = 256, OPT_AGAIN, OPT_UNTIL, OPT_LAYERS, OPT_LOGITS, OPT_TAP, OPT_TRACE };

static const struct option longs[] = {
	{ "model", 1, NULL, 'm' }, { "batch", 1, NULL, 'b' }, { "state", 1, NULL, 's' },
	{ "at", 1, NULL, OPT_AT }, { "again", 0, NULL, OPT_AGAIN },
	{ "until", 1, NULL, OPT_UNTIL }, { "layers", 1, NULL, OPT_LAYERS },
	{ "logits", 1, NULL, OPT_LOGITS }, { "tap", 1, NULL, OPT_TAP },
	{ "trace", 1, NULL, OPT_TRACE }, { "threads", 1, NULL, 't' },
	{ "help", 0, NULL, 'h' }, { "version", 0, NULL, 'V' }, { "verbose", 0, NULL, 'v' },
	{ NULL, 0, NULL, 0 },
};

static bool parse_logits(struct options *o, const char *arg)
{
	static const char *const names[] = { "last", "all", "none" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(arg, names[i])) {
			o->logits = (enum logits)i;
			o->logits_given = true;
			return true;
		}
	cli_usage("--logits: '%s' is not last, all or none", arg);
	return false;
}

static bool parse_batch(struct options *o, const char *arg)
{
	o->all = !strcmp(arg, "all");
	return o->all || cli_u64("-b", arg, 1, 1 << 24, &o->batch);
}

static bool add_state(struct options *o, const char *arg)
{
	const char **p = k3_reallocarray(o->state, o->states + 1, sizeof *p);

	if (!p) {
		cli_warn("out of memory");
		exit(CLI_FAIL);
	}
	o->state = p;
	o->state[o->states++] = arg;
	return true;
}

static bool parse_option(struct options *o, int c)
{
	switch (c) {
	case 'm':
		o->model = optarg;
		return true;
	case 'b':
		return parse_batch(o, optarg);
	case 's':
		return add_state(o, optarg);
	case 't':
		return cli_u64("-t", optarg, 1, 1024, &o->threads);
	case OPT_AT:
		o->at_given = true;
		return cli_u64("--at", optarg, 0, UINT64_MAX, &o->at);
	case OPT_AGAIN:
		o->again = true;
		return true;
	case OPT_UNTIL:
		o->until_given = true;
		return cli_u64("--until", optarg, 0, UINT32_MAX, &o->until);
	case OPT_LAYERS:
		o->layers = optarg;
		return true;
	case OPT_LOGITS:
		return parse_logits(o, optarg);
	case OPT_TAP:
		return step_taps_add(&o->taps, optarg);
	case OPT_TRACE:
		o->trace = optarg;
		return true;
	default:
		return false;	/* getopt has complained */
	}
}

static int print_version(bool verbose)
{
	const char *cpu = getenv("K3_CPU");
	struct k3_err err;
	int rc = verbose && cpu && *cpu ? k3_cpu_select(cpu, &err) : 0;

	if (rc)
		return cli_error(rc, &err);
	cli_version();
	if (verbose)
		printf("instruction set: %s\n", k3_cpu_name());
	return CLI_OK;
}

/* The exit status, or -1 to go on. */
static int parse(struct options *o, int argc, char **argv)
{
	bool version = false, verbose = false;
	int c;

	while ((c = getopt_long(argc, argv, "m:b:s:t:hVv", longs, NULL)) != -1) {
		if (c == 'h') {
			fputs(usage, stdout);
			return CLI_OK;
		}
		version |= c == 'V';
		verbose |= c == 'v';
		if (c != 'V' && c != 'v' && !parse_option(o, c))
			return CLI_USAGE;
	}
	if (version)
		return print_version(verbose);
	if (verbose)
		return cli_usage("-v goes with --version");
	if (optind < argc)
		return cli_usage("'%s': ids come on standard input", argv[optind]);
	if (o->states && (o->all ? false : o->batch && o->batch != o->states))
		return cli_usage("-b %" PRIu64 " with %" PRIu32 " states", o->batch, o->states);
	if (!o->states && (o->at_given || o->again || o->until_given))
		return cli_usage("%s needs a state: give -s FILE",
				 o->at_given ? "--at" : o->again ? "--again" : "--until");
	if (o->until_given && (o->again || o->logits_given))
		return cli_usage("--until writes no records: it does not go with --again or --logits");
	if (o->again && o->logits_given && o->logits != LAST)
		return cli_usage("--again has only the last id: it goes with --logits last");
	return -1;
}

/* A:B, either end may be left out. */
static bool parse_layers(struct options *o, const struct k3_config *c)
{
	const char *colon = o->layers ? strchr(o->layers, ':') : NULL;
	uint64_t a = 0, b = c->layers;
	char from[16] = "";

	if (o->layers) {
		if (!colon || colon - o->layers >= (ptrdiff_t)sizeof from)
			goto wrong;
		memcpy(from, o->layers, (size_t)(colon - o->layers));
		if ((*from && !k3_num_u64(from, c->layers, &a)) ||
		    (colon[1] && !k3_num_u64(colon + 1, c->layers, &b)) || a > b)
			goto wrong;
	}
	o->first = (uint32_t)a;
	o->last = (uint32_t)b;
	return true;
wrong:
	cli_usage("--layers: '%s' is not A:B with A <= B <= %" PRIu32, o->layers, c->layers);
	return false;
}

/* A file that this process will write. */
struct target {
	const char *name;
	struct stat st;
	bool there, regular;
};

static bool same_target(const struct target *a, const struct target *b)
{
	if (a->there && b->there)
		return a->regular && a->st.st_dev == b->st.st_dev && a->st.st_ino == b->st.st_ino;
	return !a->there && !b->there && !strcmp(a->name, b->name);
}

/*
 * Each of two writers would destroy what the other one writes, and a tap empties its file before
 * it is seen to be a state.  Descriptors under /dev may share a file: they share their place in it.
 */
static int check_targets(const struct options *o)
{
	size_t n = o->states + o->taps.n + (o->trace != NULL);
	struct target *t = k3_calloc(n + 1, sizeof *t);
	int status = 0;

	if (!t)
		return cli_error(K3_ENOMEM, &(struct k3_err){ "out of memory" });
	for (size_t i = 0; i < n; i++) {
		t[i].name = i < o->states ? o->state[i] :
			    i < o->states + o->taps.n ? step_taps_file(&o->taps, i - o->states) : o->trace;
		t[i].there = !strncmp(t[i].name, "/dev/fd/", 8) ||
			     !strncmp(t[i].name, "/dev/std", 8);
		if (!t[i].there && !stat(t[i].name, &t[i].st)) {
			t[i].there = true;
			t[i].regular = S_ISREG(t[i].st.st_mode);
		}
	}
	for (size_t i = 1; !status && i < n; i++)
		for (size_t k = 0; !status && k < i; k++)
			if (same_target(&t[k], &t[i]))
				status = cli_usage("'%s' and '%s' are the same file, and both would be "
						   "written", t[k].name, t[i].name);
	free(t);
	return status;
}

/* What can only be checked when the model is known. */
static int check(struct options *o, const struct k3_config *c)
{
	if (!parse_layers(o, c))
		return CLI_USAGE;
	if (o->states && o->first == o->last)
		return cli_usage("a state needs at least one layer");
	if (o->until_given && (o->until <= o->first || o->until >= o->last))
		return cli_usage("--until: layer %" PRIu64 " is not inside %" PRIu32 ":%" PRIu32,
				 o->until, o->first, o->last);
	if (o->logits_given && o->logits != NONE && o->last < c->layers)
		return cli_usage("--logits: layers %" PRIu32 ":%" PRIu32
				 " end in front of the head", o->first, o->last);
	if (o->again && o->logits == NONE)
		return cli_usage("--again does not go with --logits none");
	return 0;
}

/* ---- output ---- */

/* Logit records as their rows come: records of lines without rows are written in passing. */
struct emit {
	struct run *r;
	const uint64_t *rows;	/* of each line */
	uint32_t line;
	uint64_t left;		/* rows that the begun record still lacks */
	bool begun;
};

static int begin_records(struct emit *e, struct k3_err *err)
{
	uint64_t shape[2] = { 0, e->r->config->vocab };
	int rc = 0;

	while (!rc && !e->left && e->line < e->r->lines) {
		e->left = shape[0] = e->rows[e->line++];
		rc = k3_npy_begin(&e->r->out, 2, shape, err);
	}
	return rc;
}

static int emit_row(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct emit *e = ctx;
	int rc = begin_records(e, err);

	(void)i;
	if (rc)
		return rc;
	e->left--;
	return k3_npy_put(&e->r->out, logits, e->r->config->vocab, err);
}

/* stream: those of all lines, rows[i] of line i. */
static int write_logits(struct run *r, const struct k3_stream *stream, const uint64_t *rows,
			uint64_t n, struct k3_err *err)
{
	struct emit e = { .r = r, .rows = rows };
	int rc = k3_engine_logits(r->engine, stream, n, emit_row, &e, err);

	return rc ? rc : begin_records(&e, err);
}

static int write_hidden(struct run *r, const struct k3_sweep *s, struct k3_err *err)
{
	uint64_t hidden = r->config->hidden, n;
	uint32_t sources = k3_config_sources(r->config, r->o.last), got;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		n = k3_sweep_tokens(s, i);
		rc = k3_npy_begin(&r->out, 3, (uint64_t[]){ n, sources, hidden }, err);
		for (uint64_t t = 0; !rc && t < n; t++)
			rc = k3_npy_put(&r->out, k3_sweep_stream(s, i, t, &got), sources * hidden, err);
	}
	return rc;
}

/* The streams whose logits the options ask for. */
static int sweep_logits(struct run *r, const struct k3_sweep *s, struct k3_err *err)
{
	uint64_t total = 0, at = 0, *rows = k3_calloc(r->lines, sizeof *rows);
	struct k3_stream *stream = NULL;
	int rc = 0;

	for (uint32_t i = 0; rows && i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);

		rows[i] = r->o.logits == ALL ? n : n > 0;
		total += rows[i];
	}
	stream = k3_calloc(total, sizeof *stream);
	if (!rows || !stream)
		rc = k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);
		uint64_t start = k3_state_position(r->state[i]) - (r->o.first < r->o.last ? n : 0);

		for (uint64_t t = n - rows[i]; t < n; t++, at++) {
			stream[at] = (struct k3_stream){ .sequence = i, .position = start + t };
			stream[at].values = k3_sweep_stream(s, i, t, &stream[at].sources);
		}
	}
	if (!rc)
		rc = write_logits(r, stream, rows, total, err);
	free(stream);
	free(rows);
	return rc;
}

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
	struct run *r = ctx;

	return step_report_layer(&r->report, report, err);
}

static int visit(void *ctx, enum k3_site site, uint32_t layer, uint32_t line, uint64_t n,
		 uint64_t width, float *const *row, struct k3_err *err)
{
	struct run *r = ctx;

	(void)line;
	return step_taps_visit(&r->o.taps, site, layer, n, width, row, err);
}

/* Runs the tokens that have been read, or the passes that states bring. */
static int run_round(struct run *r, struct k3_err *err)
{
	struct k3_line *line = k3_calloc(r->lines, sizeof *line);
	uint32_t until = r->o.until_given ? (uint32_t)r->o.until : r->o.last;
	struct k3_sweep *s = NULL;
	int rc;

	if (!line)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < r->lines; i++)
		line[i] = (struct k3_line){
			.state = r->state[i], .n = r->tokens[i].n, .ids = r->tokens[i].ids,
			.hidden = r->tokens[i].values, .sources = r->tokens[i].sources,
		};
	step_report_round(&r->report);
	rc = k3_sweep_new(r->engine, r->o.first, r->o.last, line, r->lines, &s, err);
	if (!rc)
		rc = k3_sweep_run(s, until, &r->watch, err);
	if (!rc && !r->o.until_given && r->o.logits != NONE)
		rc = r->o.last < r->config->layers ? write_hidden(r, s, err) : sweep_logits(r, s, err);
	k3_sweep_free(s);
	free(line);
	r->report.round++;
	step_report_idle(&r->report);
	return rc;
}

/* The records of the last ids, from the residual streams that the states keep. */
static int run_again(struct run *r, struct k3_err *err)
{
	struct k3_stream *stream = k3_calloc(r->lines, sizeof *stream);
	uint64_t *rows = k3_calloc(r->lines, sizeof *rows), n = 0;
	float **values = k3_calloc(r->lines, sizeof *values);
	bool hidden = r->o.last < r->config->layers;
	uint32_t sources = k3_config_sources(r->config, r->o.last);
	int rc = stream && rows && values ? 0 : k3_fail_nomem(err);

	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		rc = k3_state_residual(r->state[i], &values[i], &rows[i], &sources, err);
		if (!rc && rows[i])
			stream[n++] = (struct k3_stream){ values[i], sources, i,
							  k3_state_position(r->state[i]) - 1 };
		sources = k3_config_sources(r->config, r->o.last);
		if (!rc && hidden)
			rc = k3_npy_begin(&r->out, 3, (uint64_t[]){ rows[i], sources,
					  r->config->hidden }, err);
		if (!rc && hidden)
			rc = k3_npy_put(&r->out, values[i], rows[i] * sources *
					(uint64_t)r->config->hidden, err);
	}
	if (!rc && !hidden)
		rc = write_logits(r, stream, rows, n, err);
	for (uint32_t i = 0; values && i < r->lines; i++)
		free(values[i]);
	free(values);
	free(rows);
	free(stream);
	return rc;
}

/* Reads a round's lines: 1, 0 at the end of the input, or a failure. */
static int read_round(struct run *r, struct k3_err *err)
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
static int read_all(struct run *r, struct k3_err *err)
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
			memset(p + r->lines, 0, (room - r->lines) * sizeof *p);
			r->tokens = p;
		}
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

static int open_states(struct run *r, struct k3_err *err)
{
	struct k3_state_spec spec = { r->config, k3_index_fingerprint(r->ix), r->o.first,
				      r->o.last };
	int rc = 0;

	r->state = k3_calloc(r->lines, sizeof *r->state);
	if (!r->state)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		rc = r->o.states ? k3_state_open(r->o.state[i], &spec, &r->state[i], err)
				 : k3_state_new(&spec, r->o.all, &r->state[i], err);
		if (!rc && r->o.at_given && k3_state_position(r->state[i]) != r->o.at)
			rc = k3_fail(err, K3_EDATA, "%s: holds %" PRIu64 " ids, not %" PRIu64,
				     r->o.state[i], k3_state_position(r->state[i]), r->o.at);
	}
	return rc;
}

/* Passes that an earlier process left between two layers; *any tells whether there were. */
static int finish_passes(struct run *r, bool *any, struct k3_err *err)
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
	return *any ? run_round(r, err) : 0;
}

static int rounds(struct run *r, struct k3_err *err)
{
	bool finished;
	int rc = 0;

	if (r->o.all)
		rc = read_all(r, err);
	else
		r->tokens = k3_calloc(r->lines, sizeof *r->tokens);
	if (!rc && !r->tokens)
		rc = k3_fail_nomem(err);
	if (!rc)
		rc = open_states(r, err);
	if (!rc && r->o.all && r->o.states) {
		/* what was read belongs behind what the states still have to do */
		for (uint32_t i = 0; !rc && i < r->lines; i++)
			if (k3_state_pending(r->state[i]))
				rc = k3_fail(err, K3_EDATA, "%s: a pass is in progress, which -b all "
					     "cannot finish", r->o.state[i]);
	}
	if (!rc && r->o.all && r->o.again)
		rc = run_again(r, err);
	if (!rc && r->o.all)
		return r->lines ? run_round(r, err) : 0;
	if (!rc)
		rc = finish_passes(r, &finished, err);
	if (rc || (finished && r->o.until_given))
		return rc;
	if (r->o.again && !finished)
		rc = run_again(r, err);
	while (!rc && (rc = read_round(r, err)) == 1) {
		rc = run_round(r, err);
		if (r->o.until_given)
			break;
	}
	return rc;
}

/* ---- main ---- */

static int set_up(struct run *r, struct k3_err *err)
{
	struct k3_engine_options eo = { .threads = (unsigned)r->o.threads };
	const char *cpu = getenv("K3_CPU");
	int rc = cpu && *cpu ? k3_cpu_select(cpu, err) : 0;

	if (!rc)
		rc = k3_engine_new(r->ix, &eo, &r->engine, err);
	r->lines = r->o.states ? r->o.states : r->o.batch ? (uint32_t)r->o.batch : 1;
	if (r->o.all)
		r->lines = 0;
	r->out = (struct k3_npy_stream){ .fd = 1, .name = "standard output" };
	r->watch = (struct k3_watch){ r, before_layer, after_layer, r->o.taps.n ? visit : NULL };
	step_input_begin(&r->in, r->o.first > 0, r->config->hidden, r->config->vocab);
	return rc;
}

static int run(struct run *r)
{
	struct k3_err err;
	int rc, status;

	rc = k3_index_open(r->o.model, &r->ix, &err);
	if (rc)
		return cli_error(rc, &err);
	r->config = k3_index_config(r->ix);
	status = check(&r->o, r->config);
	if (!status)
		status = check_targets(&r->o);
	if (!status && !r->o.until_given && r->o.logits != NONE && !cli_binary_stdout())
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

static void tear_down(struct run *r)
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
	free(r->state);
	free(r->tokens);
	k3_buf_free(&r->in.ahead);
	k3_engine_free(r->engine);
	k3_index_close(r->ix);
	free(r->o.state);
}

int main(int argc, char **argv)
{
	struct run r = { 0 };
	int status;

	cli_start("k3-step");
	status = parse(&r.o, argc, argv);
	if (status < 0) {
		r.o.model = cli_model(r.o.model);
		status = r.o.model ? run(&r) : CLI_USAGE;
	}
	tear_down(&r);
	return cli_end(status);
}
