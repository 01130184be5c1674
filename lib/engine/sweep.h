/* SPDX-License-Identifier: Apache-2.0 */
/* engine/sweep.h - what the files of the engine share. */
#ifndef K3_ENGINE_SWEEP_H
#define K3_ENGINE_SWEEP_H

#include "engine/pager.h"
#include "engine/plan.h"
#include "engine/weights.h"
#include "model/layer.h"

#include <k3/engine.h>

struct k3_engine {
	const struct k3_index *ix;
	const struct k3_config *config;
	struct k3_team *team;
	struct k3_weights *weights;
	struct k3_pager *pager;		/* NULL until a state has a file */
	struct k3_budget budget;
	uint64_t tile;			/* tokens; 0: by memory */
	const char *temporary;		/* directory for states, or NULL */
	bool once;			/* nothing follows the first sweep */
	uint64_t logits;		/* bytes that logits may have at a time, for now */
	struct k3_layer_vectors vectors;
	float **scratch;		/* one a worker, scratch_size floats each */
	uint64_t scratch_size;
};

/* Makes every worker's scratch fit sequences of this many positions. */
K3_NODISCARD int k3_engine_scratch(struct k3_engine *e, uint64_t positions, struct k3_err *err);

#endif
