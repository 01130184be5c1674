/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_bits.c - the same bits of logits however the work is cut: traps T33 (a prompt in pieces),
 * T34 (alone or with others) and T35 (threads, blocks, tiles), layers in several sweeps; and
 * T38, reads that come short.
 */
#include "checkpoint.h"

#include "math/kernels.h"

#include <k3/cpu.h>
#include <k3/engine.h>

#include <fcntl.h>

enum { TOKENS = 40, BATCH = 64, LAYERS = 5, LONGEST = 90 };

static struct checkpoint model;
static struct k3_err err;
static uint32_t vocab;
static uint32_t prompt[TOKENS], other[BATCH][LONGEST];
static float *want;			/* the logits of all ids of the prompt, in one piece */

static struct k3_engine *engine_of(unsigned threads, uint64_t block_rows, uint64_t tile)
{
	struct k3_engine_options o = { .threads = threads, .block_rows = block_rows, .tile = tile };
	struct k3_engine *e;

	need(k3_engine_new(model.ix, &o, &e, &err), &err);
	return e;
}

static struct k3_state *state_of(uint32_t first, uint32_t last)
{
	struct k3_state_spec spec = { &model.config, k3_index_fingerprint(model.ix), first, last };
	struct k3_state *s;

	need(k3_state_new(&spec, false, &s, &err), &err);
	return s;
}

/* Tokens of a line on their way through the head. */
struct wanted {
	struct k3_sweep *s;
	uint32_t line;
	uint64_t first;
	uint32_t sequence;		/* for messages; and of token 0 .. */
	uint64_t position;
	float *out;
};

static int give(void *ctx, uint64_t i, struct k3_stream *out, struct k3_err *e)
{
	const struct wanted *w = ctx;

	out->sequence = w->sequence;
	out->position = w->position + w->first + i;
	return k3_sweep_stream(w->s, w->line, w->first + i, out, e);
}

static int take(void *ctx, uint64_t i, const float *logits, struct k3_err *e)
{
	const struct wanted *w = ctx;

	(void)e;
	memcpy(w->out + i * vocab, logits, vocab * sizeof *logits);
	return 0;
}

/* The logits of the n tokens of a line behind its last layer. */
static void logits_of(struct k3_engine *e, struct k3_sweep *s, uint32_t line, float *out)
{
	struct wanted w = { .s = s, .line = line, .out = out };
	struct k3_head_io io = { give, take, &w };

	need(k3_engine_logits(e, k3_sweep_tokens(s, line), &io, &err), &err);
}

/* A state takes n more ids through all layers; their logits go to out. */
static void feed(struct k3_engine *e, struct k3_state *state, const uint32_t *ids, uint64_t n,
		 float *out)
{
	struct k3_line line = { .state = state, .n = n, .ids = ids };
	struct k3_watch nothing = { 0 };
	struct k3_sweep *s;

	need(k3_sweep_new(e, 0, LAYERS, &line, 1, &s, &err), &err);
	need(k3_sweep_run(s, LAYERS, &nothing, &err), &err);
	logits_of(e, s, 0, out);
	k3_sweep_free(s);
}

/* The prompt alone, in pieces that end at the given ids (the last at TOKENS): are its logits
 * those of `want`? */
static bool pieces(struct k3_engine *e, const uint64_t *end, int n)
{
	float *got = calloc((size_t)TOKENS * vocab, sizeof *got);
	struct k3_state *s = state_of(0, LAYERS);
	uint64_t from = 0;
	bool same;

	for (int i = 0; i < n; from = end[i++])
		feed(e, s, prompt + from, end[i] - from, got + from * vocab);
	same = !memcmp(got, want, TOKENS * vocab * sizeof *got);
	k3_state_close(s);
	free(got);
	return same;
}

static void cut_anywhere(void)
{
	struct k3_engine *e = engine_of(2, 0, 0);
	uint64_t each[TOKENS];
	bool all = true;

	for (uint64_t cut = 1; cut < TOKENS; cut++) {
		bool same = pieces(e, (uint64_t[]){ cut, TOKENS }, 2);

		if (!same)
			printf("# not when cut behind %d ids\n", (int)cut);
		all &= same;
	}
	ok(all, "T33: forty ids cut in two at each place");
	for (uint64_t i = 0; i < TOKENS; i++)
		each[i] = i + 1;
	ok(pieces(e, each, TOKENS), "T33: forty ids one by one");
	ok(pieces(e, (uint64_t[]){ 1, 3, 6, 10, 15, 21, 28, 36, TOKENS }, 9),
	   "T33: in nine pieces");
	k3_engine_free(e);
}

/* The prompt as line `place` of a batch whose other lines have 0 to 21 ids, one of them 90. */
static bool in_batch(struct k3_engine *e, uint32_t place)
{
	struct k3_line line[BATCH];
	struct k3_watch nothing = { 0 };
	struct k3_sweep *s;
	float *got = calloc((size_t)TOKENS * vocab, sizeof *got);
	bool same;

	for (uint32_t i = 0; i < BATCH; i++)
		line[i] = (struct k3_line){ .state = state_of(0, LAYERS), .ids = other[i],
					    .n = i == 5 ? LONGEST : i * 7 % 22 };
	line[place].ids = prompt;
	line[place].n = TOKENS;
	need(k3_sweep_new(e, 0, LAYERS, line, BATCH, &s, &err), &err);
	need(k3_sweep_run(s, LAYERS, &nothing, &err), &err);
	logits_of(e, s, place, got);
	same = !memcmp(got, want, TOKENS * vocab * sizeof *got);
	k3_sweep_free(s);
	for (uint32_t i = 0; i < BATCH; i++)
		k3_state_close(line[i].state);
	free(got);
	return same;
}

static void batches(void)
{
	static const uint32_t place[] = { 0, 17, BATCH - 1 };
	struct k3_engine *e = engine_of(2, 0, 0), *small = engine_of(3, 5, 9);

	for (int i = 0; i < 3; i++)
		ok(in_batch(e, place[i]), "T34: alone, and as line %u of %d", place[i], BATCH);
	ok(in_batch(small, 30), "T34: in a batch in tiles of 9 and blocks of 5 rows");
	k3_engine_free(e);
	k3_engine_free(small);
}

static void dials(void)
{
	static const unsigned threads[] = { 1, 2, 3, 16 };
	static const uint64_t rows[] = { 0, 1, 7 }, tile[] = { 0, 1, 3 };

	for (int t = 0; t < 4; t++) {
		bool all = true;

		for (int i = 0; i < 9; i++) {
			struct k3_engine *e = engine_of(threads[t], rows[i / 3], tile[i % 3]);

			all &= pieces(e, (uint64_t[]){ TOKENS }, 1);
			all &= pieces(e, (uint64_t[]){ 11, TOKENS }, 2);
			k3_engine_free(e);
		}
		ok(all, "T35: %u threads; blocks of all sizes, 1 and 7 rows; tiles of all, 1 and 3",
		   threads[t]);
	}
}

/* Layers 0 .. cut - 1 in one sweep, their residual streams into another for the rest. */
static bool cut_layers(struct k3_engine *e, uint32_t cut)
{
	struct k3_line line = { .state = state_of(0, cut), .n = TOKENS, .ids = prompt }, rest;
	float *got = calloc((size_t)TOKENS * vocab, sizeof *got), *hidden;
	uint64_t hidden_size = model.config.hidden;
	struct k3_watch nothing = { 0 };
	struct k3_sweep *s;
	struct k3_stream stream;
	uint32_t sources;
	bool same;

	need(k3_sweep_new(e, 0, cut, &line, 1, &s, &err), &err);
	need(k3_sweep_run(s, cut, &nothing, &err), &err);
	need(k3_sweep_stream(s, 0, 0, &stream, &err), &err);
	sources = stream.sources;
	hidden = calloc((size_t)TOKENS * sources * hidden_size, sizeof *hidden);
	for (uint64_t t = 0; t < TOKENS; t++) {
		need(k3_sweep_stream(s, 0, t, &stream, &err), &err);
		memcpy(hidden + t * sources * hidden_size, stream.values,
		       sources * hidden_size * sizeof *hidden);
	}
	k3_sweep_free(s);
	rest = (struct k3_line){ .state = state_of(cut, LAYERS), .n = TOKENS, .hidden = hidden,
				 .sources = sources };
	need(k3_sweep_new(e, cut, LAYERS, &rest, 1, &s, &err), &err);
	need(k3_sweep_run(s, LAYERS, &nothing, &err), &err);
	logits_of(e, s, 0, got);
	same = !memcmp(got, want, TOKENS * vocab * sizeof *got);
	k3_sweep_free(s);
	k3_state_close(line.state);
	k3_state_close(rest.state);
	free(hidden);
	free(got);
	return same;
}

/* Every instruction set of this machine; the last one, the best, stays selected. */
static void instruction_sets(void)
{
	for (unsigned i = 0; k3_kernels_at(i); i++) {
		struct k3_engine *e;

		need(k3_cpu_select(k3_kernels_at(i)->name, &err), &err);
		e = engine_of(2, 0, 0);
		ok(pieces(e, (uint64_t[]){ 17, TOKENS }, 2), "T35: %s", k3_cpu_name());
		ok(in_batch(e, 11), "T35: %s in a batch", k3_cpu_name());
		k3_engine_free(e);
	}
}

static void layers(void)
{
	struct k3_engine *e = engine_of(2, 0, 0);

	for (uint32_t cut = 1; cut < LAYERS; cut++)
		ok(cut_layers(e, cut), "layers cut in front of %u", cut);
	k3_engine_free(e);
}

/* A state in a file, closed and opened again behind each piece. */
static void resumed(void)
{
	struct k3_state_spec spec = { &model.config, k3_index_fingerprint(model.ix), 0, LAYERS };
	struct k3_engine *e = engine_of(2, 0, 0);
	float *got = calloc((size_t)TOKENS * vocab, sizeof *got);
	struct k3_state *s;
	char path[600];

	snprintf(path, sizeof path, "%s/state", model.directory);
	for (uint64_t from = 0; from < TOKENS; from += 8) {
		need(k3_state_open(path, &spec, &s, &err), &err);
		feed(e, s, prompt + from, 8, got + from * vocab);
		k3_state_close(s);
	}
	ok(!memcmp(got, want, TOKENS * vocab * sizeof *got), "T33: a state that lives in a file");
	unlink(path);
	free(got);
	k3_engine_free(e);
}

/* What a sweep over the prompt returns. */
static int sweep(struct k3_engine *e)
{
	struct k3_line line = { .state = state_of(0, LAYERS), .n = TOKENS, .ids = prompt };
	struct k3_watch nothing = { 0 };
	struct k3_sweep *s;
	int rc = k3_sweep_new(e, 0, LAYERS, &line, 1, &s, &err);

	if (!rc)
		rc = k3_sweep_run(s, LAYERS, &nothing, &err);
	k3_sweep_free(s);
	k3_state_close(line.state);
	return rc;
}

/* The same of an engine that meets changed weights. */
static int attempt(void)
{
	struct k3_engine *e = engine_of(2, 0, 0);
	int rc = sweep(e);

	k3_engine_free(e);
	return rc;
}

/* Writes n bytes of value over the first scales of w2 in each expert of layer 3, or puts back
 * what was there. */
static void overwrite(int value, bool back)
{
	static unsigned char old[16][32];
	unsigned char bytes[32];
	struct k3_tensor t;
	int fd;

	memset(bytes, value, sizeof bytes);
	for (uint32_t x = 0; x < model.config.experts; x++) {
		need(k3_index_tensor(model.ix, K3_W2_SCALE, 3, x, &t, &err), &err);
		fd = open(k3_index_shard_path(model.ix, t.shard), O_RDONLY);
		if ((!back && pread(fd, old[x], sizeof bytes, (off_t)t.offset) != sizeof bytes) ||
		    !shard_write(k3_index_shard_path(model.ix, t.shard), back ? old[x] : bytes,
				 sizeof bytes, t.offset))
			ok(false, "the shard can be changed");
		close(fd);
	}
}

static void scale_bytes(void)
{
	for (int value = 252; value <= 255; value++) {
		bool named;
		int rc;

		overwrite(value, false);
		rc = attempt();
		overwrite(0, true);
		named = rc == K3_EDATA && strstr(err.text, "w2.weight_scale: scale byte");
		/* with 252 the sums may overflow, which is said otherwise */
		ok(named == (value > 252), "N2: a scale byte of %d", value);
	}
	ok(!attempt(), "all is well when they are back");
}

/* A head whose last row holds infinities (0x7f80 as bf16). */
static void infinite_logit(void)
{
	struct k3_engine *e = engine_of(2, 0, 0);
	struct k3_state *s = state_of(0, LAYERS);
	struct k3_line line = { .state = s, .n = 2, .ids = prompt };
	struct k3_watch nothing = { 0 };
	unsigned char old[4], bad[4] = { 0x80, 0x7f, 0x80, 0xff };
	float out[64];
	struct wanted w = { .first = 1, .sequence = 3, .position = 8, .out = out };
	struct k3_head_io io = { give, take, &w };
	const char *path;
	struct k3_tensor t;
	uint64_t at;
	int fd, rc;

	need(k3_index_tensor(model.ix, K3_HEAD, 0, 0, &t, &err), &err);
	at = t.offset + t.bytes - 4;
	path = k3_index_shard_path(model.ix, t.shard);
	fd = open(path, O_RDONLY);
	ok(pread(fd, old, 4, (off_t)at) == 4 && shard_write(path, bad, 4, at), "the head can be changed");
	close(fd);
	need(k3_sweep_new(e, 0, LAYERS, &line, 1, &w.s, &err), &err);
	need(k3_sweep_run(w.s, LAYERS, &nothing, &err), &err);
	rc = k3_engine_logits(e, 1, &io, &err);
	ok(rc == K3_EDATA && strstr(err.text, "sequence 3, position 9: the logit of id 49"),
	   "N14: a logit that is not finite ends the run: %s", err.text);
	ok(shard_write(path, old, 4, at), "the head is as it was");
	k3_sweep_free(w.s);
	k3_state_close(s);
	k3_engine_free(e);
}

static void short_reads(void)
{
	/* weights are read anew in each sweep */
	struct k3_engine_options o = { .threads = 2, .once = true };
	struct k3_engine *e;
	const char *path;
	struct k3_tensor t;

	need(k3_engine_new(model.ix, &o, &e, &err), &err);
	need(k3_index_tensor(model.ix, K3_OUT, 4, 0, &t, &err), &err);
	path = k3_index_shard_path(model.ix, t.shard);
	need(sweep(e), &err);
	if (truncate(path, (off_t)(t.offset + t.bytes / 2)))
		ok(false, "the shard can be cut");
	ok(sweep(e) == K3_EDATA && strstr(err.text, path) && strstr(err.text, "the file ends"),
	   "T38: a shard cut short while it is in use: %s", err.text);
	k3_engine_free(e);
	ok(attempt() == K3_ESTALE && strstr(err.text, path), "a shard that was cut short: %s", err.text);
	unlink(path);
	ok(attempt() == K3_EIO && strstr(err.text, path), "T38: a shard that is gone: %s", err.text);
}

int main(void)
{
	struct rng g = { 9 };
	struct k3_engine *e;
	struct k3_state *s;

	checkpoint_new(&model);
	vocab = model.config.vocab;
	for (int i = 0; i < TOKENS; i++)
		prompt[i] = (uint32_t)(rng_u64(&g) % vocab);
	for (int i = 0; i < BATCH * LONGEST; i++)
		other[i / LONGEST][i % LONGEST] = (uint32_t)(rng_u64(&g) % vocab);
	want = calloc((size_t)TOKENS * vocab, sizeof *want);
	e = engine_of(1, 0, 0);
	s = state_of(0, LAYERS);
	feed(e, s, prompt, TOKENS, want);
	ok(want[0] != 0 && want[vocab] != want[0] && isfinite(want[TOKENS * vocab - 1]),
	   "the model says something: %g", (double)want[0]);
	k3_state_close(s);
	k3_engine_free(e);

	cut_anywhere();
	batches();
	dials();
	instruction_sets();
	layers();
	resumed();
	scale_bytes();
	infinite_logit();
	short_reads();
	free(want);
	checkpoint_free(&model);
	return tap_done();
}
