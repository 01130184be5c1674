/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/trunk.h - the bytes of a trunk file (k3-trunk(5)) around its blocks, for the one who
 * writes it.
 */
#ifndef K3_DATA_TRUNK_H
#define K3_DATA_TRUNK_H

#include <k3/buf.h>
#include <k3/trunk.h>
#include <stdint.h>

enum {
	K3T_VERSION = 1,
	K3T_SECTION_STEP = 1 << 16,	/* sections begin and end on multiples of this */
	K3T_BLOCK_STEP = 64,		/* and blocks begin on multiples of this */
	K3T_MORE = 64			/* a block is never longer than its rows and this */
};

/* A block in a directory. */
struct k3_trunk_entry {
	uint32_t at;		/* from the start of the section, in units of K3T_BLOCK_STEP */
	uint32_t bytes;
	uint64_t sum;
};

/* A section in the head. */
struct k3_trunk_place {
	uint64_t offset, length;
};

/* The multiple of step, a power of two, at or above x. */
static inline uint64_t k3_trunk_up(uint64_t x, uint64_t step)
{
	return (x + step - 1) & ~(step - 1);
}

/* Where the head ends, and behind zeros the first section begins. */
uint64_t k3_trunk_head_end(uint32_t sections);
uint64_t k3_trunk_head_size(uint32_t sections);
/* The bytes of a section in front of its first block, without the zeros behind them. */
uint64_t k3_trunk_directory_size(uint64_t blocks);

/* Append to out, without the zeros behind; out->failed tells of a lack of memory. */
void k3_trunk_put_head(const uint8_t fingerprint[16], const struct k3_trunk_place *section,
		       uint32_t sections, struct k3_buf *out);
void k3_trunk_put_directory(const struct k3_trunk_entry *entry, uint32_t blocks, uint64_t plain,
			    struct k3_buf *out);

#endif
