/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.h - the tokens of tiktoken.model: id to bytes, bytes to id (k3-vocab(5)). */
#ifndef K3_TEXT_VOCAB_H
#define K3_TEXT_VOCAB_H

#include <k3/err.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_NONE UINT32_MAX

struct vocab {
	unsigned char *bytes;	/* owned: all tokens, one after the other */
	uint32_t *start;	/* owned, count + 1: where each begins in bytes */
	uint32_t count;
	uint32_t longest;	/* bytes of the longest token */
	uint32_t of_byte[256];	/* the id of each single byte */
	/* Open addressing; a slot holds an id and 32 bits of the hash of its bytes. */
	struct vocab_slot { uint32_t id, tag; } *slots;	/* owned */
	uint32_t mask;		/* the number of slots less 1: a power of two */
};

/*
 * Reads and checks the file.  v must be all zero; vocab_free ends it, also after an
 * error.  Errors: K3_EIO, K3_EDATA naming path and line, K3_ENOMEM.
 */
K3_NODISCARD int k3i_vocab_read(struct vocab *v, const char *path, struct k3_err *err);
void k3i_vocab_free(struct vocab *v);

/* The id of the token with exactly these n bytes, or VOCAB_NONE. */
uint32_t k3i_vocab_find(const struct vocab *v, const unsigned char *p, size_t n);

#endif
