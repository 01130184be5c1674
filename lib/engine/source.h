/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/source.h - where on the disk the entries of a walk lie: in a trunk file, or in the
 * shards; experts always in the shards.
 */
#ifndef K3_ENGINE_SOURCE_H
#define K3_ENGINE_SOURCE_H

#include "data/trunk.h"
#include "engine/walk.h"
#include "sys/direct.h"

struct k3_source;

/* trunk: the file, or NULL for the shards; owned from now on, also after an error. */
K3_NODISCARD int k3_source_new(const struct k3_index *ix, struct k3_trunk *trunk,
			       uint64_t block_rows, struct k3_source **out, struct k3_err *err);
void k3_source_free(struct k3_source *s);

/* Are the matrices of the trunk coded? */
bool k3_source_coded(const struct k3_source *s);

/* The number of blocks of all sections. */
uint64_t k3_source_blocks(const struct k3_source *s);

/* Bytes on the disk of one section's blocks.  trunk: as in k3_source_new. */
uint64_t k3_section_bytes(const struct k3_config *c, const struct k3_trunk *trunk,
			  uint32_t section);

/* Bytes on the disk of a section's blocks, as this source has them. */
uint64_t k3_source_section(const struct k3_source *s, uint32_t section);

/* The number of a block among those of all sections. */
uint64_t k3_source_number(const struct k3_source *s, const struct k3_step *step, uint64_t i);

struct k3_place {
	struct k3_direct *file;
	uint64_t offset, bytes;
};

/* Where entry i of the step lies. */
K3_NODISCARD int k3_source_place(struct k3_source *s, const struct k3_step *step, uint64_t i,
				 struct k3_place *out, struct k3_err *err);
/* The same for a whole tensor in the shards, as k3_index_tensor names it, and for one row of a matrix of the model. */
K3_NODISCARD int k3_source_tensor(struct k3_source *s, enum k3_role role, uint32_t layer,
				  uint32_t expert, struct k3_place *out, struct k3_err *err);
K3_NODISCARD int k3_source_row(struct k3_source *s, enum k3_role role, uint64_t row,
			       struct k3_place *out, struct k3_err *err);

/* Whether block i of a use, just read, is what was packed; the shards have no sums of their trunk. */
K3_NODISCARD int k3_source_check(struct k3_source *s, const struct k3_order *o,
				 const struct k3_use *use, uint64_t i, const void *bytes,
				 struct k3_err *err);

/* Has a file refused direct reads?  Tells its path once. */
const char *k3_source_refused(struct k3_source *s);

#endif
