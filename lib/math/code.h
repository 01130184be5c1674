/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code.h - the lossless code of a block of rows of bf16 weights.
 *
 * Sign and mantissa of a weight are kept as they are; its exponent becomes three bits, the
 * distance below a base of its row, and what is out of their reach four bits more, or twelve.
 * The bytes depend on the weights only.  docs/kernels.md has the format byte by byte.
 *
 * A block comes from k3_code_encode or has passed k3_code_check; nothing else may be
 * given to the functions below it, nor to rows_coded of math/kernels.h, which then stay
 * inside the block whatever its bytes are.  A block may lie at any address; kernels are
 * fastest where it is a multiple of 64.
 */
#ifndef K3_MATH_CODE_H
#define K3_MATH_CODE_H

#include <k3/err.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The bytes that are enough for any block of these measures, coded or raw; 0 where
 * there is no such block: without rows or columns, or with more than 2^30 weights.
 */
size_t k3_code_bound(size_t rows, size_t cols);

/*
 * Codes rows * cols bf16 weights (little-endian, at any address) into out, which has room for
 * k3_code_bound(rows, cols) bytes, not 0, and returns the size of the block.
 */
size_t k3_code_encode(const void *weights, size_t rows, size_t cols, void *out);

/*
 * Whether the size bytes of block are one whole block, so that decoding stays inside it.
 * The sentence begins with name, which says where the block lies.  Errors: K3_EDATA.
 */
K3_NODISCARD int k3_code_check(const void *block, size_t size, const char *name,
			       struct k3_err *err);

/* Where things lie in a block; pointers into it. */
struct k3_code {
	size_t rows, cols, size;	/* size: bytes of the whole block */
	bool raw;			/* the rows are plain bf16 */
	const unsigned char *row_table;	/* an entry for each row (math/code_row.h) */
	const unsigned char *body;	/* rows of row_size bytes */
	size_t row_size;
	const unsigned char *escapes;
};

struct k3_code k3_code_view(const void *block);

/* The bf16 bytes of rows first to first + rows, exactly as they were. */
void k3_code_decode(const void *block, size_t first, size_t rows, void *out);

#endif
