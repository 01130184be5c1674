/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - the parts of the sampler that have answers of their own to be tested against. */
#ifndef K3_SAMPLE_PRIVATE_H
#define K3_SAMPLE_PRIVATE_H

#include <stdint.h>

/*
 * Philox4x32-10 (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011): encrypts the counter in place under the key.
 */
void k3i_philox(uint32_t counter[4], const uint32_t key[2]);

/* e^x for x <= 0, within 2 ulp, the same bits on every machine; 0 below -708. */
double k3i_exp(double x);

/*
 * The logarithm of the sum of exp(logit - largest), and in *mean, if that is not NULL, the
 * mean of logit - largest over the distribution.
 */
double k3i_log_sum(const float *logits, uint32_t vocab, float largest, double *mean);

#endif
