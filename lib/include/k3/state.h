/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/state.h - what a sequence leaves behind in the layers that it has passed.
 *
 * A state belongs to one sequence, one model and a range of layers.  It is asked for
 * the slice of one layer and told to commit it; nobody ever sees the whole.
 *
 * With a file behind it a state is always exactly "after p ids", or "after layer
 * n of a pass over some of them", whatever process was killed: a layer's update
 * goes to unused space and becomes current when one of two headers is rewritten.
 * Bytes that were torn by copying or by a power loss are noticed by checksums.
 *
 * A state is used by one thread at a time; slices of different layers may be
 * filled by several, but for a passing state.
 */
#ifndef K3_STATE_H
#define K3_STATE_H

#include <k3/config.h>
#include <k3/err.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first bytes of a state file. */
#define K3_STATE_MAGIC { 'K', '3', 's', 't', 'a', 't', 'e', '\n' }

/* Positions in one page of MLA latents. */
enum { K3_PAGE = 64 };

/* The slice of one layer: what an operator reads and updates in place. */
struct k3_slice {
	/* KDA: [heads][key dim][value dim], and the last conv - 1 inputs of the short
	 * convolutions of q, k, v: [3][conv - 1][heads * dim], oldest first. */
	float *kda, *conv;
	/* MLA: pages of K3_PAGE positions, kv_rank + rope values each; room for all
	 * positions of the pass; `positions` are filled. */
	float **page;
	uint64_t positions;
};

struct k3_state;

/* What a state must fit: the model and the layers first .. last - 1. */
struct k3_state_spec {
	const struct k3_config *config;
	const uint8_t *fingerprint;	/* 16 bytes */
	uint32_t first, last;
};

/*
 * A state without a file.  A passing one keeps nothing, for a sequence that will not go on: a
 * slice lives from k3_state_slice to k3_state_store, that of one layer at a time.
 */
K3_API K3_NODISCARD int k3_state_new(const struct k3_state_spec *spec, bool passing,
				     struct k3_state **out, struct k3_err *err);

/*
 * A state in a file, which is created when it is missing or empty, and locked
 * against other writers.  The spec's config must outlive the state.  Errors: K3_EBUSY; K3_ESTALE for another model or other
 * layers; K3_EDATA for a file that is no state, cut short or damaged.
 */
K3_API K3_NODISCARD int k3_state_open(const char *path, const struct k3_state_spec *spec,
				      struct k3_state **out, struct k3_err *err);
K3_API void k3_state_close(struct k3_state *s);

/*
 * Gives a state that has no file one without a name in a directory, which is gone when the state
 * is closed.  It keeps no residual streams.  Not while a pass is in progress, nor for a passing
 * state.
 */
K3_API K3_NODISCARD int k3_state_give_file(struct k3_state *s, const char *directory,
					   struct k3_err *err);

/*
 * From now on the pages of a slice have room for n positions behind those of a pass.  What is
 * written there is no part of the state.  Errors: K3_EARG for a state in a named file.
 */
K3_API K3_NODISCARD int k3_state_reserve(struct k3_state *s, uint64_t n, struct k3_err *err);

/*
 * Whether slices stay in memory behind k3_state_store, which they do unless told otherwise.  One
 * without a file has no other place.
 */
K3_API void k3_state_page(struct k3_state *s, bool paged);

/*
 * Opens a state file for looking at it: no model is needed, nothing is locked
 * and nothing can be committed.  A slice that its owner rewrites meanwhile fails with K3_EDATA.
 */
K3_API K3_NODISCARD int k3_state_inspect(const char *path, struct k3_state **out,
					 struct k3_err *err);

/* What a header tells about the state and its model. */
struct k3_state_info {
	const uint8_t *fingerprint;	/* 16 bytes, borrowed */
	const uint8_t *kind;		/* enum k3_kind of each layer of the range, borrowed */
	uint32_t first, last;		/* the range */
	uint32_t hidden, kda_heads, kda_dim, conv, kv_rank, rope;
	uint64_t commits;
};
K3_API void k3_state_describe(const struct k3_state *s, struct k3_state_info *out);

/* The ids taken, those of a pass in progress included. */
K3_API uint64_t k3_state_position(const struct k3_state *s);
/* The ids of the pass in progress; 0 if there is none. */
K3_API uint64_t k3_state_pending(const struct k3_state *s);
/* The next layer of the pass in progress; the end of the range if there is none. */
K3_API uint32_t k3_state_layer(const struct k3_state *s);

/*
 * Bytes of memory that the slices of a sequence of so many positions take: all together, and
 * that of one layer, the largest; and what the state takes beside them.
 */
struct k3_state_bytes {
	uint64_t all, layer, itself;
};
K3_API struct k3_state_bytes k3_state_memory_of(const struct k3_state_spec *spec, bool passing,
						uint64_t positions);
/* The same for a state with n more ids. */
K3_API struct k3_state_bytes k3_state_memory(const struct k3_state *s, uint64_t n);
/* Does it keep nothing, not even between layers?  Is there a file behind it? */
K3_API bool k3_state_passing(const struct k3_state *s);
K3_API bool k3_state_has_file(const struct k3_state *s);

/*
 * The stored residual stream: of the ids of the pass in progress, else of the
 * last id.  *rows is 0 before the first pass.  Each row is sources * hidden
 * values; *out is malloced, the caller frees it.
 */
K3_API K3_NODISCARD int k3_state_residual(struct k3_state *s, float **out, uint64_t *rows,
					  uint32_t *sources, struct k3_err *err);

/*
 * Begins a pass over n more positions.  ids may be NULL when they are not known
 * (the range does not begin at layer 0).  Nothing that a reader of the
 * file can see changes before the first commit.
 */
K3_API K3_NODISCARD int k3_state_begin(struct k3_state *s, const uint32_t *ids, uint64_t n,
				       struct k3_err *err);

/* The ids taken so far, position of them; the caller frees *out. */
K3_API K3_NODISCARD int k3_state_ids(struct k3_state *s, uint32_t **out, struct k3_err *err);

/* The slice of a layer, with the positions that this layer has taken. */
K3_API K3_NODISCARD int k3_state_slice(struct k3_state *s, uint32_t layer,
				       struct k3_slice *out, struct k3_err *err);

/*
 * The pass will not change the slice of this layer any more, nor look at it: it may leave
 * memory.  It becomes current by k3_state_commit, which must follow.
 */
K3_API K3_NODISCARD int k3_state_store(struct k3_state *s, uint32_t layer, struct k3_err *err);

/* Where the residual stream behind a layer comes from, id by id of the pass. */
struct k3_residual {
	/* The row of the pass's id i, sources * hidden values, valid until the next call. */
	int (*row)(void *ctx, uint64_t i, const float **values, struct k3_err *err);
	void *ctx;
	uint32_t sources;
};

/*
 * The pass has taken this layer: the slice as it was stored becomes current,
 * together with the residual stream behind the layer, of which rows are asked for as far as
 * they are to be kept, in ascending order.
 */
K3_API K3_NODISCARD int k3_state_commit(struct k3_state *s, uint32_t layer,
					const struct k3_residual *residual, struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
