/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c - strict UTF-8 after table 3-7 of the Unicode standard. */
#include <k3/utf8.h>

/*
 * The length that the lead byte announces, and the range of the second byte,
 * which is where overlong forms, surrogates and values above U+10FFFF are shut
 * out.  0 for a byte that cannot lead.
 */
static size_t lead(unsigned char b, unsigned char *lo, unsigned char *hi)
{
	*lo = 0x80;
	*hi = 0xbf;
	if (b < 0x80)
		return 1;
	if (b < 0xc2)
		return 0;
	if (b < 0xe0)
		return 2;
	if (b < 0xf0) {
		if (b == 0xe0)
			*lo = 0xa0;
		if (b == 0xed)
			*hi = 0x9f;
		return 3;
	}
	if (b > 0xf4)
		return 0;
	if (b == 0xf0)
		*lo = 0x90;
	if (b == 0xf4)
		*hi = 0x8f;
	return 4;
}

/* How many of the n bytes at p are a prefix of a valid character. */
static size_t prefix(const unsigned char *p, size_t n, size_t *need)
{
	unsigned char lo, hi;
	size_t i;

	*need = lead(p[0], &lo, &hi);
	if (!*need)
		return 0;
	for (i = 1; i < *need && i < n; i++) {
		if (p[i] < lo || p[i] > hi)
			break;
		lo = 0x80;
		hi = 0xbf;
	}
	return i;
}

size_t k3_utf8_next(const unsigned char *p, size_t n, uint32_t *c)
{
	static const unsigned char mask[5] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	size_t need, i;

	if (prefix(p, n, &need) != need || !need)
		return 0;
	*c = p[0] & mask[need];
	for (i = 1; i < need; i++)
		*c = *c << 6 | (p[i] & 0x3f);
	return need;
}

size_t k3_utf8_bad(const unsigned char *p, size_t n)
{
	size_t need, good = prefix(p, n, &need);

	return good ? good : 1;
}

int k3_utf8_incomplete(const unsigned char *p, size_t n)
{
	size_t need;

	return n && prefix(p, n, &need) == n && n < need;
}
