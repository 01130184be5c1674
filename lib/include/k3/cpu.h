/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/cpu.h - the instruction set that the arithmetic uses.
 *
 * Every set gives the same bits, so there is no need to choose: unless something is
 * selected, the best that the machine has is used.
 */
#ifndef K3_CPU_H
#define K3_CPU_H

#include <k3/err.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Selects a set by name: portable, avx2, avx512 (which includes VBMI and VBMI2) or neon.  For a program's first lines, before
 * engines exist.  Errors: K3_EARG for a name that is none, or a set that this
 * build or this machine lacks; the sentence lists those it has.
 */
K3_API K3_NODISCARD int k3_cpu_select(const char *name, struct k3_err *err);

/* The name of the set in use. */
K3_API const char *k3_cpu_name(void);

#ifdef __cplusplus
}
#endif
#endif
