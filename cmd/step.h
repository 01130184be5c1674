/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - what the files of k3-step share. */
#ifndef K3_STEP_H
#define K3_STEP_H

#include <k3/buf.h>
#include <k3/engine.h>
#include <k3/npy.h>
#include <stdbool.h>
#include <stdio.h>

/* ---- step-input.c: rounds of lines of ids, or of records ---- */

struct step_input {
	bool hidden;		/* records of residual streams instead of ids */
	uint32_t width;		/* values a vector must have */
	uint32_t vocab;		/* ids are below it */
	uint64_t line;		/* lines taken */
	bool seekable;
	struct k3_buf ahead;	/* bytes of a seekable stdin that were read too far */
	struct k3_npy_stream npy;
};

/* The tokens of a line that was read. */
struct step_tokens {
	uint64_t n;
	uint32_t *ids;		/* owned */
	float *values;		/* owned */
	uint32_t sources;
};

void step_input_begin(struct step_input *in, bool hidden, uint32_t width, uint32_t vocab);
/* The next line: 1, 0 at the end, or a failure.  Frees what *t held. */
int step_input_line(struct step_input *in, struct step_tokens *t, struct k3_err *err);
/* After a round: what was read too far goes back, for the next reader of the same file. */
int step_input_pause(struct step_input *in, struct k3_err *err);
void step_tokens_free(struct step_tokens *t);

/* ---- step-tap.c: --tap SITE@LAYERS=FILE[,rows=last] ---- */

struct step_taps {
	struct step_tap *tap;
	size_t n;
};

/*
 * Takes the argument of a --tap to pieces; false after a complaint.  Nothing is opened
 * yet: the layers are checked against first .. last - 1 in step_taps_open.
 */
bool step_taps_add(struct step_taps *t, const char *arg);
/* The file of a tap, as it was named. */
const char *step_taps_file(const struct step_taps *t, size_t i);
/* Resolves layers and opens files: the exit status, 0 if all is well. */
int step_taps_open(struct step_taps *t, const struct k3_config *c, uint32_t first, uint32_t last);
int step_taps_visit(struct step_taps *t, enum k3_site site, uint32_t layer, uint64_t n,
		    uint64_t width, float *const *row, struct k3_err *err);
/* Closes the files; a late write error is a failure. */
int step_taps_close(struct step_taps *t, struct k3_err *err);

/* ---- step-report.c: --trace, progress, SIGUSR1 ---- */

struct step_report {
	FILE *trace;
	const char *trace_name;
	bool terminal;		/* stderr shows progress */
	uint64_t round;
	uint32_t first, last;	/* layers */
	uint64_t layers_done;
	double begun;		/* of the round */
};

int step_report_begin(struct step_report *r, const char *trace, uint32_t first, uint32_t last);
void step_report_round(struct step_report *r);
int step_report_layer(struct step_report *r, const struct k3_layer_report *l,
		      struct k3_err *err);
void step_report_idle(struct step_report *r);
int step_report_end(struct step_report *r, struct k3_err *err);

#endif
