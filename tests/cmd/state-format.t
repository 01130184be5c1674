#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# States, read by their manual page in another language, against what k3-stat says of them.
. tests/cmd/lib.sh
py=
for p in python3 /usr/bin/python3; do
	[ -n "$py" ] || ! command -v "$p" >/dev/null || py=$p
done
if [ -z "$py" ]; then
	echo "1..0 # SKIP no python3"
	exit 0
fi
K3_MODEL=$demo
export K3_MODEL

# compare FILE TEXT: position and layers; the ids go to $tmp/ids, the residual shape to $tmp/shape
compare() {
	"$py" tests/cmd/state.py "$1" >"$tmp/read"
	ok $? "$2: every sum is right"
	sed -n 2p "$tmp/read" >"$tmp/ids"
	sed -n 3p "$tmp/read" >"$tmp/shape"
	sed '2,3d' "$tmp/read" >"$tmp/got"
	k3-stat -j "$1" | jq -r '"\(.position) \(.pending) \(.layer)",
		(.layers[] | [.layer, .positions, .norm] | @tsv)' |
		awk 'NR == 1 { print; next } { printf "%d %d %.5g\n", $1, $2, $3 }' >"$tmp/want"
	same "$tmp/got" "$tmp/want" "$2: what k3-stat says is what the page says"
}

echo 580 628 271 1290 297 >"$tmp/prompt"
k3-step -s "$tmp/s" --logits none <"$tmp/prompt"
compare "$tmp/s" "five ids"
same "$tmp/ids" "$tmp/prompt" "its ids are those that went in"
is "$(cat "$tmp/shape")" "1 4 192" "the residual stream of the last id, three snapshots and the sum"

awk 'BEGIN { for (i = 0; i < 150; i++) printf "%d ", i * 37 % 2048; print "" }' >"$tmp/many"
k3-step -s "$tmp/s" --until 4 <"$tmp/many"
compare "$tmp/s" "a pass over 150 more in front of layer 4"
is "$(wc -w <"$tmp/ids")" 155 "all ids are there"
is "$(cat "$tmp/shape")" "150 2 192" "and the residual streams of the pass"
k3-step -s "$tmp/s" --logits none </dev/null
compare "$tmp/s" "the pass finished"

k3-step --layers 0:4 <"$tmp/prompt" | k3-step --layers 4: -s "$tmp/upper" --logits none
compare "$tmp/upper" "layers 4 to 8"
is "$(cat "$tmp/ids")" "4294967295 4294967295 4294967295 4294967295 4294967295" \
	"ids that are not known"
: >"$tmp/new"
k3-step -s "$tmp/new" --logits none </dev/null
compare "$tmp/new" "a state of no ids"
plan
