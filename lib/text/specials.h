/* SPDX-License-Identifier: Apache-2.0 */
/* specials.h - the 256 ids behind the vocabulary, and their spellings (k3-vocab(5)). */
#ifndef K3_TEXT_SPECIALS_H
#define K3_TEXT_SPECIALS_H

#include <k3/err.h>
#include <stddef.h>
#include <stdint.h>

enum { SPECIALS = 256 };

struct special {
	char *text;	/* owned; the spelling, never empty */
	size_t len;
};

struct specials {
	uint32_t first;			/* the id of slot 0: the number of tokens before it */
	struct special slot[SPECIALS];
	uint16_t sorted[SPECIALS];	/* the slots in the order of their spellings */
};

/*
 * Reads the names out of tokenizer_config.json and gives the slots without one
 * their reserved spelling.  s must be all zero; k3i_specials_free ends it, also
 * after an error.  Errors: K3_EIO, K3_EDATA naming path and id, K3_ENOMEM.
 */
K3_NODISCARD int k3i_specials_read(struct specials *s, uint32_t first, const char *path,
				   struct k3_err *err);
void k3i_specials_free(struct specials *s);

/*
 * The slot of the longest spelling that the n bytes at p begin with, or -1.
 */
int k3i_specials_match(const struct specials *s, const unsigned char *p, size_t n);

#endif
