/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3-sample - logits in, ids out: one round of records becomes one round of lines.
 *
 * A round is written whole, by one write, after all of its records were read and
 * found good: so a broken record never lets a part of a round out.
 */
#include "cli.h"

#include <k3/buf.h>
#include <k3/index.h>
#include <k3/io.h>
#include <k3/npy.h>
#include <k3/sample.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sequence {
	uint64_t stream;	/* of random numbers; known once row or name is */
	uint64_t drawn;		/* ids so far, a stop id included */
	bool finished;
};

struct run {
	/* options */
	const char *model;	/* -m or $K3_MODEL; NULL without */
	struct k3_sampling set;
	uint64_t count;		/* -n; UINT64_MAX without it */
	uint64_t batch;
	uint64_t top;		/* --top */
	uint32_t *stops;	/* owned, as are the arrays below */
	size_t n_stops;
	const char **names;
	size_t n_names;
	bool keep_stop, temperature_given;
	const char *draws;	/* an option that means nothing without -t */
	const char *events_path;
	/* state */
	struct k3_npy_stream in;
	struct k3_sampler *sampler;
	struct sequence *seq;
	uint64_t running;	/* sequences that are not finished */
	uint64_t round;
	uint64_t vocab;		/* 0 until the first record */
	uint64_t model_vocab;	/* 0 without a model */
	float *row;
	uint32_t *best;
	struct k3_buf lines, events;
	int events_fd;
};

static void help(FILE *f)
{
	fputs("usage: k3-sample [options] <logits >ids\n"
	      "Chooses the next id of every sequence: by the largest logit, or at random.\n"
	      "\n"
	      "  -m, --model MODEL      stop at the stop id of the model (default: $K3_MODEL)\n"
	      "  -b, --batch B          sequences, that is records a round (1)\n"
	      "  -n, --count N          stop a sequence after N ids\n"
	      "      --stop ID          stop a sequence at ID; can be repeated\n"
	      "      --keep-stop        write the stop id too\n"
	      "  -t, --temperature T    draw with the logits divided by T; 0 takes the largest (0)\n"
	      "  -k, --top-k K          draw among the K most likely ids\n"
	      "  -p, --top-p P          draw among the most likely ids that make up P\n"
	      "      --min-p P          draw among ids at least P times as likely as the likeliest\n"
	      "  -s, --seed N           seed of the draws (0)\n"
	      "      --name NAME        stream of random numbers; once for each sequence, in order\n"
	      "  -j, --json FILE        write an event for every id to FILE\n"
	      "      --top N            with the N likeliest ids in it (0)\n"
	      "  -h, --help             show this\n"
	      "  -V, --version          show the version\n", f);
}

static void add_stop(struct run *r, uint64_t id)
{
	r->stops = cli_grow(r->stops, r->n_stops, sizeof *r->stops);
	r->stops[r->n_stops++] = (uint32_t)id;
}

static bool add_name(struct run *r, const char *name)
{
	if (!*name) {
		cli_usage("--name: a name has at least one byte");
		return false;
	}
	r->names = cli_grow(r->names, r->n_names, sizeof *r->names);
	r->names[r->n_names++] = name;
	return true;
}

enum { STOP = 256, KEEP_STOP, MIN_P, NAME, TOP };

static const struct option options[] = {
	{ "model", required_argument, NULL, 'm' },
	{ "batch", required_argument, NULL, 'b' },
	{ "count", required_argument, NULL, 'n' },
	{ "stop", required_argument, NULL, STOP },
	{ "keep-stop", no_argument, NULL, KEEP_STOP },
	{ "temperature", required_argument, NULL, 't' },
	{ "top-k", required_argument, NULL, 'k' },
	{ "top-p", required_argument, NULL, 'p' },
	{ "min-p", required_argument, NULL, MIN_P },
	{ "seed", required_argument, NULL, 's' },
	{ "name", required_argument, NULL, NAME },
	{ "json", required_argument, NULL, 'j' },
	{ "top", required_argument, NULL, TOP },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 }
};

/* One option with its value; false after a complaint. */
static bool set_option(struct run *r, int c)
{
	uint64_t k = 0;

	switch (c) {
	case 'm':
		r->model = optarg;
		return true;
	case 'b':
		return cli_u64("-b", optarg, 1, 1 << 24, &r->batch);
	case 'n':
		return cli_u64("-n", optarg, 1, UINT32_MAX, &r->count);
	case STOP:
		if (!cli_u64("--stop", optarg, 0, UINT32_MAX, &k))
			return false;
		add_stop(r, k);
		return true;
	case KEEP_STOP:
		return r->keep_stop = true;
	case 't':
		r->temperature_given = true;
		return cli_double("-t", optarg, 0, 1e6, &r->set.temperature);
	case 'k':
		r->draws = "-k";
		if (!cli_u64("-k", optarg, 1, UINT32_MAX, &k))
			return false;
		r->set.top_k = (uint32_t)k;
		return true;
	case 'p':
		r->draws = "-p";
		return cli_double("-p", optarg, 0, 1, &r->set.top_p);
	case MIN_P:
		r->draws = "--min-p";
		return cli_double("--min-p", optarg, 0, 1, &r->set.min_p);
	case 's':
		r->draws = "-s";
		return cli_u64("-s", optarg, 0, UINT64_MAX, &r->set.seed);
	case NAME:
		return add_name(r, optarg);
	case 'j':
		r->events_path = optarg;
		return true;
	case TOP:
		return cli_u64("--top", optarg, 0, 1 << 20, &r->top);
	}
	return false;	/* getopt has complained */
}

/* What options say together; a status, 0 if they are good. */
static int check_options(const struct run *r)
{
	if (r->draws && !r->temperature_given)
		return cli_usage("%s needs -t: without a temperature the largest logit is taken",
				 r->draws);
	if (r->n_names && r->n_names != r->batch)
		return cli_usage("%zu names for %" PRIu64 " sequences", r->n_names, r->batch);
	if (r->top && !r->events_path)
		return cli_usage("--top needs --json");
	if (r->events_path && !strcmp(r->events_path, "-"))
		return cli_usage("--json -: standard output has the ids; "
				 "name a file, a fifo or /dev/fd/3");
	if (r->keep_stop && !r->n_stops && !r->model)
		return cli_usage("--keep-stop: there is no stop id");
	if (isatty(0))
		return cli_usage("standard input is a terminal; pipe the logits in");
	return 0;
}

/* Takes the stop id of the model, and how many ids it knows. */
static int read_model(struct run *r, struct k3_err *err)
{
	struct k3_index *ix;
	int rc = k3_index_open(r->model, &ix, err);

	if (rc)
		return rc;
	r->model_vocab = k3_index_config(ix)->vocab;
	add_stop(r, k3_index_config(ix)->eos);
	k3_index_close(ix);
	return 0;
}

/* The first record tells the size of a row; every other must have the same. */
static int first_record(struct run *r, uint64_t vocab, struct k3_err *err)
{
	size_t i;
	int rc;

	if (!vocab || vocab > UINT32_MAX)
		return k3_fail(err, K3_EDATA, "%s: record 0 has rows of %" PRIu64 " logits",
			       r->in.name, vocab);
	if (r->model_vocab && r->model_vocab != vocab)
		return k3_fail(err, K3_EDATA, "%s: record 0 has rows of %" PRIu64 " logits, but %s "
			       "has %" PRIu64 " ids", r->in.name, vocab, r->model,
			       r->model_vocab);
	for (i = 0; i < r->n_stops; i++)
		if (r->stops[i] >= vocab)
			return k3_fail(err, K3_EDATA, "%s: the stop id %u is not one of the %"
				       PRIu64 " ids that the logits are for", r->in.name,
				       r->stops[i], vocab);
	rc = k3_sampler_new(&r->set, (uint32_t)vocab, &r->sampler, err);
	if (rc)
		return rc;
	r->row = k3_calloc(vocab, sizeof *r->row);
	r->best = k3_calloc(r->top < vocab ? r->top : vocab, sizeof *r->best);
	if (!r->row || !r->best)
		return k3_fail_nomem(err);
	r->vocab = vocab;
	return 0;
}

static int check_shape(struct run *r, const struct k3_npy *h, uint64_t at, struct k3_err *err)
{
	uint64_t record = r->in.record - 1;

	if (h->rank != 2)
		return k3_fail(err, K3_EDATA, "%s: record %" PRIu64 " at byte %" PRIu64 " has %u "
			       "dimensions; logits have 2", r->in.name, record, at, h->rank);
	if (!r->vocab)
		return first_record(r, h->shape[1], err);
	if (h->shape[1] != r->vocab)
		return k3_fail(err, K3_EDATA, "%s: record %" PRIu64 " at byte %" PRIu64
			       " has rows of %" PRIu64 " logits, the first had %" PRIu64,
			       r->in.name, record, at, h->shape[1], r->vocab);
	return 0;
}

/*
 * Reads the record of sequence i: 1, or 0 at the end of the input in front of a round.
 * The last of its *rows rows stays in r->row.
 */
static int read_record(struct run *r, uint64_t i, uint64_t *rows, struct k3_err *err)
{
	uint64_t at = r->in.offset, k;
	struct k3_npy h;
	int rc = k3_npy_next(&r->in, &h, err);

	if (!rc && i)
		return k3_fail(err, K3_EDATA, "%s: ends inside round %" PRIu64 ", after %" PRIu64
			       " of %" PRIu64 " records", r->in.name, r->round, i, r->batch);
	if (rc <= 0)
		return rc;
	rc = check_shape(r, &h, at, err);
	for (k = 0; !rc && k < h.shape[0]; k++)
		rc = k3_npy_values(&r->in, r->row, r->vocab, err);
	*rows = h.shape[0];
	return rc ? rc : 1;
}

static bool is_stop(const struct run *r, uint32_t id)
{
	size_t i;

	for (i = 0; i < r->n_stops; i++)
		if (r->stops[i] == id)
			return true;
	return false;
}

static void add_event(struct run *r, uint64_t i, uint32_t id, const char *finish)
{
	struct k3_buf *b = &r->events;
	uint32_t n, k;

	k3_buf_printf(b, "{\"event\":\"sample\",\"sequence\":%" PRIu64 ",\"n\":%" PRIu64
		      ",\"id\":%u,\"logprob\":%.9g,\"top\":[", i, r->seq[i].drawn, id,
		      k3_sampler_logprob(r->sampler, id));
	n = k3_sampler_top(r->sampler, (uint32_t)r->top, r->best);
	for (k = 0; k < n; k++)
		k3_buf_printf(b, "%s{\"id\":%u,\"logprob\":%.9g}", k ? "," : "", r->best[k],
			      k3_sampler_logprob(r->sampler, r->best[k]));
	k3_buf_printf(b, "],\"finish\":%s}\n", finish);
}

/* Chooses the next id of sequence i from r->row. */
static int choose(struct run *r, uint64_t i, struct k3_err *err)
{
	struct sequence *q = &r->seq[i];
	struct k3_err why;
	uint32_t id;
	bool stop, last;

	if (k3_sampler_row(r->sampler, r->row, &why))
		return k3_fail(err, K3_EDATA, "%s: sequence %" PRIu64 ", round %" PRIu64 ": %s",
			       r->in.name, i, r->round, why.text);
	if (!q->drawn)
		q->stream = r->n_names ? k3_stream_of_name(r->names[i]) :
			    k3_stream_of_row(r->row, (uint32_t)r->vocab);
	id = k3_sampler_pick(r->sampler, q->stream, q->drawn);
	stop = is_stop(r, id);
	last = q->drawn + 1 == r->count;
	if (r->events_path)
		add_event(r, i, id, stop ? "\"stop\"" : last ? "\"length\"" : "null");
	if (!stop || r->keep_stop)
		k3_buf_printf(&r->lines, "%u", id);
	q->drawn++;
	q->finished = stop || last;
	r->running -= q->finished;
	return 0;
}

/* Events go out first: the reader of the ids may end us by going away. */
static int write_round(struct run *r, struct k3_err *err)
{
	int rc;

	if (r->lines.failed || r->events.failed)
		return k3_fail_nomem(err);
	if (r->events.len) {
		rc = k3_write_full(r->events_fd, r->events.data, r->events.len, r->events_path,
				   err);
		if (rc)
			return rc;
	}
	/* a round of nothing but stop ids has nothing to say: the stream just ends */
	if (r->lines.len == r->batch)
		return 0;
	return cli_write(r->lines.data, r->lines.len, err);
}

/* One round: 1, or 0 if the input ended before it. */
static int do_round(struct run *r, struct k3_err *err)
{
	uint64_t i, rows = 0;
	int rc;

	k3_buf_clear(&r->lines);
	k3_buf_clear(&r->events);
	for (i = 0; i < r->batch; i++) {
		rc = read_record(r, i, &rows, err);
		if (rc <= 0)
			return rc;
		if (!r->seq[i].finished && !rows)
			return k3_fail(err, K3_EDATA, "%s: sequence %" PRIu64 " is still running "
				       "but has no row in round %" PRIu64, r->in.name, i, r->round);
		rc = r->seq[i].finished ? 0 : choose(r, i, err);
		if (rc)
			return rc;
		k3_buf_char(&r->lines, '\n');
	}
	rc = write_round(r, err);
	r->round++;
	return rc ? rc : 1;
}

/* Without a count and without stop ids, the end of the input is how a run ends. */
static int end_of_input(struct run *r, struct k3_err *err)
{
	uint64_t i;

	if (r->count == UINT64_MAX && !r->n_stops)
		return 0;
	for (i = 0; r->seq[i].finished; i++)
		;
	return k3_fail(err, K3_EDATA, "%s: ends after %" PRIu64 " rounds, but sequence %" PRIu64
		       " is not finished", r->in.name, r->round, i);
}

static int run(struct run *r, struct k3_err *err)
{
	int rc = 0;

	r->seq = k3_calloc(r->batch, sizeof *r->seq);
	if (!r->seq)
		return k3_fail_nomem(err);
	if (r->model)
		rc = read_model(r, err);
	if (!rc && r->events_path)
		rc = cli_create(r->events_path, &r->events_fd, err);
	if (rc)
		return rc;
	for (r->running = r->batch; r->running; ) {
		rc = do_round(r, err);
		if (rc < 0)
			return rc;
		if (!rc)
			return end_of_input(r, err);
	}
	return 0;
}

static void release(struct run *r)
{
	k3_sampler_free(r->sampler);
	k3_buf_free(&r->lines);
	k3_buf_free(&r->events);
	free(r->stops);
	free(r->names);
	free(r->seq);
	free(r->row);
	free(r->best);
}

int main(int argc, char **argv)
{
	struct run r = {
		.set = K3_SAMPLING_GREEDY, .count = UINT64_MAX, .batch = 1, .events_fd = -1,
		.in = { .fd = 0, .name = "standard input" }
	};
	struct k3_err err;
	int c, status = CLI_USAGE;

	cli_start("k3-sample");
	while ((c = getopt_long(argc, argv, "m:b:n:t:k:p:s:j:hV", options, NULL)) != -1) {
		if (c == 'h') {
			help(stdout);
			return cli_end(CLI_OK);
		}
		if (c == 'V') {
			cli_version();
			return cli_end(CLI_OK);
		}
		if (!set_option(&r, c))
			goto out;
	}
	if (!r.model)
		r.model = getenv("K3_MODEL");
	if (r.model && !*r.model)
		r.model = NULL;
	if (optind < argc)
		cli_usage("'%s': the logits come from standard input", argv[optind]);
	else
		status = check_options(&r);
	if (status)
		goto out;
	c = run(&r, &err);
	if (!c && r.events_fd >= 0 && close(r.events_fd))
		c = k3_fail_errno(&err, "%s", r.events_path);
	status = c ? cli_error(c, &err) : CLI_OK;
out:
	release(&r);
	return cli_end(status);
}
