/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/retain.h - blocks of the trunk that stay from one tile of a layer to the next.
 *
 * Blocks come and go in the same order, that of use, so they lie in a ring.  One that finds no room is
 * not retained, and read again.  The caller sees to it that one thread at a time is in here.
 */
#ifndef K3_ENGINE_RETAIN_H
#define K3_ENGINE_RETAIN_H

#include <k3/err.h>
#include <stdbool.h>
#include <stdint.h>

struct k3_retain;

/* Blocks have numbers below `blocks`.  At first there is no room for any. */
K3_NODISCARD int k3_retain_new(uint64_t blocks, struct k3_retain **out, struct k3_err *err);
void k3_retain_free(struct k3_retain *r);

/* From now on a ring of so many bytes; it is empty.  Without the memory there is none. */
void k3_retain_size(struct k3_retain *r, uint64_t bytes);
void k3_retain_clear(struct k3_retain *r);

enum k3_retained { K3_RETAIN_NONE, K3_RETAIN_COMING, K3_RETAIN_HERE };

/* Whether the block is here, with its bytes in *data, or has a place that is not filled yet. */
enum k3_retained k3_retain_find(const struct k3_retain *r, uint64_t block,
				const unsigned char **data);
/* A place for a block that has none, or NULL. */
unsigned char *k3_retain_assign(struct k3_retain *r, uint64_t block, uint64_t bytes);
/* The bytes are in their place. */
void k3_retain_filled(struct k3_retain *r, uint64_t block);
/* Nobody uses the block any more, wherever it was. */
void k3_retain_drop(struct k3_retain *r, uint64_t block);

#endif
