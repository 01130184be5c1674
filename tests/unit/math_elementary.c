/* SPDX-License-Identifier: Apache-2.0 */
/* math_elementary.c - exp, sigmoid and tanh: special values, and a walk over all floats. */
#include "math/kernels.h"
#include "ulp.h"

/* Equal as bits, or both NaN. */
static bool same(float got, float want)
{
	return isnan(want) ? isnan(got) : k3_to_bits(got) == k3_to_bits(want);
}

static void special_values(void)
{
	static const struct {
		float x, exp, sigmoid, tanh;
	} v[] = {
		{ 0, 1, .5f, 0 },
		{ -0.f, 1, .5f, -0.f },
		{ 0x1p-149f, 1, .5f, 0x1p-149f },
		{ -0x1p-149f, 1, .5f, -0x1p-149f },
		{ 0x1p-126f, 1, .5f, 0x1p-126f },
		{ 0x1p-40f, 1, .5f, 0x1p-40f },
		{ 0x1.fffffep+127f, INFINITY, 1, 1 },
		{ -0x1.fffffep+127f, 0, 0, -1 },
		{ INFINITY, INFINITY, 1, 1 },
		{ -INFINITY, 0, 0, -1 },
		{ 89, INFINITY, 1, 1 },
		{ -105, 0, 0, -1 },
		{ 20, 0x1.ceb088p+28f, 1, 1 },
		{ NAN, NAN, NAN, NAN },
		{ -NAN, NAN, NAN, NAN },
	};

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		float x = v[i].x;

		ok(same(k3_exp(x), v[i].exp), "exp(%a) is %a", x, v[i].exp);
		/* e^-105 is 2^-151.5: what a sigmoid leaves of it is no more than a denormal */
		if (x == -105)
			ok(k3_sigmoid(x) <= 0x1p-149f, "sigmoid(%a) is next to nothing", x);
		else
			ok(same(k3_sigmoid(x), v[i].sigmoid), "sigmoid(%a) is %a", x, v[i].sigmoid);
		ok(same(k3_tanh(x), v[i].tanh), "tanh(%a) is %a", x, v[i].tanh);
	}
}

/* Denormal results are kept: e^-100 = 3.72e-44 is 27 times the smallest float (T36). */
static void denormals(void)
{
	ok(k3_exp(-100) == 0x1.bp-145f, "exp(-100) is 27 * 2^-149");
	ok(k3_sigmoid(-100) == 0x1.bp-145f, "so is sigmoid(-100)");
	ok(k3_exp(-103) == 0x1p-149f, "exp(-103) is the smallest float");
	ok(k3_tanh(0x1.8p-130f) == 0x1.8p-130f, "tanh of a denormal is itself");
}

/* The kernels of the table do the same, whatever the number of values. */
static void kernels(void)
{
	const struct k3_kernels *math = k3_kernels();
	float x[40], e[40], s[40], u[40];
	bool equal = true;

	for (int i = 0; i < 40; i++)
		x[i] = (float)(i - 20) * 1.7f;
	for (size_t n = 0; n <= 40; n++) {
		memset(e, 0xff, sizeof e);
		memset(s, 0xff, sizeof s);
		memset(u, 0xff, sizeof u);
		math->exp(x, n, e);
		math->sigmoid(x, n, s);
		math->silu(x, n, u);
		for (size_t i = 0; i < n; i++)
			equal &= same(e[i], k3_exp(x[i])) && same(s[i], k3_sigmoid(x[i])) &&
				 same(u[i], x[i] * k3_sigmoid(x[i]));
		for (size_t i = n; i < 40; i++)
			equal &= isnan(e[i]) && isnan(s[i]) && isnan(u[i]);
	}
	ok(equal, "exp, sigmoid and silu of 0 to 40 values, and nothing behind them");
}

int main(void)
{
	special_values();
	denormals();
	kernels();
	/* 9973 is a prime: the last bits run through all their patterns */
	sweep_all(0, 9973);
	return tap_done();
}
