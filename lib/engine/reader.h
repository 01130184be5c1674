/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/reader.h - reads the entries of a walk ahead of those who use them.
 *
 * What is read goes through a few buffers.  What counts for the speed of a disk is how
 * much memory its data goes to, as long as that stays in a processor's cache.  Neighbours on the disk are read by one request, several requests at a time, by
 * threads of the reader's own that sleep in pread.
 *
 * An entry may be in memory already; then it takes a place in the order and nothing else.  When the threads have
 * nothing to read for the order, they fill a hoard of experts (engine/hoard.h).
 */
#ifndef K3_ENGINE_READER_H
#define K3_ENGINE_READER_H

#include "engine/hoard.h"

struct k3_reader;

struct k3_entry {
	const unsigned char *data;
	uint64_t bytes;
	bool read;		/* from the disk for this use, and not checked yet; else it was in memory */
	unsigned char *keep;	/* where a copy should go, or NULL */
};

struct k3_reader_options {
	uint64_t buffer;	/* bytes of a buffer: k3_reader_buffer */
	unsigned buffers;	/* at least k3_reader_least */
	uint64_t request;	/* bytes that a request should have at most */
	unsigned depth;		/* requests at a time, at most: engine/pace.h */
	/*
	 * Asked for every entry, in order, with the reader's lock held.  Sets e's data and read if it
	 * is in memory, and may set where it is to be kept.  False if its bytes are on their way
	 * to memory: then it is asked again.
	 */
	bool (*find)(void *ctx, const struct k3_step *step, uint64_t i, struct k3_entry *e);
	void *ctx;
	struct k3_hoard *hoard;	/* what is read when there is nothing else to do; or NULL */
};

/* The buffer that takes a request and any entry; and how many let that many workers go on. */
uint64_t k3_reader_buffer(uint64_t request, uint64_t entry);
unsigned k3_reader_least(unsigned workers);
/* The bytes of all buffers. */
uint64_t k3_reader_memory(const struct k3_reader_options *o);

K3_NODISCARD int k3_reader_new(struct k3_source *source, const struct k3_reader_options *o,
			       struct k3_reader **out, struct k3_err *err);
void k3_reader_free(struct k3_reader *r);

/* Begins to read along a route, which must stay until k3_reader_end; that waits for reads on their way. */
void k3_reader_begin(struct k3_reader *r, const struct k3_route *route);
void k3_reader_end(struct k3_reader *r);

/* The lock that find is called under, and that the route's experts are named under. */
void k3_reader_lock(struct k3_reader *r);
void k3_reader_unlock(struct k3_reader *r);
/* With the lock held: the route's experts are known now, the hoard expects some, or something found its place in memory. */
void k3_reader_known(struct k3_reader *r);

/* Waits for entry n, which is then held.  Errors: those of the read, and K3_EARG beyond the end. */
K3_NODISCARD int k3_reader_get(struct k3_reader *r, uint64_t n, struct k3_entry *out,
			       struct k3_err *err);
/* An entry is held once, the scales of an expert's matrix once for each of its blocks. */
void k3_reader_release(struct k3_reader *r, uint64_t n);

struct k3_reader_counts {
	uint64_t bytes;		/* that came from the disk */
	double waited;		/* seconds that users waited for an entry, added up */
};
void k3_reader_count(struct k3_reader *r, struct k3_reader_counts *out);

#endif
