/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - the sampler: generator, exp, ranking, truncation, log-probabilities. */
#include "sample/sample.h"
#include "tap.h"

#include <k3/sample.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Known answers of the authors of Philox (Random123, kat_vectors). */
static void test_philox(void)
{
	static const uint32_t in[3][6] = {
		{ 0, 0, 0, 0, 0, 0 },
		{ -1u, -1u, -1u, -1u, -1u, -1u },
		{ 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0 }
	};
	static const uint32_t out[3][4] = {
		{ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
		{ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
		{ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 }
	};
	uint32_t c[4];
	int i;

	for (i = 0; i < 3; i++) {
		memcpy(c, in[i], sizeof c);
		k3i_philox(c, in[i] + 4);
		ok(!memcmp(c, out[i], sizeof c), "Philox, known answer %d", i);
	}
}

/* Against the long double exp of libm, in units of the last place. */
static void test_exp(void)
{
	double worst = 0, x, ulp, e;
	int i;

	for (i = 0; i <= 200000; i++) {
		x = -(double)i * i * 1.77e-8;
		e = (double)expl(x);
		ulp = fabs(nextafter(e, 2) - e);
		worst = fmax(worst, (double)fabsl((long double)k3i_exp(x) - expl(x)) / ulp);
	}
	if (!ok(worst < 2, "exp is within 2 ulp from -708 to 0"))
		printf("# %g\n", worst);
	ok(k3i_exp(0) == 1 && k3i_exp(-0.0) == 1, "exp(0) is 1 exactly");
	ok(k3i_exp(-708.5) == 0 && k3i_exp(-INFINITY) == 0, "exp far below is 0");
	ok(k3i_exp(-708) > 0, "exp(-708) is not");
}

static struct k3_sampler *sampler(struct k3_sampling set, uint32_t vocab)
{
	struct k3_sampler *s;
	struct k3_err err;

	if (k3_sampler_new(&set, vocab, &s, &err)) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
	return s;
}

static void show(struct k3_sampler *s, const float *row)
{
	struct k3_err err;

	if (k3_sampler_row(s, row, &err)) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
}

static void test_greedy(void)
{
	struct k3_sampler *s = sampler((struct k3_sampling)K3_SAMPLING_GREEDY, 5);

	show(s, (float[]){ 1, 3, 2, 3, 0 });
	ok(k3_sampler_pick(s, 0, 0) == 1, "the lower id of two equal logits");
	show(s, (float[]){ -1, -0.0f, 0.0f, -2, -3 });
	ok(k3_sampler_pick(s, 0, 0) == 1, "-0 and 0 are equal logits");
	show(s, (float[]){ -1e-45f, -2, -3, -4, -5 });
	ok(k3_sampler_pick(s, 0, 0) == 0, "a negative denormal");
	show(s, (float[]){ -3e38f, 3e38f, 1, 2, 3 });
	ok(k3_sampler_pick(s, 0, 0) == 1, "the largest logits that are finite");
	k3_sampler_free(s);
}

static void test_ranking(void)
{
	const float row[8] = { -0.0f, 5, 0.0f, -1, 5, -1e-40f, 1e-40f, -1 };
	const uint32_t want[8] = { 1, 4, 6, 0, 2, 5, 3, 7 };
	struct k3_sampler *s = sampler((struct k3_sampling)K3_SAMPLING_GREEDY, 8);
	uint32_t got[10] = { 0 };

	show(s, row);
	ok(k3_sampler_top(s, 8, got) == 8 && !memcmp(got, want, sizeof want), "the ranking");
	ok(k3_sampler_top(s, 10, got) == 8, "no more ids than there are");
	memset(got, 0, sizeof got);
	ok(k3_sampler_top(s, 2, got) == 2 && got[1] == 4 && got[2] == 0, "and no more than wanted");
	k3_sampler_free(s);
}

static void refused(float bad, const char *why, const char *text)
{
	struct k3_sampler *s = sampler((struct k3_sampling)K3_SAMPLING_GREEDY, 4);
	struct k3_err err = { "" };
	float row[4] = { 1, 2, 3, 4 };

	row[2] = bad;
	ok(k3_sampler_row(s, row, &err) == K3_EDATA && strstr(err.text, why), "%s", text);
	k3_sampler_free(s);
}

/* Which ids of a row come up at all, as a set of bits, in 2000 draws. */
static unsigned drawn(struct k3_sampling set, const float *row, uint32_t vocab)
{
	struct k3_sampler *s = sampler(set, vocab);
	unsigned seen = 0;
	uint64_t n;

	show(s, row);
	for (n = 0; n < 2000; n++)
		seen |= 1u << k3_sampler_pick(s, 7, n);
	k3_sampler_free(s);
	return seen;
}

static void test_truncation(void)
{
	const float flat[4] = { 1, 1, 1, 1 };
	/* shares 8/16, 4/16, 2/16, 1/16, 1/16 in the order of the ids 3, 0, 4, 1, 2 */
	const float l = (float)M_LN2, steps[5] = { 3 * l, 1 * l, 1 * l, 4 * l, 2 * l };

	ok(drawn((struct k3_sampling){ 1, 0, 1, 0, 0 }, flat, 4) == 0xf, "all four of a flat row");
	ok(drawn((struct k3_sampling){ 1, 2, 1, 0, 0 }, flat, 4) == 0x3,
	   "top-k 2 of a flat row: the lower two ids");
	ok(drawn((struct k3_sampling){ 1, 0, 0.5, 0, 0 }, flat, 4) == 0x3,
	   "top-p 0.5 of a flat row: exactly two ids");
	ok(drawn((struct k3_sampling){ 1, 0, 0.51, 0, 0 }, flat, 4) == 0x7, "top-p 0.51: three");
	ok(drawn((struct k3_sampling){ 1, 0, 0, 0, 0 }, flat, 4) == 0x1, "top-p 0: the first");
	ok(drawn((struct k3_sampling){ 1, 0, 1, 1, 0 }, flat, 4) == 0xf,
	   "min-p 1 keeps all that are as likely as the first");
	ok(drawn((struct k3_sampling){ 1, 0, 0.7, 0, 0 }, steps, 5) == 0x9,
	   "top-p 0.7: half and a quarter");
	ok(drawn((struct k3_sampling){ 1, 2, 0.6, 0, 0 }, steps, 5) == 0x8,
	   "top-p after top-k: 8/12 of what top-k keeps is enough");
	ok(drawn((struct k3_sampling){ 1, 0, 1, 0.2, 0 }, steps, 5) == 0x19,
	   "min-p 0.2: a quarter of the first is enough, an eighth is not");
	ok(drawn((struct k3_sampling){ 0.5, 0, 1, 0.2, 0 }, steps, 5) == 0x9,
	   "min-p after the temperature: squared, a half is a quarter");
	ok(drawn((struct k3_sampling){ 1e-300, 0, 1, 0, 0 }, steps, 5) == 0x8,
	   "a temperature near 0 leaves the first");
	ok(drawn((struct k3_sampling){ 1e6, 0, 1, 0, 0 }, steps, 5) == 0x1f,
	   "a very high one leaves all");
}

static void test_logprob(void)
{
	const float row[3] = { 0, (float)log(2), (float)log(5) };
	struct k3_sampler *s = sampler((struct k3_sampling){ 0.1, 1, 0.1, 0.9, 0 }, 3);

	show(s, row);
	ok(fabs(k3_sampler_logprob(s, 0) - log(1.0 / 8)) < 1e-7 &&
	   fabs(k3_sampler_logprob(s, 2) - log(5.0 / 8)) < 1e-7,
	   "log-probabilities know neither temperature nor truncation");
	show(s, (float[]){ 3e38f, -3e38f, 0 });
	ok(k3_sampler_logprob(s, 0) == 0 && fabs(k3_sampler_logprob(s, 1) + 6e38) < 1e32,
	   "and are finite for the largest logits");
	k3_sampler_free(s);
}

static void test_settings(void)
{
	static const struct k3_sampling bad[] = {
		{ -1, 0, 1, 0, 0 }, { NAN, 0, 1, 0, 0 }, { INFINITY, 0, 1, 0, 0 },
		{ 1, 0, 1.5, 0, 0 }, { 1, 0, NAN, 0, 0 }, { 1, 0, 1, -0.1, 0 }, { 1, 0, 1, NAN, 0 }
	};
	const struct k3_sampling fine = K3_SAMPLING_GREEDY;
	struct k3_sampler *s = NULL;
	struct k3_err err;
	size_t i;

	for (i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(k3_sampler_new(&bad[i], 4, &s, &err) == K3_EARG && !s, "bad setting %zu", i);
	ok(k3_sampler_new(&fine, 0, &s, &err) == K3_EARG, "rows of nothing");
	k3_sampler_free(NULL);
}

/* The stream and the number of the draw decide, not the order of the calls. */
static void test_counter(void)
{
	struct k3_sampler *s = sampler((struct k3_sampling){ 1, 0, 1, 0, 9 }, 1000);
	float row[1000];
	uint32_t a[50], differ = 0;
	int i;

	for (i = 0; i < 1000; i++)
		row[i] = (float)(i % 7);
	show(s, row);
	for (i = 0; i < 50; i++)
		a[i] = k3_sampler_pick(s, 3, (uint64_t)i);
	for (i = 49; i >= 0 && k3_sampler_pick(s, 3, (uint64_t)i) == a[i]; i--)
		differ += k3_sampler_pick(s, 4, (uint64_t)i) != a[i];
	ok(i < 0, "draws backwards are draws forwards");
	ok(differ > 40, "another stream draws other ids");
	for (differ = 0, i = 0; i < 50; i++)
		differ += k3_sampler_pick(s, 3, (uint64_t)i | 1ull << 40) != a[i];
	ok(differ > 40, "and so does a number of the draw that differs above bit 32");
	k3_sampler_free(s);
}

/* The first is a published value, the second comes from tests/cmd/sampler.py. */
static void test_streams(void)
{
	const float row[2] = { 1, -2.5f };

	ok(k3_stream_of_name("abc") == 0x44bc2cf5ad770999, "the stream of a name is its XXH64");
	ok(k3_stream_of_row(row, 2) == 0xec0826b112b5467b, "and of a row the XXH64 of its bytes");
}

int main(void)
{
	test_philox();
	test_exp();
	test_greedy();
	test_ranking();
	refused(NAN, "id 2 is nan", "a NaN is refused");
	refused(INFINITY, "id 2 is inf", "an infinity is refused");
	refused(-INFINITY, "id 2 is -inf", "a negative infinity is refused");
	test_truncation();
	test_logprob();
	test_settings();
	test_counter();
	test_streams();
	return tap_done();
}
