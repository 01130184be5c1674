/* SPDX-License-Identifier: Apache-2.0 */
/* stat-sim.c - k3-stat sim: which cache of experts would have saved how many reads. */
#include "stat-sim.h"
#include "cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the released model: three matrices of 3072 * 3584 weights of 4 bits, and a scale for 32 of them. */
#define RELEASED_EXPERT (3 * (3072 * 3584 / 2 + 3072 * 3584 / 32))

enum { GLOBAL_LRU = -1, OPTIMAL = -2 };

static const struct policy {
	const char *name;	/* in JSON, */
	const char *title;	/* and above a column */
	float decay;		/* or one of the above */
} policies[] = {
	{ "global-lru", "global lru", GLOBAL_LRU },
	{ "lru", "lru", 0 },
	{ "decay", "0.5", 0.5f },
	{ "decay", "0.6", 0.6f },
	{ "decay", "0.7", 0.7f },
	{ "decay", "0.8", 0.8f },
	{ "decay", "0.9", 0.9f },
	{ "decay", "0.95", 0.95f },
	{ "lfu", "lfu", 1 },
	{ "optimal", "optimal", OPTIMAL },
};

enum { POLICIES = sizeof policies / sizeof *policies };

struct sim {
	struct stat_source source;
	bool by_token;
	uint64_t expert_bytes;
	uint32_t *size;		/* experts a layer */
	size_t sizes;
	uint64_t *hits;		/* POLICIES of each size */
	struct sim_trace trace;
};

static int run(const struct sim *m, const struct policy *p, uint32_t slots, uint64_t *hits,
	       struct k3_err *err)
{
	uint64_t all = (uint64_t)slots * m->trace.layers;

	if (p->decay >= 0)
		return sim_policy(&m->trace, slots, p->decay, hits, err);
	if (p->decay == GLOBAL_LRU)
		return sim_global_lru(&m->trace, all, hits, err);
	return sim_optimal(&m->trace, all, hits, err);
}

static double rate(uint64_t hits, uint64_t asked)
{
	return asked ? (double)hits / (double)asked : 0;
}

static uint64_t bytes(const struct sim *m, uint32_t slots)
{
	return m->expert_bytes * slots * m->trace.layers;
}

static void add_json(const struct sim *m, struct k3_buf *b)
{
	const struct sim_trace *t = &m->trace;

	for (size_t i = 0; i < m->sizes * POLICIES; i++) {
		const struct policy *p = &policies[i % POLICIES];
		uint32_t slots = m->size[i / POLICIES];

		stat_json_begin(b, &m->source, "sim");
		k3_buf_printf(b, ",\"experts\":%" PRIu32 ",\"bytes\":%" PRIu64 ",\"policy\":\"%s\""
			      ",\"decay\":%s,\"sweeps\":%" PRIu32 ",\"layers\":%" PRIu32
			      ",\"asked\":%zu,\"asked_first\":%zu,\"hits\":%" PRIu64
			      ",\"rate\":%.6f,\"rate_later\":%.6f}\n", slots, bytes(m, slots),
			      p->name, strcmp(p->name, "decay") ? "null" : p->title, t->sweeps,
			      t->layers, t->asked, t->asked_first, m->hits[i],
			      rate(m->hits[i], t->asked),
			      rate(m->hits[i], t->asked - t->asked_first));
	}
}

static void add_table(const struct sim *m, const char *title, uint64_t asked, struct k3_buf *b)
{
	k3_buf_printf(b, "\nhits in per cent, %s: %" PRIu64 " asked for\n%13s %10s", title, asked,
		      "experts/layer", "GB");
	for (size_t i = 0; i < POLICIES; i++)
		k3_buf_printf(b, " %*s", i ? 7 : 10, policies[i].title);
	for (size_t i = 0; i < m->sizes * POLICIES; i++) {
		uint32_t slots = m->size[i / POLICIES];

		if (i % POLICIES == 0)
			k3_buf_printf(b, "\n%13" PRIu32 " %10.2f", slots,
				      (double)bytes(m, slots) / 1e9);
		k3_buf_printf(b, " %*.1f", i % POLICIES ? 7 : 10, 100 * rate(m->hits[i], asked));
	}
	k3_buf_char(b, '\n');
}

static void print(const struct sim *m)
{
	const struct sim_trace *t = &m->trace;
	struct k3_buf b = K3_BUF_INIT;

	if (m->source.json) {
		add_json(m, &b);
	} else {
		stat_name(&b, m->source.name);
		k3_buf_printf(&b, ": routes, %" PRIu32 " sweeps of %" PRIu32 " layers, %" PRIu32
			      " experts a token\n", t->sweeps, t->layers, t->chosen);
		add_table(m, "all sweeps", t->asked, &b);
		if (t->sweeps > 1)
			add_table(m, "without the first sweep", t->asked - t->asked_first, &b);
	}
	stat_print(&b);
	k3_buf_free(&b);
}

/* From a sixteenth of what a token needs to sixteen times as much. */
static void default_sizes(struct sim *m)
{
	for (uint64_t n = 1; n <= 256; n *= 2) {
		uint32_t slots = (uint32_t)(m->trace.chosen * n / 16);

		if (!slots)
			continue;
		m->size = cli_grow(m->size, m->sizes, sizeof *m->size);
		m->size[m->sizes++] = slots;
	}
}

static int simulate(struct sim *m, const char *path)
{
	struct k3_err err;
	int rc = stat_open(&m->source, path, &err);

	if (!rc)
		rc = sim_read(&m->source, m->by_token, &m->trace, &err);
	stat_close(&m->source);
	if (rc)
		return cli_error(rc, &err);
	if (!m->sizes)
		default_sizes(m);
	m->hits = k3_calloc(m->sizes * POLICIES, sizeof *m->hits);
	rc = m->hits ? 0 : k3_fail_nomem(&err);
	for (size_t i = 0; !rc && i < m->sizes * POLICIES; i++)
		rc = run(m, &policies[i % POLICIES], m->size[i / POLICIES], &m->hits[i], &err);
	if (rc)
		return cli_error(rc, &err);
	print(m);
	return CLI_OK;
}

/* "8,16,32" */
static bool parse_sizes(struct sim *m, char *list)
{
	char *rest = list, *word;
	uint64_t n;

	while ((word = strsep(&rest, ","))) {
		if (!cli_u64("--experts", word, 1, 1 << 16, &n))
			return false;
		m->size = cli_grow(m->size, m->sizes, sizeof *m->size);
		m->size[m->sizes++] = (uint32_t)n;
	}
	return true;
}

/* A status, or -1 to go on. */
static int options(struct sim *m, int argc, char **argv)
{
	enum { EXPERTS = 256, EXPERT_BYTES, TOKENS };
	static const struct option known[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "experts", required_argument, NULL, EXPERTS },
		{ "expert-bytes", required_argument, NULL, EXPERT_BYTES },
		{ "tokens", no_argument, NULL, TOKENS },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 }
	};
	int c;

	while ((c = getopt_long(argc, argv, "jh", known, NULL)) != -1) {
		switch (c) {
		case 'j':
			m->source.json = true;
			break;
		case EXPERTS:
			if (!parse_sizes(m, optarg))
				return CLI_USAGE;
			break;
		case EXPERT_BYTES:
			if (!cli_u64("--expert-bytes", optarg, 1, UINT32_MAX, &m->expert_bytes))
				return CLI_USAGE;
			break;
		case TOKENS:
			m->by_token = true;
			break;
		case 'h':
			stat_help();
			return CLI_OK;
		default:
			return CLI_USAGE;
		}
	}
	if (argc - optind > 1)
		return cli_usage("sim takes one trace, not %d", argc - optind);
	if (argc == optind && isatty(0))
		return cli_usage("standard input is a terminal; name a trace or pipe one in");
	return -1;
}

int stat_sim(int argc, char **argv)
{
	struct sim m = { .expert_bytes = RELEASED_EXPERT };
	int status = options(&m, argc, argv);

	if (status < 0)
		status = simulate(&m, argc == optind ? "-" : argv[optind]);
	sim_free(&m.trace);
	free(m.size);
	free(m.hits);
	return status;
}
