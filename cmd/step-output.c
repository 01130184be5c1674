/* SPDX-License-Identifier: Apache-2.0 */
/* step-output.c - a round's records: logits, or the residual streams at a cut. */
#include "step.h"

#include <stdlib.h>

/* Logit records as their rows come: records of lines without rows are written in passing. */
struct emit {
	struct step_run *r;
	const uint64_t *rows;	/* of each line */
	uint32_t line;
	uint64_t left;		/* rows that the begun record still lacks */
};

static int begin_records(struct emit *e, struct k3_err *err)
{
	uint64_t shape[2] = { 0, e->r->config->vocab };
	int rc = 0;

	while (!rc && !e->left && e->line < e->r->lines) {
		e->left = shape[0] = e->rows[e->line++];
		rc = k3_npy_begin(&e->r->out, 2, shape, err);
	}
	return rc;
}

int step_write_hidden(struct step_run *r, struct k3_sweep *s, struct k3_err *err)
{
	uint64_t hidden = r->config->hidden, n;
	uint32_t sources = k3_config_sources(r->config, r->o.last);
	struct k3_stream stream;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		n = k3_sweep_tokens(s, i);
		rc = k3_npy_begin(&r->out, 3, (uint64_t[]){ n, sources, hidden }, err);
		for (uint64_t t = 0; !rc && t < n; t++) {
			rc = k3_sweep_stream(s, i, t, &stream, err);
			if (!rc)
				rc = k3_npy_put(&r->out, stream.values, sources * hidden, err);
		}
	}
	return rc;
}

/* The rows that logits are wanted of, of each line its last ones: of a sweep, or as states keep them. */
struct rows {
	struct emit emit;
	struct k3_sweep *s;	/* or NULL */
	uint32_t line;
	uint64_t done;		/* rows of this line */
	float *values;		/* of a state, the one row that is in memory; owned */
};

static int sweep_row(struct rows *r, struct k3_stream *out, struct k3_err *err)
{
	const struct step_run *run = r->emit.r;
	uint64_t n = k3_sweep_tokens(r->s, r->line), token = n - r->emit.rows[r->line] + r->done;
	uint64_t start = k3_state_position(run->state[r->line]) - (run->o.first < run->o.last ? n : 0);
	int rc = k3_sweep_stream(r->s, r->line, token, out, err);

	out->position = start + token;
	return rc;
}

static int state_row(struct rows *r, struct k3_stream *out, struct k3_err *err)
{
	struct k3_state *state = r->emit.r->state[r->line];
	uint64_t rows;
	int rc;

	free(r->values);
	rc = k3_state_residual(state, &r->values, &rows, &out->sources, err);
	out->values = r->values;
	out->position = k3_state_position(state) - 1;
	return rc;
}

static int next_row(void *ctx, uint64_t i, struct k3_stream *out, struct k3_err *err)
{
	struct rows *r = ctx;
	int rc;

	(void)i;
	while (r->done == r->emit.rows[r->line]) {
		r->line++;
		r->done = 0;
	}
	rc = r->s ? sweep_row(r, out, err) : state_row(r, out, err);
	out->sequence = r->line;
	r->done++;
	return rc;
}

static int emit_row(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct rows *r = ctx;
	int rc = begin_records(&r->emit, err);

	(void)i;
	if (rc)
		return rc;
	r->emit.left--;
	return k3_npy_put(&r->emit.r->out, logits, r->emit.r->config->vocab, err);
}

/* A record for each line, of its last rows[i] rows; they are freed. */
static int write_logits(struct step_run *r, struct k3_sweep *s, uint64_t *rows, struct k3_err *err)
{
	struct rows all = { .emit = { .r = r, .rows = rows }, .s = s };
	struct k3_head_io io = { next_row, emit_row, &all };
	uint64_t total = 0;
	int rc;

	for (uint32_t i = 0; i < r->lines; i++)
		total += rows[i];
	rc = k3_engine_logits(r->engine, total, &io, err);
	if (!rc)
		rc = begin_records(&all.emit, err);
	free(all.values);
	free(rows);
	return rc;
}

int step_write_sweep(struct step_run *r, struct k3_sweep *s, struct k3_err *err)
{
	uint64_t *rows = k3_calloc(r->lines, sizeof *rows);

	if (!rows)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);

		rows[i] = r->o.logits == STEP_ALL ? n : n > 0;
	}
	return write_logits(r, s, rows, err);
}

/* The residual stream of a state's last id, or a record without rows. */
static int write_last_hidden(struct step_run *r, struct k3_state *state, struct k3_err *err)
{
	uint32_t sources = k3_config_sources(r->config, r->o.last);
	uint64_t rows = 0, hidden = r->config->hidden;
	float *values = NULL;
	int rc = 0;

	if (k3_state_position(state))
		rc = k3_state_residual(state, &values, &rows, &sources, err);
	if (!rc)
		rc = k3_npy_begin(&r->out, 3, (uint64_t[]){ rows, sources, hidden }, err);
	if (!rc)
		rc = k3_npy_put(&r->out, values, rows * sources * hidden, err);
	free(values);
	return rc;
}

int step_write_again(struct step_run *r, struct k3_err *err)
{
	uint64_t *rows;
	int rc = 0;

	if (r->o.last < r->config->layers) {
		for (uint32_t i = 0; !rc && i < r->lines; i++)
			rc = write_last_hidden(r, r->state[i], err);
		return rc;
	}
	rows = k3_calloc(r->lines, sizeof *rows);
	if (!rows)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < r->lines; i++)
		rows[i] = k3_state_position(r->state[i]) > 0;
	return write_logits(r, NULL, rows, err);
}
