/* SPDX-License-Identifier: Apache-2.0 */
/* step-options.c - the command line of k3-step: what it says, and what it must not say. */
#include "cli.h"
#include "step.h"

#include <k3/cpu.h>
#include <k3/num.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
"usage: k3-step [-m MODEL] [-b B|all] [-s STATE]... [option]...\n"
"Runs rounds of lines of ids through the model; writes one record a line.\n"
"\n"
"  -m, --model MODEL     directory or index of the model (default: $K3_MODEL)\n"
"  -b, --batch B         lines in a round (default: one for each -s, else 1);\n"
"                        'all': the whole input is one round\n"
"  -s, --state FILE      state of a sequence, made or gone on from; one for each line\n"
"      --states DIR      a state for each line of a round, in DIR/000000.k3s and so on\n"
"      --at P            each state must hold P ids\n"
"      --again           first write the records of the states' last ids once more\n"
"      --until N         take one round, stop in front of layer N and keep it in the states\n"
"      --layers A:B      run only layers A to B-1; where A > 0 input is the records that\n"
"                        another k3-step wrote, where B is not the end so is the output\n"
"      --logits WHICH    of the 'last' id of a line (default), of 'all', or 'none'\n"
"      --score               write, instead of records, how likely each id was: sequence,\n"
"                        position, id, log-probability, rank, entropy\n"
"      --json                the same as JSON Lines\n"
"      --lookup N        guess up to N ids from what followed the same ids before, and\n"
"                        run them along; the records are the same\n"
"      --tap SITE@LAYERS=FILE[,rows=last]\n"
"                        write values of a site (resid) of some layers into FILE\n"
"      --trace FILE      write what happens in each layer into FILE, as JSON Lines\n"
"      --mem SIZE        memory that may be resident, like 750M or 8G (default: most of\n"
"                        what is free)\n"
"      --trunk FILE      what k3-pack wrote (default: model.k3t beside the model, if it is\n"
"                        there); 'none': read trunk and head from the shards\n"
"      --disk FILE       what the disk is like, as 'k3-stat disk -j' tells it\n"
"      --plan            print the split of memory and the cost of a token, and end\n"
"  -t, --threads N       threads to compute with (default: all processors)\n"
"  -h, --help            print this\n"
"  -V, --version         print the version; with -v also the instruction set\n";

enum { OPT_AT = 256, OPT_AGAIN, OPT_UNTIL, OPT_LAYERS, OPT_LOGITS, OPT_TAP, OPT_TRACE, OPT_MEM,
       OPT_TRUNK, OPT_DISK, OPT_PLAN, OPT_SCORE, OPT_JSON, OPT_LOOKUP, OPT_STATES };

static const struct option longs[] = {
	{ "model", 1, NULL, 'm' }, { "batch", 1, NULL, 'b' }, { "state", 1, NULL, 's' },
	{ "states", 1, NULL, OPT_STATES }, { "at", 1, NULL, OPT_AT }, { "again", 0, NULL, OPT_AGAIN },
	{ "until", 1, NULL, OPT_UNTIL }, { "layers", 1, NULL, OPT_LAYERS },
	{ "logits", 1, NULL, OPT_LOGITS }, { "tap", 1, NULL, OPT_TAP },
	{ "trace", 1, NULL, OPT_TRACE }, { "threads", 1, NULL, 't' },
	{ "mem", 1, NULL, OPT_MEM }, { "trunk", 1, NULL, OPT_TRUNK },
	{ "disk", 1, NULL, OPT_DISK }, { "plan", 0, NULL, OPT_PLAN },
	{ "score", 0, NULL, OPT_SCORE }, { "json", 0, NULL, OPT_JSON },
	{ "lookup", 1, NULL, OPT_LOOKUP },
	{ "help", 0, NULL, 'h' }, { "version", 0, NULL, 'V' }, { "verbose", 0, NULL, 'v' },
	{ NULL, 0, NULL, 0 },
};

static bool parse_logits(struct step_options *o, const char *arg)
{
	static const char *const names[] = { "last", "all", "none" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(arg, names[i])) {
			o->logits = (enum step_logits)i;
			o->logits_given = true;
			return true;
		}
	cli_usage("--logits: '%s' is not last, all or none", arg);
	return false;
}

static bool parse_batch(struct step_options *o, const char *arg)
{
	o->all = !strcmp(arg, "all");
	return o->all || cli_u64("-b", arg, 1, 1 << 24, &o->batch);
}

static bool parse_option(struct step_options *o, int c)
{
	switch (c) {
	case 'm':
		o->model = optarg;
		return true;
	case 'b':
		return parse_batch(o, optarg);
	case 's':
		o->state = cli_grow(o->state, o->states, sizeof *o->state);
		o->state[o->states++] = optarg;
		return true;
	case 't':
		return cli_u64("-t", optarg, 1, 1024, &o->threads);
	case OPT_STATES:
		o->directory = optarg;
		return true;
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
	case OPT_MEM:
		return cli_size("--mem", optarg, &o->memory);
	case OPT_TRUNK:
		o->trunk = strcmp(optarg, "none") ? optarg : "";
		return true;
	case OPT_DISK:
		o->disk = optarg;
		return true;
	case OPT_PLAN:
		o->plan = true;
		return true;
	case OPT_SCORE:
		o->score = true;
		return true;
	case OPT_JSON:
		o->json = true;
		return true;
	case OPT_LOOKUP:
		return cli_u64("--lookup", optarg, 1, K3_DRAFT_MOST, &o->lookup);
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

static bool has_states(const struct step_options *o)
{
	return o->states || o->directory;
}

/* The files of --states, as far as the command line says how many there are. */
static int name_states(struct step_options *o)
{
	struct k3_err err;
	uint32_t n = (uint32_t)o->batch;
	int rc = n ? 0 : step_states_count(o->directory, &n, &err);

	if (!rc)
		rc = step_states_name(o, n, &err);
	return rc ? cli_error(rc, &err) : -1;
}

/* --lookup is for one sequence, whose records are those of its last ids; NULL if it is. */
static const char *spoils_lookup(const struct step_options *o)
{
	return o->all || o->batch > 1 ? "a batch" : has_states(o) ? "a state" : o->score ? "--score" :
	       o->logits != STEP_LAST ? "--logits all or none" : o->taps.n ? "--tap" : NULL;
}

int step_options_parse(struct step_options *o, int argc, char **argv)
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
	if (o->directory && o->states)
		return cli_usage("--states and -s: the states are either in a directory or named");
	if (o->states && (o->all ? false : o->batch && o->batch != o->states))
		return cli_usage("-b %" PRIu64 " with %" PRIu32 " states", o->batch, o->states);
	if (!has_states(o) && (o->at_given || o->again || o->until_given))
		return cli_usage("%s needs a state: give -s FILE",
				 o->at_given ? "--at" : o->again ? "--again" : "--until");
	if (o->until_given && (o->again || o->logits_given))
		return cli_usage("--until writes no records: it does not go with --again or --logits");
	if (o->score && (o->logits_given || o->again || o->until_given))
		return cli_usage("--score takes the place of the records: it does not go with %s",
				 o->logits_given ? "--logits" : o->again ? "--again" : "--until");
	if (o->json && !o->score)
		return cli_usage("--json goes with --score");
	if (o->lookup && spoils_lookup(o))
		return cli_usage("--lookup does not go with %s", spoils_lookup(o));
	if (o->again && o->logits_given && o->logits != STEP_LAST)
		return cli_usage("--again has only the last id: it goes with --logits last");
	return o->directory && !o->all ? name_states(o) : -1;
}

/* A:B, either end may be left out. */
static bool parse_layers(struct step_options *o, const struct k3_config *c)
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
int step_options_targets(const struct step_options *o)
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

int step_options_check(struct step_options *o, const struct k3_config *c)
{
	if (!parse_layers(o, c))
		return CLI_USAGE;
	if (has_states(o) && o->first == o->last)
		return cli_usage("a state needs at least one layer");
	if (o->until_given && (o->until <= o->first || o->until >= o->last))
		return cli_usage("--until: layer %" PRIu64 " is not inside %" PRIu32 ":%" PRIu32,
				 o->until, o->first, o->last);
	if (o->logits_given && o->logits != STEP_NONE && o->last < c->layers)
		return cli_usage("--logits: layers %" PRIu32 ":%" PRIu32
				 " end in front of the head", o->first, o->last);
	if (o->score && (o->first > 0 || o->last < c->layers))
		return cli_usage("--score takes ids and needs their logits: layers %" PRIu32 ":%" PRIu32
				 " are not the whole model", o->first, o->last);
	if (o->lookup && (o->first > 0 || o->last < c->layers))
		return cli_usage("--lookup takes ids and gives their logits: layers %" PRIu32 ":%" PRIu32
				 " are not the whole model", o->first, o->last);
	if (o->again && o->logits == STEP_NONE)
		return cli_usage("--again does not go with --logits none");
	return 0;
}

uint32_t step_sequences(const struct step_options *o)
{
	return o->states ? o->states : o->batch ? (uint32_t)o->batch : 1;
}
