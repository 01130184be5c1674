/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - an engine's parts, and logits out of residual streams. */
#include "engine/fit.h"
#include "engine/sweep.h"
#include "model/norm.h"
#include "model/product.h"

#include <k3/buf.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

int k3_engine_scratch(struct k3_engine *e, uint64_t positions, struct k3_err *err)
{
	uint64_t size = k3_scratch_size(e->config, positions);
	float *p;

	if (size <= e->scratch_size)
		return 0;
	for (unsigned i = 0; i < k3_team_size(e->team); i++) {
		p = k3_reallocarray(e->scratch[i], size, sizeof *p);
		if (!p)
			return k3_fail_nomem(err);
		e->scratch[i] = p;
	}
	e->scratch_size = size;
	return 0;
}

int k3_engine_new(const struct k3_index *ix, const struct k3_engine_options *o,
		  struct k3_engine **out, struct k3_err *err)
{
	struct k3_engine *e = calloc(1, sizeof *e);
	struct k3_engine_options here = *o;
	struct k3_trunk *trunk = NULL;
	unsigned threads;
	uint64_t spare;
	int rc;

	*out = NULL;
	if (!e)
		return k3_fail_nomem(err);
	e->ix = ix;
	e->config = k3_index_config(ix);
	e->tile = o->tile;
	e->temporary = o->temporary;
	e->once = o->once;
	here.disk.memory = 0;
	rc = k3_budget_make(ix, &here, &e->budget, &trunk, err);
	threads = e->budget.threads;
	if (rc)
		k3_trunk_close(trunk);
	else
		rc = k3_weights_new(ix, trunk, &e->budget.weights, &e->weights, err);
	if (!rc)
		rc = k3_team_new(threads, &e->team, err);
	if (!rc) {
		/* until a sweep shares memory out anew: records of states need no sweep */
		spare = e->budget.plan.memory - e->budget.least;
		e->logits = spare < e->budget.logits ? spare : e->budget.logits;
		rc = k3_weights_keep(e->weights, spare - e->logits, 0, err);
	}
	if (!rc)
		rc = k3_vectors_new(e->config, &e->vectors, err);
	if (!rc) {
		e->scratch = k3_calloc(threads, sizeof *e->scratch);
		rc = e->scratch ? k3_engine_scratch(e, 0, err) : k3_fail_nomem(err);
	}
	if (rc)
		k3_engine_free(e);
	else
		*out = e;
	return rc;
}

void k3_engine_free(struct k3_engine *e)
{
	if (!e)
		return;
	for (unsigned i = 0; e->scratch && i < k3_team_size(e->team); i++)
		free(e->scratch[i]);
	free(e->scratch);
	k3_vectors_free(&e->vectors);
	k3_pager_free(e->pager);
	k3_weights_free(e->weights);
	k3_team_free(e->team);
	free(e);
}

void k3_engine_count(const struct k3_engine *e, struct k3_engine_counts *out)
{
	k3_weights_count(e->weights, out);
	out->waited /= e->budget.threads;
}

const char *k3_engine_refused(struct k3_engine *e)
{
	return k3_weights_refused(e->weights);
}

/* A group of streams on its way through the head. */
struct head {
	struct k3_pass pass;
	uint64_t n;
	float *fold, *norm;
	struct k3_token *name;
	struct k3_rows x, logits;
};

static void head_worker(struct k3_worker *w, void *arg)
{
	struct head *h = arg;
	uint32_t vocab = h->pass.config->vocab, loop;
	struct k3_err err;
	uint64_t i;

	k3_product(w, &h->pass, K3_HEAD, 0, 0, h->x.at, h->n, h->logits.at);
	if (!k3_barrier(w))
		return;
	loop = k3_loop(w);
	while (k3_loop_next(w, loop, h->n, &i))
		for (uint32_t v = 0; v < vocab; v++)
			if (!isfinite(h->logits.at[i][v])) {
				k3_worker_fail_at(w, i, k3_fail(&err, K3_EDATA, "sequence %" PRIu32
						", position %" PRIu64 ": the logit of id %" PRIu32
						" is not finite", h->name[i].sequence,
						h->name[i].position, v), &err);
				return;
			}
}

/* Mix and norm of stream number i, which is row `to` of the group. */
static int take_stream(struct k3_engine *e, struct head *h, uint64_t i, uint64_t to,
		       const struct k3_head_io *io, struct k3_err *err)
{
	const struct k3_config *c = e->config;
	struct k3_stream s;
	int rc = io->stream(io->ctx, i, &s, err);

	/* the mix keeps a score for each source behind a key */
	if (!rc)
		rc = k3_engine_scratch(e, s.sources, err);
	if (rc)
		return rc;
	k3_mix(h->pass.math, s.values, s.sources, c->hidden, h->fold, c->eps, e->scratch[0],
	       h->x.at[to]);
	k3_rms(h->pass.math, h->x.at[to], h->norm, c->hidden, c->eps, h->x.at[to]);
	h->name[to] = (struct k3_token){ s.sequence, s.position };
	return 0;
}

static int head_new(struct k3_engine *e, uint64_t group, struct head *h, struct k3_err *err)
{
	uint64_t hidden = e->config->hidden;
	float *temp;
	int rc;

	h->pass = (struct k3_pass){ .config = e->config, .math = k3_kernels(),
				    .feed = k3_weights_feed(e->weights), .scratch = e->scratch };
	rc = k3_rows_new(&h->x, group, hidden, err);
	if (!rc)
		rc = k3_rows_new(&h->logits, group, e->config->vocab, err);
	if (rc)
		return rc;
	h->name = k3_calloc(group, sizeof *h->name);
	h->fold = k3_calloc(3 * hidden, sizeof *h->fold);
	if (!h->name || !h->fold)
		return k3_fail_nomem(err);
	h->norm = h->fold + hidden;
	temp = h->norm + hidden;
	return k3_output_vectors(e->config, h->pass.feed, h->fold, h->norm, temp, err);
}

int k3_engine_logits(struct k3_engine *e, uint64_t n, const struct k3_head_io *io,
		     struct k3_err *err)
{
	uint64_t group = e->logits / k3_logits_bytes(e->config);
	struct head h = { .n = 0 };
	uint32_t passes;
	int rc;

	if (!n)
		return 0;
	if (!group)
		group = 1;
	if (group > n)
		group = n;
	passes = (uint32_t)((n + group - 1) / group);
	k3_weights_begin(e->weights, e->config->layers, e->config->layers + 1, &passes);
	rc = head_new(e, group, &h, err);
	for (uint64_t first = 0; !rc && first < n; first += group) {
		h.n = n - first < group ? n - first : group;
		for (uint64_t i = 0; !rc && i < h.n; i++)
			rc = take_stream(e, &h, first + i, i, io, err);
		if (!rc)
			rc = k3_team_run(e->team, head_worker, &h, err);
		for (uint64_t i = 0; !rc && i < h.n; i++)
			rc = io->logits(io->ctx, first + i, h.logits.at[i], err);
	}
	k3_weights_end(e->weights);
	k3_rows_free(&h.x);
	k3_rows_free(&h.logits);
	free(h.name);
	free(h.fold);
	return rc;
}
