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

static int emit_row(void *ctx, uint64_t i, const float *logits, struct k3_err *err)
{
	struct emit *e = ctx;
	int rc = begin_records(e, err);

	(void)i;
	if (rc)
		return rc;
	e->left--;
	return k3_npy_put(&e->r->out, logits, e->r->config->vocab, err);
}

int step_write_logits(struct step_run *r, const struct k3_stream *stream, const uint64_t *rows,
		      uint64_t n, struct k3_err *err)
{
	struct emit e = { .r = r, .rows = rows };
	int rc = k3_engine_logits(r->engine, stream, n, emit_row, &e, err);

	return rc ? rc : begin_records(&e, err);
}

int step_write_hidden(struct step_run *r, const struct k3_sweep *s, struct k3_err *err)
{
	uint64_t hidden = r->config->hidden, n;
	uint32_t sources = k3_config_sources(r->config, r->o.last), got;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		n = k3_sweep_tokens(s, i);
		rc = k3_npy_begin(&r->out, 3, (uint64_t[]){ n, sources, hidden }, err);
		for (uint64_t t = 0; !rc && t < n; t++)
			rc = k3_npy_put(&r->out, k3_sweep_stream(s, i, t, &got), sources * hidden, err);
	}
	return rc;
}

int step_write_sweep(struct step_run *r, const struct k3_sweep *s, struct k3_err *err)
{
	uint64_t total = 0, at = 0, *rows = k3_calloc(r->lines, sizeof *rows);
	struct k3_stream *stream = NULL;
	int rc = 0;

	for (uint32_t i = 0; rows && i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);

		rows[i] = r->o.logits == STEP_ALL ? n : n > 0;
		total += rows[i];
	}
	stream = k3_calloc(total, sizeof *stream);
	if (!rows || !stream)
		rc = k3_fail_nomem(err);
	for (uint32_t i = 0; !rc && i < r->lines; i++) {
		uint64_t n = k3_sweep_tokens(s, i);
		uint64_t start = k3_state_position(r->state[i]) - (r->o.first < r->o.last ? n : 0);

		for (uint64_t t = n - rows[i]; t < n; t++, at++) {
			stream[at] = (struct k3_stream){ .sequence = i, .position = start + t };
			stream[at].values = k3_sweep_stream(s, i, t, &stream[at].sources);
		}
	}
	if (!rc)
		rc = step_write_logits(r, stream, rows, total, err);
	free(stream);
	free(rows);
	return rc;
}
