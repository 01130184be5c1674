/* SPDX-License-Identifier: Apache-2.0 */
/* rng.h - the same random numbers on every run: splitmix64. */
#ifndef RNG_H
#define RNG_H

#include <stdint.h>
#include <string.h>

struct rng {
	uint64_t state;
};

__attribute__((unused))
static uint64_t rng_u64(struct rng *g)
{
	uint64_t z = g->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* In [0, 1). */
__attribute__((unused))
static double rng_unit(struct rng *g)
{
	return (double)(rng_u64(g) >> 11) * 0x1p-53;
}

/* Nearly normal: mean 0, deviation 1, by the sum of twelve. */
__attribute__((unused))
static double rng_normal(struct rng *g)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += rng_unit(g);
	return sum;
}

/* Any pattern of 32 bits as a float. */
__attribute__((unused))
static float rng_bits(struct rng *g)
{
	uint32_t u = (uint32_t)rng_u64(g);
	float f;

	memcpy(&f, &u, 4);
	return f;
}

#endif
