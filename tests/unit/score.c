/* SPDX-License-Identifier: Apache-2.0 */
/* score.c - how likely an id was, in numbers that can be found by hand. */
#include "tap.h"

#include <k3/sample.h>

#include <math.h>

enum { MANY = 163840 };

static struct k3_score score(const float *logits, uint32_t vocab, uint32_t id)
{
	struct k3_score s;

	k3_score_id(logits, vocab, id, &s);
	return s;
}

static void near(double got, double want, double off, const char *text)
{
	if (!ok(fabs(got - want) <= off, "%s", text))
		printf("# %.17g, expected %.17g\n", got, want);
}

static void test_uniform(void)
{
	static float row[MANY];
	struct k3_score s;

	for (uint32_t i = 0; i < MANY; i++)
		row[i] = -7.25f;
	s = score(row, MANY, 1000);
	near(s.logprob, -log(MANY), 1e-14, "uniform: the log-probability is -log n");
	near(s.entropy, log(MANY), 1e-14, "the entropy log n");
	ok(s.rank == 1000, "of equal logits the lower ids come first");
	ok(score(row, MANY, 0).rank == 0 && score(row, MANY, MANY - 1).rank == MANY - 1,
	   "from the first to the last");
	s = score(row, 1, 0);
	ok(s.logprob == 0 && !signbit(s.logprob) && s.rank == 0 && s.entropy == 0 && !signbit(s.entropy),
	   "the only id is certain");
}

/* Shares 1/8, 2/8, 5/8 and 1/2, 1/4, 1/8, 1/8. */
static void test_shares(void)
{
	const float three[3] = { 100, 100 + (float)log(2), 100 + (float)log(5) };
	const float l = (float)M_LN2, four[4] = { 2 * l, 0, 3 * l, l };
	const float halves[4] = { -1, -1 - 2 * l, -1 - l, -1 - 2 * l };

	near(score(three, 3, 0).logprob, log(1.0 / 8), 1e-5, "an eighth");
	near(score(three, 3, 2).logprob, log(5.0 / 8), 1e-5, "five eighths");
	near(score(three, 3, 1).entropy, log(8) - (2 * log(2) + 5 * log(5)) / 8, 1e-5, "their entropy");
	near(score(halves, 4, 1).entropy, 1.75 * log(2), 1e-6, "1.75 bits");
	ok(score(four, 4, 2).rank == 0 && score(four, 4, 0).rank == 1 && score(four, 4, 3).rank == 2 &&
	   score(four, 4, 1).rank == 3, "ranks");
	ok(score(halves, 4, 1).rank == 2 && score(halves, 4, 3).rank == 3, "ranks of two that are equal");
}

static void test_extremes(void)
{
	const float huge[4] = { 1, 3e38f, 2, -3e38f }, far[3] = { 0, -1e30f, 0 };
	const float zeros[3] = { -0.0f, 0.0f, -0.0f }, close[2] = { 0, -800 };
	struct k3_score s = score(huge, 4, 1);

	ok(s.logprob == 0 && s.rank == 0 && s.entropy == 0, "one huge logit is certain");
	s = score(huge, 4, 3);
	ok(isfinite(s.logprob) && fabs(s.logprob + 6e38) < 1e32 && s.rank == 3 && s.entropy == 0,
	   "the least likely id beside it has a finite log-probability");
	s = score(far, 3, 1);
	near(s.logprob / 1e30, -1, 1e-7, "-1e30");
	near(s.entropy, log(2), 1e-15, "adds nothing to the entropy of the other two");
	ok(s.rank == 2 && score(far, 3, 2).rank == 1, "which come before it");
	near(score(far, 3, 0).logprob, -log(2), 1e-15, "and have half each");
	ok(score(zeros, 3, 1).rank == 1 && score(zeros, 3, 2).rank == 2, "-0 and 0 are equal logits");
	near(score(close, 2, 1).logprob, -800, 0, "a probability too small for a double has its logarithm");
}

int main(void)
{
	test_uniform();
	test_shares();
	test_extremes();
	return tap_done();
}
