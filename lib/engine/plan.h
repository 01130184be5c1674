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
	uint64_t logits;		/* of these so many bytes may exist at a time */
};

/* *trunk is what was opened for it, owned by the caller, or NULL. */
K3_NODISCARD int k3_budget_make(const struct k3_index *ix, const struct k3_engine_options *o,
				struct k3_budget *out, struct k3_trunk **trunk,
				struct k3_err *err);

/* What a row of logits takes while it is made. */
uint64_t k3_logits_bytes(const struct k3_config *c);

/* A sweep as far as its memory goes. */
struct k3_sweep_size {
	uint64_t tokens, tile, lines;
	uint64_t positions;		/* of the longest sequence */
	uint64_t width;			/* floats of a token's residual stream */
	bool streams;			/* tokens came as residual streams, which exist twice */
};
/* With one row of logits. */
uint64_t k3_sweep_bytes(const struct k3_config *c, unsigned threads,
			const struct k3_sweep_size *s);

#endif
