/* SPDX-License-Identifier: Apache-2.0 */
/* k3-pack.c - writes the trunk file of a model, and compares one with its model. */
#include "cli.h"

#include <k3/pack.h>
#include <k3/trunk.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage_text[] =
	"usage: k3-pack [-o TRUNK] [-t N] [MODEL]\n"
	"       k3-pack --verify [-o TRUNK] [-t N] [MODEL]\n"
	"Writes all weights of a model but the routed experts and the embedding to one file, in\n"
	"the order of their use and coded without loss.  MODEL is its directory or an index;\n"
	"without it, -m MODEL or $K3_MODEL.\n"
	"\n"
	"  -m, --model MODEL   the model\n"
	"  -o, --output TRUNK  the trunk file (model.k3t in the directory of the model)\n"
	"  -t, --threads N     threads to work with (two for each processor)\n"
	"      --verify        compare a trunk file with the model, bit by bit\n"
	"  -h, --help          this text\n"
	"  -V, --version       the version\n";

struct options {
	const char *model, *output;
	uint64_t threads;
	bool verify;
};

/* A line on the terminal, and what it says. */
struct progress {
	bool shown;
	double begun, last;
};

static volatile sig_atomic_t caught;

static void catch_signal(int signal_number)
{
	caught = signal_number;
}

/* A signal ends the work in between two pieces, so that no temporary file stays behind. */
static void catch_signals(void)
{
	static const int signals[] = { SIGHUP, SIGINT, SIGTERM };
	struct sigaction old, new = { .sa_handler = catch_signal };

	sigemptyset(&new.sa_mask);
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		if (!sigaction(signals[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &new, NULL);
}

/* Whoever waits for us is to see what ended us. */
static void die_if_caught(void)
{
	if (!caught)
		return;
	signal(caught, SIG_DFL);
	raise(caught);
}

static bool show(void *arg, uint64_t done, uint64_t total)
{
	struct progress *p = arg;
	double time = cli_now(), rate;

	if (isatty(2) && (!p->shown || time - p->last >= .5)) {
		rate = (double)done / (time - p->begun);
		fprintf(stderr, "\r%.2f of %.2f GB, %.2f GB/s, %.0f s left\033[K", 1e-9 * (double)done,
			1e-9 * (double)total, 1e-9 * rate, (double)(total - done) / rate);
		p->last = time;
		p->shown = true;
	}
	return !caught;
}

static void report(const struct k3_trunk *t)
{
	struct k3_trunk_section s;
	uint64_t plain = 0;

	for (uint32_t i = 0; i < k3_trunk_sections(t); i++) {
		k3_trunk_section(t, i, &s);
		plain += s.plain;
	}
	printf("%s: %" PRIu64 " bytes for %" PRIu64 " in the checkpoint (%.3f)\n", k3_trunk_path(t),
	       k3_trunk_length(t), plain, (double)k3_trunk_length(t) / (double)plain);
}

static int pack(const struct options *o, const struct k3_index *ix, const char *path,
		const struct k3_pack_options *options, struct k3_err *err)
{
	struct k3_trunk *t;
	int rc;

	if (!o->output && access(k3_index_directory(ix), W_OK))
		return k3_fail(err, K3_EIO, "%s: no trunk file can be written there (%s): give -o "
			       "TRUNK to name another place", k3_index_directory(ix),
			       strerror(errno));
	rc = k3_pack(ix, path, options, err);
	if (!rc)
		rc = k3_trunk_open(path, ix, &t, err);
	if (rc)
		return rc;
	report(t);
	k3_trunk_close(t);
	return 0;
}

static int run(const struct options *o)
{
	struct progress progress = { .begun = cli_now() };
	struct k3_pack_options options = { (unsigned)o->threads, show, &progress };
	struct k3_index *ix = NULL;
	char *beside = NULL;
	const char *path = o->output;
	struct k3_err err;
	int rc = k3_index_open(o->model, &ix, &err);

	if (!rc && !path) {
		rc = k3_trunk_beside(ix, &beside, &err);
		path = beside;
	}
	if (!rc)
		rc = o->verify ? k3_pack_verify(ix, path, &options, &err) :
		     pack(o, ix, path, &options, &err);
	if (progress.shown)
		fputs("\r\033[K", stderr);
	die_if_caught();
	if (!rc && o->verify)
		printf("%s: all tensors are those of the checkpoint\n", path);
	k3_index_close(ix);
	free(beside);
	return rc ? cli_error(rc, &err) : CLI_OK;
}

int main(int argc, char **argv)
{
	enum { VERIFY = 256 };
	static const struct option longs[] = {
		{ "model", required_argument, NULL, 'm' },
		{ "output", required_argument, NULL, 'o' },
		{ "threads", required_argument, NULL, 't' },
		{ "verify", no_argument, NULL, VERIFY },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	struct options o = { 0 };
	int c;

	cli_start("k3-pack");
	opterr = 0;
	while ((c = getopt_long(argc, argv, "m:o:t:hV", longs, NULL)) != -1) {
		switch (c) {
		case 'm': o.model = optarg; break;
		case 'o': o.output = optarg; break;
		case 't':
			if (!cli_u64("-t", optarg, 1, 1024, &o.threads))
				return CLI_USAGE;
			break;
		case VERIFY: o.verify = true; break;
		case 'h':
			fputs(usage_text, stdout);
			return cli_end(CLI_OK);
		case 'V':
			cli_version();
			return cli_end(CLI_OK);
		default:
			return cli_end(cli_usage("unknown option, or one without its value: '%s'",
						 argv[optind - 1]));
		}
	}
	o.model = cli_model_operand(o.model, argc - optind, argv + optind);
	if (!o.model)
		return cli_end(CLI_USAGE);
	catch_signals();
	return cli_end(run(&o));
}
