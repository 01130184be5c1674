/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/hoard.h - experts of one layer that are read before it is known who else will be.
 *
 * While the processors are busy with the later tiles of a layer, the disk can read the experts
 * that the tokens of the first ones have chosen: they will be needed for certain.  Each is
 * read once and used when its turn comes.  The caller sees to it that one thread at a
 * time is in here.
 */
#ifndef K3_ENGINE_HOARD_H
#define K3_ENGINE_HOARD_H

#include "engine/source.h"

struct k3_hoard;

/* At first there is no room for any.  request: bytes of a read, at the most. */
K3_NODISCARD int k3_hoard_new(const struct k3_config *c, struct k3_source *source,
			      uint64_t request, struct k3_hoard **out, struct k3_err *err);
void k3_hoard_free(struct k3_hoard *h);

/* The bytes that it takes to have room for one expert, and for all of a layer. */
uint64_t k3_hoard_least(const struct k3_config *c);
uint64_t k3_hoard_all(const struct k3_config *c);

/* From now on at most so many bytes.  Forgets all experts.  Errors: K3_ENOMEM. */
K3_NODISCARD int k3_hoard_size(struct k3_hoard *h, uint64_t bytes, struct k3_err *err);
void k3_hoard_clear(struct k3_hoard *h);

/*
 * This expert of the layer will be needed too; it is read if there is room.  Those of another layer are
 * forgotten: nobody may use them any more.
 */
K3_NODISCARD int k3_hoard_expect(struct k3_hoard *h, uint32_t layer, uint32_t expert,
				 struct k3_err *err);
/* Of those that are expected none are begun any more; what is begun will be completed. */
void k3_hoard_stop(struct k3_hoard *h);

/* A read that is to be made: size bytes at offset, of which the first `need` must be there. */
struct k3_hoard_read {
	struct k3_direct *file;
	unsigned char *to;
	uint64_t offset, size, need;
	uint32_t place;
};

/* The next read; false if there is none. */
bool k3_hoard_next(struct k3_hoard *h, struct k3_hoard_read *out);
void k3_hoard_arrived(struct k3_hoard *h, const struct k3_hoard_read *r);

/* Entry i of a step of an expert: its bytes, or NULL; *coming: they are on their way. */
const unsigned char *k3_hoard_find(const struct k3_hoard *h, const struct k3_step *step,
				   uint64_t i, bool *coming);

#endif
