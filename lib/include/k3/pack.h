/* SPDX-License-Identifier: Apache-2.0 */
/* k3/pack.h - writing the trunk file of a model, and comparing one with its model. */
#ifndef K3_PACK_H
#define K3_PACK_H

#include <k3/err.h>
#include <k3/index.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct k3_pack_options {
	unsigned threads;	/* 0: two for each processor, as they wait for the disk half the time */
	/*
	 * May be NULL.  Called by one thread at a time, often, with how much of the checkpoint's
	 * trunk is done, and how much there is; false ends the work with K3_EIO.
	 */
	bool (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

/*
 * Writes the trunk file of a model, which takes the name `path` when it is complete.  A
 * thread needs some 10 MB of memory.  Errors: K3_EDATA if a shard is missing or cut short while it is read,
 * K3_ESTALE if one was changed since the index was opened, K3_EIO, K3_ENOMEM; the file that had the
 * name before is then as it was.
 */
K3_API K3_NODISCARD int k3_pack(const struct k3_index *ix, const char *path,
				const struct k3_pack_options *options, struct k3_err *err);

/*
 * Reads all of a trunk file and of the same tensors in the checkpoint, and compares them bit by
 * bit.  Errors: K3_EDATA with the first tensor and row that differ, or the first damage; K3_ESTALE
 * for a trunk of another model, or a shard that was changed since the index was opened; K3_EIO, K3_ENOMEM.
 */
K3_API K3_NODISCARD int k3_pack_verify(const struct k3_index *ix, const char *path,
				       const struct k3_pack_options *options,
				       struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
