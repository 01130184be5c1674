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

/* Where a slice has the latent of a position, and its rope key behind it. */
float *k3_mla_position(const struct k3_config *c, const struct k3_slice *slice, uint64_t position);

/*
 * One head's query for one token, taken into the latent space: key_rows is the
 * head's key block of kv_b, q its nope values; out: kv_rank values.
 */
void k3_mla_absorb(const struct k3_pass *p, const unsigned char *key_rows, const float *q,
		   float *out);

/* Heads of one token that go over the pages together, so that a page is read for all of them. */
enum { K3_MLA_GROUP = 16 };

/*
 * The attention of `heads` heads (at most K3_MLA_GROUP) of the token at `position`: latent[v] is
 * an absorbed query and becomes the head's context, kv_rank values; rope[v] has
 * its rope values.  scratch: heads * (position + 1 + K3_PAGE) floats.
 */
void k3_mla_attend(const struct k3_pass *p, float *const *latent, const float *const *rope,
		   uint64_t heads, float *const *page, uint64_t position, float *scratch);

#endif
