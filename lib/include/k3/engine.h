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

/* How to read a disk; what is 0 is what was best where it was tried. */
struct k3_disk_use {
	uint64_t ring;		/* bytes of memory that reads go to */
	uint64_t request;	/* bytes of a read */
	uint64_t depth;		/* reads at a time, at most */
	/* for plans alone, which may be of another machine */
	double rate;		/* bytes a second that are used; 0: not known */
	uint64_t memory;	/* bytes that the machine has; 0: it is this one */
};

/*
 * Reads them from a file like 'k3-stat disk -j' writes: a JSON object of which "ring", "request",
 * "depth", "memory", and "used_rate", or else "rate", count, each of which may be missing.
 * Errors: K3_EDATA, K3_EIO.
 */
K3_API K3_NODISCARD int k3_disk_use_read(const char *path, struct k3_disk_use *out,
					 struct k3_err *err);

struct k3_engine_options {
	unsigned threads;	/* 0: as many as there are processors */
	uint64_t block_rows;	/* rows of a block of weights without a trunk file; 0: chosen by size */
	uint64_t tile;		/* tokens that the dense part takes at a time; 0: by memory */
	/* The trunk file; NULL: model.k3t in the model's directory if it is there, "": none. */
	const char *trunk;
	uint64_t memory;	/* bytes that the process may have resident; 0: most of what is free */
	uint64_t reserved;	/* of these so many are not the engine's: the program has large things of its own */
	struct k3_disk_use disk;
	/* Where states without files, and rows of sweeps, go if memory is too small for them; NULL: nowhere. */
	const char *temporary;
	/* What the engine is for: the smallest memory is reckoned for one token in each sequence. */
	uint32_t first, last;	/* layers; last 0: all behind the first */
	uint64_t sequences;
	bool passing;		/* states that keep nothing */
	bool once;		/* one sweep, and no records of states: weights are not kept for what follows */
	uint64_t drafted;	/* guesses behind the tokens of each sequence, at most */
};

/* Where memory goes, and what a token costs; all in bytes. */
struct k3_plan {
	uint64_t memory, floor;		/* what there is, and the least that would do */
	/* parts; their sum is at most memory */
	uint64_t process;		/* the program itself, its libraries and stacks */
	uint64_t index;			/* the index, and what is known of the trunk file */
	uint64_t states;
	bool paged;			/* only of one layer: the others are in files */
	uint64_t activations;		/* of a sweep, and its logits */
	bool spilled;			/* only of a tile: the others are in a file */
	uint64_t ring;
	uint64_t pinned;		/* of trunk and head */
	uint64_t cached;		/* of experts */
	/* the model */
	bool coded;			/* there is a trunk file */
	uint64_t trunk_bytes;		/* trunk and head on the disk */
	uint64_t expert_bytes;		/* the experts of one token */
	uint32_t sections;		/* layers, and the head */
	/* of one token of one sequence, from the disk */
	uint64_t token_bytes;
	double token_seconds;		/* 0 if the disk's rate is not known */
};

/*
 * Reckons what k3_engine_new would do with these options, on the machine that options->disk.memory describes if that is
 * not 0; nothing is allocated for it.  Errors:
 * K3_ENOMEM names the floor if there is less memory than that, or what limits it if
 * there is less than was asked for; those of the trunk file.
 */
K3_API K3_NODISCARD int k3_plan_make(const struct k3_index *ix,
				     const struct k3_engine_options *options,
				     struct k3_plan *out, struct k3_err *err);

struct k3_engine;

/* The index must outlive the engine.  Errors: those of k3_plan_make. */
K3_API K3_NODISCARD int k3_engine_new(const struct k3_index *ix,
				      const struct k3_engine_options *options,
				      struct k3_engine **out, struct k3_err *err);
K3_API void k3_engine_free(struct k3_engine *e);

/* Sums over all that the engine has done. */
struct k3_engine_counts {
	uint64_t trunk_bytes, expert_bytes;	/* of weights used, those that were read .. */
	uint64_t trunk_kept, expert_kept;	/* .. and those that were in memory */
	/* of all reads: more, as these begin and end on whole pages, and with rows of the embedding */
	uint64_t disk_bytes;
	double waited;				/* seconds of a thread, on average, for the disk, also in front of the layers */
};
K3_API void k3_engine_count(const struct k3_engine *e, struct k3_engine_counts *out);

/* The path of a file of which direct reads were refused, which costs speed; once, then NULL. */
K3_API const char *k3_engine_refused(struct k3_engine *e);

/*
 * Guesses: ids that may come behind a line, and that pass the layers together with it.  No state
 * learns of them.  Those that come true are taken without a sweep, and the logits behind them are
 * those that they would have had without a guess, bit for bit.
 */
struct k3_draft;
enum { K3_DRAFT_MOST = 16 };

/*
 * For one sequence, with up to `most` guesses, of which the engine's options have to know; belongs
 * to the caller, and the config, which is the engine's, must outlive it.  Errors: K3_EARG for
 * none or more than K3_DRAFT_MOST.
 */
K3_API K3_NODISCARD int k3_draft_new(const struct k3_config *c, uint64_t most,
				     struct k3_draft **out, struct k3_err *err);
K3_API void k3_draft_free(struct k3_draft *d);

/* The *n guesses of the last sweep that have not been taken, in their order; borrowed. */
K3_API const uint32_t *k3_draft_ids(const struct k3_draft *d, uint64_t *n);
/* vocab values for guess i of these: room for the caller, the engine does not touch it. */
K3_API float *k3_draft_logits(struct k3_draft *d, uint64_t i);
/* The first n of these came true: the next sweep that has ids takes them into the state. */
K3_API void k3_draft_take(struct k3_draft *d, uint64_t n);

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
	/*
	 * Of the n ids the last `drafted` are guesses, and at least one is not.  The sweep begins
	 * at layer 0, and the state has no named file.  A sequence that had a draft in one sweep
	 * has it in all that follow.  Where memory is short there are fewer guesses: see
	 * k3_draft_ids.
	 */
	struct k3_draft *draft;	/* NULL: none */
	uint64_t drafted;
};

/* Places where values can be looked at. */
enum k3_site {
	K3_SITE_RESID,		/* hidden values a token: the running sum behind the layer */
	K3_SITES
};

/* Some of the values of a line at a site. */
struct k3_visit {
	enum k3_site site;
	uint32_t layer, line;
	uint64_t n;		/* tokens of the line */
	uint64_t first, count;	/* those that come now */
	uint64_t width;		/* values of each */
	float *const *row;
};

/* What happened in one layer. */
struct k3_layer_report {
	uint32_t layer;
	enum k3_kind kind;
	bool moe;
	uint64_t tokens;
	double seconds;
	double waited;				/* seconds of a thread, on average, for the disk */
	uint64_t trunk_bytes, expert_bytes;	/* used that were read .. */
	uint64_t trunk_kept, expert_kept;	/* .. and that were in memory */
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
	/* Called for every line of the round, tokens ascending, in as many pieces as memory needs: one at least. */
	int (*visit)(void *ctx, const struct k3_visit *visit, struct k3_err *err);
};

struct k3_sweep;

/*
 * Takes lines into a sweep over layers first .. last - 1: embeds ids, or takes
 * over residual streams.  The lines' tokens are copied, their states borrowed until k3_sweep_free.
 * Begins a pass in each state that gets tokens.  Errors: K3_EDATA names an id or
 * a stream that does not fit; K3_ENOMEM if the engine's memory is too small for that many.
 */
K3_API K3_NODISCARD int k3_sweep_new(struct k3_engine *e, uint32_t first, uint32_t last,
				     const struct k3_line *line, uint32_t lines,
				     struct k3_sweep **out, struct k3_err *err);
K3_API void k3_sweep_free(struct k3_sweep *s);

/* Runs the layers up to `until` (at most last); every layer's states are committed. */
K3_API K3_NODISCARD int k3_sweep_run(struct k3_sweep *s, uint32_t until,
				     const struct k3_watch *watch, struct k3_err *err);

/* The tokens of a line. */
K3_API uint64_t k3_sweep_tokens(const struct k3_sweep *s, uint32_t line);

/* A residual stream: sources * hidden values. */
struct k3_stream {
	const float *values;
	uint32_t sources;	/* at least 1 */
	uint32_t sequence;	/* for messages */
	uint64_t position;
};

/*
 * That of a token behind the last layer that ran, without its name.  Its values are valid until
 * the next call.  Errors: those of a temporary file.
 */
K3_API K3_NODISCARD int k3_sweep_stream(struct k3_sweep *s, uint32_t line, uint64_t token,
					struct k3_stream *out, struct k3_err *err);

/* Where streams whose logits are wanted come from, and where the logits go, one after the other. */
struct k3_head_io {
	/* Stream number i; its values are used before the next call. */
	int (*stream)(void *ctx, uint64_t i, struct k3_stream *out, struct k3_err *err);
	/* Its logits, vocab of them, finite. */
	int (*logits)(void *ctx, uint64_t i, const float *logits, struct k3_err *err);
	void *ctx;
};

/*
 * The output mix, final norm and head for n streams.  The head passes by once for each group of streams whose logits
 * fit into a fixed amount of memory: a group's streams are asked for, then its logits are given.
 */
K3_API K3_NODISCARD int k3_engine_logits(struct k3_engine *e, uint64_t n,
					 const struct k3_head_io *io, struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
