/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.c - ranking, truncation and the draw.
 *
 * Nothing here may differ between machines, because one flipped choice changes
 * all text behind it.  Therefore weights come from an exp of our own in plain double
 * operations, sums run in a fixed order, and random numbers are a function of
 * (seed, stream, number of the draw), not of any state.
 */
#include "sample/sample.h"

#include <k3/buf.h>
#include <k3/sample.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct k3_sampler {
	struct k3_sampling set;
	uint32_t vocab;
	const float *logits;	/* borrowed */
	float largest;
	double log_sum;		/* log of the sum of exp(logit - largest); NaN: not known */
	bool ranked;		/* key is sorted for the present row */
	uint64_t *key;		/* owned: rank_key of each id */
	double *weight;		/* owned: in the order of the ranking */
};

void k3i_philox(uint32_t c[4], const uint32_t key[2])
{
	uint32_t k0 = key[0], k1 = key[1];
	int round;

	for (round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xd2511f53 * c[0], b = (uint64_t)0xcd9e8d57 * c[2];
		uint32_t c1 = c[1], c3 = c[3];

		c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c[1] = (uint32_t)b;
		c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c[3] = (uint32_t)a;
		k0 += 0x9e3779b9;
		k1 += 0xbb67ae85;
	}
}

double k3i_exp(double x)
{
	/* 1/n!, n from 13 down to 0: the remainder is below half an ulp for |r| <= log(2)/2 */
	static const double c[] = {
		1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
		1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1
	};
	const double magic = 0x1.8p52;
	double k, r, y = 0;
	uint64_t bits;
	size_t i;

	/* there 2^k leaves the normal numbers; so small a share is never drawn */
	if (x < -708)
		return 0;
	/* adding 1.5 * 2^52 rounds to the nearest whole number */
	k = (x * 0x1.71547652b82fep0 + magic) - magic;
	/* log(2) in two parts; the first has zeros at its end, so that k times it is exact */
	r = (x - k * 0x1.62e42fefa38p-1) - k * 0x1.ef35793c7673p-45;
	for (i = 0; i < sizeof c / sizeof *c; i++)
		y = y * r + c[i];
	bits = (uint64_t)((int64_t)k + 1023) << 52;
	memcpy(&r, &bits, sizeof r);
	return y * r;
}

int k3_sampler_new(const struct k3_sampling *set, uint32_t vocab, struct k3_sampler **out,
		   struct k3_err *err)
{
	struct k3_sampler *s;

	*out = NULL;
	/* written so that a NaN fails */
	if (!(set->temperature >= 0 && set->temperature <= 1e6))
		return k3_fail(err, K3_EARG, "temperature %g is not from 0 to 1e6",
			       set->temperature);
	if (!(set->top_p >= 0 && set->top_p <= 1))
		return k3_fail(err, K3_EARG, "top-p %g is not from 0 to 1", set->top_p);
	if (!(set->min_p >= 0 && set->min_p <= 1))
		return k3_fail(err, K3_EARG, "min-p %g is not from 0 to 1", set->min_p);
	if (!vocab)
		return k3_fail(err, K3_EARG, "a row of no logits");
	s = calloc(1, sizeof *s);
	if (!s)
		return k3_fail_nomem(err);
	s->set = *set;
	s->vocab = vocab;
	s->key = k3_calloc(vocab, sizeof *s->key);
	s->weight = k3_calloc(vocab, sizeof *s->weight);
	if (!s->key || !s->weight) {
		k3_sampler_free(s);
		return k3_fail_nomem(err);
	}
	*out = s;
	return 0;
}

void k3_sampler_free(struct k3_sampler *s)
{
	if (!s)
		return;
	free(s->key);
	free(s->weight);
	free(s);
}

int k3_sampler_row(struct k3_sampler *s, const float *logits, struct k3_err *err)
{
	uint32_t i;

	s->largest = logits[0];
	for (i = 0; i < s->vocab; i++) {
		if (!isfinite(logits[i]))
			return k3_fail(err, K3_EDATA, "the logit of id %u is %s", i,
				       isnan(logits[i]) ? "nan" : logits[i] > 0 ? "inf" : "-inf");
		if (logits[i] > s->largest)
			s->largest = logits[i];
	}
	s->logits = logits;
	s->log_sum = NAN;
	s->ranked = false;
	return 0;
}

/*
 * A number that is smaller, the earlier the id comes in the ranking: the bits of a
 * float ordered downwards, then the id.  -0 and +0 are equal logits.
 */
static uint64_t rank_key(float logit, uint32_t id)
{
	uint32_t bits;

	logit = logit == 0 ? 0 : logit;
	memcpy(&bits, &logit, sizeof bits);
	bits = bits >> 31 ? bits : ~bits & 0x7fffffff;
	return (uint64_t)bits << 32 | id;
}

static int by_key(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void rank(struct k3_sampler *s)
{
	uint32_t i;

	if (s->ranked)
		return;
	for (i = 0; i < s->vocab; i++)
		s->key[i] = rank_key(s->logits[i], i);
	qsort(s->key, s->vocab, sizeof *s->key, by_key);
	s->ranked = true;
}

uint32_t k3_sampler_top(struct k3_sampler *s, uint32_t n, uint32_t *ids)
{
	uint32_t i;

	if (n > s->vocab)
		n = s->vocab;
	if (n)
		rank(s);
	for (i = 0; i < n; i++)
		ids[i] = (uint32_t)s->key[i];
	return n;
}

double k3_sampler_logprob(struct k3_sampler *s, uint32_t id)
{
	if (isnan(s->log_sum))
		s->log_sum = k3i_log_sum(s->logits, s->vocab, s->largest, NULL);
	return (double)s->logits[id] - s->largest - s->log_sum;
}

static double sum_of(const double *w, uint32_t n)
{
	double sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		sum += w[i];
	return sum;
}

/*
 * Fills weight with the weights of the ids that survive, relative to the first, and
 * returns how many these are: at least one.
 */
static uint32_t truncate_ranking(struct k3_sampler *s)
{
	const struct k3_sampling *set = &s->set;
	uint32_t n = set->top_k && set->top_k < s->vocab ? set->top_k : s->vocab, i;
	double *w = s->weight, sum, enough;

	for (i = 0; i < n; i++)
		w[i] = k3i_exp(((double)s->logits[(uint32_t)s->key[i]] - s->largest) /
			       set->temperature);
	if (set->top_p < 1) {
		enough = set->top_p * sum_of(w, n);
		sum = w[0];
		for (i = 1; i < n && sum < enough; i++)
			sum += w[i];
		n = i;
	}
	while (n > 1 && w[n - 1] < set->min_p)
		n--;
	return n;
}

/* 53 bits of the random function, as a number in [0, 1). */
static double uniform(uint64_t seed, uint64_t stream, uint64_t n)
{
	uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
	uint32_t c[4] = {
		(uint32_t)n, (uint32_t)(n >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)
	};

	k3i_philox(c, key);
	return (double)(((uint64_t)c[1] << 32 | c[0]) >> 11) * 0x1p-53;
}

uint32_t k3_sampler_pick(struct k3_sampler *s, uint64_t stream, uint64_t n)
{
	double aim, sum = 0;
	uint32_t kept, i;

	if (s->set.temperature == 0) {
		for (i = 0; s->logits[i] != s->largest; i++)
			;
		return i;
	}
	rank(s);
	kept = truncate_ranking(s);
	aim = uniform(s->set.seed, stream, n) * sum_of(s->weight, kept);
	for (i = 0; i < kept - 1; i++) {
		sum += s->weight[i];
		if (aim < sum)
			break;
	}
	return (uint32_t)s->key[i];
}

uint64_t k3_stream_of_name(const char *name)
{
	return XXH64(name, strlen(name), 0);
}

uint64_t k3_stream_of_row(const float *logits, uint32_t vocab)
{
	return XXH64(logits, (size_t)vocab * sizeof *logits, 0);
}
