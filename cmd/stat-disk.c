/* SPDX-License-Identifier: Apache-2.0 */
/* stat-disk.c - k3-stat disk: how fast the device under a file can be read, and how. */
#include "stat.h"
#include "cli.h"

#include <k3/disk.h>

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

static const char *pattern(const struct k3_disk_row *row)
{
	return row->pattern == K3_DISK_RANDOM ? "random" : "sequential";
}

static void add_string(struct k3_buf *b, const char *before, const char *text)
{
	k3_buf_str(b, before);
	k3_buf_json(b, text, strlen(text));
}

static void add_json(struct k3_buf *b, const struct stat_source *s, const struct k3_disk_report *r)
{
	stat_json_begin(b, s, "disk");
	add_string(b, ",\"path\":", r->path);
	add_string(b, ",\"file_system\":", r->file_system);
	k3_buf_str(b, ",\"warnings\":[");
	for (size_t i = 0; i < r->warnings; i++)
		add_string(b, i ? "," : "", r->warning[i]);
	k3_buf_printf(b, "],\"direct\":%s,\"rate\":%.0f,\"request\":%" PRIu64 ",\"depth\":%" PRIu32
		      ",\"ring\":%" PRIu64 ",\"random_rate\":%.0f,\"used_rate\":%.0f"
		      ",\"table\":[",
		      r->direct ? "true" : "false", r->best.rate, r->best.request, r->best.depth,
		      r->best.ring, r->random.rate, r->used_rate);
	for (size_t i = 0; i < r->rows; i++) {
		const struct k3_disk_row *row = &r->row[i];

		k3_buf_printf(b, "%s{\"pattern\":\"%s\",\"request\":%" PRIu64 ",\"depth\":%" PRIu32
			      ",\"ring\":%" PRIu64 ",\"rate\":%.0f}", i ? "," : "", pattern(row),
			      row->request, row->depth, row->ring, row->rate);
	}
	k3_buf_str(b, "]}\n");
}

static void add_row(struct k3_buf *b, const char *name, const struct k3_disk_row *row)
{
	k3_buf_printf(b, "%-10s %7" PRIu64 "K %5" PRIu32 " %5" PRIu64 "M %9.3f\n", name,
		      row->request >> 10, row->depth, row->ring >> 20, row->rate / 1e9);
}

static void add_table(struct k3_buf *b, const struct k3_disk_report *r)
{
	struct k3_disk_row used = r->best;

	stat_name(b, r->path);
	k3_buf_printf(b, ": %s, %s reads\n%-10s %8s %5s %6s %9s\n", r->file_system,
		      r->direct ? "direct" : "buffered", "", "request", "depth", "ring", "GB/s");
	add_row(b, "best", &r->best);
	add_row(b, "experts", &r->random);
	used.rate = r->used_rate;
	add_row(b, "used", &used);
	k3_buf_char(b, '\n');
	for (size_t i = 0; i < r->rows; i++)
		add_row(b, pattern(&r->row[i]), &r->row[i]);
}

static int measure(struct stat_source *s, double seconds)
{
	struct k3_buf b = K3_BUF_INIT;
	struct k3_disk_report r;
	struct k3_err err;
	int rc = k3_disk_measure(s->name, seconds, &r, &err);

	/* also on stderr, so that a table in a file does not hide them */
	for (size_t i = 0; i < r.warnings; i++)
		cli_warn("%s: %s", r.path, r.warning[i]);
	if (!rc) {
		if (s->json)
			add_json(&b, s, &r);
		else
			add_table(&b, &r);
		stat_print(&b);
	}
	k3_buf_free(&b);
	k3_disk_report_free(&r);
	return rc ? cli_error(rc, &err) : CLI_OK;
}

int stat_disk(int argc, char **argv)
{
	enum { SECONDS = 256 };
	static const struct option known[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "seconds", required_argument, NULL, SECONDS },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 }
	};
	struct stat_source s = { .json = false };
	double seconds = 16;
	int c;

	while ((c = getopt_long(argc, argv, "jh", known, NULL)) != -1) {
		switch (c) {
		case 'j':
			s.json = true;
			break;
		case SECONDS:
			if (!cli_double("--seconds", optarg, 0.1, 3600, &seconds))
				return CLI_USAGE;
			break;
		case 'h':
			stat_help();
			return CLI_OK;
		default:
			return CLI_USAGE;
		}
	}
	if (argc - optind != 1)
		return cli_usage("disk takes one file or directory");
	s.name = argv[optind];
	return measure(&s, seconds);
}
