/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/buf.h - bytes that grow, and sizes that cannot overflow unseen.
 *
 * A failed allocation is remembered in the buffer: a run of appends needs one
 * check at its end.
 */
#ifndef K3_BUF_H
#define K3_BUF_H

#include <k3/err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct k3_buf {
	char *data;	/* owned; always followed by a NUL once not NULL */
	size_t len, cap;
	bool failed;	/* an append ran out of memory: the contents are cut */
};

#define K3_BUF_INIT { NULL, 0, 0, false }

/* Makes room for n more bytes and returns where they go, or NULL. */
K3_API char *k3_buf_reserve(struct k3_buf *b, size_t n);
K3_API void k3_buf_add(struct k3_buf *b, const void *bytes, size_t n);
K3_API void k3_buf_str(struct k3_buf *b, const char *s);
K3_API void k3_buf_char(struct k3_buf *b, char c);
K3_API void k3_buf_printf(struct k3_buf *b, const char *fmt, ...)
	K3_PRINTF(2, 3);
/* Appends s as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
K3_API void k3_buf_json(struct k3_buf *b, const char *s, size_t n);
/* Empties the buffer and keeps its memory. */
K3_API void k3_buf_clear(struct k3_buf *b);
K3_API void k3_buf_free(struct k3_buf *b);

/* calloc and realloc for counts whose product may overflow; NULL if it does. */
K3_API void *k3_calloc(size_t count, size_t size);
K3_API void *k3_reallocarray(void *p, size_t count, size_t size);

/* True when a * b, or a + b, does not fit; the result is in *out otherwise. */
K3_API bool k3_mul_over(uint64_t a, uint64_t b, uint64_t *out);
K3_API bool k3_add_over(uint64_t a, uint64_t b, uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
