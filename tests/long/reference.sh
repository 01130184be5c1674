#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reference.sh [FIRST LAST] - the shapes of tests/cmd/step-reference.t with many seeds.
# Run from the top of the tree, after make; some minutes.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
PYTHONPATH=$top/scripts:$top/tests/reference TMPDIR=$tmp
export PYTHONPATH TMPDIR
"$py" tests/reference/agree.py "${1:-1}" "${2:-20}"
