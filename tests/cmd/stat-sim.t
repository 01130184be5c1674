#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-stat sim: hits counted by hand, and the two forms of a trace.
. tests/cmd/lib.sh
cd "$tmp" || exit 1

# Layer 7 wants the same two experts always.  Worked out on paper for layer 3, two slots:
# the optimum hits 0 and 1, then 0 twice, and one of 1, 2 and 3 on the way; the least frequently used
# and slow decays keep 0 all along; with 0.7 it is pushed out by 2 and 3 in position 4, with less already in 2.
{
	echo '# a comment'
	i=0
	for pair in '1 0' '0 1' '2 3' '4 0' '2 3' '0 1'; do
		printf '%d\t3\t%s\n%d\t7\t5 6\n' $i "$pair" $i
		i=$((i + 1))
	done
} >routes.tsv
k3-stat sim --experts 1,2 --expert-bytes 1000000000 routes.tsv >got
cat >want <<'END'
routes.tsv: routes, 6 sweeps of 2 layers, 2 experts a token

hits in per cent, all sweeps: 24 asked for
experts/layer         GB global lru     lru     0.5     0.6     0.7     0.8     0.9    0.95     lfu optimal
            1       2.00        0.0    25.0    25.0    25.0    29.2    33.3    33.3    33.3    33.3    41.7
            2       4.00       50.0    50.0    50.0    50.0    54.2    58.3    58.3    58.3    58.3    62.5

hits in per cent, without the first sweep: 20 asked for
experts/layer         GB global lru     lru     0.5     0.6     0.7     0.8     0.9    0.95     lfu optimal
            1       2.00        0.0    30.0    30.0    30.0    35.0    40.0    40.0    40.0    40.0    50.0
            2       4.00       60.0    60.0    60.0    60.0    65.0    70.0    70.0    70.0    70.0    75.0
END
same got want "the table"

cat >want <<'END'
[1,2000000,"global-lru",null,0] [1,2000000,"lru",null,6]
[1,2000000,"decay",0.5,6] [1,2000000,"decay",0.6,6] [1,2000000,"decay",0.7,7]
[1,2000000,"decay",0.8,8] [1,2000000,"decay",0.9,8] [1,2000000,"decay",0.95,8]
[1,2000000,"lfu",null,8] [1,2000000,"optimal",null,10]
[2,4000000,"global-lru",null,12] [2,4000000,"lru",null,12]
[2,4000000,"decay",0.5,12] [2,4000000,"decay",0.6,12] [2,4000000,"decay",0.7,13]
[2,4000000,"decay",0.8,14] [2,4000000,"decay",0.9,14] [2,4000000,"decay",0.95,14]
[2,4000000,"lfu",null,14] [2,4000000,"optimal",null,15]
END
jq -c . want >w && mv w want
# hits R: what the JSON of k3-stat sim ... says
hits() { k3-stat sim -j --experts 1,2 --expert-bytes 1000000 "$@" | jq -c '[.experts, .bytes, .policy, .decay, .hits]'; }
hits routes.tsv >got
same got want "as JSON"
is "$(k3-stat sim -j routes.tsv | jq -c '[.schema, .kind, .sweeps, .layers, .asked, .asked_first, .rate == .hits / 24, .rate_later == .hits / 20] | select(.[6] or .[7])' | sort -u | tail -n 1)" \
	'["k3.stat/1","sim",6,2,24,4,true,true]' "with what the rates come from"
is "$(k3-stat sim -j routes.tsv | jq .experts | uniq | paste -sd ' ' -)" "1 2 4 8 16 32" \
	"sizes from a part of a token to sixteen of them"
is "$(k3-stat sim -j --experts 3 routes.tsv | jq .bytes | uniq)" $((3 * 2 * 17547264)) \
	"an expert has the size of the released model"
hits <routes.tsv >got
same got want "from standard input"
sort -R routes.tsv | grep -v '#' >mixed
hits mixed >got
same got want "lines in any order"

# the same as events: a round for each position, in the order of k3-step, with other events between
awk -F '\t' '/^[0-9]/ { gsub(/ /, ",", $3); print "{\"event\":\"layer\",\"layer\":" $2 "}"
	print "{\"event\":\"route\",\"round\":" $1 ",\"layer\":" $2 ",\"sequence\":0,\"position\":" $1 \
		",\"experts\":[" $3 "],\"weights\":[0.5,0.5]}" }' routes.tsv >events
hits events >got
same got want "events"
hits --tokens events >got
same got want "a round has one token here"
jq -c '.round = 0' events | sort -t: -k4 >round
hits --tokens round >got
same got want "tokens of one round, each a sweep of its own"
is "$(k3-stat sim -j round | jq -c '[.sweeps, .asked, .hits]' | sort -u)" "[1,7,0]" \
	"one sweep asks for an expert once"
k3-stat sim round | grep -c without >got
is "$(cat got)" 0 "and there is no table of what is behind it"

# two tokens a sweep: what both choose counts for more
printf '0\t0\t1 2\n0\t0\t2 3\n1\t0\t2 4\n' >two
is "$(k3-stat sim -j --experts 1 two | jq -c 'select(.policy == "lru") | [.sweeps, .asked, .hits]')" "[2,5,1]" \
	"of a sweep of two tokens the expert that both chose is kept"

# what k3-step writes, and the same told in lines
seq 2 9 | k3-step -m "$demo" --logits none --trace trace
jq -r 'select(.event == "route") | [.position, .layer, (.experts | join(" "))] | @tsv' trace >lines
k3-stat sim -j trace | jq -c 'del(.file)' >a
k3-stat sim -j lines | jq -c 'del(.file)' >b
same a b "a trace of k3-step"
is "$(jq -s 'all(.hits <= .asked - .asked_first)' a)" true "nothing is found in the first sweep"
is "$(jq -s 'group_by(.experts) | all((map(select(.policy == "optimal").hits)[0]) as $o | all(.hits <= $o))' a)" \
	true "no policy betters the optimum"

: >empty
fails 1 '^k3-stat: empty: no routes are in it$' "nothing" k3-stat sim empty
echo '{"event":"layer"}' >none
fails 1 'none: no routes are in it' "events without routes" k3-stat sim none
# bad LINE PATTERN TEXT
bad() {
	{ printf '1\t2\t3 4\n'; printf '%b\n' "$1"; } >bad
	fails 1 "^k3-stat: bad: line 2$2" "$3" k3-stat sim bad
}
bad '1\t2' ' is neither' "no experts"
bad '1\t2\t' ' is neither' "an empty list"
bad '1 2 3' ' is neither' "no tabs"
bad '1\t2\t3,4' ' is neither' "commas"
bad '1\t2\t3 4 ' ' is neither' "a blank at the end"
bad '1\t-2\t3' ' is neither' "a negative layer"
bad '1\t2\t99999999999999999999' ' is neither' "a number that is too large"
bad '1\t2\t3 4 3' ': expert 3 is there twice' "an expert twice"
bad '1\t2\t3\00004' ' is neither' "a NUL"
bad '{"event":' ' is neither' "half an event"
bad '{"event":"route","round":0,"layer":1,"sequence":0,"experts":[1]}' ': a route without' "no position"
bad '{"event":"route","round":0,"layer":1,"sequence":0,"position":0,"experts":[1.5]}' ': experts has' \
	"half an expert"
bad '{"event":"route","round":0,"layer":1.5,"sequence":0,"position":0,"experts":[1]}' ': a route without' \
	"half a layer"
fails 1 '^k3-stat: none such: No such file' "no file" k3-stat sim 'none such'
fails 2 "^k3-stat: --experts: '0' is not" "a size of nothing" k3-stat sim --experts 4,0 routes.tsv
fails 2 "^k3-stat: --expert-bytes: 'x' is not" "no size" k3-stat sim --expert-bytes x routes.tsv
fails 2 "k3-stat: unrecognized option '--frob'" "an unknown option" k3-stat sim --frob
fails 2 "takes one trace, not 2" "two traces" k3-stat sim routes.tsv routes.tsv
fails 1 'standard output: No space left' "a full disk" sh -c 'k3-stat sim routes.tsv >/dev/full'
is "$(k3-stat sim --help | head -c 6)" usage: "--help"
plan
