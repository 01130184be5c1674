/* SPDX-License-Identifier: Apache-2.0 */
/* stat-lines.c - the lines of a stream, one after the other. */
#include "stat.h"

#include <k3/io.h>

#include <inttypes.h>
#include <string.h>

enum { CHUNK = 1 << 16, MAX_LINE = 1 << 26 };

struct lines {
	const struct stat_source *source;
	stat_line *take;
	void *ctx;
	uint64_t number;
};

/* Takes all whole lines out of b, at the end also the rest. */
static int whole_lines(struct lines *l, struct k3_buf *b, bool end, struct k3_err *err)
{
	const char *p = b->data, *nl;
	size_t left = b->len;
	int rc = 0;

	while (!rc && left && ((nl = memchr(p, '\n', left)) || end)) {
		size_t n = nl ? (size_t)(nl - p) : left;

		rc = l->take(l->ctx, l->source, p, n, ++l->number, err);
		n += nl != NULL;
		p += n;
		left -= n;
	}
	if (!rc && left > MAX_LINE)
		rc = k3_fail(err, K3_EDATA, "%s: line %" PRIu64 " is longer than %d bytes",
			     l->source->name, l->number + 1, MAX_LINE);
	memmove(b->data, p, left);
	b->len = left;
	return rc;
}

int stat_lines(const struct stat_source *s, stat_line *take, void *ctx, struct k3_err *err)
{
	struct lines l = { .source = s, .take = take, .ctx = ctx };
	struct k3_buf b = K3_BUF_INIT;
	size_t got = CHUNK;
	char *p;
	int rc = 0;

	k3_buf_add(&b, s->head, s->head_len);
	while (!rc && got == CHUNK) {
		p = k3_buf_reserve(&b, CHUNK);
		rc = p ? k3_read_full(s->fd, p, CHUNK, &got, s->name, err) : k3_fail_nomem(err);
		if (rc)
			break;
		b.len += got;
		rc = whole_lines(&l, &b, got < CHUNK, err);
	}
	k3_buf_free(&b);
	return rc;
}
