/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.c - the grammar of RFC 8259 as an automaton with a stack of 64 bits. */
#include "data/grammar.h"

#include <inttypes.h>
#include <string.h>

/* What may come next.  From STRING on the byte is inside a token. */
enum state {
	VALUE, FIRST, FIRST_KEY, KEY, COLON, NEXT, END,
	STRING, ESCAPE, HEX, LITERAL, MINUS, ZERO, INT, POINT, FRACTION, E, SIGN, EXPONENT
};

static const char *const expected[] = {
	[VALUE] = "a value", [FIRST] = "a value or ']'", [FIRST_KEY] = "a key or '}'",
	[KEY] = "a key", [COLON] = "':'", [NEXT] = "',' or the end of the container",
	[END] = "the end", [STRING] = "no control character", [ESCAPE] = "an escaped character",
	[HEX] = "a hexadecimal digit", [LITERAL] = "true, false or null", [MINUS] = "a digit",
	[ZERO] = "the end of the number", [INT] = "a digit", [POINT] = "a digit",
	[FRACTION] = "a digit", [E] = "a digit or sign", [SIGN] = "a digit", [EXPONENT] = "a digit"
};

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* A value is complete. */
static void after_value(struct k3_grammar *g)
{
	g->state = g->depth ? NEXT : END;
}

/* Opens a container; false if that is too deep. */
static bool open_container(struct k3_grammar *g, bool object)
{
	if (g->depth == K3_JSON_DEPTH)
		return false;
	g->objects = (g->objects & ~(1ull << g->depth)) | (uint64_t)object << g->depth;
	g->depth++;
	g->state = object ? FIRST_KEY : FIRST;
	return true;
}

/* Closes the innermost container if c does that. */
static bool close_container(struct k3_grammar *g, char c)
{
	bool object = g->objects >> (g->depth - 1) & 1;

	if (c != (object ? '}' : ']'))
		return false;
	g->depth--;
	after_value(g);
	return true;
}

static bool begin_value(struct k3_grammar *g, char c)
{
	switch (c) {
	case '{': return open_container(g, true);
	case '[': return open_container(g, false);
	case '"': g->state = STRING; g->key = false; return true;
	case 't': g->literal = "rue"; break;
	case 'f': g->literal = "alse"; break;
	case 'n': g->literal = "ull"; break;
	case '-': g->state = MINUS; return true;
	case '0': g->state = ZERO; return true;
	default:
		g->state = INT;
		return digit(c);
	}
	g->state = LITERAL;
	return true;
}

static bool begin_key(struct k3_grammar *g, char c)
{
	g->state = STRING;
	g->key = true;
	return c == '"';
}

/* Between two tokens. */
static bool between(struct k3_grammar *g, char c)
{
	if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
		return true;
	switch (g->state) {
	case VALUE: return begin_value(g, c);
	case FIRST: return close_container(g, c) || begin_value(g, c);
	case FIRST_KEY: return close_container(g, c) || begin_key(g, c);
	case KEY: return begin_key(g, c);
	case COLON: g->state = VALUE; return c == ':';
	case NEXT:
		if (c != ',')
			return close_container(g, c);
		g->state = g->objects >> (g->depth - 1) & 1 ? KEY : VALUE;
		return true;
	default: return false;
	}
}

/* Inside a string. */
static bool in_string(struct k3_grammar *g, char c)
{
	switch (g->state) {
	case STRING:
		if (c == '"' && g->key)
			g->state = COLON;
		else if (c == '"')
			after_value(g);
		else if (c == '\\')
			g->state = ESCAPE;
		return (unsigned char)c >= 0x20;
	case ESCAPE:
		g->state = c == 'u' ? HEX : STRING;
		g->hex = 4;
		return c && strchr("\"\\/bfnrtu", c);
	default:
		if (!--g->hex)
			g->state = STRING;
		return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
	}
}

/* Inside a number that goes on with c; *over if it has ended in front of c. */
static bool in_number(struct k3_grammar *g, char c, bool *over)
{
	bool e = c == 'e' || c == 'E';

	switch (g->state) {
	case MINUS: g->state = c == '0' ? ZERO : INT; return digit(c);
	case POINT: g->state = FRACTION; return digit(c);
	case SIGN: g->state = EXPONENT; return digit(c);
	case E:
		g->state = digit(c) ? EXPONENT : SIGN;
		return digit(c) || c == '+' || c == '-';
	default: break;
	}
	if (digit(c) && g->state != ZERO)
		return true;
	if (c == '.' && (g->state == ZERO || g->state == INT))
		g->state = POINT;
	else if (e && g->state != EXPONENT)
		g->state = E;
	else
		*over = true;
	return !(digit(c) && g->state == ZERO);
}

/* One byte; false if it must not be there, with g->state as it was. */
static bool step(struct k3_grammar *g, char c)
{
	uint8_t state = g->state;
	bool over = false, good;

	if (state >= MINUS) {
		good = in_number(g, c, &over);
		if (good && over) {
			after_value(g);
			state = g->state;
			good = between(g, c);
		}
	} else if (state == LITERAL) {
		good = c == *g->literal++;
		if (good && !*g->literal)
			after_value(g);
	} else if (state >= STRING) {
		good = in_string(g, c);
	} else {
		good = between(g, c);
	}
	if (!good)
		g->state = state;
	return good;
}

static int refuse(const struct k3_grammar *g, char c, const char *name, struct k3_err *err)
{
	bool opens = (c == '{' || c == '[') && (g->state == VALUE || g->state == FIRST);

	if (opens && g->depth == K3_JSON_DEPTH)
		return k3_fail(err, K3_EDATA, "%s: JSON nested deeper than %d at byte %" PRIu64,
			       name, K3_JSON_DEPTH, g->offset);
	if (g->state == END)
		return k3_fail(err, K3_EDATA, "%s: something follows the JSON value at byte %"
			       PRIu64, name, g->offset);
	return k3_fail(err, K3_EDATA, "%s: broken JSON at byte %" PRIu64 ": '%c' where %s was "
		       "expected", name, g->offset, (unsigned char)c < 0x80 ? c : '?',
		       expected[g->state]);
}

int k3_grammar_push(struct k3_grammar *g, const char *p, size_t n, bool last, const char *name,
		    struct k3_err *err)
{
	bool number;

	for (size_t i = 0; i < n; i++) {
		/* most bytes are the inside of a string */
		while (g->state == STRING && i < n && (unsigned char)p[i] >= 0x20 && p[i] != '"' &&
		       p[i] != '\\') {
			i++;
			g->offset++;
		}
		if (i == n)
			break;
		if (!step(g, p[i]))
			return refuse(g, p[i], name, err);
		g->offset++;
	}
	if (!last)
		return 0;
	number = g->state == ZERO || g->state == INT || g->state == FRACTION ||
		 g->state == EXPONENT;
	if (g->state == VALUE && !g->depth)
		return k3_fail(err, K3_EDATA, "%s: empty where JSON was expected", name);
	if (g->state != END && (g->depth || !number))
		return k3_fail(err, K3_EDATA, "%s: broken JSON: it ends at byte %" PRIu64
			       " where %s was expected", name, g->offset, expected[g->state]);
	return 0;
}
