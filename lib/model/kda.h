/* SPDX-License-Identifier: Apache-2.0 */
/* model/kda.h - Kimi Delta Attention (docs/model.md 2.4, numerics.md N4, N6, N7). */
#ifndef K3_MODEL_KDA_H
#define K3_MODEL_KDA_H

#include "model/pass.h"

/*
 * The attention of a KDA layer for the n tokens of a tile: x (hidden, normed) in,
 * tile->y (hidden) out.  Updates the slices of the segments.
 */
void k3_kda(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
	    const struct k3_segment *segment, uint64_t segments, uint64_t n);

/*
 * One head over the tokens of one segment, products already made: rows of q, k,
 * v, gate, z hold all heads, beta one value a head.  The head's normed and gated output goes to
 * out, at the head's place.  scratch: K3_KDA_SCRATCH floats.
 *
 * Of the n tokens the last `drafted` leave the slice as it is in front of them.
 */
#define K3_KDA_SCRATCH(dim) ((6 + (uint64_t)(dim)) * (dim))
struct k3_kda_rows {
	float *const *q, *const *k, *const *v, *const *gate, *const *z, *const *beta;
	float *const *out;	/* may be the rows of gate, or of z */
	uint64_t drafted;
};
void k3_kda_head(const struct k3_pass *p, uint32_t head, const struct k3_kda_rows *rows,
		 uint64_t n, struct k3_slice *slice, float *scratch);

#endif
