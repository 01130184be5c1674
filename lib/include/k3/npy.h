/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/npy.h - the records of a vector stream: .npy v1.0, <f4, C order.
 *
 * Records follow each other without anything between.  A reader takes exactly
 * the bytes of a record; the end of the file between two records is the end of the
 * stream, inside one it is an error.
 */
#ifndef K3_NPY_H
#define K3_NPY_H

#include <k3/buf.h>
#include <k3/err.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { K3_NPY_MAXDIM = 4, K3_NPY_MAGIC = 8 };

struct k3_npy {
	uint32_t rank;			/* 1 to K3_NPY_MAXDIM */
	uint64_t shape[K3_NPY_MAXDIM];
	uint64_t count;			/* product of the shape; 4 * count fits 63 bits */
};

/*
 * A stream being read or written: set fd and name, the rest is zero.  The
 * position is for error sentences.  A reader that had to look at the first
 * bytes of the file to see what it is hands them over in head.
 */
struct k3_npy_stream {
	int fd;
	const char *name;	/* borrowed */
	uint64_t record;	/* records begun so far */
	uint64_t offset;	/* bytes passed so far */
	uint64_t left;		/* values of the current record still to be passed */
	unsigned char head[K3_NPY_MAGIC];
	uint32_t head_len;	/* bytes of head that belong to the stream */
};

/*
 * Reads the header of the next record into *h: 1, or 0 at the end of the
 * stream.  Errors: K3_EDATA (also for other versions, dtypes, orders and ranks),
 * K3_EIO, both naming stream, record and offset; K3_EARG if values of
 * the record before were not taken.
 */
K3_API K3_NODISCARD int k3_npy_next(struct k3_npy_stream *s, struct k3_npy *h,
				    struct k3_err *err);
/*
 * Reads the next n values of the current record.  Errors: K3_EDATA if the
 * stream ends first, K3_EIO, K3_EARG if the record has not so many left.
 */
K3_API K3_NODISCARD int k3_npy_values(struct k3_npy_stream *s, float *values, uint64_t n,
				      struct k3_err *err);

/*
 * Writes a header, byte for byte the one that NumPy writes, and values behind
 * it, each at once.  Errors: K3_EIO (errno is kept: EPIPE when the reader has gone),
 * K3_EARG for a shape that cannot be, or more or fewer values than it says.
 */
K3_API K3_NODISCARD int k3_npy_begin(struct k3_npy_stream *s, uint32_t rank,
				     const uint64_t *shape, struct k3_err *err);
K3_API K3_NODISCARD int k3_npy_put(struct k3_npy_stream *s, const float *values,
				   uint64_t n, struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
