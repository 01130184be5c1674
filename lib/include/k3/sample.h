/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3/sample.h - choosing the next id from a row of logits, or saying how likely one was.
 *
 * The choice is a function of the row, the settings, the seed, the stream of the
 * sequence and the number of the draw: the same on every machine, wherever in a
 * batch the sequence stands.  k3-sample(1) has the exact definition.
 */
#ifndef K3_SAMPLE_H
#define K3_SAMPLE_H

#include <k3/err.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Applied in the order of the members.  Ids are ranked by logit, the lower id first
 * where logits are equal, and each truncation keeps a beginning of that ranking.
 */
struct k3_sampling {
	double temperature;	/* divides the logits; 0 takes the first of the ranking */
	uint32_t top_k;		/* so many ids; 0 for all */
	double top_p;		/* the fewest ids with this share of those kept so far; 1 for all */
	double min_p;		/* ids at least min_p times as likely as the first; 0 for all */
	uint64_t seed;
};

#define K3_SAMPLING_GREEDY { 0.0, 0, 1.0, 0.0, 0 }

/* The settings, a row and its ranking.  For one thread at a time. */
struct k3_sampler;

/*
 * For rows of vocab logits; the caller ends *out with k3_sampler_free.  Errors:
 * K3_EARG (a setting out of its range, or no vocab), K3_ENOMEM.
 */
K3_API K3_NODISCARD int k3_sampler_new(const struct k3_sampling *settings, uint32_t vocab,
				       struct k3_sampler **out, struct k3_err *err);
K3_API void k3_sampler_free(struct k3_sampler *s);

/*
 * Shows the sampler a row of vocab logits, which it borrows until the next row.
 * Errors: K3_EDATA naming the first id whose logit is not finite; no other
 * function may be called before a row was accepted.
 */
K3_API K3_NODISCARD int k3_sampler_row(struct k3_sampler *s, const float *logits,
				       struct k3_err *err);

/* The chosen id: draw number n (from 0) of a stream. */
K3_API uint32_t k3_sampler_pick(struct k3_sampler *s, uint64_t stream, uint64_t n);

/* The first n ids of the ranking, or all if there are fewer; returns how many. */
K3_API uint32_t k3_sampler_top(struct k3_sampler *s, uint32_t n, uint32_t *ids);

/*
 * The natural logarithm of an id's probability in the whole distribution:
 * temperature 1, nothing truncated, whatever the settings are.
 */
K3_API double k3_sampler_logprob(struct k3_sampler *s, uint32_t id);

/* How likely an id was, in the whole distribution. */
struct k3_score {
	double logprob;		/* natural logarithm of its probability */
	uint32_t rank;		/* how many ids come before it in the ranking */
	double entropy;		/* of the distribution, in nats */
};

/* Of one id below vocab; the logits must be finite. */
K3_API void k3_score_id(const float *logits, uint32_t vocab, uint32_t id, struct k3_score *out);

/* The stream of a sequence with a name, and of one that is known by its first row. */
K3_API uint64_t k3_stream_of_name(const char *name);
K3_API uint64_t k3_stream_of_row(const float *logits, uint32_t vocab);

#ifdef __cplusplus
}
#endif
#endif
