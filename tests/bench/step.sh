#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# step.sh [DIR] - k3-step itself on four layers of the released widths with 128 experts each, all of whose weights
# stay in memory: seconds a token of each layer, of the head, and of 93 such layers; and of a prompt of 256 ids.
#
# Writes 17 GB into DIR (build), and wants as much memory. Run from the top of the tree, after make; needs python3 with numpy, and jq.
set -eu
PATH=$PWD/build/bin:$PATH
dir=${1:-build}/wide
rounds=60
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$dir"
for python in python3 /usr/bin/python3; do
	"$python" -c 'import numpy' 2>/dev/null && break
done
"$python" tests/bench/wide.py "$dir"

# the first rounds bring the experts in; of the others the best is taken, and those without a read
report() {
	jq -rs --arg form "$1" '
	def best: map(.seconds) | min;
	map(select(.trunk_bytes == 0 and .expert_bytes == 0)) |
	(map(select(.event == "layer")) | group_by(.layer) | map({ layer: .[0].layer, kind: .[0].kind, mlp: .[0].mlp, s: best,
		gb: ((.[0].trunk_kept + .[0].expert_kept) / 1e9) })) as $layer |
	(map(select(.event == "round")) | best - ($layer | map(.s) | add)) as $head |
	($layer[] | "\($form)  layer \(.layer)  \(.kind) \(.mlp)\t\(.s * 1e4 | round / 1e4) s/token\t\(.gb * 1e3 | round / 1e3) GB"),
	"\($form)  head\t\t\t\($head * 1e4 | round / 1e4) s/token",
	"\($form)  93 layers and head\t\(($layer[0].s + 68 * ([$layer[1, 2].s] | min) + 24 * $layer[3].s + $head) * 1e3 | round / 1e3) s/token"' \
		"$dir/trace"
}

# ids that lead to many experts
ids() { seq 1 "$rounds" | awk '{ print ($1 * 7919) % 163840 }'; }

ids | k3-step -m "$dir" --trunk none --trace "$dir/trace" >/dev/null
report plain
k3-pack "$dir" 2>/dev/null >/dev/null
ids | k3-step -m "$dir" --trace "$dir/trace" >/dev/null
report coded

# the later prompts find everything in memory
prompt() { seq "$1" 37 163839 | head -n 256 | tr '\n' ' '; echo; }
for trunk in none "$dir/model.k3t"; do
	for i in 1 5 9 13 17; do prompt $i; done | k3-step -m "$dir" --trunk "$trunk" --logits none --trace "$dir/trace"
	jq -rs 'map(select(.event == "round" and .disk_bytes == 0)) | min_by(.seconds) |
		"256 ids, 4 layers\t\(.seconds * 1e2 | round / 1e2) s"' \
		"$dir/trace"
done
