/* SPDX-License-Identifier: Apache-2.0 */
/* engine/file_feed.h - blocks of weights read from the shards when they are asked for. */
#ifndef K3_ENGINE_FILE_FEED_H
#define K3_ENGINE_FILE_FEED_H

#include "model/feed.h"

struct k3_file_feed;

/*
 * block_rows: 0 for blocks of up to 1 MB that give every worker some.  The index
 * must outlive the feed.
 */
K3_NODISCARD int k3_file_feed_new(const struct k3_index *ix, unsigned workers,
				  uint64_t block_rows, struct k3_file_feed **out,
				  struct k3_err *err);
void k3_file_feed_free(struct k3_file_feed *f);
struct k3_feed *k3_file_feed_base(struct k3_file_feed *f);

/* Bytes read so far, of experts and of everything else. */
void k3_file_feed_bytes(const struct k3_file_feed *f, uint64_t *trunk, uint64_t *experts);

#endif
