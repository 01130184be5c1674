/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_code.c - any bytes as a coded block, and as weights to be coded.
 *
 *	clang -g -fsanitize=fuzzer,address,undefined -DK3_LIBFUZZER ...	looks for trouble
 *	cc ... && fuzz_code FILE...						replays what was found
 *
 * The first byte chooses: even, the rest is a block; odd, two bytes of columns and then weights.
 */
#include "math/code.h"
#include "math/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VECS = 5, MOST = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Decodes and multiplies; whatever the weights are, all sets must agree. */
static void use(const unsigned char *block, const unsigned char *weights)
{
	struct k3_code c = k3_code_view(block);
	const struct k3_kernels *k;
	unsigned char *w = malloc(2 * c.rows * c.cols);
	float *x = calloc(c.cols, sizeof *x), *y = malloc(VECS * c.rows * sizeof *y);
	const float *xs[VECS];
	float *ys[VECS];

	if (!w || !x || !y)
		exit(1);
	for (size_t v = 0; v < VECS; v++) {
		xs[v] = x;
		ys[v] = y + v * c.rows;
	}
	k3_code_decode(block, 0, c.rows, w);
	if (weights && memcmp(w, weights, 2 * c.rows * c.cols))
		abort();
	for (unsigned i = 0; (k = k3_kernels_at(i)); i++)
		for (size_t count = 1; count <= VECS; count += VECS - 1)
			k->rows_coded(block, 0, c.rows, xs, count, ys);
	free(w);
	free(x);
	free(y);
}

static void as_weights(const uint8_t *data, size_t size)
{
	size_t cols = 1 + data[0] + 256 * (size_t)(data[1] & 7), rows = (size - 2) / 2 / cols, n;
	unsigned char *block;
	struct k3_err err;

	if (!rows)
		return;
	block = malloc(k3_code_bound(rows, cols));
	if (!block)
		exit(1);
	n = k3_code_encode(data + 2, rows, cols, block);
	if (n > k3_code_bound(rows, cols) || k3_code_check(block, n, "block", &err))
		abort();
	use(block, data + 2);
	free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct k3_err err;

	if (size < 3 || size > MOST)
		return 0;
	if (data[0] % 2) {
		as_weights(data + 1, size - 1);
	} else {
		/* in memory of its own, so that a read beyond its end is seen */
		unsigned char *block = malloc(size - 1);

		if (!block)
			exit(1);
		memcpy(block, data + 1, size - 1);
		if (!k3_code_check(block, size - 1, "block", &err))
			use(block, NULL);
		free(block);
	}
	return 0;
}

#ifndef K3_LIBFUZZER
int main(int argc, char **argv)
{
	static uint8_t data[MOST];

	for (int i = 1; i < argc; i++) {
		FILE *f = fopen(argv[i], "rb");
		size_t n;

		if (!f) {
			perror(argv[i]);
			return 1;
		}
		n = fread(data, 1, sizeof data, f);
		fclose(f);
		LLVMFuzzerTestOneInput(data, n);
	}
	return 0;
}
#endif
