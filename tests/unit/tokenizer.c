/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c - pairs, special ids and the checks of the two files, on vocabularies made here. */
#include "tap.h"

#include <k3/buf.h>
#include <k3/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char directory[] = "/tmp/k3-tokenizer-XXXXXX";

static const char *path_of(const char *file)
{
	static char path[128];

	snprintf(path, sizeof path, "%s/%s", directory, file);
	return path;
}

static void put_file(const char *file, const char *bytes, size_t n)
{
	FILE *f = fopen(path_of(file), "w");

	if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
		perror(path_of(file));
}

/* A line of tiktoken.model. */
static void put_line(struct k3_buf *b, const char *token, size_t n, unsigned rank)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	unsigned char three[3];
	size_t i, k;

	for (i = 0; i < n; i += 3) {
		k = n - i < 3 ? n - i : 3;
		memset(three, 0, 3);
		memcpy(three, token + i, k);
		k3_buf_char(b, digits[three[0] >> 2]);
		k3_buf_char(b, digits[(three[0] & 3) << 4 | three[1] >> 4]);
		k3_buf_char(b, k > 1 ? digits[(three[1] & 15) << 2 | three[2] >> 6] : '=');
		k3_buf_char(b, k > 2 ? digits[three[2] & 63] : '=');
	}
	k3_buf_printf(b, " %u\n", rank);
}

/* The single bytes in the order of their values from 0 to 255, then these tokens. */
static void put_vocabulary(const char *const *tokens)
{
	struct k3_buf b = K3_BUF_INIT;
	unsigned rank;

	for (rank = 0; rank < 256; rank++)
		put_line(&b, &(char){ (char)rank }, 1, rank);
	for (; *tokens; tokens++, rank++)
		put_line(&b, *tokens, strlen(*tokens), rank);
	put_file("tiktoken.model", b.data, b.len);
	k3_buf_free(&b);
}

/* JSON with ' for ", which is easier to read here. */
static void put_config(const char *json)
{
	struct k3_buf b = K3_BUF_INIT;

	for (; *json; json++)
		k3_buf_char(&b, *json == '\'' ? '"' : *json);
	put_file("tokenizer_config.json", b.len ? b.data : "", b.len);
	k3_buf_free(&b);
}

static struct k3_tokenizer *open_here(void)
{
	struct k3_tokenizer *t;
	struct k3_err err;

	if (k3_tokenizer_open(directory, &t, &err))
		printf("Bail out! %s\n", err.text);
	return t;
}

/* The ids of text as words, with '|' behind every piece; good until the next call. */
static const char *encode(const struct k3_tokenizer *t, const char *text, size_t n, bool special)
{
	static char out[512];
	struct k3_ids ids = K3_IDS_INIT, ends = K3_IDS_INIT;
	size_t i, piece = 0, at = 0;

	if (k3_tokenizer_encode(t, text, n, special, &ids, &ends, NULL))
		return "failed";
	for (out[0] = '\0', i = 0; i < ids.count; i++) {
		if (i == ends.id[piece])
			piece++;
		at += (size_t)snprintf(out + at, sizeof out - at, "%s%u%s", at ? " " : "",
				       ids.id[i], i + 1 == ends.id[piece] ? "|" : "");
	}
	if (ends.count ? ends.id[ends.count - 1] != ids.count : ids.count)
		snprintf(out, sizeof out, "the last piece does not end at the last id");
	k3_ids_free(&ids);
	k3_ids_free(&ends);
	return out;
}

static void check(const struct k3_tokenizer *t, const char *text, bool special, const char *want)
{
	const char *got = encode(t, text, strlen(text), special);

	if (!ok(!strcmp(got, want), "'%s'%s is %s", text, special ? ", special," : "", want))
		printf("# got %s\n", got);
}

static void test_pairs(void)
{
	static const char *const tokens[] = {	/* 256 and up */
		"bc", "ab", "cd", "xx", "xxx", "\xe4\xbd", "zy", "yz", "whole", "gh", "fg",
		"fgh", NULL
	};
	struct k3_tokenizer *t;

	put_vocabulary(tokens);
	put_config("{'added_tokens_decoder':{}}");
	t = open_here();
	check(t, "", false, "");
	check(t, "whole", false, "264|");	/* a token, though no pairs lead there */
	check(t, "wholes", false, "119 104 111 108 101 115|");
	/* the lowest rank first, neither the first in the text nor the last */
	check(t, "abce", false, "97 256 101|");
	check(t, "bcda", false, "256 100 97|");
	check(t, "cdab", false, "258 257|");
	/* the bytes of a pair count, not the pair that the token was once made of */
	check(t, "fghi", false, "267 105|");
	/* the leftmost of equals */
	check(t, "xxxx", false, "259 259|");
	check(t, "xxxxx", false, "259 260|");
	check(t, "zyzy", false, "262 262|");
	check(t, "yzyz", false, "121 262 122|");
	check(t, "\xe4\xbd\xa0", false, "261 160|");
	check(t, "ab cd", false, "257| 32 258|");
	ok(!strcmp(encode(t, "\0\xff", 2, false), "0 255|"), "NUL and a byte that is not UTF-8");
	k3_tokenizer_close(t);
}

/* How often an id comes out of n letters and then a spelling. */
static size_t count_behind(const struct k3_tokenizer *t, size_t n, const char *spelling,
			   uint32_t id)
{
	struct k3_ids ids = K3_IDS_INIT;
	struct k3_buf text = K3_BUF_INIT;
	size_t i, found = 0;

	for (i = 0; i < n; i++)
		k3_buf_char(&text, 'a');
	k3_buf_str(&text, spelling);
	if (k3_tokenizer_encode(t, text.data, text.len, true, &ids, NULL, NULL))
		return SIZE_MAX;
	for (i = 0; i < ids.count; i++)
		found += ids.id[i] == id;
	k3_ids_free(&ids);
	k3_buf_free(&text);
	return found;
}

static void check_bytes(const struct k3_tokenizer *t, uint32_t id, const char *want)
{
	size_t n = 0;
	const char *p = k3_tokenizer_bytes(t, id, &n);

	ok(p && n == strlen(want) && !memcmp(p, want, n), "the bytes of id %u are '%s'", id, want);
}

static const char *const one_token[] = { "lo", NULL };	/* the special ids are 257 to 512 */

static void test_specials(void)
{
	struct k3_tokenizer *t;
	size_t n;

	put_vocabulary(one_token);
	put_config("{'model_max_length': 1e30, 'added_tokens_decoder': {"
		   "'257': {'content': '<|open|>', 'special': true, 'x': [1, {}]},"
		   "'260': {'special': true, 'content': '<|open|>>'},"
		   "'512': {'content': '\\u00e9<'}}, 'other': [{'content': 7}]}");
	t = open_here();
	ok(k3_tokenizer_vocab(t) == 513, "257 tokens, 256 special ids");
	check(t, "a<|open|>lo", true, "97| 257| 256|");
	check(t, "<|open|>", false, "60 124| 111 112 101 110| 124 62|");
	check(t, "<|open", true, "60 124| 111 112 101 110|");
	check(t, "<|open|>>x", true, "260| 120|");
	check(t, "<|<|open|>", true, "60 124| 257|");
	check(t, "a\u00e9<", true, "97| 512|");
	check(t, "<|reserved_token_258|><|reserved_token_511|>", true, "258| 511|");
	/* a slot with a name has no reserved spelling */
	check(t, "<|reserved_token_257|>", true, "60 124| 114 101 115 101 114 118 101 100| "
	      "95 116 111 107 101 110| 95| 50 53 55| 124 62|");
	/* what is between specials is split as if it stood alone */
	check(t, "a  <|open|>b", true, "97| 32 32| 257| 98|");
	check(t, "a  <|open|>b", false, "97| 32| 32 60 124| 111 112 101 110| 124 62| 98|");
	ok(count_behind(t, 24992, "<|open|>", 257) == 1, "a spelling in front of a cut is special");
	ok(count_behind(t, 24993, "<|open|>", 257) == 0, "a spelling that is cut is text");
	check_bytes(t, 0x41, "A");
	check_bytes(t, 256, "lo");
	check_bytes(t, 257, "<|open|>");
	check_bytes(t, 258, "<|reserved_token_258|>");
	check_bytes(t, 512, "\u00e9<");
	ok(!k3_tokenizer_bytes(t, 513, &n), "513 is no id");
	ok(!k3_tokenizer_bytes(t, UINT32_MAX, &n), "nor is the largest number");
	k3_tokenizer_close(t);
}

/* The files as they lie there must be refused, by a sentence with these words. */
static void check_refused(const char *words)
{
	struct k3_tokenizer *t;
	struct k3_err err = { "" };
	int rc = k3_tokenizer_open(directory, &t, &err);

	if (!ok(rc < 0 && !t && strstr(err.text, words) && strstr(err.text, directory),
		"refused: %s", words))
		printf("# got %d: %s\n", rc, err.text);
	k3_tokenizer_close(t);
}

static void test_bad_names(void)
{
	static const struct { const char *json, *words; } bad[] = {
		{ "", "empty" },
		{ "[]", "is not an object" },
		{ "3", "is not an object" },
		{ "[{'added_tokens_decoder':{}}]", "is not an object" },
		{ "{'added_tokens_decoder':{}} {}", "something follows" },
		{ "{'added_tokens_decoder':{}} 3", "something follows" },
		{ "{}", "no added_tokens_decoder" },
		{ "{'a':{'added_tokens_decoder':{}}}", "no added_tokens_decoder" },
		{ "{'added_tokens_decoder':3}", "is not an object" },
		{ "{'added_tokens_decoder':[]}", "is not an object" },
		{ "{'added_tokens_decoder':[3]}", "is not an object" },
		{ "{'added_tokens_decoder':{'256':{'content':'a'}}}",
		  "'256' is not an id from 257 to 512" },
		{ "{'added_tokens_decoder':{'513':{'content':'a'}}}",
		  "'513' is not an id from 257 to 512" },
		{ "{'added_tokens_decoder':{'-1':{'content':'a'}}}", "'-1' is not an id" },
		{ "{'added_tokens_decoder':{'0257':{'content':'a'}}}", "'0257' is not an id" },
		{ "{'added_tokens_decoder':{'257\\u0000':{'content':'a'}}}", "'257' is not an id" },
		{ "{'added_tokens_decoder':{'257':{}}}", "id 257 has no content" },
		{ "{'added_tokens_decoder':{'257':'a'}}", "id 257 has no content" },
		{ "{'added_tokens_decoder':{'257':['content','a']}}", "id 257 has no content" },
		{ "{'added_tokens_decoder':{'257':{'content':['a']}}}", "id 257 has no content" },
		{ "{'added_tokens_decoder':{'257':{'content':null}}}",
		  "id 257 has no content that is a string" },
		{ "{'added_tokens_decoder':{'257':{'content':''}}}",
		  "id 257 has no content that is a string" },
		{ "{'added_tokens_decoder':{'257':{'content':'a\\u0000'}}}",
		  "id 257 has no content that is a string" },
		{ "{'added_tokens_decoder':{'257':{'content':'a','content':'b'}}}",
		  "given twice" },
		{ "{'added_tokens_decoder':{'257':{'content':'a'},'257':{'content':'b'}}}",
		  "given twice" },
		{ "{'added_tokens_decoder':{},'added_tokens_decoder':{}}", "is given twice" },
		{ "{'added_tokens_decoder':{'257':{'content':'a'}},"
		  "'added_tokens_decoder':{'258':{'content':'b'}}}", "is given twice" },
		{ "{'added_tokens_decoder':{'257':{'content':'a'},'300':{'content':'a'}}}",
		  "ids 257 and 300 have the same content 'a'" },
		{ "{'added_tokens_decoder':{'257':{'content':'<|reserved_token_258|>'}}}",
		  "have the same content" },
		{ "{'added_tokens_decoder':{'257':{'content':'\xff'}}}", "offset 43 is not UTF-8" },
		{ "{'added_tokens_decoder':{'257':{'content':'a'}}", "tokenizer_config.json: " },
		{ "{'added_tokens_decoder':{'257' {'content':'a'}}}", "tokenizer_config.json: " },
		{ "{'added_tokens_decoder':{'257':{'content':'a}}}", "tokenizer_config.json: " }
	};
	struct k3_buf deep = K3_BUF_INIT;
	size_t i;

	put_vocabulary(one_token);
	for (i = 0; i < sizeof bad / sizeof *bad; i++) {
		put_config(bad[i].json);
		check_refused(bad[i].words);
	}
	k3_buf_str(&deep, "{'a':");
	for (i = 0; i < 100000; i++)
		k3_buf_char(&deep, '[');
	put_config(deep.data);
	k3_buf_free(&deep);
	check_refused("tokenizer_config.json: ");
	unlink(path_of("tokenizer_config.json"));
	check_refused("tokenizer_config.json: No such file");
}

/* The lines of the single bytes from 0 to last, and then text. */
static void put_lines(unsigned last, const char *text)
{
	struct k3_buf b = K3_BUF_INIT;
	unsigned rank;

	for (rank = 0; rank <= last; rank++)
		put_line(&b, &(char){ (char)rank }, 1, rank);
	k3_buf_str(&b, text);
	put_file("tiktoken.model", b.data, b.len);
	k3_buf_free(&b);
}

static void test_bad_vocabularies(void)
{
	static const struct { const char *text, *words; } bad[] = {
		{ "YWI= 256", "line 257 has no newline" },
		{ "YWI= 256\r\n", "line 257 ends with a carriage return" },
		{ "YWI= 256\n\nYWM= 257\n", "line 258 is not base64, one blank and a" },
		{ "YWI=\t256\n", "line 257 is not base64, one blank" },
		{ "YWI=  256\n", "line 257 is not base64, one blank" },
		{ "YWI= 256 \n", "line 257 is not base64, one blank" },
		{ "YWI= 0256\n", "line 257 is not base64, one blank" },
		{ "YWI= -1\n", "line 257 is not base64, one blank" },
		{ "YWI= 0x100\n", "line 257 is not base64, one blank" },
		{ "YWI= 99999999999999999999\n", "line 257 is not base64, one blank" },
		{ "YWI=\n", "line 257 is not base64, one blank" },
		{ " 256\n", "line 257: '' is not the base64" },
		{ "YWI 256\n", "line 257: 'YWI' is not the base64" },
		{ "YW=I 256\n", "line 257: 'YW=I' is not the base64" },
		{ "==== 256\n", "line 257: '====' is not the base64" },
		{ "Y=== 256\n", "line 257: 'Y===' is not the base64" },
		{ "YW_- 256\n", "line 257: 'YW_-' is not the base64" },
		/* bits behind the last byte */
		{ "YWJ= 256\n", "line 257: 'YWJ=' is not the base64" },
		{ "YR== 256\n", "line 257: 'YR==' is not the base64" },
		{ "YWI= 257\n", "line 257 has rank 257 where rank 256" },
		{ "YWI= 256\nYWM= 256\n", "line 258 has rank 256 where rank 257" },
		{ "YWI= 257\nYWM= 256\n", "line 257 has rank 257 where rank 256" },
		{ "YWI= 256\nYWM= 257\nYWI= 258\n", "line 259 has the same bytes as line 257" },
		{ "AA== 256\n", "line 257 has the same bytes as line 1" }
	};
	size_t i;

	put_config("{'added_tokens_decoder':{}}");
	for (i = 0; i < sizeof bad / sizeof *bad; i++) {
		put_lines(255, bad[i].text);
		check_refused(bad[i].words);
	}
	put_lines(254, "YWI= 255\n");
	check_refused("single byte 0xff");
	put_file("tiktoken.model", "YQ\0= 0\n", 7);
	check_refused("line 1: ");
	put_file("tiktoken.model", "", 0);
	check_refused("tiktoken.model: no line holds the single byte 0x00");
	unlink(path_of("tiktoken.model"));
	check_refused("tiktoken.model: No such file");
}

/* Long pieces whose every pair is a token; a search for each merge would take hours. */
static void test_speed(void)
{
	static const char *const tokens[] = {
		"aa", "aaaa", "aaaaaaaa", "ab", "ba", "aba", "  ", NULL
	};
	static const char units[] = "a b";
	struct k3_ids ids = K3_IDS_INIT;
	struct k3_tokenizer *t;
	static char text[1000000];
	clock_t start;
	int i, rc;

	put_vocabulary(tokens);
	put_config("{'added_tokens_decoder':{}}");
	t = open_here();
	for (i = 0; i < 3; i++) {
		memset(text, units[i], sizeof text);
		for (size_t k = 0; units[i] == 'b' && k < sizeof text; k += 2)
			text[k] = 'a';
		start = clock();
		ids.count = 0;
		rc = k3_tokenizer_encode(t, text, sizeof text, true, &ids, NULL, NULL);
		/* 40 sections of 25,000: of eight a, of two blanks, of "ab" before "ba", "aba" */
		ok(!rc && ids.count == (units[i] == 'a' ? 125000 : 500000) &&
		   clock() - start < CLOCKS_PER_SEC, "a megabyte of '%c' takes less than a second",
		   units[i]);
	}
	k3_ids_free(&ids);
	k3_tokenizer_close(t);
}

int main(void)
{
	if (!mkdtemp(directory)) {
		perror(directory);
		return 1;
	}
	test_pairs();
	test_specials();
	test_bad_names();
	test_bad_vocabularies();
	test_speed();
	unlink(path_of("tiktoken.model"));
	unlink(path_of("tokenizer_config.json"));
	rmdir(directory);
	return tap_done();
}
