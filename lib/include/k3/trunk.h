/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/trunk.h - the trunk file of a model (k3-trunk(5)): all weights but the routed experts and
 * the embedding, coded, in the order of their use.
 *
 * An open trunk is constant: any number of threads may ask it.  Its directory is in
 * memory, 16 bytes for each block; the blocks are read by whoever wants them.
 */
#ifndef K3_TRUNK_H
#define K3_TRUNK_H

#include <k3/err.h>
#include <k3/index.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct k3_trunk;

/* The first eight bytes of the file. */
#define K3_TRUNK_MAGIC "K3TRUNK\n"

/*
 * Opens a trunk file and checks all of it but its blocks.  ix is the model that it must be of,
 * or NULL for programs that only report what the file says.  Errors: K3_EDATA,
 * K3_ESTALE if it is of another model, K3_EIO, K3_ENOMEM.
 */
K3_API K3_NODISCARD int k3_trunk_open(const char *path, const struct k3_index *ix,
				      struct k3_trunk **out, struct k3_err *err);
K3_API void k3_trunk_close(struct k3_trunk *t);

K3_API const char *k3_trunk_path(const struct k3_trunk *t);
/* Borrowed, and read only: for pread. */
K3_API int k3_trunk_fd(const struct k3_trunk *t);
K3_API uint64_t k3_trunk_length(const struct k3_trunk *t);
K3_API const uint8_t *k3_trunk_fingerprint(const struct k3_trunk *t);

/* A block: offset is from the start of the file. */
struct k3_trunk_block {
	uint64_t offset;
	uint32_t bytes;
	uint64_t sum;		/* XXH3-64 of its bytes */
};

/* section and block must exist. */
K3_API void k3_trunk_block(const struct k3_trunk *t, uint32_t section, uint64_t block,
			   struct k3_trunk_block *out);

/* A section is a layer, or behind the last layer the output vectors and the head. */
struct k3_trunk_section {
	uint64_t offset, length;	/* in the file */
	uint64_t blocks;
	uint64_t coded;			/* bytes of its blocks */
	uint64_t plain;			/* bytes of the same in the checkpoint */
};

K3_API uint32_t k3_trunk_sections(const struct k3_trunk *t);
K3_API void k3_trunk_section(const struct k3_trunk *t, uint32_t section,
			     struct k3_trunk_section *out);

/* Where the trunk of a model lies unless somebody says otherwise; the caller frees *path. */
K3_API K3_NODISCARD int k3_trunk_beside(const struct k3_index *ix, char **path,
					struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
