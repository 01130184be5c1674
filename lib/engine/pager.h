/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/pager.h - slices of states on their way from and to files, while something else is computed.
 *
 * A thread does what is asked, in that order.  Until k3_pager_wait nobody else may use the states.
 */
#ifndef K3_ENGINE_PAGER_H
#define K3_ENGINE_PAGER_H

#include <k3/state.h>

struct k3_pager;

K3_NODISCARD int k3_pager_new(struct k3_pager **out, struct k3_err *err);
void k3_pager_free(struct k3_pager *p);

/* To bring the slice of a layer into memory, and to store it (k3_state_store).  States are borrowed. */
K3_NODISCARD int k3_pager_load(struct k3_pager *p, struct k3_state *s, uint32_t layer,
			       struct k3_err *err);
K3_NODISCARD int k3_pager_store(struct k3_pager *p, struct k3_state *s, uint32_t layer,
				struct k3_err *err);

/* Waits until all is done.  The first failure since the last time; what was asked behind it was not done. */
K3_NODISCARD int k3_pager_wait(struct k3_pager *p, struct k3_err *err);

#endif
