# shellcheck shell=sh disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# numpy.sh - sourced behind lib.sh by tests that compare with NumPy: sets py, or skips all.
for py in python3 /usr/bin/python3 ''; do
	[ -n "$py" ] && "$py" -c 'import numpy' 2>/dev/null && break
done
if [ -z "$py" ]; then
	echo "1..0 # SKIP no python3 with numpy"
	exit 0
fi
PYTHONPATH=$top/scripts:$top/tests/cmd
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE

# records EXPRESSION [SEED]: writes the arrays of a Python list; rng and np are there
records() {
	"$py" -c '
import sys, numpy as np, k3npy
rng = np.random.default_rng(int(sys.argv[2]))
out = open(1, "wb", buffering=0, closefd=False)
for a in eval(sys.argv[1]):
    k3npy.write(out, a)' "$1" "${2:-1}"
}
