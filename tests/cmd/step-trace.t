#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The rounds in k3-step's trace: bytes against the files, the routes and the reads themselves, seconds against a disk that stalls.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
cd "$tmp" || exit 1
cp -r "$demo" m
chmod -R u+w m
rm -f m/*.k3i
k3-index m >/dev/null
k3-pack -o m.k3t m >/dev/null
set -- -m m --trunk m.k3t
floor=$(k3-step "$@" -t 3 --plan | jq .floor)
# where hardly a block stays, and the rounds below still pass in one part; where about half of them do; where all do
bare=$((floor + 300000)) some=$((floor + 2000000)) large=$((floor + 30000000))
coded=$(k3-stat -j m.k3t | jq .coded_bytes)
head=$(k3-stat -j m.k3t | jq '.sections[-1].coded_bytes')
expert=$((3 * 96 * 64 * 17 / 32))	# of three matrices four bits a weight, and a byte of scale for 32 of them
shim=${K3_BUILD:-$top/build}/shim/pread.so
san=
grep -q __asan_init "$(command -v k3-step)" && san=yes

# ---- bytes, by what the files hold and the routes name ----
# three rounds of three sequences, with 6, 3 and 1 ids
printf '5 6 7\n8\n9 10\n11\n12\n13\n\n14\n\n' >three
# census TRACE TRUNK: every round has all of the trunk and each expert of its routes once, read or kept; and what its
# layers have, with the head's part
census() {
	jq -s -e --argjson trunk "$2" --argjson expert $expert '. as $e |
		[.[] | select(.event == "round") | . as $r |
		 [$e[] | select(.event == "layer" and .round == $r.round)] as $l |
		 ([$e[] | select(.event == "route" and .round == $r.round) | .layer as $n | .experts[] | [$n, .]] |
		  unique | length) as $union |
		 .trunk_bytes + .trunk_kept == $trunk and .expert_bytes + .expert_kept == $union * $expert and
		 (.disk_bytes >= .trunk_bytes + .expert_bytes) and ($l | length) == 9 and
		 .tokens == $l[0].tokens and
		 .expert_bytes == ($l | map(.expert_bytes) | add) and .expert_kept == ($l | map(.expert_kept) | add) and
		 .trunk_bytes >= ($l | map(.trunk_bytes) | add) and .trunk_kept >= ($l | map(.trunk_kept) | add) and
		 .waited >= 0 and .seconds > .waited and
		 .seconds + .00001 >= ($l | map(.seconds) | add) and .waited + .00001 >= ($l | map(.waited) | add)] |
		length == 3 and all' "$1" >census
}
for t in 1 3; do
	for mem in $bare $some $large; do
		k3-step "$@" -b 3 -t $t --mem "$mem" --trace trace <three >records
		is "$?,$(jq -r 'select(.event == "round") | .tokens' trace | paste -s -d ' ' -)" '0,6 3 1' \
			"$t threads, $mem bytes: three rounds and their ids"
		census trace "$coded"
		ok $? 'with the bytes of all of the trunk, and of each expert that was chosen'
	done
	k3-step "$@" -b 3 -t $t --logits none --trace trace <three
	census trace $((coded - head))
	ok $? 'without logits none of the head'
done

# ---- bytes, by the reads ----
printf '5 6 7\n8\n' >in
K3_READS=$tmp/opened LD_PRELOAD=$shim k3-step "$@" </dev/null 2>err
s=$?
[ -n "$san" ] || is $s 0 'a run without ids'
if [ -n "$san" ] || [ ! -s opened ]; then
	skip 'reads, and a disk that stalls' 'nothing can be preloaded here'
	plan
fi
embedding=$(tensor m language_model.model.embed_tokens.weight)
# counted LOG: the bytes of reads of weights
counted() {
	awk '
		{ bytes = $NF; sub(/ [0-9]+ [0-9]+$/, ""); sub(/.*\//, "") }
		/\.safetensors$|^m\.k3t$/ { sum += bytes }
		END { printf "%.0f\n", sum }' "$1"
}
# rounds_of FIELD: of the trace, one number a round
rounds_of() { jq -r "select(.event == \"round\").$1" trace | paste -s -d ' ' -; }
opening=$(counted opened)
for t in 1 3; do
	for mem in $bare $some $large; do
		rm -f reads
		r=$(K3_READS=$tmp/reads LD_PRELOAD=$shim "$python" "$top/tests/cmd/midrun.py" 'cp reads first' \
			k3-step "$@" -t $t --mem "$mem" --trace trace)
		if grep -q 'direct reads are refused' err; then
			skip "$t threads, $mem bytes: reads" 'not the reads that were meant'
			continue
		fi
		first=$(counted first) both=$(counted reads)
		is "$r,$(cat err)" '0 16640,' "$t threads, $mem bytes: two rounds"
		is "$(rounds_of disk_bytes)" "$((first - opening)) $((both - first))" 'disk_bytes are those of the reads'
		ok "$([ $both -gt $first ]; echo $?)" "which are some in each: $(rounds_of disk_bytes)"
	done
done

# ---- seconds, with a read that takes two ----
# said PROGRAM: true or false of trace; $stat has the rounds as k3-stat tells them
said() { jq -s -r --slurpfile stat stat "$1" trace; }
# Where it stalls nothing is left to compute meanwhile but a layer's part, some milliseconds: a second is what a loaded machine
# may have for them, and no more is asked for.
stalled() {	# THREADS PLACE INPUT ROUNDS OPTION...
	threads=$1 place=$2 input=$3 rounds=$4
	shift 4
	rm -f trace
	began=$(date +%s)
	K3_FAULT=$place:$((${place##*:} + 1)):stall LD_PRELOAD=$shim timeout 60 k3-step -m m --trunk m.k3t -t "$threads" \
		--trace trace "$@" <"$input" >got 2>err
	s=$?
	took=$(($(date +%s) - began + 1))
	k3-stat -j trace | jq -c 'select(.kind == "round")' >stat
	is "$s,$(cat err),$(wc -l <stat)" "0,,$rounds" "a stall at $place, $threads threads, $input $*"
	is "$(said 'map(select(.event == "round")) | .[0].seconds >= 1.99')" true 'the round takes at least as long'
	is "$(said 'map(select(.event == "round" or .event == "layer")) | map(.seconds >= .waited and .waited >= 0) | all')" true \
		'no round and no layer waits longer than it takes'
	is "$(said "map(select(.event == \"round\").seconds) | add <= $took")" true 'and all together no longer than the process'
	# each number of k3-stat has six digits, and so have those of the trace
	is "$(said 'def near($x; $y): ($x - $y | fabs) < .000003;
		[map(select(.event == "round")), $stat] | transpose | map(. as [$r, $s] | $s.tokens == $r.tokens and
			near($s.seconds_per_token; $r.seconds / $r.tokens) and
			near($s.waited_per_token; $r.waited / $r.tokens) and
			near($s.computed_per_token; ($r.seconds - $r.waited) / $r.tokens)) | all')" true 'k3-stat says the same of each'
}
section() { k3-stat -j m.k3t | jq ".sections[$1].offset + 1024"; }	# behind the directory
layers='map(select(.event == "layer" and .round == 0))'
round='map(select(.event == "round"))[0]'
for t in 1 3; do
	stalled $t "${embedding%:*}:$((${embedding#*:} + 384 * $(head -n 1 in | cut -d' ' -f1)))" in 2 --mem $large
	is "$(said "$round.waited >= 1.99 and ($layers | map(.waited) | add) < 1.5")" true \
		'all of the time is waited for a row of the embedding, which is in front of all layers'
	stalled $t "m.k3t:$(section 0)" three 3 -b 3 --mem $bare
	# with others at work a worker may be on its way to a barrier: one of them waits for all of the time
	is "$(said "$round.waited * $t >= 1.5 and (${layers}[0].waited * $t >= 1.5)")" true 'the first layer waits for it'
	stalled $t "m.k3t:$(section 9)" in 2 --mem $bare
	is "$(said "$round.waited * $t >= 1 and ($round.waited - ($layers | map(.waited) | add)) * $t >= 1")" true \
		'only the head waits for it'
done
# of a matrix all threads want a block at the same time, so all of them wait
at=$("$python" "$top/tests/cmd/trunk.py" m.k3t m places model.layers.5.self_attn.q_proj.weight | sed -n 's/^code //p')
for t in 1 3; do
	stalled $t "m.k3t:$at" in 2 --mem $large
	is "$(said "(${layers}[4].waited + ${layers}[5].waited) * $t >= 1 and $round.waited * $t >= 1")" true 'a layer in the middle waits'
	is "$(jq -s ".[0].waited_per_token * 3 * $t >= 1" stat)" true 'and so k3-stat has it'
done
plan
