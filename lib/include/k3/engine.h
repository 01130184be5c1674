/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/engine.h - sweeps: many sequences through a range of layers, layer by layer.
 *
 * In a sweep all sequences pass a layer before any of them enters the next, so
 * that the layer's weights pass by once, each expert once.  The bits of a result do not depend on
 * threads, blocks, tiles or on what else is in the sweep.
 *
 * An engine and its sweeps are used by one thread; it has its own helpers.
 */
#ifndef K3_ENGINE_H
#define K3_ENGINE_H

#include <k3/err.h>
#include <k3/index.h>
#include <k3/state.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct k3_engine_options {
	unsigned threads;	/* 0: as many as there are processors */
	uint64_t block_rows;	/* rows of a block of weights; 0: chosen by size */
	uint64_t tile;		/* tokens that the dense part takes at a time; 0: by memory */
};

struct k3_engine;

/* The index must outlive the engine. */
K3_API K3_NODISCARD int k3_engine_new(const struct k3_index *ix,
				      const struct k3_engine_options *options,
				      struct k3_engine **out, struct k3_err *err);
K3_API void k3_engine_free(struct k3_engine *e);

/* One line of a round: the new tokens of one sequence. */
struct k3_line {
	struct k3_state *state;	/* of the sweep's range of layers; borrowed */
	/*
	 * The tokens: ids where the sweep begins at layer 0, else residual
	 * streams, n * sources * hidden values.  A state with a pass in
	 * progress brings its own tokens, and n must be 0.
	 */
	uint64_t n;
	const uint32_t *ids;
	const float *hidden;
	uint32_t sources;	/* of hidden */
};

/* Places where values can be looked at. */
enum k3_site {
	K3_SITE_RESID,		/* hidden values a token: the running sum behind the layer */
	K3_SITES
};

/* What happened in one layer. */
struct k3_layer_report {
	uint32_t layer;
	enum k3_kind kind;
	bool moe;
	uint64_t tokens;
	double seconds;
	uint64_t trunk_bytes, expert_bytes;	/* read from the disk or its cache */
	uint32_t experts;			/* different ones that were read */
	/* of each token, in the order of lines: its name, and its experts, ascending */
	const uint32_t *sequence;
	const uint64_t *position;
	uint32_t chosen;
	const uint32_t *expert;
	const float *weight;
};

/*
 * Called by the engine while a sweep runs, on the thread that runs it.  Any of
 * them may be NULL; one that does not return 0 ends the sweep with what it returned.
 */
struct k3_watch {
	void *ctx;
	int (*before)(void *ctx, uint32_t layer, struct k3_err *err);
	int (*after)(void *ctx, const struct k3_layer_report *report, struct k3_err *err);
	/* The values of one line (row[i]: token i of n) at a site; for every line of the round. */
	int (*visit)(void *ctx, enum k3_site site, uint32_t layer, uint32_t line, uint64_t n,
		     uint64_t width, float *const *row, struct k3_err *err);
};

struct k3_sweep;

/*
 * Takes lines into a sweep over layers first .. last - 1: embeds ids, or takes
 * over residual streams.  The lines' tokens are copied, their states borrowed until k3_sweep_free.
 * Begins a pass in each state that gets tokens.  Errors: K3_EDATA names an id or
 * a stream that does not fit.
 */
K3_API K3_NODISCARD int k3_sweep_new(struct k3_engine *e, uint32_t first, uint32_t last,
				     const struct k3_line *line, uint32_t lines,
				     struct k3_sweep **out, struct k3_err *err);
K3_API void k3_sweep_free(struct k3_sweep *s);

/* Runs the layers up to `until` (at most last); every layer's states are committed. */
K3_API K3_NODISCARD int k3_sweep_run(struct k3_sweep *s, uint32_t until,
				     const struct k3_watch *watch, struct k3_err *err);

/* The tokens of a line, and their residual streams behind the last layer that ran. */
K3_API uint64_t k3_sweep_tokens(const struct k3_sweep *s, uint32_t line);
K3_API const float *k3_sweep_stream(const struct k3_sweep *s, uint32_t line, uint64_t token,
				    uint32_t *sources);

/* A residual stream whose logits are wanted. */
struct k3_stream {
	const float *values;	/* sources * hidden */
	uint32_t sources;	/* at least 1 */
	uint32_t sequence;	/* for messages */
	uint64_t position;
};

/*
 * The output mix, final norm and head for n streams.  sink gets the logits, vocab of
 * them, stream by stream in order; they are finite.  The head passes by once for
 * each group of streams whose logits fit into a fixed amount of memory.
 */
K3_API K3_NODISCARD int k3_engine_logits(struct k3_engine *e, const struct k3_stream *stream,
					 uint64_t n,
					 int (*sink)(void *ctx, uint64_t i, const float *logits,
						     struct k3_err *err),
					 void *ctx, struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
