/* SPDX-License-Identifier: Apache-2.0 */
/* model/mla.h - multi-head latent attention, absorbed form (docs/model.md 2.5, numerics.md N8). */
#ifndef K3_MODEL_MLA_H
#define K3_MODEL_MLA_H

#include "model/pass.h"

/*
 * The attention of an MLA layer for the n tokens of a tile: tile->x (hidden,
 * normed) in, tile->y (hidden) out.  Appends to the pages of the segments.
 */
void k3_mla(struct k3_worker *w, const struct k3_pass *p, uint32_t layer,
	    const struct k3_segment *segment, uint64_t segments, uint64_t n);

/*
 * One head for one token at `position`: block is the head's rows of kv_b (nope
 * key rows, then value rows), q its nope + rope query values.  Writes v_dim
 * values.  scratch: 2 * kv_rank + position + 1 floats.
 */
void k3_mla_head(const struct k3_pass *p, const unsigned char *block, const float *q,
		 float *const *page, uint64_t position, float *scratch, float *out);

#endif
