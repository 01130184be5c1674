/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/state_file.h - the bytes of a state file; man/k3-state.5 describes them.
 *
 * The file is two headers, one slot for each KDA layer and a spare one, then
 * groups of pages, each for 64 positions of all MLA layers, and somewhere behind
 * them the residual stream.  A header names everything that is current; the other
 * header, the spare slot and whatever no header names may be written at any time.
 */
#ifndef K3_DATA_STATE_FILE_H
#define K3_DATA_STATE_FILE_H

#include <k3/state.h>

/* What decides where things lie. */
struct k3_state_shape {
	uint32_t first, last;		/* layers */
	uint32_t hidden;
	uint32_t kda_heads, kda_dim, conv;
	uint32_t kv_rank, rope;
	uint8_t *kind;			/* owned: of each layer of the range */
	/* derived */
	uint32_t kda_layers, mla_layers;
	uint64_t header_bytes, slot_bytes, kda_floats, conv_floats;
	uint64_t page_floats, group_bytes, groups_at;
};

/* One layer's entry in the header. */
struct k3_state_layer {
	uint32_t slot;		/* KDA: where its slice is */
	uint64_t sum;		/* of the slice, or of all positions of an MLA layer */
};

/* The part of a header that changes. */
struct k3_state_head {
	uint64_t commits;	/* number of this header: the larger one is current */
	uint64_t ids, pass;	/* ids taken; of these in the pass in progress */
	uint32_t next;		/* next layer of that pass */
	uint32_t spare;		/* the slot that is free */
	uint64_t ids_sum;
	uint64_t residual_at, residual_rows;
	uint32_t residual_sources;
	uint64_t residual_sum;
	struct k3_state_layer *layer;	/* owned: one for each layer of the range */
};

K3_NODISCARD int k3_shape_init(struct k3_state_shape *s, const struct k3_config *c, uint32_t first,
			       uint32_t last, struct k3_err *err);
void k3_shape_free(struct k3_state_shape *s);

/* Offsets in the file. */
uint64_t k3_shape_slot(const struct k3_state_shape *s, uint32_t slot);
uint64_t k3_shape_group(const struct k3_state_shape *s, uint64_t group);
/* Page `group` of the MLA layer that is number `mla` of the range. */
uint64_t k3_shape_page(const struct k3_state_shape *s, uint64_t group, uint32_t mla);
/* The end of the pages for this many positions. */
uint64_t k3_shape_end(const struct k3_state_shape *s, uint64_t positions);

/* Writes header number head->commits into its place. */
K3_NODISCARD int k3_head_write(int fd, const char *path, const struct k3_state_shape *s,
			       const uint8_t fingerprint[16], const struct k3_state_head *head,
			       struct k3_err *err);

/*
 * Reads the current header: shape, fingerprint and head, which the caller owns.
 * Errors: K3_EDATA for what is no state, another version, cut or damaged.
 */
K3_NODISCARD int k3_head_read(int fd, const char *path, struct k3_state_shape *s,
			      uint8_t fingerprint[16], struct k3_state_head *head,
			      struct k3_err *err);
void k3_head_free(struct k3_state_head *head);

/* Begins a new file: all but the first eight bytes are there before those are. */
K3_NODISCARD int k3_head_create(int fd, const char *path, const struct k3_state_shape *s,
				const uint8_t fingerprint[16], const struct k3_state_head *head,
				struct k3_err *err);

/* Checksums: of floats, continuing from a seed. */
uint64_t k3_state_sum(const void *p, uint64_t bytes, uint64_t seed);

#endif
