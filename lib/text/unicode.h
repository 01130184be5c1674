/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h - the classes of characters that the tokenizer knows, and no others. */
#ifndef K3_TEXT_UNICODE_H
#define K3_TEXT_UNICODE_H

#include <stdint.h>

/* scripts/unicode-table.py writes these bits; names in parentheses are regex classes. */
enum {
	CLASS_HAN = 1,		/* Script=Han: letters, numbers, marks and symbols */
	CLASS_UPPER = 2,	/* not Han, and Lu, Lt, Lm, Lo or M */
	CLASS_LOWER = 4,	/* not Han, and Ll, Lm, Lo or M */
	CLASS_LETTER = 8,	/* (\p{L}), Han letters too */
	CLASS_NUMBER = 16,	/* (\p{N}), Han numbers too */
	CLASS_BLANK = 32,	/* (\s): White_Space */
	CLASS_PYSPACE = 64	/* Python's str.isspace(): White_Space and U+001C to U+001F */
};

extern const uint8_t k3i_unicode_block[0x110000 >> 7];
extern const uint8_t k3i_unicode_class[][128];

/* The class bits of code point c, at most U+10FFFF; 0 for one that is not assigned. */
static inline unsigned unicode_class(uint32_t c)
{
	return k3i_unicode_class[k3i_unicode_block[c >> 7]][c & 127];
}

#endif
