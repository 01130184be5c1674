#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-sample against another implementation (sampler.py), and its statistics.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
cd "$tmp" || exit 1
other=$top/tests/cmd/sampler.py

records '[rng.normal(size=(1, 300)) * 3 for i in range(60)]' >random
# few different values: ties everywhere, also at every border
records '[rng.integers(-3, 3, (1, 40)).astype("f4") for i in range(60)]' >ties
records '[np.where(rng.random((1, 30)) < .5, -0.0, 0.0) for i in range(60)]' >zeros
records '[rng.normal(size=(1 + i % 3, 50)) * 10.0 ** (i - 20) for i in range(58)]' >scales

# both SETTINGS...: the two implementations choose the same ids for all streams above
files='random ties zeros scales'
both() {
	for f in $files; do
		k3-sample "$@" <"$f" >ours || echo "status $?" >>ours
		"$py" "$other" "$@" <"$f" >theirs
		same ours theirs "$* on $f"
	done
}
both
both -t 1
both -t 0.7 -s 42
both -t 1.3 -s 18446744073709551615
both -t 1 -k 3
both -t 1 -k 1
both -t 1 -k 1000
both -t 1 -p 0.5
both -t 1 -p 0.95 -s 3
both -t 1 -p 0
both -t 1 --min-p 0.1
# not on scales: whether e^-1e-16 is 1 is for each exp to say
files='random ties zeros'
both -t 1 --min-p 1
files='random ties zeros scales'
both -t 2 -k 12 -p 0.8 --min-p 0.05 -s 5
both -t 0 -k 5 -s 5
both -t 1 --name somebody
both -t 1 --name 'a name that is longer than thirty-two bytes, ünd nöt ASCII'

records '[rng.normal(size=(1, 20)) for i in range(60)]' >batch.npy
k3-sample -t 1 -b 4 -s 1 <batch.npy >ours
"$py" "$other" -t 1 -b 4 -s 1 <batch.npy >theirs
same ours theirs "a batch of four"
k3-sample -t 1 -b 2 --name one --name two <batch.npy >ours
"$py" "$other" -t 1 -b 2 --name one --name two <batch.npy >theirs
same ours theirs "a batch of two with names"

# chi LIMIT: ids on stdin against the softmax of the logits 0, 0.3, ... 2.1 at temperature 0.7
chi() {
	"$py" -c '
import sys, numpy as np
n = np.bincount(np.loadtxt(sys.stdin, dtype=int), minlength=8)
p = np.exp(np.arange(8) * .3 / .7); p /= p.sum()
chi = ((n - p * n.sum()) ** 2 / (p * n.sum())).sum()
print("# chi-square %.2f, 7 degrees of freedom" % chi)
sys.exit(not 1.2 < chi < 18.5)'
}
# with 7 degrees of freedom 98 of 100 samples lie between 1.2 and 18.5
records '[np.arange(8)[None] * .3] * 4000' >rows.npy
k3-sample -t 0.7 -s 1 <rows.npy | chi
ok $? "draws of one sequence follow the softmax"
names=$(seq 4000 | sed 's/^/--name s/')
# shellcheck disable=SC2086
k3-sample -t 0.7 -b 4000 -n 1 $names <rows.npy | chi
ok $? "first draws of many sequences follow it too"
for s in $(seq 300); do head -c $((10 * 160)) rows.npy | k3-sample -t 0.7 -s "$s"; done | chi
ok $? "and those of many seeds"
plan
