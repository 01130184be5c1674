/* SPDX-License-Identifier: Apache-2.0 */
/* data/shards.h - which shards a checkpoint has, and which it should have. */
#ifndef K3_DATA_SHARDS_H
#define K3_DATA_SHARDS_H

#include "data/index.h"

struct k3_shards {
	struct k3_shard *shard;	/* owned; in the order of their names */
	uint32_t count, absent;
};

/*
 * Lists the *.safetensors files of a directory.  If their names are numbered, as is
 * "NAME-00003-of-000096", the numbers that are not there are in the list as absent.  The caller
 * frees *out after an error too.
 */
K3_NODISCARD int k3_shards_find(const char *directory, struct k3_shards *out,
				struct k3_err *err);
void k3_shards_free(struct k3_shards *s);

/*
 * Marks each tensor that has no place with the absent shard that should hold it, as
 * model.safetensors.index.json says.  Without that file nothing is marked.
 */
K3_NODISCARD int k3_shards_blame(const char *directory, const struct k3_shards *s,
				 const struct k3_layout *l, uint64_t *entry, struct k3_err *err);

#endif
