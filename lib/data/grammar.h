/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/grammar.h - is this JSON, byte by byte?
 *
 * libjq's streaming parser takes more than JSON (NaN, +1, 01), ends the process by a failed
 * assertion on some of the texts that are none, and has no limit of depth.  So a text
 * passes here first: what is let through is JSON by RFC 8259.
 */
#ifndef K3_DATA_GRAMMAR_H
#define K3_DATA_GRAMMAR_H

#include <k3/err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { K3_JSON_DEPTH = 64 };

/* Zeros are the beginning of a text. */
struct k3_grammar {
	uint8_t state;		/* what the next byte must be */
	uint8_t hex;		/* digits of a \u that are still to come */
	bool key;		/* the string under way is a key */
	const char *literal;	/* what is left of true, false or null */
	uint64_t objects;	/* bit d: the container at depth d is an object */
	uint32_t depth;		/* containers that are open */
	uint64_t offset;	/* bytes that were let through */
};

/*
 * Takes the next n bytes of the text that errors call name; last: no more will come.
 * Errors: K3_EDATA, with the place.
 */
K3_NODISCARD int k3_grammar_push(struct k3_grammar *g, const char *p, size_t n, bool last,
				 const char *name, struct k3_err *err);

#endif
