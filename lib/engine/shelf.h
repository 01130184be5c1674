/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/shelf.h - the rows that a sweep keeps from layer to layer, or through a layer.
 *
 * They are in memory; or, where there are too many for it, in a file without a name, and in memory is room for
 * those that are being worked with.  A row in the file is read and written in parts of
 * equal width, each of which has a checksum: what a disk lost or changed ends the run.
 *
 * Different rows may be read and written by several threads.
 */
#ifndef K3_ENGINE_SHELF_H
#define K3_ENGINE_SHELF_H

#include "model/pass.h"

#include <stdbool.h>

/* The file of a sweep, for all of its shelves. */
struct k3_spill {
	int fd;				/* -1: there is none */
	const char *directory;		/* for messages; borrowed */
	uint64_t end;
};

struct k3_shelf {
	struct k3_rows rows;		/* all of them; or, if there is a file, places for some */
	struct k3_spill *file;		/* NULL if all are in memory; borrowed */
	uint64_t at;			/* where the rows begin in the file */
	uint64_t parts, part;		/* of a row, and the floats of one */
	uint64_t *sum;			/* of each part of each row */
};

/* n rows of parts * part values.  file: NULL, or where they lie, and there are places in memory. */
K3_NODISCARD int k3_shelf_new(struct k3_shelf *s, uint64_t n, uint64_t parts, uint64_t part,
			      struct k3_spill *file, uint64_t places, struct k3_err *err);
void k3_shelf_free(struct k3_shelf *s);

/* The bytes of memory that this takes. */
uint64_t k3_shelf_bytes(uint64_t n, uint64_t parts, uint64_t part, bool spilled, uint64_t places);

/* Row i in memory, and those behind it; with a file, the first of the places. */
float **k3_shelf_rows(const struct k3_shelf *s, uint64_t i);

/*
 * Parts first .. first + n - 1 of row i from the file to their places in the row at `values`, and back.  They do
 * nothing if all rows are in memory.
 */
K3_NODISCARD int k3_shelf_read(const struct k3_shelf *s, uint64_t i, uint64_t first, uint64_t n,
			       float *values, struct k3_err *err);
K3_NODISCARD int k3_shelf_write(const struct k3_shelf *s, uint64_t i, uint64_t first, uint64_t n,
				const float *values, struct k3_err *err);

#endif
