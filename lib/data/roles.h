/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/roles.h - the tensors that a config implies: their names, shapes and numbers.
 *
 * Every tensor has a slot, a number from 0: those of the model, then layer after layer
 * those of every layer, of its kind of attention, of its kind of MLP, and its experts, six
 * slots each.  Within a group the order is that of enum k3_role.
 */
#ifndef K3_DATA_ROLES_H
#define K3_DATA_ROLES_H

#include <k3/index.h>
#include <stdbool.h>

/* What an expert consists of, K3_W1 to K3_W3_SCALE. */
enum { K3_EXPERT_TENSORS = 6 };

/* No name of a tensor is longer, with its NUL. */
enum { K3_NAME = 128 };

struct k3_layout {
	const struct k3_config *config;	/* borrowed */
	uint64_t *base;			/* owned: the first slot of each layer, and of none */
	uint64_t slots;
};

K3_NODISCARD int k3_layout_init(struct k3_layout *l, const struct k3_config *c,
				struct k3_err *err);
void k3_layout_free(struct k3_layout *l);

/* The slot of a tensor; false if the model has no such tensor. */
bool k3_layout_slot(const struct k3_layout *l, enum k3_role role, uint32_t layer,
		    uint32_t expert, uint64_t *slot);
/* The reverse; slot < l->slots. */
void k3_layout_role(const struct k3_layout *l, uint64_t slot, enum k3_role *role,
		    uint32_t *layer, uint32_t *expert);
/* Writes the name of a slot and returns out. */
const char *k3_layout_name(const struct k3_layout *l, uint64_t slot, char out[K3_NAME]);
/* The slot of a name in a checkpoint of n bytes; false if the config implies no such name. */
bool k3_layout_find(const struct k3_layout *l, const char *name, size_t n, uint64_t *slot);

/* Fills everything but shard and offset. */
void k3_role_describe(const struct k3_config *c, enum k3_role role, uint32_t layer,
		      uint32_t expert, struct k3_tensor *out);

#endif
