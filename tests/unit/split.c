/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - the splitter: pieces worked out by hand, cuts, class tables, no slow text. */
#include "tap.h"

#include "text/split.h"
#include "text/unicode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The pieces of n bytes with a '|' behind each; good until the next call. */
static const char *pieces(const char *text, size_t n)
{
	static char out[256];
	const unsigned char *p = (const unsigned char *)text;
	size_t at = 0, len;

	for (; n; p += len, n -= len) {
		len = k3i_split_piece(p, n);
		memcpy(out + at, p, len);
		at += len;
		out[at++] = '|';
	}
	out[at] = '\0';
	return out;
}

/* Each is a text with a '|' behind every piece that it must have. */
static const char *const expected[] = {
	/* Han runs stand alone; Han numbers, marks and symbols, and what only looks like Han */
	"AB|你好|c|", "一〇|", "12〇|x|", "〇|12|", "!⺀|", "⺀|!|", " |你|", " | |你|", "你|\u302a|",
	"你\U00016ff0|", "你|の|", "のー|", "々々|", "x|々|",
	/* words: upper before lower */
	"Hello| world|", "HELLOworld|", "hello|World|", "AAA|", "ǅa|", "a|ǅ|", "a|!b|", "a|!!|b|",
	"/usr|/lib|",
	/* what must be given back: the last character that is both upper and lower */
	"ª|AAA|", "AAAª|AA|", "ªAª|A|", "A\u0301|BA|",
	/* a mark may lead a word, but is a word alone before it leads one without lower */
	"\u0301a|", "\u0301|A|", "e\u0301a|", "\u0301\u0301|",
	/* contractions: in any case, behind a word only, the long s too */
	"don't|", "DON'T|", "I'LL|x|", "we'Ve|abc|", "x'ſ|y|", "x|'zz|", "'s|", "1|'s|", "x|'r're|",
	"x|'l|", "x|'r|",
	/* numbers by three, of any script */
	"123|456|7|", "a|12|", "١٢٣|٤|", "x|½²Ⅷ|",
	/* blanks: the last one joins what follows; a run ends behind its last newline */
	"a|   | b|", "hello| |", "a|  |", "a|\t|\tb|", "a|\t|\t|1|", " | !!|", "a| \n|b|",
	"  \n\n| | x|",
	"\n|a|", "\r\n|a|", "a|\n\n|b|", "a|\xc2\x85|\xc2\x85" "b|", "a| |\u3000|你|",
	/* not blank to the pattern */
	"a|\x1c\x1c|b|", "a|\u200bb|",
	/* others take one space in front and the newlines behind them, but no slash */
	" !!|", "!!\n\n|x|", "x|/\n|/|", "€|1|",
	/* bytes that are not UTF-8 are others: overlong, surrogate, beyond, cut short, stray */
	"\xc0\xaf|", "\xed\xa0\x80|1|", "\xf4\x90\x80\x80|", "a|\xe4\xbd|", "\x80\xff\n|\x80|",
	"a|\xff" "b|", "é|1|\xc3|1|"
};

static void test_pieces(void)
{
	char text[256];
	const char *p;
	size_t i, n;

	for (i = 0; i < sizeof expected / sizeof *expected; i++) {
		for (n = 0, p = expected[i]; *p; p++)
			if (*p != '|')
				text[n++] = *p;
		ok(!strcmp(pieces(text, n), expected[i]), "pieces, case %zu", i);
	}
	ok(k3i_split_piece((const unsigned char *)"\0b", 2) == 2, "NUL may lead a word");
	ok(k3i_split_piece((const unsigned char *)"\0\0" "1", 3) == 2, "NUL is an other");
}

/* Counts from the Unicode Character Database's own totals of its files, version 15.0. */
static void test_classes(void)
{
	static const struct { unsigned class; unsigned long count; } total[] = {
		{ CLASS_HAN, 98408 },
		{ CLASS_LETTER, 1831 + 2233 + 31 + 397 + 131612 },
		{ CLASS_NUMBER, 680 + 236 + 915 },
		/* Lu, Lt, Lm, Lo, M less the Han letters and marks; Ll for Lu and Lt */
		{ CLASS_UPPER, 1831 + 31 + 397 + 131612 + 1985 + 13 + 452 - 98060 - 3 - 2 },
		{ CLASS_LOWER, 2233 + 397 + 131612 + 1985 + 13 + 452 - 98060 - 3 - 2 },
		{ CLASS_BLANK, 25 },
		{ CLASS_PYSPACE, 29 }
	};
	unsigned long count;
	uint32_t c;
	size_t i;

	for (i = 0; i < sizeof total / sizeof *total; i++) {
		for (count = 0, c = 0; c < 0x110000; c++)
			count += (unicode_class(c) & total[i].class) != 0;
		ok(count == total[i].count, "class bit %u: %lu of %lu code points", total[i].class,
		   count, total[i].count);
	}
	ok(unicode_class(0x10ffff) == 0, "the last code point is in no class");
	ok(unicode_class(0x1f) == CLASS_PYSPACE, "U+001F is a space to Python only");
}

static char *repeat(const char *s, size_t n)
{
	size_t len = strlen(s), i;
	char *p = malloc(n * len + 1);

	for (i = 0; p && i < n; i++)
		memcpy(p + i * len, s, len + 1);
	return p;
}

/* The lengths of the sections of a text must be these, the last of them 0. */
static void check_sections(const char *text, size_t n, const size_t *want, const char *what)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t left = SPLIT_TEXT, len = 0;

	for (; n; p += len, n -= len) {
		len = k3i_split_section(p, n, &left);
		if (len != *want++)
			break;
	}
	ok(!n && !*want, "sections of %s", what);
}

static void test_sections(void)
{
	char *a = repeat("a", 400001), *han = repeat("你", 25001);
	char *x = repeat("a ", 220000);
	size_t cuts[20] = { 0 }, i;

	check_sections(a, 25000, (size_t[]){ 25000, 0 }, "a run of 25,000");
	check_sections(a, 25001, (size_t[]){ 25000, 1, 0 }, "a run of 25,001");
	check_sections(han, 75003, (size_t[]){ 75000, 3, 0 }, "25,001 characters of three bytes");
	for (i = 0; i < 16; i++)
		cuts[i] = 25000;
	cuts[16] = 1;
	check_sections(a, 400001, cuts, "400,001 in one run");
	check_sections(x, 400001, (size_t[]){ 400000, 1, 0 }, "400,001 in runs of 1");
	/* the count of a run starts again at the cut of the text */
	memset(x + 380000, 'a', 30000);
	check_sections(x, 440000, (size_t[]){ 400000, 40000, 0 }, "a run across the cut");
	/* U+001C is a space here: the run of blanks goes on, and that of letters starts anew */
	memset(a + 100, ' ', 30000);
	a[200] = 0x1c;
	check_sections(a, 40000, (size_t[]){ 25100, 14900, 0 }, "blanks with U+001C among them");
	memset(a, '\xff', 30000);
	check_sections(a, 30000, (size_t[]){ 25000, 5000, 0 }, "bytes that are not UTF-8");
	free(a);
	free(han);
	free(x);
}

/* What makes a matcher that gives back try again and again. */
static void test_speed(void)
{
	static const char *const unit[] = {
		"a", "A", " ", "\n", "\u0301", "ª", "你", "!", "1", "'", "\xff", "ªA", "\u0301A",
		" \n", "'s", "A'"
	};
	const unsigned char *p;
	size_t i, n, len;
	clock_t start;
	char *text;

	for (i = 0; i < sizeof unit / sizeof *unit; i++) {
		n = 2000000 / strlen(unit[i]) * strlen(unit[i]);
		text = repeat(unit[i], 2000000 / strlen(unit[i]));
		start = clock();
		for (p = (unsigned char *)text; n; p += len, n -= len)
			len = k3i_split_piece(p, n);
		ok(clock() - start < CLOCKS_PER_SEC, "2 MB of unit %zu take less than a second", i);
		free(text);
	}
}

int main(void)
{
	test_pieces();
	test_classes();
	test_sections();
	test_speed();
	return tap_done();
}
