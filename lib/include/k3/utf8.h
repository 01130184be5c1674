/* SPDX-License-Identifier: Apache-2.0 */
/* k3/utf8.h - strict UTF-8: shortest form, no surrogates, at most U+10FFFF. */
#ifndef K3_UTF8_H
#define K3_UTF8_H

#include <k3/err.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Decodes the character at p, of which n bytes (n >= 1) can be read.  Returns
 * its length, 1 to 4, and the code point in *c; or 0 when no valid character
 * starts here, whether the bytes are wrong or the text ends too early.
 */
K3_API size_t k3_utf8_next(const unsigned char *p, size_t n, uint32_t *c);

/*
 * Where k3_utf8_next returned 0: the length, at least 1, of the longest prefix
 * of a valid character there.  It is what one U+FFFD replaces (Unicode,
 * section 3.9, substitution of maximal subparts).
 */
K3_API size_t k3_utf8_bad(const unsigned char *p, size_t n);

/*
 * True when the n bytes at p are the beginning of a valid character that needs
 * more bytes: a stream has to wait for them.
 */
K3_API int k3_utf8_incomplete(const unsigned char *p, size_t n);

#ifdef __cplusplus
}
#endif
#endif
