/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c - the split pattern of K3's tokenizer, as a procedure.
 *
 * The pattern is a regular expression that an engine would match by trying and
 * giving back.  Here every alternative looks at each character of the piece a fixed
 * number of times, so that no text is slow.  The letters a to f are the alternatives,
 * in the order in which they are tried:
 *
 *   a  [\p{Han}]+
 *   b  [^\r\n\p{L}\p{N}]? UPPER* LOWER+ CONTRACTION?
 *   c  [^\r\n\p{L}\p{N}]? UPPER+ LOWER* CONTRACTION?
 *   d  \p{N}{1,3}
 *   e  " "? [^\s\p{L}\p{N}]+ [\r\n]*
 *   f  \s*[\r\n]+ | \s+(?!\S) | \s+
 */
#include "text/split.h"
#include "text/unicode.h"

#include <k3/utf8.h>

#include <stdbool.h>
#include <stdint.h>

struct text {
	const unsigned char *p;
	size_t n;
};

/* A character of the text: its place, its length in bytes and its class bits. */
struct character {
	size_t at, len;
	uint32_t code;
	unsigned class;
};

/* The character at a place; false at the end of the text. */
static bool look(const struct text *t, size_t at, struct character *c)
{
	if (at >= t->n)
		return false;
	c->at = at;
	if (t->p[at] < 0x80) {
		c->len = 1;
		c->code = t->p[at];
	} else {
		c->len = k3_utf8_next(t->p + at, t->n - at, &c->code);
		if (!c->len) {
			*c = (struct character){ at, 1, UINT32_MAX, 0 };
			return true;
		}
	}
	c->class = unicode_class(c->code);
	return true;
}

static bool is_newline(const struct character *c)
{
	return c->code == '\r' || c->code == '\n';
}

/* The end of the run from a place on of characters with any bit of the class. */
static size_t run(const struct text *t, size_t at, unsigned class)
{
	struct character c;

	while (look(t, at, &c) && c.class & class)
		at += c.len;
	return at;
}

/* As run, for characters with no bit of the class. */
static size_t run_without(const struct text *t, size_t at, unsigned class)
{
	struct character c;

	while (look(t, at, &c) && !(c.class & class))
		at += c.len;
	return at;
}

static size_t run_newlines(const struct text *t, size_t at)
{
	while (at < t->n && (t->p[at] == '\r' || t->p[at] == '\n'))
		at++;
	return at;
}

/* ASCII letters only: what the contraction's letters fold to, but for U+017F. */
static unsigned char fold(unsigned char c)
{
	return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

/* The end of (?i:'s|'t|'re|'ve|'m|'ll|'d) at a place, or that place if it is not there. */
static size_t contraction(const struct text *t, size_t at)
{
	const unsigned char *p = t->p + at;
	size_t n = t->n - at;
	unsigned char a, b;

	if (n < 2 || p[0] != '\'')
		return at;
	a = fold(p[1]);
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return at + 2;
	if (n < 3)
		return at;
	b = fold(p[2]);
	if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
		return at + 3;
	/* U+017F, the long s, is an s to a match that ignores case */
	if (p[1] == 0xc5 && p[2] == 0xbf)
		return at + 3;
	return at;
}

/*
 * UPPER* LOWER+ at a place: where it ends, or that place if it does not match.
 * *upper is the end of the UPPER run, which c needs when this does not match.
 */
static size_t word(const struct text *t, size_t start, size_t *upper)
{
	size_t at = start, last = start;
	struct character c;

	while (look(t, at, &c) && c.class & CLASS_UPPER) {
		at += c.len;
		if (c.class & CLASS_LOWER)
			last = at;
	}
	*upper = at;
	if (at < t->n && c.class & CLASS_LOWER)
		return run(t, at, CLASS_LOWER);
	/*
	 * A regular expression would now give back characters until one is in LOWER
	 * too: that is the last such one of the run, and nothing after it is.
	 */
	return last;
}

/* Alternatives b and c, where first is the character that may stand before the word. */
static size_t letters(const struct text *t, const struct character *first)
{
	size_t starts[2], upper[2], end;
	int count = 0, i;

	if (!is_newline(first) && !(first->class & (CLASS_LETTER | CLASS_NUMBER)))
		starts[count++] = first->at + first->len;
	starts[count++] = first->at;
	for (i = 0; i < count; i++) {
		end = word(t, starts[i], &upper[i]);
		if (end > starts[i])
			return contraction(t, end);
	}
	/* no LOWER follows any of the UPPER runs: LOWER* is empty */
	for (i = 0; i < count; i++)
		if (upper[i] > starts[i])
			return contraction(t, upper[i]);
	return 0;
}

/* Alternative f, at a blank. */
static size_t blanks(const struct text *t)
{
	size_t at = 0, newline = 0, last = 0;
	struct character c;

	while (look(t, at, &c) && c.class & CLASS_BLANK) {
		last = at;
		at += c.len;
		if (is_newline(&c))
			newline = at;
	}
	if (newline)
		return newline;
	/* the last blank before a word belongs to what follows */
	return at == t->n || last == 0 ? at : last;
}

size_t k3i_split_piece(const unsigned char *p, size_t n)
{
	const struct text t = { p, n };
	const unsigned not_other = CLASS_BLANK | CLASS_LETTER | CLASS_NUMBER;
	struct character c;
	size_t start, end;
	int i;

	look(&t, 0, &c);
	if (c.class & CLASS_HAN)
		return run(&t, 0, CLASS_HAN);
	end = letters(&t, &c);
	if (end)
		return end;
	if (c.class & CLASS_NUMBER) {
		for (i = 0; i < 3 && look(&t, end, &c) && c.class & CLASS_NUMBER; i++)
			end += c.len;
		return end;
	}
	start = c.code == ' ';
	end = run_without(&t, start, not_other);
	if (end > start)
		return run_newlines(&t, end);
	return blanks(&t);
}

size_t k3i_split_section(const unsigned char *p, size_t n, size_t *left)
{
	const struct text t = { p, n };
	bool is_space = false, now;
	size_t at = 0, length = 0;
	struct character c;

	while (look(&t, at, &c)) {
		now = c.class & CLASS_PYSPACE;
		length = now == is_space ? length + 1 : 1;
		is_space = now;
		if (length > SPLIT_RUN)
			return at;
		at += c.len;
		if (--*left == 0) {
			*left = SPLIT_TEXT;
			return at;
		}
	}
	return at;
}
