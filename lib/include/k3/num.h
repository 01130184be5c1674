/* SPDX-License-Identifier: Apache-2.0 */
/* k3/num.h - numbers out of text, whole and in range, or not at all. */
#ifndef K3_NUM_H
#define K3_NUM_H

#include <k3/err.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Decimal digits only, the whole string, at most max. */
K3_API bool k3_num_u64(const char *s, uint64_t max, uint64_t *out);

/* A finite decimal number in the C locale's form, the whole string. */
K3_API bool k3_num_double(const char *s, double *out);

#ifdef __cplusplus
}
#endif
#endif
