/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.c - texts that are JSON by RFC 8259, and texts that are not, whole and in pieces. */
#include "tap.h"
#include "data/grammar.h"
#include <string.h>

static const char *const good[] = {
	"{}", "[]", " [ ] ", "{ }", "0", "-0", "10", "1.5", "-1.25e+10", "0e0", "1E-2", "0.0",
	"true", "false", "null", "\"\"", "\"a\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
	"\"\\u00fF\"", "\"\xc3\xa9\"", "[1]", "[1,2]", "[[],[[]],{}]", "{\"a\":1}",
	"{\"a\":{\"b\":[{}]},\"c\":[true,null]}", "\t\r\n1 ", "[0,-0,1.0e1]", "{\"\":\"\"}",
	"\"\x7f\"",
};
static const char *const bad[] = {
	"", " ", "{", "}", "[", "]", "[1", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,",
	"{\"a\":1,}", "[1,]", "[,1]", "[,]", "{,}", "{a:1}", "{'a':1}", "{1:2}", "{\"a\"}",
	"{\"a\",1}", "{\"a\":1 2}", "[1 2]", "[1:2]", "[1}", "{\"a\":1]", "{\"a\":}", "{:1}",
	"[}", "{]", "01", "-01", "+1", ".5", "1.", "1.e5", "1e", "1e+", "--1", "-", "1-",
	"0x10", "1e5.", "1.2.3", "nan", "NaN", "Infinity", "-Infinity", "tru", "truE", "nulll",
	"t", "\"", "\"a", "\"\\", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"", "\"\t\"",
	"\"\x01\"", "'a'", "{} {}", "1 2", "[] x", "//", "/**/1", "\xef\xbb\xbf{}",
	"[\"a\":1]", "{\"a\":1:2}", "{\"a\" \"b\"}", "{\"a\":1,\"b\"}", "{[]:1}", "{{}}",
	"[1,2", "\v1", "True", "\"\\u\"",
};

/* What becomes of the text when it comes in pieces of step bytes. */
static int take(const char *text, size_t n, size_t step)
{
	struct k3_grammar g = { 0 };
	struct k3_err err;
	size_t k;
	int rc;

	for (; n > step; text += step, n -= step) {
		k = step;
		rc = k3_grammar_push(&g, text, k, false, "T", &err);
		if (rc)
			return rc;
	}
	return k3_grammar_push(&g, text, n, true, "T", &err);
}

int main(void)
{
	struct k3_grammar g = { 0 };
	struct k3_err err;
	char deep[2 * K3_JSON_DEPTH + 2];
	int rc;

	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		ok(!take(good[i], strlen(good[i]), 1000) && !take(good[i], strlen(good[i]), 1) &&
		   !take(good[i], strlen(good[i]), 2), "JSON: text %zu", i);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(take(bad[i], strlen(bad[i]), 1000) == K3_EDATA &&
		   take(bad[i], strlen(bad[i]), 1) == K3_EDATA &&
		   take(bad[i], strlen(bad[i]), 2) == K3_EDATA, "no JSON: text %zu", i);
	ok(take("1\0", 2, 9) == K3_EDATA && take("\"\0\"", 3, 9) == K3_EDATA &&
	   take("\"\\\0\"", 4, 9) == K3_EDATA, "NUL bytes are no JSON");
	memset(deep, '[', K3_JSON_DEPTH);
	memset(deep + K3_JSON_DEPTH, ']', K3_JSON_DEPTH);
	ok(!take(deep, 2 * K3_JSON_DEPTH, 7), "64 lists in each other are taken");
	memset(deep, '[', K3_JSON_DEPTH + 1);
	memset(deep + K3_JSON_DEPTH + 1, ']', K3_JSON_DEPTH + 1);
	ok(take(deep, 2 * K3_JSON_DEPTH + 2, 7) == K3_EDATA, "65 are not");
	rc = k3_grammar_push(&g, "{\"a\": tru}", 10, true, "T", &err);
	ok(rc == K3_EDATA && !strcmp(err.text, "T: broken JSON at byte 9: '}' where true, false or "
				     "null was expected"), "the place is named");
	return tap_done();
}
