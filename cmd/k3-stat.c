/* SPDX-License-Identifier: Apache-2.0 */
/* k3-stat - says what is in a file or stream of k3, which it knows by its first bytes. */
#include "cli.h"
#include "stat.h"

#include <k3/index.h>
#include <k3/io.h>
#include <k3/state.h>
#include <k3/trunk.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char state_magic[] = K3_STATE_MAGIC;

static const struct kind {
	const char *name;
	const char *magic;
	uint32_t magic_len;
	int (*report)(struct stat_source *s, struct k3_err *err);
} kinds[] = {
	{ "vector stream", "\x93NUMPY", 6, stat_vectors },
	{ "event stream", "{", 1, stat_events },
	{ "state", state_magic, 8, stat_state },
	{ "index", K3_INDEX_MAGIC, 8, stat_index },
	{ "trunk file", K3_TRUNK_MAGIC, 8, stat_trunk },
};

void stat_help(void)
{
	fputs("usage: k3-stat [-j] [--top N] [file ...]\n"
	      "       k3-stat disk [-j] [--seconds N] path\n"
	      "       k3-stat sim [-j] [--tokens] [--experts N,...] [--expert-bytes N] [trace]\n"
	      "Says what is in indexes, trunk files, states, vector streams and event streams; how fast the\n"
	      "disk under a file or directory is; what caches of experts would do on recorded routes.\n"
	      "\n"
	      "  -j, --json            one JSON object a line\n"
	      "      --top N           show the N largest entries of a record (3)\n"
	      "      --seconds N       measure for about so long (16)\n"
	      "      --tokens          each token is a sweep of its own, as when it is decoded\n"
	      "      --experts N,...   sizes of the cache, in experts a layer\n"
	      "      --expert-bytes N  size of an expert (17547264, as released)\n"
	      "  -h, --help            show this\n"
	      "  -V, --version         show the version\n", stdout);
}

void stat_print(struct k3_buf *b)
{
	struct k3_err err;
	int rc = b->failed ? k3_fail_nomem(&err) : cli_write(b->data, b->len, &err);

	if (rc)
		exit(cli_error(rc, &err));
	k3_buf_clear(b);
}

void stat_json_begin(struct k3_buf *b, const struct stat_source *s, const char *kind)
{
	k3_buf_str(b, "{\"schema\":\"" STAT_SCHEMA "\",\"file\":");
	k3_buf_json(b, s->name, strlen(s->name));
	k3_buf_printf(b, ",\"kind\":\"%s\"", kind);
}

void stat_name(struct k3_buf *b, const char *name)
{
	for (; *name; name++)
		k3_buf_char(b, (unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
}

int stat_by_name(const struct stat_source *s, struct k3_err *err)
{
	if (s->fd)
		return 0;
	return k3_fail(err, K3_EARG, "standard input: a state, an index or a trunk file is not a stream; "
		       "name the file");
}

/* The first line of a report. */
static void title(const struct stat_source *s, const char *kind)
{
	struct k3_buf b = K3_BUF_INIT;

	if (!s->json) {
		stat_name(&b, s->name);
		k3_buf_printf(&b, ": %s\n", kind);
		stat_print(&b);
	} else if (!s->head_len) {
		stat_json_begin(&b, s, "empty");
		k3_buf_str(&b, "}\n");
		stat_print(&b);
	}
	k3_buf_free(&b);
}

static int report(struct stat_source *s, struct k3_err *err)
{
	size_t got, i;
	int rc = k3_read_full(s->fd, s->head, STAT_HEAD, &got, s->name, err);

	if (rc)
		return rc;
	s->head_len = (uint32_t)got;
	if (!got) {
		title(s, "empty");
		return 0;
	}
	for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		const struct kind *k = &kinds[i];

		if (got < k->magic_len || memcmp(s->head, k->magic, k->magic_len))
			continue;
		title(s, k->name);
		return k->report(s, err);
	}
	return k3_fail(err, K3_EDATA, "%s: its first bytes are not those of anything that k3 writes",
		       s->name);
}

int stat_open(struct stat_source *s, const char *path, struct k3_err *err)
{
	s->fd = 0;
	s->name = "standard input";
	if (!strcmp(path, "-"))
		return 0;
	s->name = path;
	do
		s->fd = open(path, O_RDONLY | O_CLOEXEC);
	while (s->fd < 0 && errno == EINTR);
	return s->fd < 0 ? k3_fail_errno(err, "%s", path) : 0;
}

void stat_close(struct stat_source *s)
{
	if (s->fd > 0)
		close(s->fd);
}

/* A file, or "-"; a status. */
static int operand(const char *path, bool json, uint32_t top)
{
	struct stat_source s = { .json = json, .top = top };
	struct k3_err err;
	int rc = stat_open(&s, path, &err);

	if (!rc)
		rc = report(&s, &err);
	stat_close(&s);
	return rc ? cli_error(rc, &err) : CLI_OK;
}

/* Runs it with the arguments behind its name. */
static int subcommand(int (*run)(int argc, char **argv), int argc, char **argv)
{
	/* getopt begins its complaints with this */
	argv[1] = argv[0];
	return cli_end(run(argc - 1, argv + 1));
}

int main(int argc, char **argv)
{
	enum { TOP = 256 };
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "top", required_argument, NULL, TOP },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	bool json = false;
	uint64_t top = 3;
	int c, status = CLI_OK;

	cli_start("k3-stat");
	if (argc > 1 && !strcmp(argv[1], "disk"))
		return subcommand(stat_disk, argc, argv);
	if (argc > 1 && !strcmp(argv[1], "sim"))
		return subcommand(stat_sim, argc, argv);
	while ((c = getopt_long(argc, argv, "jhV", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case TOP:
			if (!cli_u64("--top", optarg, 0, 1 << 20, &top))
				return CLI_USAGE;
			break;
		case 'h':
			stat_help();
			return cli_end(CLI_OK);
		case 'V':
			cli_version();
			return cli_end(CLI_OK);
		default:
			return CLI_USAGE;
		}
	}
	if (optind == argc) {
		if (isatty(0))
			return cli_usage("standard input is a terminal; name a file or pipe one in");
		status = operand("-", json, (uint32_t)top);
	}
	for (; optind < argc; optind++)
		if (operand(argv[optind], json, (uint32_t)top))
			status = CLI_FAIL;
	return cli_end(status);
}
