/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/draft.h - tokens that are only guessed, and those guesses that came true.
 *
 * A guess passes the layers behind a line's own tokens, and its state is that in front of them: a
 * KDA head uses a copy of its matrix, a latent goes to a position that the state does not have
 * yet.  What each layer would need to take the guess for a token goes into a log.  A guess that
 * came true is taken by the next sweep: in each layer, before the new tokens, the logged rows go
 * through the same function that all tokens go through, and the state has the same bits.
 */
#ifndef K3_ENGINE_DRAFT_H
#define K3_ENGINE_DRAFT_H

#include "model/pass.h"

#include <k3/engine.h>

/* Bytes that a draft of so many guesses takes. */
uint64_t k3_draft_bytes(const struct k3_config *c, uint64_t most);

/* How many guesses there may be, and how many came true since the last sweep. */
uint64_t k3_draft_most(const struct k3_draft *d);
uint64_t k3_draft_taken(const struct k3_draft *d);

/*
 * Begins a pass over the guesses that came true and `own` ids more, and notes that the `drafted`
 * ids behind those are the new guesses.  The rest of the old ones is forgotten.
 */
K3_NODISCARD int k3_draft_begin(struct k3_draft *d, struct k3_state *s, const uint32_t *ids,
				uint64_t own, uint64_t drafted, struct k3_err *err);

/*
 * Takes the first n guesses of the last sweep into the slice of a layer, from `position` on.  The
 * parts may be done by several workers; scratch is what k3_kda_head wants.
 */
uint64_t k3_draft_parts(const struct k3_config *c, uint32_t layer);
void k3_draft_replay(const struct k3_pass *p, uint32_t layer, struct k3_draft *d, uint64_t n,
		     uint64_t position, const struct k3_slice *slice, uint64_t part,
		     float *scratch);

/* Logs the guesses of a segment when the attention of the layer is done; for one worker. */
void k3_draft_log(const struct k3_pass *p, uint32_t layer, struct k3_draft *d,
		  const struct k3_segment *segment);

#endif
