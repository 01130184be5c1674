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
int step_taps_visit(struct step_taps *t, const struct k3_visit *v, struct k3_err *err);
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
	bool lookup;		/* the rounds have guesses: .. */
	uint64_t drafted, taken;	/* .. new ones, and former ones that came true */
	double begun;		/* of the round */
	struct k3_engine_counts counts;	/* then */
};

int step_report_begin(struct step_report *r, const char *trace, uint32_t first, uint32_t last);
void step_report_round(struct step_report *r, const struct k3_engine *e);
int step_report_layer(struct step_report *r, const struct k3_layer_report *l,
		      struct k3_err *err);
void step_report_idle(struct step_report *r);
/* The round is over, its records are written. */
int step_report_done(struct step_report *r, const struct k3_engine *e, uint64_t tokens,
		     struct k3_err *err);
int step_report_end(struct step_report *r, struct k3_err *err);

/* ---- step-options.c ---- */

enum step_logits { STEP_LAST, STEP_ALL, STEP_NONE };

struct step_options {
	const char *model, *trace;
	const char **state;		/* files */
	uint32_t states;
	const char *directory;		/* of --states, where the files are by number .. */
	bool numbered;			/* .. and have their names, which are owned */
	bool all;			/* -b all */
	uint64_t batch;			/* 0: not given */
	const char *layers;
	uint32_t first, last;
	bool until_given, at_given, logits_given, again;
	uint64_t until, at, threads, memory;
	const char *trunk;		/* NULL: where it is looked for; "": none */
	const char *disk;		/* a file of k3-stat disk */
	bool plan, score, json;
	enum step_logits logits;
	uint64_t lookup;		/* 0: not given */
	struct step_taps taps;
};

/* Fills *o; the exit status, or -1 to go on. */
int step_options_parse(struct step_options *o, int argc, char **argv);
/* What can only be checked when the model is known; resolves --layers.  The exit status, 0 if good. */
int step_options_check(struct step_options *o, const struct k3_config *c);
/* How many sequences there are, as far as the command line says; at least 1. */
uint32_t step_sequences(const struct step_options *o);
/* That no two outputs are the same file.  The exit status, 0 if good. */
int step_options_targets(const struct step_options *o);

/* ---- step-lookup.c: --lookup ---- */

enum { STEP_LOOKUP_LONGEST = 4 };	/* ids of a piece that is looked for */

struct step_lookup {
	struct k3_draft *draft;		/* owned */
	uint32_t *ids;			/* owned: the sequence so far */
	uint64_t n, room;
	/* by the length of the piece that was found: how often, and how often the next id was right */
	double found[STEP_LOOKUP_LONGEST + 1], right[STEP_LOOKUP_LONGEST + 1];
	double sweep_cost, token_cost;	/* bytes, those in memory counting little; 0: not known */
};

/* ---- what a run works with ---- */

struct step_run {
	struct step_options o;
	struct k3_index *ix;
	const struct k3_config *config;
	struct k3_engine *engine;
	struct step_input in;
	struct step_report report;
	uint32_t lines;
	struct k3_state **state;
	struct step_tokens *tokens;
	struct step_lookup lookup;
	float **score_last;		/* of --score: residual stream of each sequence's last id */
	struct k3_npy_stream out;
	struct k3_watch watch;
};

/* ---- step-states.c ---- */

/* How many states a directory has, at least 1. */
int step_states_count(const char *directory, uint32_t *out, struct k3_err *err);
/* Fills o->state with the names of n states of o->directory. */
int step_states_name(struct step_options *o, uint32_t n, struct k3_err *err);
void step_states_forget(struct step_options *o);
/* A state for each line. */
int step_states_open(struct step_run *r, struct k3_err *err);

/* ---- step-plan.c ---- */

/* What the engine is asked for; reads the file of --disk. */
int step_engine_options(const struct step_run *r, struct k3_engine_options *out,
			struct k3_err *err);
/* Prints what the engine would do, as JSON. */
int step_print_plan(const struct step_run *r, struct k3_err *err);

/* ---- step-output.c ---- */

/* The logits of a round that --logits asks for. */
int step_write_sweep(struct step_run *r, struct k3_sweep *s, struct k3_err *err);
/* The records of the last ids again, from the residual streams that the states keep. */
int step_write_again(struct step_run *r, struct k3_err *err);
/* The residual streams of a round, at the cut behind its last layer. */
int step_write_hidden(struct step_run *r, struct k3_sweep *s, struct k3_err *err);

/* ---- step-score.c: --score ---- */

/* Bytes of what is kept of each sequence from one round to the next. */
uint64_t step_score_kept(const struct step_run *r);
/* When the states are open: what they hold of ids whose logits judge the first new ones. */
int step_score_begin(struct step_run *r, struct k3_err *err);
/* A line of text for each id of a round that something came before. */
int step_score_sweep(struct step_run *r, struct k3_sweep *s, struct k3_err *err);
void step_score_end(struct step_run *r);

/* ---- step-lookup.c ---- */

int step_lookup_begin(struct step_run *r, struct k3_err *err);
/* A round of the one sequence: its line has been read. */
int step_lookup_round(struct step_run *r, struct k3_err *err);
void step_lookup_end(struct step_run *r);

#endif
