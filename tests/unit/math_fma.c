/* SPDX-License-Identifier: Apache-2.0 */
/* math_fma.c - the portable fused multiply-add against fmaf of libm, which is exact. */
#include "math/fma.h"
#include "rng.h"
#include "tap.h"

#include <math.h>

enum { ROUNDS = 400000 };

static uint64_t wrong;
static float wrong_at[3];

static uint32_t bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

static float from(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* One triple, through the portable version and the one that the kernels use. */
static void check(float a, float b, float c)
{
	float want = fmaf(a, b, c), got = k3_fma_portable(a, b, c), used = k3_fma(a, b, c);

	if (isnan(want) ? isnan(got) && isnan(used)
			: bits(got) == bits(want) && bits(used) == bits(want))
		return;
	if (!wrong++) {
		wrong_at[0] = a;
		wrong_at[1] = b;
		wrong_at[2] = c;
	}
}

static void report(const char *what)
{
	if (!ok(!wrong, "%s", what))
		printf("# %llu wrong, the first fma(%a, %a, %a) = %a, not %a\n",
		       (unsigned long long)wrong, wrong_at[0], wrong_at[1], wrong_at[2],
		       k3_fma_portable(wrong_at[0], wrong_at[1], wrong_at[2]),
		       fmaf(wrong_at[0], wrong_at[1], wrong_at[2]));
	wrong = 0;
}

/* All triples of values that stand at an edge of the format. */
static void nasty_values(void)
{
	static const float v[] = {
		0, 1, 1 + 0x1p-23f, 1 - 0x1p-24f, 1.5f, 2, 3, 0x1p23f, 0x1p24f, 0x1.000002p24f,
		0x1p-149f, 0x1p-148f, 0x1.8p-148f, 0x1p-127f, 0x1.fffffcp-127f, 0x1p-126f,
		0x1.000002p-126f, 0x1.fffffep-126f, 0x1p-125f, 0x1p-75f, 0x1.8p-75f,
		0x1.000002p-75f, 0x1p-74f, 0x1.555556p-63f, 0x1p-63f, 0x1p63f, 0x1.fffffep63f,
		0x1p64f, 0x1.fffffep127f, 0x1p127f, 0x1.fffffep126f, 0x1p104f, 0x1p103f,
		0x1.234568p0f, 0x1.fedcbap-3f, INFINITY, NAN,
	};
	enum { N = sizeof v / sizeof *v };

	for (int i = 0; i < 8 * N * N * N; i++) {
		int s = i & 7, a = i / 8 % N, b = i / 8 / N % N, c = i / 8 / N / N;

		check(s & 1 ? -v[a] : v[a], s & 2 ? -v[b] : v[b], s & 4 ? -v[c] : v[c]);
	}
	report("denormals, huge values, signed zeros, infinities and NaN in all triples");
}

static void random_values(void)
{
	struct rng g = { 1 };

	for (int i = 0; i < ROUNDS; i++)
		check(rng_bits(&g), rng_bits(&g), rng_bits(&g));
	report("any bits");
	for (int i = 0; i < ROUNDS; i++)
		check((float)rng_normal(&g), (float)rng_normal(&g), (float)rng_normal(&g));
	report("ordinary values");
	/* the addend close to the negated product: almost all of it cancels */
	for (int i = 0; i < ROUNDS; i++) {
		float a = (float)rng_normal(&g), b = (float)rng_normal(&g);

		check(a, b, from(bits(-a * b) + (uint32_t)(rng_u64(&g) % 5) - 2));
	}
	report("cancellation");
	for (int i = 0; i < ROUNDS; i++) {
		float a = ldexpf((float)rng_normal(&g), -70);
		float b = ldexpf((float)rng_normal(&g), -70);

		check(a, b, from((uint32_t)(rng_u64(&g) % (1u << 26)) | (uint32_t)(i & 1) << 31));
	}
	report("results around the smallest normal number");
}

/*
 * Halfway cases: c + 1 ulp/2 exactly, and a hair to either side of it, which a
 * double between them loses unless it is rounded to odd.
 */
static void halfway(void)
{
	struct rng g = { 2 };

	for (int i = 0; i < ROUNDS; i++) {
		float c = from(0x3f800000u | ((uint32_t)rng_u64(&g) & 0x7fffff));
		/* a * b = 2^-24 (1 + 2^-23 k) (1 - 2^-23 k) is just below half an ulp */
		float k = (float)(rng_u64(&g) % 4) * 0x1p-23f;

		c = i & 1 ? -c : c;
		check(0x1p-24f * (1 + k), 1 - k, c);
		check(-0x1p-24f * (1 + k), 1 - k, c);
		check(0x1p-24f * (1 + k), 1 + k, c);
		check(0x1p-25f * (1 + k), 1 - k, c);
		check(0x1p-12f + k * 0x1p-12f, 0x1p-12f - k * 0x1p-12f, c);
	}
	report("halfway between two floats, and just beside it");
}

int main(void)
{
	nasty_values();
	random_values();
	halfway();
	return tap_done();
}
