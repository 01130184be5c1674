#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-sample as a stage of the loop: rounds, ends, stop ids, events, and what a batch must not change.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
cd "$tmp" || exit 1

# one ID...: records in which each id in turn is the largest of 10; "-" is an empty record
one() {
	# shellcheck disable=SC2016
	records '[np.eye(10)[[int(w)]] if w != "-" else np.zeros((0, 10)) for w in "'"$*"'".split()]'
}

one 3 1 4 1 5 | k3-sample >got
printf '%s\n' 3 1 4 1 5 >want
same got want "without count or stop id, the end of the input is the end"
k3-sample </dev/null >got
is "$? $(cat got)" "0 " "an empty input has no ids"
k3-sample <&- >got
is "$? $(cat got)" "0 " "and a closed one neither"

one 3 1 4 1 5 >pi
k3-sample -n 3 <pi >got
is "$? $(paste -sd' ' got)" "0 3 1 4" "-n ends the run"
k3-sample -n 5 <pi >got
is "$? $(paste -sd' ' got)" "0 3 1 4 1 5" "-n with exactly enough records"
fails 1 'after 5 rounds, but sequence 0 is not finished' "fewer records than -n" k3-sample -n 6 <pi
is "$(paste -sd' ' fails.out)" "3 1 4 1 5" "but what was drawn was written"
k3-sample --stop 4 <pi >got
is "$? $(paste -sd' ' got)" "0 3 1" "a stop id ends the run and is not written"
k3-sample --stop 4 --keep-stop <pi >got
is "$? $(paste -sd' ' got)" "0 3 1 4" "--keep-stop writes it"
k3-sample --stop 7 --stop 1 --stop 3 <pi >got
is "$? $(cat got)" "0 " "a stop id in the first round: nothing is written"
fails 1 'not finished' "no stop id came" k3-sample --stop 9 <pi

# it takes no more than it needs: the records behind are for the next reader
{ k3-sample -n 2 >got && k3-sample -n 1 >got2 && k3-stat -j; } <pi | jq -c .record >rest
is "$(cat got got2 rest | paste -sd' ')" "3 1 4 0 1" "records behind the last round stay in the pipe"

# three sequences: the first stops at once, the second after two, the third runs to its count
one 9 1 2  - 9 3  - - 4 >batch.npy
k3-sample -b 3 -n 3 --stop 9 <batch.npy >got
printf '%s\n' '' 1 2 '' '' 3 '' '' 4 >want
same got want "finished sequences are empty lines"
one 9 1 2  0 9 3  5 5 4 | k3-sample -b 3 -n 3 --stop 9 >got
same got want "rows of finished sequences are ignored"
records '[np.full((1, 10), np.nan) if i == 3 else np.eye(10)[[w]]
	for i, w in enumerate([9, 1, 2, 0, 9, 3, 5, 5, 4])]' | k3-sample -b 3 -n 3 --stop 9 >got
same got want "even if they are broken"
one 1 9  2 9 | k3-sample -b 2 -n 2 --stop 9 >got
printf '%s\n' 1 '' 2 '' >want
same got want "the last round of a batch has all its lines"
one 1 2  9 9 | k3-sample -b 2 --stop 9 >got
printf '%s\n' 1 2 >want
same got want "a last round without any id is not written"

records '[np.eye(10)[[1, 2, 3]], np.eye(10)[[4, 5]]]' | k3-sample >got
printf '%s\n' 3 5 >want
same got want "the last row of a record counts"

# events
k3-sample -n 5 --stop 5 --json ev --top 2 <pi >got
is "$? $(paste -sd' ' got)" "0 3 1 4 1" "ids are the same with --json"
jq -c '[.event, .sequence, .n, .id, .finish, [.top[].id]]' ev >got
cat >want <<'EOF'
["sample",0,0,3,null,[3,0]]
["sample",0,1,1,null,[1,0]]
["sample",0,2,4,null,[4,0]]
["sample",0,3,1,null,[1,0]]
["sample",0,4,5,"stop",[5,0]]
EOF
same got want "an event for every id, also the stop id"
k3-sample -n 2 -j ev <pi >got
is "$(jq -c '[.finish, .top]' ev | paste -sd' ')" '[null,[]] ["length",[]]' "finish is length at -n"
k3-sample -b 2 -j ev <batch.npy >got 2>err
is "$? $(jq -sc 'map(.sequence)' ev)" "1 [0,1]" "a round that fails leaves no events"
k3-sample -n 2 -j /dev/fd/3 <pi 3>ev >got
is "$(grep -c sample ev) $(paste -sd' ' got)" "2 3 1" "events to a descriptor"
echo before >ev
k3-sample -n 2 -j /dev/fd/3 <pi 3>>ev >got
is "$(sed -n 1p ev) $(grep -c sample ev)" "before 2" "and behind what is in its file"
k3-sample -n 2 -j /dev/stderr <pi 2>ev >got
is "$(grep -c sample ev)" 2 "events to standard error"
mkfifo events
k3-sample -n 3 -j events <pi >got & jq -c .id <events >ids
wait
same got ids "events through a fifo"

# log-probabilities
records 'rng.normal(size=(20, 1, 100)) * 4' >rows.npy
k3-sample -t 0.3 -k 2 -n 20 -j ev --top 3 <rows.npy >/dev/null
"$py" -c '
import json, numpy as np, k3npy
for line, a in zip(open("ev"), k3npy.read(open("rows.npy", "rb"))):
    e, x = json.loads(line), a[0].astype(float)
    lp = x - np.log(np.exp(x).sum())
    assert abs(e["logprob"] - lp[e["id"]]) < 1e-8
    top = np.argsort(-x, kind="stable")[:3]
    assert [t["id"] for t in e["top"]] == list(top)
    assert np.abs(np.array([t["logprob"] for t in e["top"]]) - lp[top]).max() < 1e-8'
ok $? "log-probabilities are those of the whole softmax"

# the place in the batch does not matter
records '[rng.normal(size=(1, 100)) for i in range(12)]' >three	# 3 sequences of 4 rounds
"$py" -c '
import k3npy
r = list(k3npy.read(open("three", "rb")))
for s in range(3):
    with open("alone%d" % s, "wb") as f:
        for a in r[s::3]: k3npy.write(f, a)
with open("turned", "wb") as f:
    for i in range(4):
        for s in 2, 0, 1: k3npy.write(f, r[3 * i + s])'
for s in 0 1 2; do k3-sample -t 1 -n 4 <alone$s >ids$s; done
k3-sample -t 1 -b 3 -n 4 <three | paste -d' ' - - - >got
paste -d' ' ids0 ids1 ids2 >want
same got want "a sequence draws the same alone and in a batch"
k3-sample -t 1 -b 3 -n 4 <turned | paste -d' ' - - - >got
paste -d' ' ids2 ids0 ids1 >want
same got want "at any place in it"
k3-sample -t 1 -b 3 -n 4 --name a --name b --name c <three | paste -d' ' - - - >got
k3-sample -t 1 -n 4 --name b <alone1 >got2
cut -d' ' -f2 got >want
same got2 want "with names too"
cmp -s ids1 got2
is $? 1 "a name gives other draws"
k3-sample -t 1 -n 4 -s 1 <alone1 >got
cmp -s ids1 got
is $? 1 "and so does a seed"

# the stop id of the model: 1794 of 2048
records '[np.eye(2048)[[w]] for w in [5, 6, 1794, 7]]' >rows.npy
k3-sample -m "$demo" <rows.npy >got
is "$? $(paste -sd' ' got)" "0 5 6" "the stop id of the model ends a run"
k3-sample -m "$demo" --keep-stop <rows.npy >got
is "$? $(paste -sd' ' got)" "0 5 6 1794" "--keep-stop writes it"
K3_MODEL=$demo k3-sample <rows.npy >got
is "$? $(paste -sd' ' got)" "0 5 6" "the model from the environment"
k3-sample -m "$demo" --stop 6 <rows.npy >got
is "$? $(paste -sd' ' got)" "0 5" "and another stop id beside it"
# shellcheck disable=SC2016
fails 1 'after 1 rounds, but sequence 0 is not' "no stop id came" \
	sh -c 'head -c 8320 rows.npy | k3-sample -m "$1"' sh "$demo"
fails 1 'record 0 has rows of 10 logits, but .*share/demo has 2048 ids' "logits of another model" \
	k3-sample -m "$demo" <pi
fails 1 '^k3-sample: .*none' "no such model" k3-sample -m none <pi

# a model that answers each line with a row: the next id is the sum of the last two, modulo 10
cat >step.py <<'EOF'
import os, sys, numpy as np, k3npy
out = open(1, "wb", buffering=0, closefd=False)
b, dies = int(sys.argv[1]), int(sys.argv[2])
ids = [[] for _ in range(b)]
for i, line in enumerate(iter(sys.stdin.readline, "")):
    if i == dies:
        sys.exit(1)
    new = [int(w) for w in line.split()]
    ids[i % b] += new
    k3npy.write(out, np.eye(10)[[sum(ids[i % b][-2:]) % 10] if new else []])
EOF
mkfifo next
# loop PROMPT B DIES OPTION...: leaves ids in got and the status of k3-sample in status
# shellcheck disable=SC2094
loop() {
	prompt=$1 b=$2 dies=$3
	shift 3
	{ printf %b "$prompt" && cat; } <next | timeout 20 "$py" step.py "$b" "$dies" 2>/dev/null |
		{ timeout 20 k3-sample -b "$b" "$@" 2>err; echo $? >status; } | tee next >got
}
loop '1 1\n' 1 -1 -n 8
is "$(cat status) $(paste -sd' ' got)" "0 2 3 5 8 3 1 4 5" "the loop ends at -n"
loop '1 1\n' 1 -1 --stop 4
is "$(cat status) $(paste -sd' ' got)" "0 2 3 5 8 3 1" "the loop ends at a stop id"
loop '1 1\n0 1\n' 2 -1 --stop 5
is "$(cat status) $(paste -sd' ' got)" "0 2 1 3 2  3" "a loop of two that end in different rounds"
loop '1 1\n' 1 4 -n 8
is "$(cat status) $(paste -sd' ' got)" "1 2 3 5 8" "a model that dies is no short answer"
ok "$(grep -q 'not finished' err; echo $?)" "and k3-sample says so"
plan
