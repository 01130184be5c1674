/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stat.h - the kinds of things that k3-stat knows, one reporter each, cmd/stat-KIND.c; and its
 * subcommands.
 */
#ifndef K3_STAT_H
#define K3_STAT_H

#include <k3/buf.h>
#include <k3/err.h>
#include <jv.h>
#include <stdbool.h>
#include <stdint.h>

#define STAT_SCHEMA "k3.stat/1"

enum { STAT_HEAD = 8 };

struct stat_source {
	int fd;				/* behind the bytes of head; may be a pipe */
	const char *name;		/* of the file, or "standard input" */
	unsigned char head[STAT_HEAD];	/* its first bytes, by which the kind is known */
	uint32_t head_len;		/* less than STAT_HEAD only if that is all */
	bool json;			/* one object a line instead of a table */
	uint32_t top;			/* largest entries to show */
};

/*
 * Reporters print what they understood, then return 0 or the library's failure
 * about what they did not.
 */
int stat_vectors(struct stat_source *s, struct k3_err *err);
int stat_events(struct stat_source *s, struct k3_err *err);
/* These go by the name: their files are not read as streams, and cannot be piped in. */
int stat_by_name(const struct stat_source *s, struct k3_err *err);
int stat_state(struct stat_source *s, struct k3_err *err);
int stat_index(struct stat_source *s, struct k3_err *err);
int stat_trunk(struct stat_source *s, struct k3_err *err);

/* What "round" events of k3-step tell, and a table of them. */
struct stat_round {
	double number, tokens, seconds, waited;
	double read, experts, trunk_kept, expert_kept, disk;	/* bytes */
};
struct stat_rounds {
	struct stat_round *round;	/* owned */
	size_t n;
};
/* Takes an event in, which stays the caller's; false without memory. */
bool stat_rounds_add(struct stat_rounds *r, jv event);
/* Appends the table, or a JSON line for each, and empties r. */
void stat_rounds_print(struct stat_rounds *r, const struct stat_source *s, struct k3_buf *b);

/* Subcommands, with options of their own.  They return an exit status. */
int stat_disk(int argc, char **argv);
int stat_sim(int argc, char **argv);

/* --help, for all of them. */
void stat_help(void);

/* Opens a file, or standard input for "-"; K3_EIO names the file. */
int stat_open(struct stat_source *s, const char *path, struct k3_err *err);
void stat_close(struct stat_source *s);

/*
 * Calls take for every line of a stream, its head included, numbered from 1 and without the newline;
 * the last one needs none.  Ends with the first failure, and with a line that is unreasonably long.
 */
typedef int stat_line(void *ctx, const struct stat_source *s, const char *line, size_t n,
		      uint64_t number, struct k3_err *err);
int stat_lines(const struct stat_source *s, stat_line *take, void *ctx, struct k3_err *err);

/*
 * Writes the text to stdout at once and empties it.  If that fails there is
 * nothing left to do: it complains and ends the program.
 */
void stat_print(struct k3_buf *b);

/* Starts a JSON object: schema, file and kind; no comma follows. */
void stat_json_begin(struct k3_buf *b, const struct stat_source *s, const char *kind);

/* Appends a name for people: control characters become '?'. */
void stat_name(struct k3_buf *b, const char *name);

#endif
