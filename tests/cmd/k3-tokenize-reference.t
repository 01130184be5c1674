#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ids and pieces of random hard texts against tests/reference/k3tok.py, over the demo's vocabulary.
. tests/cmd/lib.sh
K3_MODEL=$demo
export K3_MODEL

# lengths: the bytes of each piece, a line for each document, from what -p writes
lengths() {
	awk -F '\t' '
	NF == 0 { print line (line == "" ? "" : " ") (seen ? len : ""); line = ""; seen = len = 0; next }
	seen && $1 != piece { line = line (line == "" ? "" : " ") len; len = 0 }
	{ piece = $1; seen = 1; len += length($3) / 2 }'
}

for seed in 1 2; do
	python3 tests/reference/k3tok.py random 2000 $seed >"$tmp/texts"
	for option in '' --special; do
		python3 tests/reference/k3tok.py encode "$demo" $option <"$tmp/texts" >"$tmp/want"
		k3-tokenize -0 $option "$tmp/texts" >"$tmp/got"
		same "$tmp/got" "$tmp/want" "ids of 2000 texts, seed $seed $option"
		python3 tests/reference/k3tok.py encode "$demo" --pieces $option <"$tmp/texts" >"$tmp/want"
		k3-tokenize -0 -p $option "$tmp/texts" | lengths >"$tmp/got"
		same "$tmp/got" "$tmp/want" "pieces of 2000 texts, seed $seed $option"
	done
	tr '\000' x <"$tmp/texts" >"$tmp/text"
	k3-tokenize "$tmp/text" | k3-tokenize -d >"$tmp/back"
	same "$tmp/back" "$tmp/text" "text from ids, seed $seed"
done

# the cuts, in one text of more than 400,000 characters with long runs of both classes
python3 -c '
print("ab" * 12000 + " " * 26000 + "\u4f60\u597d" * 13000 + "\x1c" * 100 + "\t" * 24901 +
      "the capital of France " * 12000 + "a" * 40000 + "\n" * 60000, end="\0")' >"$tmp/texts"
python3 tests/reference/k3tok.py encode "$demo" --pieces <"$tmp/texts" >"$tmp/want"
k3-tokenize -0 -p "$tmp/texts" | lengths >"$tmp/got"
same "$tmp/got" "$tmp/want" 'pieces of a text with all cuts'
plan
