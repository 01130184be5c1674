/* SPDX-License-Identifier: Apache-2.0 */
/*
 * score.c - how likely an id was.
 *
 * Everything is taken relative to the largest logit, in double, and summed in the order of the
 * ids.  libm's log may differ in its last bit from machine to machine: these are reports, and
 * no choice hangs on them.
 */
#include "sample/sample.h"

#include <k3/sample.h>

#include <math.h>
#include <stddef.h>

double k3i_log_sum(const float *logits, uint32_t vocab, float largest, double *mean)
{
	double sum = 0, weighted = 0;

	for (uint32_t i = 0; i < vocab; i++) {
		double below = (double)logits[i] - largest, e = k3i_exp(below);

		sum += e;
		weighted += e * below;
	}
	if (mean)
		*mean = weighted / sum;
	return log(sum);
}

void k3_score_id(const float *logits, uint32_t vocab, uint32_t id, struct k3_score *out)
{
	float largest = logits[0], own = logits[id];
	double log_sum, mean;
	uint32_t rank = 0;

	for (uint32_t i = 0; i < vocab; i++) {
		if (logits[i] > largest)
			largest = logits[i];
		rank += logits[i] > own || (logits[i] == own && i < id);
	}
	log_sum = k3i_log_sum(logits, vocab, largest, &mean);
	*out = (struct k3_score){
		.logprob = (double)own - largest - log_sum, .rank = rank,
		/* the mean of -log p over the distribution */
		.entropy = log_sum - mean,
	};
}
