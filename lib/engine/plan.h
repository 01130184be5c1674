/* SPDX-License-Identifier: Apache-2.0 */
/* engine/plan.h - what things take of the memory that the process may have. */
#ifndef K3_ENGINE_PLAN_H
#define K3_ENGINE_PLAN_H

#include "data/trunk.h"
#include "engine/weights.h"

#include <k3/engine.h>

/* Options with every default filled in. */
struct k3_budget {
	unsigned threads;
	struct k3_weights_options weights;
	struct k3_plan plan;
	uint64_t fixed;			/* all parts but states, activations and weights */
	uint64_t least;			/* the plan's floor, with the ring that there is */
	uint64_t wide_from, wider;	/* with that much memory the ring would take so much more */
	uint64_t logits;		/* of these so many bytes may exist at a time */
};

/* *trunk is what was opened for it, owned by the caller, or NULL. */
K3_NODISCARD int k3_budget_make(const struct k3_index *ix, const struct k3_engine_options *o,
				struct k3_budget *out, struct k3_trunk **trunk,
				struct k3_err *err);

/* What is enough for a round that takes `need` beside what is fixed; the ring may be larger then than it is now. */
uint64_t k3_budget_total(const struct k3_budget *b, uint64_t need);

#endif
