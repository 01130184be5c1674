/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - layers of the released width with made-up weights that lie in memory.
 *
 *	layers [THREADS [PREFILL [CONTEXT]]]
 *
 * Prints seconds a token of each kind of layer and of the head, what they make for 93
 * layers, the seconds of PREFILL tokens (256) through four layers, and the cost of a cached
 * position after CONTEXT (4096) of them.  Weights are blocks of a gigabyte of noise, at
 * scattered places, so that all of them come from memory and none from a cache.
 */
#include "model/ffn.h"
#include "model/kda.h"
#include "model/layer.h"
#include "model/mla.h"
#include "model/norm.h"
#include "model/product.h"
#include "../unit/rng.h"

#include <k3/buf.h>
#include <k3/cpu.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define POOL ((uint64_t)1 << 30)
enum { BLOCK = 1 << 20, ROUNDS = 5, EXPERTS = 128 };

static uint8_t kinds[2] = { K3_KDA, K3_MLA };

/* The released widths; layer 0 is KDA and layer 1 MLA, and dense_layers is set as needed. */
static struct k3_config config = {
	.hidden = 7168, .layers = 2, .vocab = 163840, .eps = 1e-5f, .situ_beta = 4,
	.situ_linear_beta = 25, .dense_width = 33792, .residual_block = 12, .mla_heads = 96,
	.q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64, .v_dim = 128, .kda_heads = 96,
	.kda_dim = 128, .conv = 4, .decay_bound = -5, .experts = EXPERTS, .chosen = 16,
	.shared = 2, .expert_width = 3072, .latent = 3584, .routed_scale = 1, .kind = kinds,
};

static unsigned char *pool, *scales;

/* ---- a feed of noise ---- */

static uint64_t block_rows(const struct k3_matrix *m)
{
	return BLOCK / (m->mxfp4 ? m->cols / 2 : 2 * m->cols) / K3_ROWS_STEP * K3_ROWS_STEP;
}

static int noise_matrix(struct k3_feed *f, unsigned rank, enum k3_role role, uint32_t layer,
			uint32_t part, struct k3_matrix *m, struct k3_err *err)
{
	const struct k3_config *c = &config;
	uint64_t p = (uint64_t)c->kda_heads * c->kda_dim, s = (uint64_t)c->shared * c->expert_width;
	const uint64_t shape[K3_ROLES][2] = {
		[K3_HEAD] = { c->vocab, c->hidden }, [K3_GATE] = { p, c->hidden },
		[K3_OUT] = { c->hidden, p }, [K3_KDA_Q] = { p, c->hidden },
		[K3_KDA_K] = { p, c->hidden }, [K3_KDA_V] = { p, c->hidden },
		[K3_KDA_FA] = { c->kda_dim, c->hidden }, [K3_KDA_FB] = { p, c->kda_dim },
		[K3_KDA_B] = { c->kda_heads, c->hidden }, [K3_MLA_QA] = { c->q_rank, c->hidden },
		[K3_MLA_QB] = { c->mla_heads * (c->nope + c->rope), c->q_rank },
		[K3_MLA_KVA] = { c->kv_rank + c->rope, c->hidden },
		[K3_MLA_KVB] = { c->mla_heads * (c->nope + c->v_dim), c->kv_rank },
		[K3_DENSE_GATE] = { c->dense_width, c->hidden },
		[K3_DENSE_UP] = { c->dense_width, c->hidden },
		[K3_DENSE_DOWN] = { c->hidden, c->dense_width },
		[K3_ROUTER] = { c->experts, c->hidden }, [K3_LATENT_DOWN] = { c->latent, c->hidden },
		[K3_LATENT_UP] = { c->hidden, c->latent }, [K3_SHARED_GATE] = { s, c->hidden },
		[K3_SHARED_UP] = { s, c->hidden }, [K3_SHARED_DOWN] = { c->hidden, s },
		[K3_W1] = { c->expert_width, c->latent }, [K3_W2] = { c->latent, c->expert_width },
		[K3_W3] = { c->expert_width, c->latent },
	};

	(void)f;
	(void)rank;
	(void)err;
	*m = (struct k3_matrix){ .role = role, .layer = layer, .part = part,
				 .mxfp4 = role >= K3_W1, .rows = shape[role][0],
				 .cols = shape[role][1] };
	m->blocks = (m->rows + block_rows(m) - 1) / block_rows(m);
	if (role == K3_MLA_KVB)
		m->blocks = c->mla_heads;
	return 0;
}

static int noise_block(struct k3_feed *f, unsigned rank, const struct k3_matrix *m, uint64_t i,
		       struct k3_block *b, struct k3_err *err)
{
	struct rng g = { m->role * 1000003u + m->layer * 10007u + m->part * 101u + i };

	(void)f;
	(void)rank;
	(void)err;
	*b = (struct k3_block){ .row = i * block_rows(m) };
	b->rows = m->rows - b->row < block_rows(m) ? m->rows - b->row : block_rows(m);
	if (m->role == K3_MLA_KVB) {
		b->row = i * ((uint64_t)config.nope + config.v_dim) + (m->part ? config.nope : 0);
		b->rows = m->part ? config.v_dim : config.nope;
	}
	b->data = pool + rng_u64(&g) % (POOL / BLOCK) * BLOCK;
	b->scale = scales;
	return 0;
}

static void noise_release(struct k3_feed *f, unsigned rank)
{
	(void)f;
	(void)rank;
}

static int noise_experts(struct k3_feed *f, uint32_t layer, const uint64_t *first, uint64_t group,
			 struct k3_err *err)
{
	(void)f;
	(void)layer;
	(void)first;
	(void)group;
	(void)err;
	return 0;
}

static int noise_vector(struct k3_feed *f, enum k3_role role, uint32_t layer, float *out,
			struct k3_err *err)
{
	const struct k3_config *c = &config;
	uint64_t p = (uint64_t)c->kda_heads * c->kda_dim;
	uint64_t n = role == K3_KDA_DT_BIAS ? p : role == K3_KDA_A_LOG ? c->kda_dim
		   : role == K3_KDA_NORM ? c->kda_dim : role == K3_MLA_QA_NORM ? c->q_rank
		   : role == K3_MLA_KVA_NORM ? c->kv_rank : role == K3_ROUTER_BIAS ? c->experts
		   : role == K3_LATENT_NORM ? c->latent
		   : role >= K3_KDA_Q_CONV && role <= K3_KDA_V_CONV ? p * c->conv : c->hidden;
	struct rng g = { role };

	(void)f;
	(void)layer;
	(void)err;
	for (uint64_t i = 0; i < n; i++)
		out[i] = (float)(role == K3_KDA_A_LOG ? rng_unit(&g) : 0.5 + rng_unit(&g));
	return 0;
}

static const struct k3_feed_ops ops = { .matrix = noise_matrix, .block = noise_block,
					.release = noise_release, .experts = noise_experts,
					.vector = noise_vector };

/* ---- one layer ---- */

struct bench {
	struct k3_feed feed;
	struct k3_layer_vectors vectors;
	struct k3_tile tile;
	struct k3_routed routed;
	struct k3_pass pass;
	struct k3_team *team;
	struct k3_rows latent, sum, shared;
	struct k3_rows stream;		/* two sources a token */
	struct k3_token *token;
	struct k3_segment segment;
	uint32_t layer;
	uint64_t n;
	struct k3_rows logits;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(int rc, const struct k3_err *err)
{
	if (!rc)
		return;
	fprintf(stderr, "layers: %s\n", err->text);
	exit(1);
}

static void layer(struct k3_worker *w, void *arg)
{
	struct bench *b = arg;
	struct k3_pass *p = &b->pass;
	float **row = b->stream.at;

	k3_mix_and_norm(w, p, row, 2, b->vectors.attn_fold, b->vectors.attn_norm, b->n, b->tile.x.at);
	if (!k3_barrier(w))
		return;
	(kinds[b->layer] == K3_KDA ? k3_kda : k3_mla)(w, p, b->layer, &b->segment, 1, b->n);
	if (!k3_barrier(w))
		return;
	k3_add_to_stream(w, p, b->layer, b->token, row, 1, false, b->tile.y.at, b->n);
	if (!k3_barrier(w))
		return;
	k3_mix_and_norm(w, p, row, 2, b->vectors.mlp_fold, b->vectors.mlp_norm, b->n, b->tile.x.at);
	if (!k3_barrier(w))
		return;
	if (!k3_config_is_moe(&config, b->layer)) {
		k3_dense(w, p, b->layer, b->n);
	} else {
		k3_route_tile(w, p, b->layer, b->token, 0, b->n, true);
		if (!k3_barrier(w))
			return;
		k3_experts(w, p, b->layer, NULL);
		if (!k3_barrier(w))
			return;
		k3_latent_out(w, p, b->layer, b->n);
	}
	if (!k3_barrier(w))
		return;
	k3_add_to_stream(w, p, b->layer, b->token, row, 1, false,
			 k3_config_is_moe(&config, b->layer) ? b->shared.at : b->tile.y.at, b->n);
}

static void head(struct k3_worker *w, void *arg)
{
	struct bench *b = arg;

	k3_product(w, &b->pass, K3_HEAD, 0, 0, b->tile.x.at, 1, b->logits.at);
}

/* The best of several rounds. */
static double best(struct bench *b, void (*fn)(struct k3_worker *, void *), int rounds)
{
	double least = 1e9, t;
	struct k3_err err;

	for (int i = 0; i < rounds; i++) {
		t = now();
		need(k3_team_run(b->team, fn, b, &err), &err);
		t = now() - t;
		least = t < least ? t : least;
	}
	return least;
}

static double run(struct bench *b, uint32_t number, uint64_t n, uint64_t position, int rounds)
{
	struct rng g = { 5 };
	struct k3_err err;

	b->layer = number;
	b->n = n;
	b->segment.count = n;
	b->segment.position = position;
	for (uint64_t t = 0; t < n; t++)
		for (uint64_t i = 0; i < b->stream.width; i++)
			b->stream.at[t][i] = (float)rng_unit(&g) - 0.5f;
	need(k3_vectors_read(&config, &b->feed, number, &b->vectors, &err), &err);
	return best(b, layer, rounds);
}

static void no_bf16(const void *w, size_t rows, size_t n, const float *const *x, size_t count,
		    float *const *y)
{
	(void)w, (void)rows, (void)n, (void)x, (void)count, (void)y;
}

static void no_mxfp4(const void *codes, const void *scale, size_t rows, size_t n,
		     const float *const *x, size_t count, float *const *y)
{
	(void)codes, (void)scale, (void)rows, (void)n, (void)x, (void)count, (void)y;
}

/* The time of a layer whose products with weights are left out, so that it works on old values. */
static double rest(struct bench *b, uint32_t number, uint64_t n, uint64_t position)
{
	const struct k3_kernels *math = b->pass.math;
	struct k3_kernels none = *math;
	double t;

	none.rows_bf16 = no_bf16;
	none.rows_mxfp4 = no_mxfp4;
	b->pass.math = &none;
	t = run(b, number, n, position, ROUNDS);
	b->pass.math = math;
	return t;
}

static void set_up(struct bench *b, unsigned threads, uint64_t most, uint64_t positions)
{
	uint64_t p = (uint64_t)config.kda_heads * config.kda_dim, pages = positions / K3_PAGE + 1;
	uint64_t page = (uint64_t)K3_PAGE * (config.kv_rank + config.rope);
	struct rng g = { 1 };
	struct k3_err err;

	pool = aligned_alloc(1 << 21, POOL + BLOCK);
	scales = malloc(BLOCK);
	b->token = k3_calloc(most, sizeof *b->token);
	b->segment.slice.kda = k3_calloc(p * config.kda_dim, sizeof(float));
	b->segment.slice.conv = k3_calloc(3 * p * (config.conv - 1), sizeof(float));
	b->segment.slice.page = k3_calloc(pages, sizeof(float *));
	if (!pool || !scales || !b->token || !b->segment.slice.kda || !b->segment.slice.conv ||
	    !b->segment.slice.page)
		exit(1);
	for (uint64_t i = 0; i < pages; i++) {
		float *values = b->segment.slice.page[i] = malloc(page * sizeof(float));

		for (uint64_t k = 0; values && k < page; k++)
			values[k] = (float)rng_unit(&g) - 0.5f;
	}
	for (uint64_t i = 0; i < (POOL + BLOCK) / 8; i++) {
		uint64_t u = rng_u64(&g);

		/* four bf16 of either sign around 1/100 */
		u = (u & 0x80ff80ff80ff80ff) | 0x3c003c003c003c00;
		memcpy(pool + 8 * i, &u, 8);
	}
	memset(scales, 118, BLOCK);
	need(k3_team_new(threads, &b->team, &err), &err);
	need(k3_vectors_new(&config, &b->vectors, &err), &err);
	need(k3_tile_new(&config, most, &b->tile, &err), &err);
	need(k3_routed_new(&config, most, most, &b->routed, &err), &err);
	need(k3_rows_new(&b->latent, most, config.latent, &err), &err);
	need(k3_rows_new(&b->sum, most, config.latent, &err), &err);
	need(k3_rows_new(&b->shared, most, config.hidden, &err), &err);
	b->tile.latent = b->routed.latent = b->latent.at;
	b->tile.sum = b->routed.sum = b->sum.at;
	b->tile.shared = b->shared.at;
	need(k3_rows_new(&b->stream, most, 2 * (uint64_t)config.hidden, &err), &err);
	need(k3_rows_new(&b->logits, 1, config.vocab, &err), &err);
	b->feed.ops = &ops;
	b->pass = (struct k3_pass){
		.config = &config, .math = k3_kernels(), .feed = &b->feed, .vectors = &b->vectors,
		.tile = &b->tile, .routed = &b->routed,
		.scratch = k3_calloc(threads, sizeof(float *)),
	};
	for (unsigned i = 0; b->pass.scratch && i < threads; i++)
		b->pass.scratch[i] = k3_calloc(k3_scratch_size(&config, positions + most), sizeof(float));
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : cpus < 1 ? 1 : (unsigned)cpus;
	uint64_t prefill = argc > 2 ? strtoull(argv[2], NULL, 10) : 256;
	uint64_t context = argc > 3 ? strtoull(argv[3], NULL, 10) : 4096;
	static struct bench b;
	double first, kda, mla, far, logits, four, kda_rest, mla_rest;

	if (!threads || threads > 1024 || !prefill || !context)
		return 2;
	set_up(&b, threads, prefill, context);
	config.dense_layers = 1;
	first = run(&b, 0, 1, 0, ROUNDS);
	logits = best(&b, head, ROUNDS);
	config.dense_layers = 0;
	kda = run(&b, 0, 1, 0, ROUNDS);
	mla = run(&b, 1, 1, 0, ROUNDS);
	kda_rest = rest(&b, 0, 1, 0);
	mla_rest = rest(&b, 1, 1, 0);
	far = run(&b, 1, 1, context - 1, ROUNDS);
	printf("# %u threads, %s, %d experts a layer\n", threads, k3_cpu_name(), EXPERTS);
	printf("dense KDA layer     %8.4f s/token\nhead                %8.4f s/token\n", first, logits);
	printf("KDA layer           %8.4f s/token\nMLA layer           %8.4f s/token\n", kda, mla);
	printf("not weights         %7.1f %% of a KDA layer, %.1f %% of an MLA layer\n",
	       100 * kda_rest / kda, 100 * mla_rest / mla);
	printf("93 layers and head  %8.3f s/token\n", first + logits + 68 * kda + 24 * mla);
	printf("a cached position   %8.3f us/layer\n", (far - mla) / (double)(context - 1) * 1e6);
	fflush(stdout);
	four = run(&b, 1, prefill, 0, 1) + 3 * run(&b, 0, prefill, 0, 1);
	printf("%4llu tokens, 3 KDA layers and 1 MLA layer  %8.3f s\n", (unsigned long long)prefill,
	       four);
	return 0;
}
