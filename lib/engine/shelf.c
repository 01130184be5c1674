/* SPDX-License-Identifier: Apache-2.0 */
/* shelf.c - rows in memory or in a file. */
#include "engine/shelf.h"

#include <k3/buf.h>
#include <k3/io.h>

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

int k3_shelf_new(struct k3_shelf *s, uint64_t n, uint64_t parts, uint64_t part,
		 struct k3_spill *file, uint64_t places, struct k3_err *err)
{
	uint64_t sums, bytes;

	*s = (struct k3_shelf){ .file = file, .parts = parts, .part = part };
	if (!file)
		return k3_rows_new(&s->rows, n, parts * part, err);
	if (k3_mul_over(n, parts, &sums) || k3_mul_over(sums, part * sizeof(float), &bytes))
		return k3_fail_nomem(err);
	s->at = file->end;
	file->end += bytes;
	s->sum = k3_calloc(sums, sizeof *s->sum);
	return s->sum ? k3_rows_new(&s->rows, places, parts * part, err) : k3_fail_nomem(err);
}

void k3_shelf_free(struct k3_shelf *s)
{
	k3_rows_free(&s->rows);
	free(s->sum);
	*s = (struct k3_shelf){ 0 };
}

uint64_t k3_shelf_bytes(uint64_t n, uint64_t parts, uint64_t part, bool spilled, uint64_t places)
{
	if (!spilled)
		return k3_rows_bytes(n, parts * part);
	return k3_rows_bytes(places, parts * part) + n * parts * sizeof(uint64_t);
}

float **k3_shelf_rows(const struct k3_shelf *s, uint64_t i)
{
	return s->rows.at + (s->file ? 0 : i);
}

static uint64_t place(const struct k3_shelf *s, uint64_t i, uint64_t part)
{
	return s->at + (i * s->parts + part) * s->part * sizeof(float);
}

int k3_shelf_read(const struct k3_shelf *s, uint64_t i, uint64_t first, uint64_t n, float *values,
		  struct k3_err *err)
{
	uint64_t bytes = s->part * sizeof *values;
	int rc;

	if (!s->file)
		return 0;
	rc = k3_pread_full(s->file->fd, values + first * s->part, n * bytes, place(s, i, first),
			   s->file->directory, err);
	for (uint64_t k = first; !rc && k < first + n; k++)
		if (XXH3_64bits(values + k * s->part, bytes) != s->sum[i * s->parts + k])
			rc = k3_fail(err, K3_EIO, "%s: a temporary file: offset %" PRIu64
				     ": what was written there is not what is read",
				     s->file->directory, place(s, i, k));
	return rc;
}

int k3_shelf_write(const struct k3_shelf *s, uint64_t i, uint64_t first, uint64_t n,
		   const float *values, struct k3_err *err)
{
	uint64_t bytes = s->part * sizeof *values;

	if (!s->file)
		return 0;
	for (uint64_t k = first; k < first + n; k++)
		s->sum[i * s->parts + k] = XXH3_64bits(values + k * s->part, bytes);
	return k3_pwrite_full(s->file->fd, values + first * s->part, n * bytes, place(s, i, first),
			      s->file->directory, err);
}
