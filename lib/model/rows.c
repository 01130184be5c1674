/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - buffers of vectors, and the scratch area of a worker. */
#include "model/pass.h"
#include "sys/small.h"

#include <k3/buf.h>

#include <stdlib.h>

int k3_rows_new(struct k3_rows *r, uint64_t n, uint64_t width, struct k3_err *err)
{
	uint64_t count;
	float *data;

	*r = (struct k3_rows){ .n = n, .width = width };
	if (k3_mul_over(n, width, &count) || count > (SIZE_MAX - K3_LINE) / sizeof(float))
		return k3_fail_nomem(err);
	r->memory = k3_calloc(1, count * sizeof(float) + K3_LINE);
	r->at = k3_calloc(n, sizeof *r->at);
	if (!r->memory || !r->at) {
		k3_rows_free(r);
		return k3_fail_nomem(err);
	}
	/* a vector that begins within a line of the cache is slower to read */
	data = (float *)(((uintptr_t)r->memory + K3_LINE - 1) & ~(uintptr_t)(K3_LINE - 1));
	for (uint64_t i = 0; i < n; i++)
		r->at[i] = data + i * width;
	return 0;
}

void k3_rows_free(struct k3_rows *r)
{
	free(r->at);
	free(r->memory);
	*r = (struct k3_rows){ 0 };
}

uint64_t k3_rows_bytes(uint64_t n, uint64_t width)
{
	return n * (width * sizeof(float) + sizeof(float *)) + K3_LINE;
}
