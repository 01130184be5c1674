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

/* The bytes of memory that it takes to have a ring of so many. */
uint64_t k3_retain_bytes(uint64_t blocks, uint64_t ring);

/* From now on it takes at most so many bytes, 0: none; it is empty.  Errors: K3_ENOMEM. */
K3_NODISCARD int k3_retain_size(struct k3_retain *r, uint64_t bytes, struct k3_err *err);
void k3_retain_clear(struct k3_retain *r);

/* The bytes of a block that is here, or NULL. */
const unsigned char *k3_retain_find(const struct k3_retain *r, uint64_t block);
/* Has the block a place that is not filled yet? */
bool k3_retain_coming(const struct k3_retain *r, uint64_t block);
/* A place for a block that has none, or NULL.  Then fill it and say so. */
unsigned char *k3_retain_assign(struct k3_retain *r, uint64_t block, uint64_t bytes);
void k3_retain_filled(struct k3_retain *r, uint64_t block);
/* Nobody uses the block any more, wherever it was. */
void k3_retain_drop(struct k3_retain *r, uint64_t block);

#endif
