/* SPDX-License-Identifier: Apache-2.0 */
/*
 * math/code_memory.h - steps of a coded row for instruction sets without masks.
 *
 * The exponents of a chunk are made in memory, its escapes are put in byte by byte, and
 * only then the weights are put together in registers: a load soon after smaller stores to
 * the same place would wait for them.  An including file defines before:
 *
 *	v16_join(e, sm, w)	64 exponents, and signs and mantissas, in the order of slots,
 *				to four v16 of weights in order
 */
#ifndef K3_MATH_CODE_MEMORY_H
#define K3_MATH_CODE_MEMORY_H

static inline void code_begin(struct code_row *r, unsigned first, unsigned steps,
			      unsigned char *e)
{
	code_exponents(code_patch_set, r, CODE_WIDE, first, steps, e);
}

static inline void v16_step(struct code_row *r, unsigned first, unsigned step,
			    const unsigned char *e, v16 *w)
{
	v16_join(e + (step - first) * CODE_STRIDE,
		 r->body + CODE_PLANES * CODE_WIDE + step * CODE_WIDE, w);
}

#endif
