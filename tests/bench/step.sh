#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# step.sh - k3-step itself on five layers of the released widths, 128 experts each, whose shards lie
# in the page cache: seconds a token of each layer, the best of eight rounds after the first.
#
# The shards are sparse files (23 GB that take no disk; the cache they fill is 9 GB). Run from the top
# of the tree, after make; needs python3 and jq.
set -eu
PATH=$PWD/build/bin:$PATH
dir=build/wide
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
python3 tests/reference/replica.py "$dir/released" >/dev/null
jq '.text_config.num_hidden_layers = 5 | .text_config.num_experts = 128 |
	.text_config.linear_attn_config.full_attn_layers = [4] |
	.text_config.linear_attn_config.kda_layers = [1, 2, 3, 5]' "$dir/released/config.json" >"$dir/config"
python3 tests/reference/replica.py --config "$dir/config" "$dir/model" >/dev/null
yes 5 | head -n 9 | k3-step -m "$dir/model" --logits none --trace "$dir/trace"
jq -rs 'map(select(.event == "layer" and .round > 0)) | group_by(.layer)[] |
	"layer \(.[0].layer)  \(.[0].kind) \(.[0].mlp)\t\(map(.seconds) | min) s/token\t" +
	"\((.[0].trunk_bytes + .[0].expert_bytes) / 1e9) GB"' "$dir/trace"
