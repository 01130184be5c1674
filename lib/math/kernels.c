/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - which instruction sets there are, and which one is used. */
#include "math/kernels.h"

#include <k3/buf.h>
#include <k3/cpu.h>

#include <stdbool.h>
#include <string.h>

extern const struct k3_kernels k3_kernels_portable, k3_kernels_avx2, k3_kernels_avx512,
	k3_kernels_neon;

static bool always(void)
{
	return true;
}

#ifdef __x86_64__
static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
	return has_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
	       __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("popcnt");
}
#endif

static const struct {
	const struct k3_kernels *table;
	bool (*here)(void);
} sets[] = {
	{ &k3_kernels_portable, always },
#if defined(__x86_64__)
	{ &k3_kernels_avx2, has_avx2 },
	{ &k3_kernels_avx512, has_avx512 },
#elif defined(__aarch64__)
	{ &k3_kernels_neon, always },
#endif
};

/* Set by k3_cpu_select, before there are threads. */
static const struct k3_kernels *selected;

const struct k3_kernels *k3_kernels_at(unsigned n)
{
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
		if (sets[i].here() && !n--)
			return sets[i].table;
	return NULL;
}

static const struct k3_kernels *best(void)
{
	const struct k3_kernels *table = NULL, *next;

	for (unsigned i = 0; (next = k3_kernels_at(i)); i++)
		table = next;
	return table;
}

const struct k3_kernels *k3_kernels(void)
{
	return selected ? selected : best();
}

int k3_cpu_select(const char *name, struct k3_err *err)
{
	const struct k3_kernels *table;
	struct k3_buf have = K3_BUF_INIT;
	int rc;

	for (unsigned i = 0; (table = k3_kernels_at(i)); i++) {
		if (!strcmp(table->name, name)) {
			selected = table;
			k3_buf_free(&have);
			return 0;
		}
		k3_buf_printf(&have, "%s%s", i ? ", " : "", table->name);
	}
	rc = k3_fail(err, K3_EARG, "no instruction set '%s' here; there are: %s", name,
		     have.data ? have.data : "");
	k3_buf_free(&have);
	return rc;
}

const char *k3_cpu_name(void)
{
	return k3_kernels()->name;
}

size_t k3_mxfp4_bad_scale(const unsigned char *scale, size_t n)
{
	unsigned char largest = 0;
	size_t i;

	/* without a way out, so that the compiler looks at many bytes at a time */
	for (i = 0; i < n; i++)
		largest = scale[i] > largest ? scale[i] : largest;
	if (largest <= K3_MXFP4_MAX_SCALE)
		return n;
	for (i = 0; scale[i] <= K3_MXFP4_MAX_SCALE; i++)
		;
	return i;
}
