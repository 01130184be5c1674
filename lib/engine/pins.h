/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/pins.h - the blocks of trunk and head that stay in memory, as they came from the disk.
 *
 * The trunk is walked in a circle, so the block that is kept must be chosen once, not
 * by when it was used.  Which ones does not matter for the bytes; they are spread evenly over the
 * order of use, so that disk and processors both have something to do all the time.
 */
#ifndef K3_ENGINE_PINS_H
#define K3_ENGINE_PINS_H

#include <k3/err.h>

#include <stdbool.h>
#include <stdint.h>

struct k3_pins;

/* blocks: how many there are in all, of `total` bytes together; at most `most` bytes stay. */
K3_NODISCARD int k3_pins_new(uint64_t blocks, uint64_t total, uint64_t most,
			     struct k3_pins **out, struct k3_err *err);
void k3_pins_free(struct k3_pins *p);

/* From now on at most so many bytes; what lies beyond is given back.  Nothing may be in use. */
void k3_pins_limit(struct k3_pins *p, uint64_t bytes);

/* About as many bytes of blocks will stay under that limit. */
uint64_t k3_pins_expected(uint64_t blocks, uint64_t total, uint64_t limit);

/* The bytes of a block that is here, or NULL. */
const unsigned char *k3_pins_find(const struct k3_pins *p, uint64_t block);
/* Has the block a place that is not filled yet? */
bool k3_pins_coming(const struct k3_pins *p, uint64_t block);
/* A place for a block that will stay; NULL if it will not or has one.  Then fill it and say so. */
unsigned char *k3_pins_assign(struct k3_pins *p, uint64_t block, uint64_t bytes);
void k3_pins_filled(struct k3_pins *p, uint64_t block);
/* Forgets the places that nobody filled, after a run that failed. */
void k3_pins_clean(struct k3_pins *p);

/* The bytes that are taken, and that could be if there were memory for all blocks and `most`. */
uint64_t k3_pins_used(const struct k3_pins *p);
uint64_t k3_pins_most(const struct k3_pins *p);

/* What blocks of so many bytes together take, if all of them stay. */
uint64_t k3_pins_area(uint64_t blocks, uint64_t total);

#endif
