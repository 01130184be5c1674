/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - growable bytes, and the checked arithmetic that sizes need. */
#include <k3/buf.h>
#include <k3/utf8.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool k3_mul_over(uint64_t a, uint64_t b, uint64_t *out)
{
	return __builtin_mul_overflow(a, b, out);
}

bool k3_add_over(uint64_t a, uint64_t b, uint64_t *out)
{
	return __builtin_add_overflow(a, b, out);
}

void *k3_calloc(size_t count, size_t size)
{
	/* one byte at least, so that NULL always means failure */
	return calloc(count ? count : 1, size ? size : 1);
}

void *k3_reallocarray(void *p, size_t count, size_t size)
{
	size_t n;

	if (__builtin_mul_overflow(count, size, &n))
		return NULL;
	return realloc(p, n ? n : 1);
}

char *k3_buf_reserve(struct k3_buf *b, size_t n)
{
	size_t need, cap;
	char *p;

	if (b->failed)
		return NULL;
	if (__builtin_add_overflow(b->len, n, &need) ||
	    __builtin_add_overflow(need, (size_t)1, &need))
		goto fail;
	if (need > b->cap) {
		cap = b->cap < 32 ? 64 : b->cap + b->cap / 2;
		if (cap < need)
			cap = need;
		p = realloc(b->data, cap);
		if (!p)
			goto fail;
		b->data = p;
		b->cap = cap;
	}
	return b->data + b->len;
fail:
	b->failed = true;
	return NULL;
}

void k3_buf_add(struct k3_buf *b, const void *bytes, size_t n)
{
	char *p = k3_buf_reserve(b, n);

	if (!p)
		return;
	if (n)
		memcpy(p, bytes, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void k3_buf_str(struct k3_buf *b, const char *s)
{
	k3_buf_add(b, s, strlen(s));
}

void k3_buf_char(struct k3_buf *b, char c)
{
	k3_buf_add(b, &c, 1);
}

void k3_buf_printf(struct k3_buf *b, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	p = k3_buf_reserve(b, (size_t)n);
	if (!p)
		return;
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void k3_buf_json(struct k3_buf *b, const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s, *end = p + n;
	uint32_t c;
	size_t k;

	k3_buf_char(b, '"');
	while (p < end) {
		k = k3_utf8_next(p, (size_t)(end - p), &c);
		if (!k) {
			k3_buf_str(b, "\xef\xbf\xbd");
			p += k3_utf8_bad(p, (size_t)(end - p));
			continue;
		}
		if (c == '"' || c == '\\')
			k3_buf_printf(b, "\\%c", (char)c);
		else if (c == '\n')
			k3_buf_str(b, "\\n");
		else if (c < 0x20 || c == 0x7f)
			k3_buf_printf(b, "\\u%04x", (unsigned)c);
		else
			k3_buf_add(b, p, k);
		p += k;
	}
	k3_buf_char(b, '"');
}

void k3_buf_clear(struct k3_buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

void k3_buf_free(struct k3_buf *b)
{
	free(b->data);
	*b = (struct k3_buf)K3_BUF_INIT;
}
