/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data/json.h - reading JSON with libjq, strictly.
 *
 * libjq builds the values; data/grammar.h sees to it that what it builds them from is
 * JSON, of one value, nested at most K3_JSON_DEPTH deep.  libjq keeps the last of two equal
 * keys; here a key given twice can be seen.  Numbers are asked for in the form that is needed.
 */
#ifndef K3_DATA_JSON_H
#define K3_DATA_JSON_H

#include "data/grammar.h"
#include <k3/err.h>
#include <jv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One step through a document.  path is the array of keys and positions that leads to
 * leaf, a scalar or an empty container; at the end of a container leaf is invalid and
 * path leads to the last thing in it.  Both are borrowed.  A status other than 0
 * ends the reading and is passed on.
 */
typedef int k3_json_event(void *arg, jv path, jv leaf, struct k3_err *err);

struct k3_json {
	struct jv_parser *parser;	/* owned */
	const char *name;		/* borrowed: what errors call the text */
	k3_json_event *event;
	void *arg;
	struct k3_grammar grammar;
};

/*
 * A document that arrives in pieces: begin, push any number of times, the last time with
 * last set, and end in any case.  Errors: K3_EDATA (with the place), K3_ENOMEM.
 */
K3_NODISCARD int k3_json_begin(struct k3_json *j, const char *name, k3_json_event *event,
			       void *arg, struct k3_err *err);
K3_NODISCARD int k3_json_push(struct k3_json *j, const char *bytes, size_t n, bool last,
			      struct k3_err *err);
void k3_json_end(struct k3_json *j);

/*
 * A small document as a whole, an object without a key given twice at any depth.  The
 * caller owns *out (jv_free).  Errors: K3_EDATA, K3_ENOMEM.
 */
K3_NODISCARD int k3_json_parse(const char *text, size_t len, const char *name, jv *out,
			       struct k3_err *err);

/* True if v (borrowed) is a whole number from 0 to max, below 2^53. */
bool k3_json_u64(jv v, uint64_t max, uint64_t *out);

/* True if v (borrowed) is this string. */
bool k3_json_is(jv v, const char *s);

#endif
