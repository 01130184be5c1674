/* SPDX-License-Identifier: Apache-2.0 */
/* stat.h - the kinds of things that k3-stat knows: one reporter each, cmd/stat-KIND.c. */
#ifndef K3_STAT_H
#define K3_STAT_H

#include <k3/buf.h>
#include <k3/err.h>
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
