/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step-input.c - rounds from stdin.  Never is more taken than the round needs, so
 * that another program can go on with the next one: a pipe is read byte by byte, a file
 * that can seek is read in pieces and put back.
 */
#include "step.h"

#include <k3/io.h>
#include <k3/num.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

static const char name[] = "standard input";

void step_input_begin(struct step_input *in, bool hidden, uint32_t width, uint32_t vocab)
{
	*in = (struct step_input){
		.hidden = hidden, .width = width, .vocab = vocab,
		.seekable = lseek(0, 0, SEEK_CUR) >= 0, .ahead = K3_BUF_INIT,
		.npy = { .fd = 0, .name = name },
	};
}

void step_tokens_free(struct step_tokens *t)
{
	free(t->ids);
	free(t->values);
	*t = (struct step_tokens){ 0 };
}

/* Gets at least one more byte into ahead: 1, 0 at the end. */
static int more(struct step_input *in, struct k3_err *err)
{
	size_t want = in->seekable ? PIECE : 1;
	char *p = k3_buf_reserve(&in->ahead, want);
	ssize_t k;

	if (!p)
		return k3_fail_nomem(err);
	do
		k = read(0, p, want);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return k3_fail_errno(err, "%s", name);
	in->ahead.len += (size_t)k;
	return k > 0;
}

/*
 * Moves the next line, without its newline, into line: 1, 0 at the end.  Of a line that lacks its
 * newline nobody knows whether its last id is all there: 62 may be what was left of 628.
 */
static int take_line(struct step_input *in, struct k3_buf *line, struct k3_err *err)
{
	size_t seen = 0;
	char *end = NULL;
	int rc;

	for (;;) {
		if (in->ahead.len > seen)
			end = memchr(in->ahead.data + seen, '\n', in->ahead.len - seen);
		seen = in->ahead.len;
		if (end)
			break;
		rc = more(in, err);
		if (rc < 0)
			return rc;
		if (rc == 0 && !in->ahead.len)
			return 0;
		if (rc == 0)
			return k3_fail(err, K3_EDATA, "%s: line %" PRIu64
				       " has no newline: the round is cut short", name, in->line + 1);
	}
	seen = (size_t)(end - in->ahead.data);
	k3_buf_add(line, in->ahead.data, seen);
	if (line->failed)
		return k3_fail_nomem(err);
	seen++;
	in->ahead.len -= seen;
	memmove(in->ahead.data, in->ahead.data + seen, in->ahead.len);
	in->line++;
	return 1;
}

static int add_id(const struct step_input *in, struct step_tokens *t, size_t *room,
		  const char *word, struct k3_err *err)
{
	uint64_t id;

	if (!k3_num_u64(word, UINT64_MAX, &id))
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 ", id %" PRIu64
			       ": '%.40s' is not an id", name, in->line, t->n + 1, word);
	if (id >= in->vocab)
		return k3_fail(err, K3_EDATA, "%s: line %" PRIu64 ", id %" PRIu64 ": %" PRIu64
			       " is not below %" PRIu32, name, in->line, t->n + 1, id, in->vocab);
	if (t->n == *room) {
		uint32_t *p = k3_reallocarray(t->ids, *room ? *room * 2 : 64, sizeof *p);

		if (!p)
			return k3_fail_nomem(err);
		t->ids = p;
		*room = *room ? *room * 2 : 64;
	}
	t->ids[t->n++] = (uint32_t)id;
	return 0;
}

/* There may be very many lines, of an id or two. */
static int fit(struct step_tokens *t, struct k3_err *err)
{
	uint32_t *p = k3_reallocarray(t->ids, t->n, sizeof *p);

	if (!p)
		return k3_fail_nomem(err);
	t->ids = p;
	return 0;
}

static int ids_line(struct step_input *in, struct step_tokens *t, struct k3_err *err)
{
	struct k3_buf line = K3_BUF_INIT;
	size_t room = 0;
	char *word, *rest;
	int rc = take_line(in, &line, err);

	if (rc == 1 && line.len && strlen(line.data) != line.len)
		rc = k3_fail(err, K3_EDATA, "%s: line %" PRIu64 ": a NUL byte", name, in->line);
	if (rc == 1) {
		rc = 0;
		rest = line.data;
		while (!rc && rest && (word = strtok_r(rest, " \t", &rest)))
			rc = add_id(in, t, &room, word, err);
		if (!rc && t->n < room)
			rc = fit(t, err);
		rc = rc ? rc : 1;
	}
	k3_buf_free(&line);
	return rc;
}

static int record(struct step_input *in, struct step_tokens *t, struct k3_err *err)
{
	struct k3_npy h;
	uint64_t number = in->npy.record;
	int rc = k3_npy_next(&in->npy, &h, err);

	if (rc != 1)
		return rc;
	if (h.rank != 3 || h.shape[2] != in->width || h.shape[1] < 1 || h.shape[1] > UINT32_MAX)
		return k3_fail(err, K3_EDATA, "%s: record %" PRIu64
			       ": not of the shape (ids, sources, %" PRIu32 ")", name, number,
			       in->width);
	t->values = k3_reallocarray(NULL, h.count, sizeof *t->values);
	if (!t->values)
		return k3_fail_nomem(err);
	t->n = h.shape[0];
	t->sources = (uint32_t)h.shape[1];
	rc = k3_npy_values(&in->npy, t->values, h.count, err);
	in->line++;
	return rc ? rc : 1;
}

int step_input_line(struct step_input *in, struct step_tokens *t, struct k3_err *err)
{
	int rc;

	step_tokens_free(t);
	rc = in->hidden ? record(in, t, err) : ids_line(in, t, err);
	if (rc < 0)
		step_tokens_free(t);
	return rc;
}

int step_input_pause(struct step_input *in, struct k3_err *err)
{
	if (in->ahead.len && in->seekable && lseek(0, -(off_t)in->ahead.len, SEEK_CUR) < 0)
		return k3_fail_errno(err, "%s: cannot go back", name);
	if (in->seekable)
		k3_buf_clear(&in->ahead);
	return 0;
}
