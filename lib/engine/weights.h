/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/weights.h - the feed: blocks of weights out of pinned memory, the expert cache, or a
 * reader that goes ahead.
 */
#ifndef K3_ENGINE_WEIGHTS_H
#define K3_ENGINE_WEIGHTS_H

#include "engine/fit.h"
#include "engine/reader.h"
#include "model/feed.h"

#include <k3/engine.h>

struct k3_weights;

struct k3_weights_options {
	unsigned workers;
	uint64_t block_rows;		/* 0: as data/order.h cuts, and trunk files */
	uint64_t ring, request;		/* bytes of all buffers that reads go to, and of a read */
	unsigned depth;			/* requests at a time, at most; and two fewer than buffers */
	uint64_t memory;		/* bytes for weights that stay, at the most */
	uint64_t trunk_bytes;		/* of the sections that will be used */
};

/* The buffers that it will have: as many as ring holds, or more if the workers need more. */
struct k3_reader_options k3_weights_buffers(const struct k3_config *c,
					    const struct k3_weights_options *o);

/* Bytes of a worker's decoded block, where there is a trunk file. */
uint64_t k3_weights_plain(const struct k3_config *c);

/* The index must outlive it.  trunk: owned from now on, or NULL; also after an error. */
K3_NODISCARD int k3_weights_new(const struct k3_index *ix, struct k3_trunk *trunk,
			       const struct k3_weights_options *o, struct k3_weights **out,
			       struct k3_err *err);
void k3_weights_free(struct k3_weights *s);
struct k3_feed *k3_weights_feed(struct k3_weights *s);

/* What reading experts ahead takes for these weights. */
const struct k3_hoard_cost *k3_weights_hoard_cost(const struct k3_weights *s);

/* The bytes beyond which nothing can be kept. */
uint64_t k3_weights_most(const struct k3_weights *s);

/*
 * How many bytes of weights may stay in memory from now on, and how many are for experts that are read
 * ahead; if these are any, the cost's `retain` for blocks between tiles comes on top.  Not between begin and end.  Errors:
 * K3_ENOMEM.
 */
K3_NODISCARD int k3_weights_keep(struct k3_weights *s, uint64_t bytes, uint64_t hoard,
				 struct k3_err *err);

/*
 * Weights of sections from .. until - 1 (data/order.h) are going to be asked for: of each
 * section its vectors once and its dense part tiles[section - from] times.  The array stays until
 * k3_weights_end, which must follow whatever happens.
 */
void k3_weights_begin(struct k3_weights *s, uint32_t from, uint32_t until, const uint32_t *tiles);
void k3_weights_end(struct k3_weights *s);

/* Sums since the beginning; waited is added up over all workers. */
void k3_weights_count(const struct k3_weights *s, struct k3_engine_counts *out);

/* The path of a file of which direct reads were refused; once, then NULL. */
const char *k3_weights_refused(struct k3_weights *s);

#endif
