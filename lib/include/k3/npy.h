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

enum { K3_NPY_MAXDIM = 4 };

struct k3_npy {
	uint32_t rank;			/* 1 to K3_NPY_MAXDIM */
	uint64_t shape[K3_NPY_MAXDIM];
	uint64_t count;			/* product of the shape */
};

/*
 * A stream being read or written; the position is for error sentences.
 */
struct k3_npy_stream {
	int fd;
	const char *name;	/* borrowed */
	uint64_t record;	/* number of the next record, from 0 */
	uint64_t offset;	/* bytes passed so far */
};

/*
 * Reads the header of the next record into *h: 1, or 0 at the end of the
 * stream.  Errors: K3_EDATA, K3_EIO, naming stream, record and offset.
 */
K3_API K3_NODISCARD int k3_npy_next(struct k3_npy_stream *s, struct k3_npy *h,
				    struct k3_err *err);
/* Reads n values of the record whose header was read; all of them must be taken. */
K3_API K3_NODISCARD int k3_npy_values(struct k3_npy_stream *s, float *values, uint64_t n,
				      struct k3_err *err);

/* Writes a header (its length is a multiple of 64), and values behind it. */
K3_API K3_NODISCARD int k3_npy_begin(struct k3_npy_stream *s, uint32_t rank,
				     const uint64_t *shape, struct k3_err *err);
K3_API K3_NODISCARD int k3_npy_put(struct k3_npy_stream *s, const float *values,
				   uint64_t n, struct k3_err *err);

#ifdef __cplusplus
}
#endif
#endif
