/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what every k3 program does alike: its first and last lines, its messages,
 * its numbers.  None of this is in libk3core, which never prints or exits.
 */
#ifndef K3_CLI_H
#define K3_CLI_H

#include <k3/err.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAIL = 1, CLI_USAGE = 2 };

/*
 * First thing in main: file descriptors 0 to 2 exist, SIGPIPE kills, a mapped file that can no
 * longer be read ends the program with a sentence, and the program's name for messages is known.
 */
void cli_start(const char *program);

/* Last thing in main: closes stdout and turns a failed write into status 1. */
int cli_end(int status);

/* "program: message\n" on stderr in one write, so that stages do not interleave. */
void cli_warn(const char *fmt, ...) K3_PRINTF(1, 2);

/* Prints the sentence of a failed library call; returns the exit status for it. */
int cli_error(int status, const struct k3_err *err);

/* Prints a complaint about the command line and where help is; returns CLI_USAGE. */
int cli_usage(const char *fmt, ...) K3_PRINTF(1, 2);

/* Seconds since some moment, for differences. */
double cli_now(void);

/* "k3-x (k3) VERSION", for --version. */
void cli_version(void);

/*
 * An array with room for one more than the n elements it has, for options that may be
 * given again; ends the program where there is no memory.
 */
void *cli_grow(void *array, size_t n, size_t size);

/* The model that -m named, or $K3_MODEL; NULL after a complaint. */
const char *cli_model(const char *option);
/* The same where an operand may name it instead of -m. */
const char *cli_model_operand(const char *option, int count, char **operand);

/* Whole numbers and real numbers of options; false after a complaint. */
bool cli_u64(const char *option, const char *text, uint64_t min, uint64_t max,
	     uint64_t *out);
/* Bytes: a number, maybe with a point, and k, M, G, T for powers of 1000 or Ki, Mi, Gi, Ti of 1024. */
bool cli_size(const char *option, const char *text, uint64_t *out);
bool cli_double(const char *option, const char *text, double min, double max,
		double *out);

/*
 * Refuses to write binary data to a terminal: false after a complaint.
 */
bool cli_binary_stdout(void);

/*
 * Writes to stdout at once, past stdio: for streams that another program waits
 * for.  A reader that has gone ends the program by SIGPIPE, a full disk is an error.
 */
int cli_write(const void *p, size_t n, struct k3_err *err);

/*
 * Opens the file of an option for writing, emptied; *fd is the caller's to close.
 * /dev/fd/N, /dev/stdout and /dev/stderr are the open descriptor itself, so that what a
 * shell redirected is neither emptied nor written from its start again.
 */
K3_NODISCARD int cli_create(const char *path, int *fd, struct k3_err *err);

#endif
