/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ulp.h - exp, sigmoid and tanh against libm in double.
 *
 * An error is counted in units of the last place of the true value as a float,
 * denormals with theirs, 2^-149.
 */
#ifndef ULP_H
#define ULP_H

#include "math/elementary.h"
#include "tap.h"

#include <math.h>

static double true_sigmoid(double x)
{
	return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double ulp_of(double y)
{
	int e;

	frexp(y, &e);
	return ldexp(1, (e < -125 ? -125 : e) - 24);
}

/* Where the true value rounds to infinity or to zero the result must be that. */
static double error_in_ulp(float got, double want)
{
	if (isnan(want))
		return isnan(got) ? 0 : INFINITY;
	if (isinf((float)want))
		return got == (float)want ? 0 : INFINITY;
	return fabs(got - want) / ulp_of(want);
}

static void sweep(const char *name, float (*f)(float), double (*truth)(double), uint64_t first,
		  uint64_t step)
{
	double worst = 0, e;
	float at = 0;

	for (uint64_t u = first; u < 1ull << 32; u += step) {
		float x = k3_from_bits((uint32_t)u);

		e = error_in_ulp(f(x), truth(x));
		if (!(e <= worst)) {
			worst = e;
			at = x;
		}
	}
	ok(worst <= 2, "%s: at most %.3f ulp from the true value, at %a", name, worst, at);
}

static float exp_f(float x) { return k3_exp(x); }
static float sigmoid_f(float x) { return k3_sigmoid(x); }
static float tanh_f(float x) { return k3_tanh(x); }

/* Every step-th bit pattern. */
static void sweep_all(uint64_t first, uint64_t step)
{
	sweep("exp", exp_f, exp, first, step);
	sweep("sigmoid", sigmoid_f, true_sigmoid, first, step);
	sweep("tanh", tanh_f, tanh, first, step);
}

#endif
