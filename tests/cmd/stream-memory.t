#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step --mem: the same bits from any budget, never more resident than that, and no byte read twice.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
cd "$tmp" || exit 1
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
san=
grep -q __asan_init "$(command -v k3-step)" && san=yes

# ids N SEED [VOCAB]: a line of ids
ids() { awk -v n="$1" -v s="$2" -v v="${3:-512}" 'BEGIN { for (i = 0; i < n; i++) {
	s = (s * 1103515 + 12345) % 2147483; printf "%s%d", i ? " " : "", int(s / 7) % v } print "" }'; }
# plan FIELD ARGUMENTS...: out of --plan
plan_of() {
	field=$1
	shift
	k3-step --plan "$@" | jq "$field"
}
# step OUT MEM ARGUMENTS...: its records into OUT; on stdout its status, and "over" if MEM was not enough for it
step() {
	out=$1 mem=$2
	shift 2
	"$python" "$top/tests/cmd/peak.py" peak k3-step --mem "$mem" "$@" >"$out" 2>err
	s=$?
	[ -n "$san" ] || [ "$(cat peak)" -le "$mem" ] || s="$s over: $(cat peak) resident"
	echo $s
}
# at TEXT WANT BUDGETS ARGUMENTS...: all these budgets give the records WANT of the lines in `in`
at() {
	text=$1 want=$2 budgets=$3 wrong=
	shift 3
	for b in $budgets; do
		s=$(step got "$b" "$@" <in)
		[ "$s" = 0 ] && cmp -s got "$want" || wrong="$wrong [$b: $s, $(head -c 200 err)]"
	done
	is "$wrong" "" "$text"
}

cp -r "$demo" demo
chmod -R u+w demo
k3-pack -o demo.k3t demo >/dev/null
make_model() {	# DIR [OPTION...]: a random one
	"$python" "$top/tests/reference/k3make.py" "$@"
}
make_model big --set hidden_size=256 --set vocab_size=4096 --set intermediate_size=1024 \
	--set num_attention_heads=16 --set num_key_value_heads=16 --set num_heads=16 --set head_dim=64 \
	--set q_lora_rank=256 --set kv_lora_rank=128 --set qk_nope_head_dim=64 --set v_head_dim=64 \
	--set moe_intermediate_size=128 --set routed_expert_hidden_size=256 --set num_experts=16
k3-pack -o big.k3t big >/dev/null
k3-index -j big >big.json

# ---- one id at the floor, whatever the shape ----
echo 5 >in
for m in demo big; do
	for t in 1 2 3 7; do
		floor=$(plan_of .floor -m $m -t $t)
		k3-step -m $m --trunk none <in >want
		at "$m, $t threads: the floor that is named is enough" want "$floor $((floor + 1)) $((floor + 99999))" -m $m -t $t
		fails 1 "$((floor - 1)) bytes of memory are too few: it takes at least $floor\$" \
			'and a byte less is refused, with its name' k3-step -m $m -t $t --mem $((floor - 1)) <in
	done
done
printf '5\n\n7\n8\n9\n10\n' >in
for cut in 0: 0:5 5: 3:7 9:; do
	set -- -m demo -b 3 --layers "$cut"
	floor=$(plan_of .floor "$@")
	case $cut in
	0*) cat in >from ;;
	9*) k3-step -m demo -b 3 --layers 0:4 <in >from ;;
	*) k3-step -m demo -b 3 --layers "0:${cut%%:*}" <in >from ;;
	esac
	cp in lines
	cp from in
	k3-step "$@" <in >want
	at "three sequences, --layers $cut: its floor is enough" want "$floor $((floor + 400000))" "$@"
	cp lines in
done

# ---- prompts and what follows, at many budgets ----
# budgets FLOOR ALL: from little to more than everything
budgets() { echo "$(($1 + 800000)) $(($1 + $2 / 5 + 800000)) $(($1 + $2 / 2)) $(($1 + $2 * 9 / 10)) $(($1 + $2 + 3000000)) 4000000000"; }
{ ids 40 1; echo 3; echo 4; ids 7 2; echo 5; } >in
for trunk in none demo.k3t; do
	k3-step -m demo --trunk none -t 1 --logits all <in >want
	for t in 1 3; do
		set -- -m demo --trunk $trunk -t $t
		at "forty ids, then few: demo, trunk $trunk, $t threads" want \
			"$(budgets "$(plan_of .floor "$@")" "$(plan_of .trunk.bytes "$@")")" "$@" --logits all
	done
done
k3-step -m big --trunk none --logits all <in >want
for trunk in none big.k3t; do
	set -- -m big --trunk $trunk
	floor=$(plan_of .floor "$@") all=$(plan_of .trunk.bytes "$@")
	at "the same of a larger model, trunk $trunk" want "$((floor + 3000000)) $((floor + all / 2)) $((floor + all + 3000000))" \
		"$@" --logits all
done
tiny shape --set num_experts=40 --set num_experts_per_token=7 --set num_hidden_layers=6
tiny flat --set num_hidden_layers=3 --set num_experts=2 --set hidden_size=690 --set head_dim=11 --set num_heads=5 \
	--set qk_nope_head_dim=9 --set qk_rope_head_dim=5 --set v_head_dim=7 --set vocab_size=1111
{ ids 40 1 64; echo 3; ids 9 2 64; echo 4; } >in
for m in shape flat; do
	k3-pack -o $m.k3t $m >/dev/null
	k3-step -m $m --trunk none --logits all <in >want
	for trunk in none $m.k3t; do
		set -- -m $m --trunk $trunk -t 3
		at "a model like $m, trunk $trunk" want \
			"$(budgets "$(plan_of .floor "$@")" "$(plan_of .trunk.bytes "$@")")" "$@" --logits all
	done
done

# three sequences, all lines at once, states, a pass in two parts
{ ids 9 1; echo; ids 70 2; echo 4; ids 30 3; echo 5; } >in
floor=$(plan_of .floor -m demo -b 3)
some="$((floor + 1500000)) $((floor + 4000000)) $((floor + 9000000))"
k3-step -m demo -b 3 --logits all --trunk none <in >want
at 'three sequences' want "$some" -m demo -b 3 --logits all --trunk demo.k3t
k3-step -m demo -b all --logits all --trunk none <in >want
at 'all lines at once' want "$some" -m demo -b all --logits all --trunk demo.k3t
ids 70 2 >in
k3-step -m demo --trunk none <in >want
for m in $some; do
	rm -f s
	is "$(step got "$m" -m demo -s s --until 4 --trunk demo.k3t <in)" 0 "at $m, a pass that stops in front of layer 4"
	is "$(step got "$m" -m demo -s s --trunk none -t 3 </dev/null)" 0 'is finished by another process'
	same want got 'with the same bits'
	is "$(step got "$m" -m demo -s s --again </dev/null)" 0 'and again'
	same want got 'with the same bits'
done

# ---- a round that needs more than there is passes in parts, or is refused and changes nothing ----
ids 300 5 >in
k3-step -m demo --trunk none --logits all <in >want
floor=$(plan_of .floor -m demo -t 2)
echo 1 2 3 | k3-step -m demo -s s1 --logits none
cp s1 s2
fails 1 '300 tokens at a time in 1 sequences of up to 303 positions take [0-9]+ bytes of memory, and there are '"$floor"'$' \
	'a round that is too large is refused' k3-step -m demo -t 2 --mem "$floor" -s s1 <in
is "$(wc -l <fails.err),$(wc -c <fails.out)" 1,0 'in one line, without a record'
same s1 s2 'and the state is as it was'
k3-step -m demo -t 2 --mem "$floor" <in >out 2>err
least=$(sed 's/.*take \([0-9]*\) bytes.*/\1/' err)
at 'with what it says that it takes, it runs' want "$least" -m demo -t 2 --logits all
k3-step -m demo -t 2 --mem $((least - 1)) <in >/dev/null 2>&1
is $? 1 'and with a byte less it does not'
at 'in few parts or many' want "$((least + 300000)) $((least + 1000000)) $((least + 3000000)) $((least + 9000000))" \
	-m demo -t 2 --logits all --trunk demo.k3t
k3-index -j demo >demo.json
step got "$((least + 3000000))" -m demo -t 2 --trunk none --trace trace <in >out
jq -s -e --slurpfile i demo.json '[.[] | select(.event == "layer") | .experts as $n | .layer as $l |
	.expert_bytes + .expert_kept == $n * $i[0].expert.bytes and
	.trunk_bytes + .trunk_kept > 2 * $i[0].layers[$l].trunk_bytes * .9] | length == 9 and all' trace >out
ok $? 'in parts the dense weights pass again, and each expert once'
step got "$((least + 300000))" -m demo -t 2 --trunk none --trace trace <in >out
jq -s -e --slurpfile i demo.json '[.[] | select(.event == "layer" and .mlp == "moe") | .experts as $n |
	.expert_bytes + .expert_kept > $n * $i[0].expert.bytes] | length == 8 and all' trace >out
ok $? 'with hardly any memory experts pass again for the next of their tokens'

# ---- the ring is wider where it is a small part of the memory ----
floor=$(plan_of .floor -m demo)
# of a plan the ring and the threads that read into it
ring() { plan_of '.parts | .ring + .process' -m demo --mem "$1"; }
narrow=$(ring "$floor") wide=$(ring 4000000000)
ok "$([ "$wide" -gt $((narrow + 15000000)) ]; echo $?)" "a ring and its threads, $narrow bytes at the floor and $wide where there is much"
from=$((floor + 16 * (wide - narrow)))
is "$(ring $((from - 1))) $(ring $from)" "$narrow $wide" \
	'the step is where what it adds is a sixteenth of what there is beyond the floor'
is "$(plan_of .floor -m demo --mem $from)" "$floor" 'and the floor is the same'

# ---- very many lines, so that what each of them costs is most of all ----
tiny little
yes 5 | head -n 40000 >in
set -- -m little -b all --logits all
k3-step "$@" --mem "$(plan_of .floor "$@")" <in >out 2>err
least=$(sed -n 's/.*take \([0-9]*\) bytes.*/\1/p' err)
# a little more, or each tile would be one token
is "$(step out $((least + 1000000)) "$@" <in)" 0 '40000 lines of an id: what the refusal names is enough'

# ---- bytes ----
{ ids 12 1; echo 3; echo 4; } >in
all=$(jq '[.trunk, .head, .output | .bytes] | add' big.json)
floor=$(plan_of .floor -m big --trunk none)
is "$(plan_of .trunk.bytes -m big --trunk none)" "$all" 'what --plan calls trunk is that of k3-index with the head'
# census TRACE: in every layer of every round all of the trunk and each expert of the union, once
census() {
	jq -s -e --slurpfile i big.json '. as $e |
		[.[] | select(.event == "layer") | . as $l | $i[0].layers[.layer] as $c |
		 ([$e[] | select(.event == "route" and .layer == $l.layer and .round == $l.round) | .experts[]] |
		  unique | length) as $union |
		 .trunk_bytes + .trunk_kept == $c.trunk_bytes and .experts == $union and
		 .expert_bytes + .expert_kept == $union * $i[0].expert.bytes] | length == 27 and all' "$1"
}
whole() {	# TRACE: the same of whole rounds, with the head
	jq -s -e --argjson all "$all" '[.[] | select(.event == "round") | .trunk_bytes + .trunk_kept == $all] |
		length == 3 and all' "$1"
}
for eighth in 1 3 5 7 10 14; do
	mem=$((floor + 600000 + all * eighth / 8))
	is "$(step got $mem -m big --trunk none --trace trace -t 3 <in)" 0 "$eighth eighths of the trunk in memory"
	census trace >out && whole trace >out
	ok $? 'every layer once, every expert of the union once'
done
jq -s -e '[.[] | select(.event == "round") | .trunk_bytes] | .[0] > 0 and .[1] == 0 and .[2] == 0' trace >out
ok $? 'with all of the trunk in memory the first round reads it, and no later one'
jq -s -e '[.[] | select(.event == "round") | .trunk_kept] | .[0] == 0 and .[1] > 0' trace >out
ok $? 'and uses it from there'
echo 7 >in
step got "$floor" -m big --trunk none --trace trace <in >out
jq -s -e --argjson all "$all" '[.[] | select(.event == "round")] | length == 1 and .[0].trunk_kept == 0 and
	.[0].trunk_bytes == $all and .[0].expert_kept == 0' trace >out
ok $? 'at the floor nothing is in memory'

# ---- the plan ----
printf '7\n8\n' >in
for trunk in none big.k3t; do
	set -- -m big --trunk $trunk -t 2
	floor=$(plan_of .floor "$@") all=$(plan_of .trunk.bytes "$@")
	for eighth in 0 1 3 5 7 9; do
		mem=$((floor + all * eighth / 8))
		k3-step --plan --mem $mem "$@" >plan
		jq -e --argjson m $mem '.memory == $m and .floor <= $m and ([.parts[]] | add) <= $m and
			.token.bytes == .token.trunk_bytes + .token.expert_bytes and
			.trunk.coded == '"$([ $trunk = none ] && echo false || echo true)" plan >out
		ok $? "--plan at $eighth eighths, trunk $trunk: its parts fit, its sums are right"
		step got $mem "$@" --trace trace <in >out
		jq -s -e --slurpfile p plan '[.[] | select(.event == "round")][1] as $r | $p[0] as $p |
			($r.trunk_bytes - $p.token.trunk_bytes | fabs) <= .05 * $r.trunk_bytes + .01 * $p.trunk.bytes and
			($p.parts.cached_experts > 0 or $r.expert_bytes == $p.token.expert_bytes)' trace >out
		ok $? 'a second round reads what it says'
		[ $eighth -gt 0 ] && continue
		jq -s -e --slurpfile p plan '[.[] | select(.event == "round")][1].disk_bytes as $r |
			($r - $p[0].token.bytes | fabs) <= .06 * $r' trace >out
		ok $? 'and the disk little more'
	done
done
echo '{"rate": 1e6}' >disk
is "$(k3-step -m big --trunk none --plan --mem "$floor" --disk disk | jq '.disk_rate == 1e6 and
	(.token.seconds - .token.bytes / 1e6 | fabs) < .001')" true '--plan tells the time at the rate of --disk'
is "$(plan_of '[.token.seconds, .disk_rate] == [null, null]' -m big)" true 'and null without one'
echo '{"rate": 1e6, "used_rate": 5e5}' >disk
is "$(plan_of .disk_rate -m big --disk disk)" 500000 'the rate of bytes that are used comes first'
for size in 1G=1000000000 1Gi=1073741824 0.5G=500000000 750M=750000000 64Mi=67108864 900000k=900000000 100000000=100000000; do
	is "$(plan_of .memory -m demo --mem ${size%=*})" ${size#*=} "--mem ${size%=*}"
done
for size in '' G -1 1Q 1GB 1Gib 1,5G 0 ' 1G' 1e9x 1..5G nan inf 0x10000000 '1 G' 99999999999T; do
	fails 2 '^k3-step: --mem: ' "--mem '$size' is no size" k3-step -m demo --mem "$size" --plan
done
fails 1 'bytes of memory are more than .* has, which are [0-9]+$' 'more than the machine has' k3-step -m demo --mem 900T --plan
echo 5 >in
fails 1 'bytes of memory are more than .* has' 'nor may a run have it' k3-step -m demo --mem 900T <in
echo '{"rate": 1e9, "memory": 5000000000000}' >disk
is "$(k3-step -m big --trunk none --plan --mem 4T --disk disk | jq -c '[.memory, .token.bytes]')" "[4000000000000,0]" \
	'--plan for a machine with more memory than this one'
is "$(k3-step -m big --trunk none --plan --disk disk | jq '.memory > 4e12 and .memory < 5e12')" true 'most of which is taken without --mem'
fails 1 '^k3-step: 6000000000000 bytes of memory are more than the described machine has, which are 5000000000000$' \
	'but not more than that one has' k3-step -m big --mem 6T --plan --disk disk
fails 1 'bytes of memory are more than the (machine|control group) has' 'a run is on this machine' \
	k3-step -m big --mem 4T --disk disk <in
echo '{"memory": 40000000}' >disk
fails 1 '^k3-step: 50000000 bytes .* the described machine has' 'nor one with less than this' k3-step -m big --mem 50M --plan --disk disk

# ---- nothing is kept for a round that does not come ----
is "$(plan_of '[.parts.pinned, .parts.cached_experts, .token.bytes == .trunk.bytes + .token.expert_bytes]' -m big -b all | tr -d "[:space:]")" \
	'[0,0,true]' 'the plan of a single round pins nothing'
pinned=$(plan_of .parts.pinned -m big)
step want 200000000 -m big <in >out
several=$(cat peak)
for once in '-b all' '-s new --until 8'; do
	# shellcheck disable=SC2086
	step got 200000000 -m big $once <in >out
	ok "$([ -n "$san" ] || [ $((several - $(cat peak))) -gt $((pinned / 2)) ]; echo $?)" "$once: of $pinned bytes nothing stays"
done
# in two parts, too few for what is read ahead of them, which would keep all of a layer: some of the trunk, that is
ids 1500 5 2048 >in
set -- -m demo -t 2 --trunk none -b all
floor=$(plan_of .floor "$@") trunk=$(plan_of .trunk.bytes "$@")
found=
for more in 15 17 19 21 23; do
	step got $((floor + more * 1000000)) "$@" --trace trace <in >out
	k=$(jq -s '.[-1].trunk_kept' trace)
	[ "$k" -gt 1000000 ] && [ "$k" -le "$trunk" ] && found=$k
done
ok "$([ -n "$found" ]; echo $?)" "but what parts of a round use again: $found bytes"

# ---- other ways to read a disk ----
{ ids 20 9; echo 1; } >in
k3-step -m big --trunk none --logits all <in >want
for disk in '{}' '{"ring":1048576,"request":4096,"depth":1}' '{"depth":16}' '{"ring":1048576,"request":8388608,"depth":2}' \
	'{"request":12288,"depth":64,"ring":3000001}' '{"request":5000,"more":[1,2]}'; do
	echo "$disk" >disk
	for trunk in none big.k3t; do
		[ "$trunk" = none ] || [ "${disk#*ring}" != "$disk" ] || continue
		set -- -m big --trunk $trunk --disk disk
		at "--disk $disk, trunk $trunk" want "$(($(plan_of .floor "$@") + 2000000)) $(($(plan_of .floor "$@") + 20000000))" \
			"$@" --logits all
	done
done
for disk in '' '{' '[]' '{"ring":1}' '{"ring":-1048576}' '{"request":1000}' '{"request":"4096"}' '{"depth":0}' \
	'{"depth":65}' '{"depth":1.5}' '{"memory":"8G"}' '{"memory":0}' '{"rate":0}' '{"rate":"fast"}' '{"ring":1e30}' '{"depth":2,"depth":3}' '{} {}'; do
	echo "$disk" >disk
	fails 1 '^k3-step: disk: ' "--disk $disk is refused" k3-step -m demo --disk disk <in
done
fails 1 'no-such' 'a --disk that is not there' k3-step -m demo --disk no-such <in

# ---- experts that stay ----
# places whose ends are no multiple of a page
make_model odd --set hidden_size=192 --set moe_intermediate_size=96 --set routed_expert_hidden_size=96 \
	--set num_experts=320 --set num_experts_per_token=16
{ for i in 1 2 3 4; do ids 110 $i; done; ids 1500 9; ids 6 10; ids 6 11; ids 6 12; ids 300 13; ids 6 14; } >in
k3-step -m odd --trunk none <in >want
floor=$(plan_of .floor -m odd) all=$(plan_of .trunk.bytes -m odd) experts=$(k3-index -j odd | jq .experts.bytes)
for tenth in 5 8 9; do
	is "$(step got $((floor + all + all / 20 + experts * tenth / 10)) -m odd --trace trace <in)" 0 \
		"$tenth tenths of the experts may stay"
	same want got 'with the same bits while rounds come and grow'
	jq -s -e '[.[] | select(.event == "round") | .expert_kept] | .[0] == 0 and add > 0' trace >out
	ok $? 'and some are found again'
done
jq -s -e '[.[] | select(.event == "round")] | .[3].trunk_kept > 0 and .[3].expert_kept > .[3].expert_bytes' trace >out
ok $? 'most of them, where most can stay'
plan
