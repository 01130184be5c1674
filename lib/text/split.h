/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h - text into the pieces that byte-pair encoding takes one by one.
 *
 * Text is any bytes.  A byte that belongs to no valid UTF-8 character counts
 * as one character that is neither letter, mark, number nor blank.
 */
#ifndef K3_TEXT_SPLIT_H
#define K3_TEXT_SPLIT_H

#include <stddef.h>

/* The longest text and the longest run of blanks, or of others, encoded in one go (k3-vocab(5)). */
enum { SPLIT_TEXT = 400000, SPLIT_RUN = 25000 };

/*
 * The length in bytes of the first section of the n bytes at p, n >= 1: sections
 * are encoded independently.  *left is the number of characters until the next cut
 * by SPLIT_TEXT; the caller sets it to SPLIT_TEXT at the start of a text.
 */
size_t k3i_split_section(const unsigned char *p, size_t n, size_t *left);

/*
 * The length in bytes of the first piece of the n bytes at p, n >= 1.  The end
 * of the n bytes is the end of the text: some pieces depend on what follows them.
 */
size_t k3i_split_piece(const unsigned char *p, size_t n);

#endif
