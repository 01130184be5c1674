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

static int emit_row(struct emit *e, const float *logits, struct k3_err *err)
{
	int rc = begin_records(e, err);

	if (rc)
		return rc;
	e->left--;
	return k3_npy_put(&e->r->out, logits, e->r->config->vocab, err);
}

/* Streams that somebody has. */
struct given {
	struct emit emit;
	const struct k3_stream *stream;
};

static int given_stream(void *ctx, uint64_t i, struct k3_stream *out, struct k3_err *err)
{
	const struct given *g = ctx;

	(void)err;
	*out = g->stream[i];
	return 0;
}

static int given_logits(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct given *g = ctx;

	(void)i;
	return emit_row(&g->emit, logits, err);
}

int step_write_logits(struct step_run *r, const struct k3_stream *stream, const uint64_t *rows,
		      uint64_t n, struct k3_err *err)
{
	struct given g = { .emit = { .r = r, .rows = rows }, .stream = stream };
	struct k3_head_io io = { given_stream, given_logits, &g };
	int rc = k3_engine_logits(r->engine, n, &io, err);

	return rc ? rc : begin_records(&g.emit, err);
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

/* The rows of a sweep one after the other: of each line its last ones. */
struct rows {
	struct emit emit;
	struct k3_sweep *s;
	uint32_t line;
	uint64_t done;		/* rows of this line */
};

static int next_row(void *ctx, uint64_t i, struct k3_stream *out, struct k3_err *err)
{
	struct rows *r = ctx;
	const struct step_run *run = r->emit.r;
	uint64_t n, token, start;
	int rc;

	(void)i;
	while (r->done == r->emit.rows[r->line]) {
		r->line++;
		r->done = 0;
	}
	n = k3_sweep_tokens(r->s, r->line);
	token = n - r->emit.rows[r->line] + r->done++;
	start = k3_state_position(run->state[r->line]) - (run->o.first < run->o.last ? n : 0);
	rc = k3_sweep_stream(r->s, r->line, token, out, err);
	out->sequence = r->line;
	out->position = start + token;
	return rc;
}

static int row_logits(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct rows *r = ctx;

	(void)i;
	return emit_row(&r->emit, logits, err);
}

int step_write_sweep(struct step_run *r, struct k3_sweep *s, struct k3_err *err)
{
	uint64_t total = 0, *rows = k3_calloc(r->lines, sizeof *rows);
	struct rows all = { .emit = { .r = r, .rows = rows }, .s = s };
	struct k3_head_io io = { next_row, row_logits, &all };
	int rc;

	if (!rows)
		return k3_fail_nomem(err);
	for (uint32_t i = 0; i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);

		rows[i] = r->o.logits == STEP_ALL ? n : n > 0;
		total += rows[i];
	}
	rc = k3_engine_logits(r->engine, total, &io, err);
	if (!rc)
		rc = begin_records(&all.emit, err);
	free(rows);
	return rc;
}
