/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h - byte-pair encoding of one piece. */
#ifndef K3_TEXT_BPE_H
#define K3_TEXT_BPE_H

#include "text/vocab.h"

#include <k3/tokenizer.h>

/* Working memory, kept from piece to piece; starts as all zero. */
struct bpe {
	struct bpe_node *nodes;		/* owned */
	uint64_t *heap;			/* owned */
	size_t size;			/* pieces up to this many bytes fit */
};

/*
 * Appends the ids of the n bytes at p, n >= 1: the token they are, or else what
 * is left when the adjacent pair whose bytes are the token of lowest rank, the
 * leftmost of equals, has been merged until none is a token.  Time O(n log n).
 * Errors: K3_ENOMEM.
 */
K3_NODISCARD int k3i_bpe_piece(struct bpe *b, const struct vocab *v, const unsigned char *p,
			       size_t n, struct k3_ids *out, struct k3_err *err);
void k3i_bpe_free(struct bpe *b);

#endif
