#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step --lookup: the records of plain decoding, bit for bit, whatever was guessed; fewer sweeps where ids repeat.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
cd "$tmp" || exit 1
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
TMPDIR=$tmp
export TMPDIR
san=
grep -q __asan_init "$(command -v k3-step)" && san=yes

tiny small
cp -r "$demo" demo
chmod -R u+w demo
k3-index small >out && k3-index demo >out

# ---- streams ----
# ids KIND N: one a line, below 64
ids() {
	awk -v kind="$1" -v n="$2" 'BEGIN { s = 7; for (i = 0; i < n; i++) {
		s = (s * 1103515 + 12345) % 2147483
		r = int(s / 7) % 60
		# a period with a fault now and then; pieces of it in any order; no order at all
		if (kind == "again") print 4 + i % 9 * 6 + (i % 37 == 30)
		if (kind == "pieces") { if (i % 5 == 0) p = r % 8; print 4 + p * 6 + i % 5 }
		if (kind == "none") print 4 + r
	} }'
}
# lines FIRST: the ids in lines of 0 to 4, most of them 1, behind one of FIRST
lines() {
	awk -v first="$1" 'BEGIN { s = 5 }
		NR <= first { printf "%s%s", $1, NR == first ? "\n" : " "; next }
		{ if (!left) { s = (s * 1103515 + 12345) % 2147483; k = int(s / 7) % 12
			if (k == 0) print ""
			left = k > 0 && k < 4 ? k + 1 : 1 }
		  left--; printf "%s%s", $1, left ? " " : "\n" }
		END { if (left) print "" }'
}
ids again 150 >again
ids pieces 150 >pieces
ids none 100 >none
# the prompt ends just in front of a page of latents, or behind it
lines 61 <again >again.61
lines 66 <pieces >pieces.66
lines 1 <pieces >pieces.1
{ lines 30 <none; echo; lines 20 <again; echo; echo; lines 5 <none; } >all
streams='again pieces none again.61 pieces.66 pieces.1 all'

# ---- the same records ----
for m in demo small; do
	for s in $streams; do
		k3-step -m $m <$s >want
		wrong=
		for g in 1 3 8 16; do
			t=$((g % 3 == 1 ? 4 : 1))
			k3-step -m $m -t $t --lookup $g --trace trace.$m.$s.$g <$s >got 2>err &&
				cmp -s want got || wrong="$wrong [$g, $t threads: $(head -c 200 err)]"
		done
		is "$wrong" '' "$m, $s: the records of plain decoding"
	done
done

# ---- what was guessed ----
# rounds TRACE FILTER: of its round events
rounds() { jq -s -c "[.[] | select(.event == \"round\")] | $2" "$1"; }
sweeps() { jq -s '[.[] | select(.event == "layer" and .layer == 0)] | length' "$1"; }
for m in demo small; do
	wrong=
	for s in $streams; do
		t=trace.$m.$s.8
		[ "$(rounds $t '[length, (map(.tokens) | add)]')" = "[$(wc -l <$s),$(wc -w <$s)]" ] &&
			jq -s -e '(map(select(.event == "round")) | INDEX(.round)) as $r |
				[.[] | select(.event == "layer") | $r[.round | tostring] as $r |
				.tokens == $r.tokens - $r.taken + $r.drafted] | all' $t >out &&
			rounds $t '[.[] | (.tokens == .taken) == (.trunk_bytes + .trunk_kept == 0)] | all' |
				grep -q true || wrong="$wrong $s"
	done
	is "$wrong" '' "$m: rounds count ids of lines, layers those of the sweep; an id that was guessed costs no byte"
	for g in 1 3 8; do
		t=trace.$m.again.$g
		ok "$([ "$(sweeps $t)" -lt $((g == 1 ? 110 : 75)) ]; echo $?)" \
			"$m: with $g guesses $(sweeps $t) sweeps for 150 lines that repeat"
	done
	is "$(rounds trace.$m.pieces.8 'map(.taken) as $t | map(.drafted) as $d | [range(1; length) |
		select($d[. - 1] > 0) | [$t[.] > 0]] | unique')" '[[false],[true]]' "$m: some guesses are right, some wrong"
	is "$(rounds trace.$m.none.8 'map(.drafted) | add')" 0 "$m: nothing is guessed where nothing repeats"
done
# it ends when ids stop to repeat, and begins again when they do
{ head -n 60 again; cat none; head -n 60 again; } >turns
k3-step -m demo <turns >want
k3-step -m demo --lookup 4 --trace trace <turns >got
same want got 'a text that stops to repeat, and begins again'
is "$(rounds trace '[.[20:60], .[70:160], .[180:]] | map(map(.drafted) | add) | [.[0] > 9, .[1] < 9, .[2] > 9]')" \
	'[true,true,true]' 'is guessed in its first and in its last part'

# ---- memory ----
"$python" "$top/tests/reference/k3make.py" wide --set hidden_size=64 --set vocab_size=9000 \
	--set num_hidden_layers=5 --set num_heads=128 --set head_dim=64 --set num_experts=8
for m in demo wide; do
	k3-step -m $m <again >want
	for g in 1 16; do
		floor=$(k3-step -m $m -t 2 --lookup $g --plan | jq .floor)
		plain=$(k3-step -m $m -t 2 --plan | jq .floor)
		ok "$([ "$floor" -gt "$plain" ]; echo $?)" "$m: the plan counts $((floor - plain)) bytes for $g guesses"
		fails 1 "it takes at least $floor\$" 'and a byte less is too little' \
			k3-step -m $m -t 2 --lookup $g --mem $((floor - 1)) <again
		wrong=
		for more in 100000 1000000 3000000 40000000; do
			mem=$((floor + more))
			"$python" "$top/tests/cmd/peak.py" peak k3-step -m $m -t 2 --lookup $g --mem $mem --trace trace \
				<again >got 2>err && cmp -s want got || wrong="$wrong [$more: $(head -c 200 err)]"
			[ -n "$san" ] || [ "$(cat peak)" -le $mem ] || wrong="$wrong [$more: $(cat peak) of $mem]"
			[ "$(sweeps trace)" -lt 130 ] || wrong="$wrong [$more: $(sweeps trace) sweeps]"
		done
		is "$wrong" '' "$m, $g guesses: the same records and never more resident, from little memory to much"
	done
	is "$(k3-step -m $m -t 2 --lookup 16 --mem $((floor + 100000)) --plan | jq .paged)" true 'with little the states are paged'
done
# near the floor a long line, or a long sequence, leaves memory for some guesses or none, or is refused
for s in pieces.66 again.61; do
	k3-step -m demo <$s >want
	wrong='' good=''
	for g in 2 16; do
		floor=$(k3-step -m demo -t 1 --lookup $g --plan | jq .floor)
		for more in 0 30000 100000 400000; do
			k3-step -m demo -t 1 --lookup $g --mem $((floor + more)) --trace trace <$s >got 2>err
			case $?,$(cat err) in
			0,) cmp -s want got && good="$good $(sweeps trace)" || wrong="$wrong [$g, $more]" ;;
			1,*' at a time in 1 sequences of up to '*' take '*' bytes of memory, and there are '*) ;;
			*) wrong="$wrong [$g, $more: $(head -c 200 err)]" ;;
			esac
		done
	done
	is "$wrong" '' "$s, near the floor: the same records or a refusal"
	[ "$(printf '%s\n' $good | sort -u | wc -l)" -gt 1 ]
	ok $? "with fewer guesses where there is less memory: $good sweeps"
done

# ---- the loop ----
loop() {	# OUT OPTION...
	out=$1
	shift
	rm -f next
	mkfifo next
	{ printf %s 'one two one two one two one' | k3-tokenize -m demo && cat; } <next |
		k3-step -m demo "$@" | k3-sample -n 80 -m demo | tee next | k3-tokenize -m demo -d >"$out"
}
loop want.txt
loop got.txt --lookup 6 --trace trace
same want.txt got.txt 'the loop says the same'
[ "$(sweeps trace)" -lt "$(rounds trace length)" ]
ok $? "in $(sweeps trace) sweeps for $(rounds trace length) lines"

# ---- ends and errors ----
tiny short --set max_position_embeddings=50
for g in 2 16; do
	fails 1 "position 50 is beyond the model's 50" 'the end of the positions comes where it does without guesses' \
		k3-step -m short --lookup $g <again
	k3-step -m short <again >want 2>err
	same want fails.out 'behind the same records'
done
fails 1 "line 41, id 1: 'x' is not an id" 'a line that is no line, behind a guess' \
	sh -c '{ head -n 40 again; echo x; } | k3-step -m demo --lookup 8'
for g in 0 17 -1 x ''; do
	fails 2 '^k3-step: --lookup: ' "--lookup '$g'" k3-step -m demo --lookup "$g" <again
done
refused() {	# WORDS OPTION...
	words=$1
	shift
	fails 2 "^k3-step: --lookup $words" "$*" k3-step -m demo --lookup 3 "$@" <again
	is "$(wc -l <fails.err),$(wc -c <fails.out)" 2,0 'with where help is, and without a record'
}
refused 'does not go with a batch' -b 2
refused 'does not go with a batch' -b all
refused 'does not go with a state' -s s
refused 'does not go with a state' -s s --again
refused 'does not go with a state' -s s --until 3
refused 'does not go with --score' --score
refused 'does not go with --logits all or none' --logits all
refused 'does not go with --logits all or none' --logits none
refused 'does not go with --tap' --tap resid@3=tap
refused 'takes ids .* layers 0:4 are not the whole model' --layers 0:4
refused 'takes ids .* layers 4:9 are not the whole model' --layers 4:
ok "$([ ! -e s ] && [ ! -e tap ]; echo $?)" 'and no file is made'
k3-step -m demo -b 1 --lookup 3 --logits last --layers 0:9 <again >got
k3-step -m demo <again >want
same want got 'but what is the default anyway may be said'
plan
