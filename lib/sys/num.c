/* SPDX-License-Identifier: Apache-2.0 */
/* num.c - strict parsing of numbers: no blanks, no signs where none belong, no rest. */
#include <k3/num.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool k3_num_u64(const char *s, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return false;
	}
	if (v > max)
		return false;
	*out = v;
	return true;
}

bool k3_num_double(const char *s, double *out)
{
	char *end;
	double v;

	/* strtod would also take blanks, hexadecimal, "inf" and "nan" */
	if (!*s || strspn(s, "+-.0123456789eE") != strlen(s))
		return false;
	v = strtod(s, &end);
	if (*end || end == s || !isfinite(v))
		return false;
	*out = v;
	return true;
}
