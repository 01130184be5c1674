/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig.h - one layer on a test bench: its weights in memory behind the feed interface, and
 * everything else that an operator wants.
 *
 * Weights begin as zeros.  Tests write them with put() in the numbers of the checkpoint's
 * tensors, rounded to what its dtype can hold.  There is only layer 0, of the kind that the config
 * says.
 */
#ifndef RIG_H
#define RIG_H

#include "data/roles.h"
#include "model/layer.h"

#include "rng.h"
#include "tap.h"

#include <k3/buf.h>

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct rig {
	struct k3_feed feed;		/* must come first */
	struct k3_config config;
	uint8_t kind[1];
	unsigned char *data[K3_ROLES];	/* of experts all, one after the other */
	uint64_t bytes[K3_ROLES];	/* of one expert */
	uint64_t block_rows;
	_Atomic long fail_after;	/* blocks until the feed fails; below 0: never */
	struct k3_layer_vectors vectors;
	struct k3_tile tile;
	struct k3_routed routed;
	struct k3_rows latent, sum, shared;
	struct k3_team *team;
	float **scratch;
	struct k3_pass pass;
	struct k3_token *token;
	struct k3_err err;
	/* of one sequence */
	struct k3_slice slice;
	uint64_t tokens, pages;
};

__attribute__((unused))
static void need(int rc, const struct k3_err *err)
{
	if (!rc)
		return;
	printf("Bail out! %s\n", err->text);
	exit(1);
}

static int rig_matrix(struct k3_feed *f, unsigned rank, enum k3_role role, uint32_t layer,
		      uint32_t part, struct k3_matrix *m, struct k3_err *err)
{
	struct rig *r = (struct rig *)f;
	struct k3_tensor t;

	(void)err;
	(void)rank;
	*m = (struct k3_matrix){ .role = role, .layer = layer, .part = part,
				 .mxfp4 = role >= K3_W1 };
	k3_role_describe(&r->config, role, layer, 0, &t);
	m->rows = t.rows;
	m->cols = m->mxfp4 ? 2 * t.cols : t.cols;
	m->blocks = (m->rows + r->block_rows - 1) / r->block_rows;
	if (role == K3_MLA_KVB)
		m->blocks = r->config.mla_heads;
	return 0;
}

static int rig_block(struct k3_feed *f, unsigned rank, const struct k3_matrix *m, uint64_t i,
		     struct k3_block *b, struct k3_err *err)
{
	struct rig *r = (struct rig *)f;
	uint64_t width = m->mxfp4 ? m->cols / 2 : 2 * m->cols;
	uint64_t expert = m->mxfp4 ? m->part : 0;

	(void)rank;
	if (atomic_fetch_sub(&r->fail_after, 1) == 0)
		return k3_fail(err, K3_EIO, "the disk is gone");
	*b = (struct k3_block){ .row = i * r->block_rows };
	b->rows = m->rows - b->row < r->block_rows ? m->rows - b->row : r->block_rows;
	if (m->role == K3_MLA_KVB) {
		b->row = i * ((uint64_t)r->config.nope + r->config.v_dim) +
			 (m->part ? r->config.nope : 0);
		b->rows = m->part ? r->config.v_dim : r->config.nope;
	}
	b->data = r->data[m->role] + expert * r->bytes[m->role] + b->row * width;
	if (m->mxfp4)
		b->scale = r->data[m->role + 1] + expert * r->bytes[m->role + 1] +
			   b->row * m->cols / 32;
	return 0;
}

static void rig_release(struct k3_feed *f, unsigned rank)
{
	(void)f;
	(void)rank;
}

static int rig_experts(struct k3_feed *f, uint32_t layer, const uint64_t *first, uint64_t group,
		       struct k3_err *err)
{
	(void)f;
	(void)layer;
	(void)first;
	(void)group;
	(void)err;
	return 0;
}

/* The value number i of a tensor of the trunk. */
static float get(const struct rig *r, enum k3_role role, uint64_t i)
{
	struct k3_tensor t;
	uint32_t u;
	float f;

	k3_role_describe(&r->config, role, 0, 0, &t);
	if (t.dtype == K3_F32) {
		memcpy(&f, r->data[role] + 4 * i, 4);
		return f;
	}
	u = (uint32_t)(r->data[role][2 * i] << 16) | (uint32_t)r->data[role][2 * i + 1] << 24;
	memcpy(&f, &u, 4);
	return f;
}

static int rig_vector(struct k3_feed *f, enum k3_role role, uint32_t layer, float *out,
		      struct k3_err *err)
{
	struct rig *r = (struct rig *)f;
	struct k3_tensor t;

	(void)err;
	k3_role_describe(&r->config, role, layer, 0, &t);
	for (uint64_t i = 0; i < t.rows * t.cols; i++)
		out[i] = get(r, role, i);
	return 0;
}

static const struct k3_feed_ops rig_ops = { .matrix = rig_matrix, .block = rig_block,
					    .release = rig_release, .experts = rig_experts,
					    .vector = rig_vector };

/* Writes value number i, cut to bf16 where the tensor is bf16. */
__attribute__((unused))
static void put(struct rig *r, enum k3_role role, uint64_t i, double value)
{
	struct k3_tensor t;
	float f = (float)value;
	uint32_t u;

	k3_role_describe(&r->config, role, 0, 0, &t);
	memcpy(&u, &f, 4);
	if (t.dtype == K3_F32) {
		memcpy(r->data[role] + 4 * i, &f, 4);
	} else {
		r->data[role][2 * i] = (unsigned char)(u >> 16);
		r->data[role][2 * i + 1] = (unsigned char)(u >> 24);
	}
}

/* One value for all of a tensor. */
__attribute__((unused))
static void put_all(struct rig *r, enum k3_role role, double value)
{
	struct k3_tensor t;

	k3_role_describe(&r->config, role, 0, 0, &t);
	for (uint64_t i = 0; i < t.rows * t.cols; i++)
		put(r, role, i, value);
}

/* Random values of that size; of the roles of experts random codes, and scales near 1. */
__attribute__((unused))
static void put_random(struct rig *r, enum k3_role role, struct rng *g, double size)
{
	uint64_t n = r->bytes[role] * (role >= K3_W1 ? r->config.experts : 1);
	struct k3_tensor t;

	if (role >= K3_W1) {
		for (uint64_t i = 0; i < n; i++)
			r->data[role][i] = (unsigned char)((role - K3_W1) % 2 ? 124 + rng_u64(g) % 4
									      : rng_u64(g));
		return;
	}
	k3_role_describe(&r->config, role, 0, 0, &t);
	for (uint64_t i = 0; i < t.rows * t.cols; i++)
		put(r, role, i, size * rng_normal(g));
}

/* The weight of an expert, by the text of the format: role K3_W1, K3_W2 or K3_W3. */
__attribute__((unused))
static double weight(const struct rig *r, enum k3_role role, uint64_t e, uint64_t row, uint64_t col)
{
	static const double value[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
	uint64_t cols = role == K3_W2 ? r->config.expert_width : r->config.latent;
	unsigned char byte = r->data[role][e * r->bytes[role] + (row * cols + col) / 2];
	unsigned char scale = r->data[role + 1][e * r->bytes[role + 1] + (row * cols + col) / 32];
	unsigned code = col % 2 ? byte >> 4 : byte & 15u;

	return ldexp(code & 8 ? -value[code & 7] : value[code & 7], scale - 127);
}

static void rig_sequence(struct rig *r)
{
	const struct k3_config *c = &r->config;
	uint64_t all = (uint64_t)c->kda_heads * c->kda_dim;

	r->pages = (r->tokens + K3_PAGE - 1) / K3_PAGE;
	r->slice.kda = k3_calloc(all * c->kda_dim, sizeof(float));
	r->slice.conv = k3_calloc(3 * c->conv * all, sizeof(float));
	r->slice.page = k3_calloc(r->pages, sizeof *r->slice.page);
	for (uint64_t i = 0; i < r->pages; i++)
		r->slice.page[i] = k3_calloc((uint64_t)K3_PAGE * (c->kv_rank + c->rope),
					     sizeof(float));
}

/* A bench for up to that many tokens of one sequence.  Ends the program where memory does. */
__attribute__((unused))
static struct rig *rig_new(const struct k3_config *config, enum k3_kind kind, uint64_t tokens,
			   unsigned threads)
{
	struct rig *r = calloc(1, sizeof *r);
	struct k3_tensor t;

	*r = (struct rig){ .feed.ops = &rig_ops, .config = *config, .kind = { kind },
			   .block_rows = 3, .fail_after = -1, .tokens = tokens };
	r->config.kind = r->kind;
	r->config.layers = 1;
	for (enum k3_role role = 0; role < K3_ROLES; role++) {
		k3_role_describe(&r->config, role, 0, 0, &t);
		r->bytes[role] = t.bytes;
		r->data[role] = k3_calloc(role >= K3_W1 ? config->experts : 1, t.bytes);
		if (role >= K3_W1 && (role - K3_W1) % 2)
			memset(r->data[role], 127, config->experts * t.bytes);
	}
	need(k3_vectors_new(&r->config, &r->vectors, &r->err), &r->err);
	need(k3_tile_new(&r->config, tokens, &r->tile, &r->err), &r->err);
	need(k3_routed_new(&r->config, tokens, tokens, &r->routed, &r->err), &r->err);
	need(k3_rows_new(&r->latent, tokens, config->latent, &r->err), &r->err);
	need(k3_rows_new(&r->sum, tokens, config->latent, &r->err), &r->err);
	need(k3_rows_new(&r->shared, tokens, config->hidden, &r->err), &r->err);
	r->tile.latent = r->routed.latent = r->latent.at;
	r->tile.sum = r->routed.sum = r->sum.at;
	r->tile.shared = r->shared.at;
	need(k3_team_new(threads, &r->team, &r->err), &r->err);
	r->scratch = k3_calloc(threads, sizeof *r->scratch);
	for (unsigned i = 0; i < threads; i++)
		r->scratch[i] = k3_calloc(k3_scratch_size(&r->config, tokens), sizeof(float));
	r->token = k3_calloc(tokens, sizeof *r->token);
	for (uint64_t i = 0; i < tokens; i++)
		r->token[i].position = i;
	rig_sequence(r);
	r->pass = (struct k3_pass){
		.config = &r->config, .math = k3_kernels(), .feed = &r->feed,
		.vectors = &r->vectors, .tile = &r->tile, .routed = &r->routed,
		.scratch = r->scratch,
	};
	return r;
}

__attribute__((unused))
static void rig_free(struct rig *r)
{
	for (enum k3_role role = 0; role < K3_ROLES; role++)
		free(r->data[role]);
	for (unsigned i = 0; i < k3_team_size(r->team); i++)
		free(r->scratch[i]);
	for (uint64_t i = 0; i < r->pages; i++)
		free(r->slice.page[i]);
	free(r->slice.page);
	free(r->slice.kda);
	free(r->slice.conv);
	free(r->scratch);
	free(r->token);
	k3_vectors_free(&r->vectors);
	k3_tile_free(&r->tile);
	k3_routed_free(&r->routed);
	k3_rows_free(&r->latent);
	k3_rows_free(&r->sum);
	k3_rows_free(&r->shared);
	k3_team_free(r->team);
	free(r);
}

/* What a module does with tokens from .. from + n - 1, whose rows of x are filled from 0 on. */
struct rig_job {
	struct rig *r;
	void (*module)(struct k3_worker *w, struct rig *r, const struct k3_segment *s, uint64_t n);
	struct k3_segment segment;
};

static void rig_worker(struct k3_worker *w, void *arg)
{
	struct rig_job *job = arg;

	job->module(w, job->r, &job->segment, job->segment.count);
}

/* Runs a module over n tokens from a position on; returns what the team returned. */
__attribute__((unused))
static int rig_run(struct rig *r, uint64_t position, uint64_t n,
		   void (*module)(struct k3_worker *, struct rig *, const struct k3_segment *,
				  uint64_t))
{
	struct rig_job job = { r, module, { 0, n, position, 0, r->slice } };

	need(k3_vectors_read(&r->config, &r->feed, 0, &r->vectors, &r->err), &r->err);
	return k3_team_run(r->team, rig_worker, &job, &r->err);
}

/* Closer than that part of the larger of |want| and 1e-30. */
__attribute__((unused))
static bool near(double got, double want, double part)
{
	return fabs(got - want) <= part * fmax(fabs(want), 1e-30);
}

#endif
