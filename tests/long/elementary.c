/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elementary.c - exp, sigmoid and tanh against libm in double, over all floats.
 *
 *	elementary [STEP [FIRST]]	every STEPth bit pattern; the default is each of the 2^32
 */
#include "../unit/ulp.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

	if (!step)
		return 2;
	sweep_all(first, step);
	return tap_done();
}
