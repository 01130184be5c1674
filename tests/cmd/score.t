#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step --score, against what NumPy finds in the logits themselves.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
. tests/cmd/numpy.sh
cd "$tmp" || exit 1
K3_MODEL=$demo
export K3_MODEL

cat >expected.py <<'EOF2'
# expected.py LINES LOGITS SCORES: do the scores follow from the logits of all ids?
import sys, numpy as np, k3npy
lines = [[int(w) for w in l.split()] for l in open(sys.argv[1])]
want = []
for s, (ids, rows) in enumerate(zip(lines, k3npy.read(open(sys.argv[2], 'rb')))):
    for p in range(1, len(ids)):
        row, own = rows[p - 1].astype(np.float64), ids[p]
        top = row.max()
        logs = row - (top + np.log(np.exp(row - top).sum()))
        rank = (row > row[own]).sum() + (row[:own] == row[own]).sum()
        want.append((s, p, own, logs[own], rank, -(np.exp(logs) * logs).sum()))
got = [tuple(float(x) for x in l.split('\t')) for l in open(sys.argv[3])]
assert len(got) == len(want), '%d lines, not %d' % (len(got), len(want))
for g, w in zip(got, want):
    assert g[:3] == w[:3] and g[4] == w[4], '%r is not %r' % (g, w)
    assert all(abs(g[i] - w[i]) <= 1e-8 * max(1, abs(w[i])) for i in (3, 5)), '%r is not %r' % (g, w)
EOF2

# right LINES SCORES TEXT: the scores of LINES, as sequences that begin with them
right() {
	k3-step -b all --logits all <"$1" >logits
	"$python" expected.py "$1" logits "$2"
	ok $? "$3"
}
ids() { awk -v n="$1" -v s="$2" 'BEGIN { for (i = 0; i < n; i++) { s = (s * 1103 + 12345) % 65521
	printf "%s%d", i ? " " : "", s % 2048 } print "" }'; }
# apart WIDTH: each line of ids becomes lines of so many
apart() { awk -v w="$1" '{ for (i = 1; i <= NF; i++) printf "%s%s", $i, i % w && i < NF ? " " : "\n" }'; }

# ---- the numbers ----
printf %s 'The capital of France is Paris, and that of Iceland is Reykjavik.' | k3-tokenize >one
k3-step --score <one >got
right one got 'a sentence'
is "$(wc -l <got)" "$(($(wc -w <one) - 1))" 'a line for each id but the first'
cp got one.scores
{ ids 7 2; cat one; echo; ids 1 4; ids 150 3; } >many
k3-step -b all --score <many >many.scores
right many many.scores '-b all: sequences of many lengths, none and one among them'
k3-step -b 5 --score <many >got
same many.scores got '-b 5'
k3-step -b all --score --json <many | jq -r \
	'select(.event == "score") | [.sequence, .position, .id, .logprob, .rank, .entropy] | @tsv' >got.json
"$python" -c '
import sys
a, b = ([[float(x) for x in l.split()] for l in open(f)] for f in ("many.scores", "got.json"))
sys.exit(a != b)'
ok $? '--json: the same as events'

# ---- the same bytes however the work is done ----
for way in '-t 1' '-t 3' '-t 2 --mem 30M' '--trunk none' '--trace trace' '--tap resid@3=tap'; do
	# shellcheck disable=SC2086
	k3-step -b all --score $way <many >got
	same many.scores got "$way"
done
is "$(k3-stat -j tap | wc -l)" 5 'a tap has its records'
is "$(jq -s -c 'map(select(.event == "layer")) | [length, (map(.tokens) | unique)]' trace)" \
	"[9,[$(wc -w <many)]]" 'one pass'
trunk=$(jq 'select(.event == "layer") | .trunk_bytes + .trunk_kept' trace | paste -sd+ | sed 's/.*/(&)/')
head=$(k3-index -l | awk -F'\t' '$1 ~ /lm_head|norm.weight$/ && $1 !~ /layers/ { n += $6 } END { print n }')
jq -n -e --slurpfile e trace "(\$e[-1] | .trunk_bytes + .trunk_kept) - $trunk | . >= $head and . < 2 * $head" >out
ok $? 'and one of the head'
for width in 1 2 3 10; do
	apart $width <one | k3-step --score >got
	same one.scores got "a line cut into lines of $width"
done
{ cut -d' ' -f1-4 one; echo; echo; ids 7 2; cut -d' ' -f5- one; echo; } |
	k3-step -b 2 --score | sort -n -k1,1 -k2,2 >got
{ cat one; ids 7 2; } | k3-step -b all --score >want
same want got 'two sequences in rounds, with empty lines'

# ---- states ----
for cut in 1 4 8; do
	rm -f s
	cut -d' ' -f1-$cut one | k3-step -s s --score >got
	cut -d' ' -f$((cut + 1))- one | k3-step -s s --score >>got
	same one.scores got "gone on from behind id $cut, in another process"
done
rm -f s
cut -d' ' -f1-6 one | k3-step -s s --logits none
cut -d' ' -f7- one >rest
awk '$2 >= 6' one.scores >want
cp s t
k3-step -s s --score <rest >got
same want got 'behind ids that were not scored'
{ echo; cat rest; } | k3-step -b all -s new -s t --score | cut -f 2- >got
cut -f 2- want >want.rest
same want.rest got '-b all with states'
echo | k3-step -s t --score >got
is "$?,$(wc -c <got)" 0,0 'an empty line has no scores'
rm -f s
k3-step -s s --until 4 <one
k3-step -s s --score </dev/null >got
same one.scores got 'a pass that was stopped is scored when it is finished'
rm -f s
cut -d' ' -f1-3 one | k3-step -s s --logits none
cut -d' ' -f4- one | k3-step -s s --until 4
fails 1 's: of the pass in progress the first id can no longer be scored: finish it' \
	'but not if it went on from other ids' k3-step -s s --score
k3-step -s s --logits none </dev/null
ok $? 'which can be finished without'

# ---- many, in little memory ----
for i in $(seq 30); do
	for country in Spain Cuba Kenya Norway Peru Chile Ghana France Italy Japan; do
		echo "The capital of $country is $i"
	done
done | k3-tokenize -l >prompts
k3-step -b all --score <prompts >want
right prompts want '300 prompts'
k3-step -b all --score --mem 64M <prompts >got
same want got 'in 64 MB'
k3-step -b all --score --mem 28M <prompts >got
same want got 'in 28 MB'
fails 1 '[0-9]+ tokens at a time in 300 sequences' 'more than memory holds' \
	sh -c 'k3-step -b all --score --mem "$(k3-step -b all --plan | jq .floor)" <prompts >out'
is "$(wc -c <out)" 0 'is refused before a line is written'

# ---- ties: a head of zeros, one of two equal rows ----
tiny flat
for shard in flat/*.safetensors; do
	edit "$shard" '
for n in names:
    if n.endswith("lm_head.weight"):
        a, b = head[n]["data_offsets"]; data[a:b] = bytes(b - a)'
done
export K3_MODEL=flat
echo 5 0 63 17 | k3-step --score >got
"$python" -c '
import math
rows = [[float(x) for x in l.split()] for l in open("got")]
assert [r[4] for r in rows] == [0, 63, 17], rows
for r in rows:
    assert abs(r[3] + math.log(64)) < 1e-7 and abs(r[5] - math.log(64)) < 1e-7, r'
ok $? 'equal logits: the lower id ranks first, entropy is the logarithm of their number'
tiny pair
for shard in pair/*.safetensors; do
	edit "$shard" '
for n in names:
    if n.endswith("lm_head.weight"):
        a, b = head[n]["data_offsets"]; w = (b - a) // 64; data[a + 40 * w:a + 41 * w] = data[a + 9 * w:a + 10 * w]'
done
export K3_MODEL=pair
{ for i in 1 2 3 4; do echo 9 40 9 9 40 $i 40 $i 9; done; } >pairs
k3-step -b all --score <pairs >got
right pairs got 'two ids that are always equal'
is "$(echo 9 9 | k3-step --score | awk '{ print $5 + 1 }')" "$(echo 9 40 | k3-step --score | cut -f 5)" \
	'are neighbours in rank'
export K3_MODEL="$demo"

# ---- what goes wrong ----
k3-step --score </dev/null >got
is "$?,$(wc -c <got)" 0,0 'no input'
echo 5 | k3-step --score >got
is "$?,$(wc -c <got)" 0,0 'a single id has nothing before it'
fails 1 'standard output: No space' 'a full disk' sh -c 'k3-step --score <one >/dev/full'
fails 1 'standard output: No space' 'a full disk in the middle' sh -c 'k3-step -b all --score <prompts >/dev/full'
fails 1 'standard output: Bad file' 'a closed stdout' sh -c 'k3-step --score <one >&-'
fails 1 "line 1, id 2: 'x' is not an id" 'a word' sh -c 'echo 5 x | k3-step --score'
sh -c 'yes 1 2 3 | k3-step --score; echo $? >status' 2>/dev/null | head -n 1 >/dev/null
sleep 0.2
is "$(cat status)" 141 'a reader that goes away ends it by SIGPIPE'
while read -r pattern options; do
	# shellcheck disable=SC2086
	fails 2 "$(echo "$pattern" | tr _ ' ')" "k3-step $options" k3-step $options </dev/null
done <<'EOF2'
does_not_go_with_--logits --score --logits all
does_not_go_with_--logits --score --logits last
does_not_go_with_--again --score --again -s s1
does_not_go_with_--until --score --until 3 -s s1
0:5_are_not_the_whole_model --score --layers :5
5:9_are_not_the_whole_model --score --layers 5:
9:9_are_not_the_whole_model --score --layers 9:
--json_goes_with_--score --json
EOF2
ok "$([ ! -e s1 ]; echo $?)" 'and none of them made a file'
plan
