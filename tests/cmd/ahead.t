#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step: with many tokens a layer goes in tiles that keep its trunk, and experts are read before all are known.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
cd "$tmp" || exit 1
# 80 experts of 30 KB a layer, of which 64 tokens leave some out, and a trunk that is not small beside them
tiny m --seed 5 --set hidden_size=128 --set intermediate_size=64 --set num_experts=80 \
	--set routed_expert_hidden_size=128 --set moe_intermediate_size=128 >/dev/null
k3-index --sum m >/dev/null
k3-pack m >/dev/null
K3_MODEL=$tmp/m
export K3_MODEL
shim=${K3_BUILD:-$top/build}/shim/pread.so
san=
grep -q __asan_init "$(command -v k3-step)" && san=yes

awk 'BEGIN { s = 11
	for (i = 0; i < 64; i++) {
		s = (s * 1103515 + 12345) % 2147483
		printf "%d%s", int(s / 7) % 64, i < 63 ? " " : "\n"
	} }' >in
tr ' ' '\n' <in >lines
# of the last round of a trace
last() { tail -n 1 "$1" | jq ".$2"; }
trunk=$(k3-step --plan | jq .trunk.bytes)

k3-step -t 2 --logits all --trace all.tr <in >want
is "$(last all.tr trunk_kept)" 0 'where all of the model fits, nothing passes twice'
experts=$(last all.tr expert_bytes)
low=
for mem in $(seq 20000000 100000 40000000); do
	k3-step -t 2 --mem "$mem" --logits all --trace tr <in >got 2>/dev/null || continue
	[ "$(last tr trunk_kept)" -gt 0 ] || continue
	low=$mem
	break
done
ok "$([ -n "$low" ]; echo $?)" "with less, blocks of the trunk are kept from one tile to the next: at $low"
same want got 'the same logits'
for t in 1 2 5; do
	for more in 0 300000 600000; do
		mem=$((low + more + 300000 * t))
		"$python" "$top/tests/cmd/peak.py" peak k3-step -t $t --mem $mem --logits all --trace tr <in >got
		same want got "$t threads, $mem bytes: the same logits"
		is "$(last tr expert_bytes)" "$experts" 'each expert once'
		if [ -z "$san" ]; then
			ok "$([ "$(cat peak)" -le $mem ]; echo $?)" "a peak of $(cat peak) bytes"
		fi
		ok "$([ "$(last tr trunk_kept)" -gt 0 ] && [ "$(last tr trunk_bytes)" -lt $((trunk * 11 / 10)) ]; echo $?)" \
			"and the trunk: $(last tr trunk_kept) kept, $(last tr trunk_bytes) read, of $trunk"
	done
done
k3-step -t 2 -b all <lines >want1
k3-step -t 2 -b all --mem $((low + 1500000)) --trace tr <lines >got
same want1 got 'sixty-four sequences: the same logits'
ok "$([ "$(last tr trunk_kept)" -gt 0 ]; echo $?)" 'in tiles'
k3-step -t 2 --trunk none --mem $((low + 1500000)) --logits all --trace tr <in >got
same want got 'a trunk from the shards'
ok "$([ "$(last tr trunk_kept)" -gt 0 ]; echo $?)" 'in tiles'
{ head -n 60 lines | tr '\n' ' '; echo; } >short
k3-step -t 2 --mem $((low + 600000)) --logits none --trace tr <short
is "$(last tr trunk_kept)" 0 'sixty tokens are too few for that'
k3-step -t 2 --until 4 -s s --mem $((low + 1500000)) <in
k3-step -t 2 -s s --mem $((low + 1500000)) --logits all </dev/null >got
same want got 'a pass that stops in front of layer 4 and goes on'
{ cat in; echo 9; } >two
k3-step -t 2 <two >want2
k3-step -t 2 --mem $((low + 1500000)) <two >got
same want2 got 'a long round and a short one behind it'

# ---- many tiles, and a part of the trunk that is to stay ----
cat in in | tr '\n' ' ' >four
{ cat four; echo; } >long
{ cat long long; } >rounds
k3-step -t 2 -b 1 --logits all <rounds >want4
for more in 3000000 4000000 5000000; do
	k3-step -t 2 --mem $((low + more)) --logits all --trace tr <rounds >got
	same want4 got 'two rounds of four tiles'
	tail -n 1 tr | jq -r .trunk_bytes >second
	jq 'select(.event == "round" and .round == 0).trunk_bytes' tr >first
	ok "$([ "$(last tr trunk_kept)" -gt 0 ] && [ "$(cat first)" -lt $((trunk * 11 / 10)) ] &&
		[ "$(cat second)" -lt "$(cat first)" ]; echo $?)" \
		"the first reads each block once, $(cat first) of $trunk, the second fewer: $(cat second)"
done

# ---- what is read when, and what if it cannot be ----
K3_READS=$tmp/reads LD_PRELOAD=$shim k3-step -t 2 --logits none --mem $((low + 1500000)) <in 2>/dev/null
if [ -n "$san" ] || [ ! -s reads ]; then
	skip 'reads, and faults of a disk' 'nothing can be preloaded here'
	plan
fi
# of all layers the experts, as they begin to be read
"$python" - m reads >order <<'EOF'
import glob, json, sys
place = []
for path in glob.glob(sys.argv[1] + '/*.safetensors'):
    with open(path, 'rb') as f:
        n = int.from_bytes(f.read(8), 'little')
        for name, t in json.loads(f.read(n)).items():
            if '.w2.weight_packed' in name:
                layer, expert = name.split('.')[3], name.split('.')[6]
                place.append((path.split('/')[-1], 8 + n + t['data_offsets'][0], int(layer), int(expert)))
began, whole = {}, {}
for line in open(sys.argv[2]):
    path, at, size = line.rsplit(maxsplit=2)
    for shard, offset, layer, expert in place:
        if path.endswith(shard) and int(at) <= offset < int(at) + int(size):
            if expert not in began.setdefault(layer, []):
                began[layer].append(expert)
            # of three matrices of 8704 bytes the second one begins here
            if int(at) <= offset - 8704 and offset + 2 * 8704 <= int(at) + int(size):
                whole.setdefault(layer, []).append(expert)
for layer, experts in sorted(began.items()):
    print(layer, 'in order' if experts == sorted(experts) else 'ahead', len(experts), len(whole.get(layer, [])))
EOF
is "$(wc -l <order)" 8 'eight layers with experts'
# they are used by rising number: only what is read ahead comes before a lower one
ok "$(grep -q ahead order; echo $?)" "experts come before lower ones that only later tiles need: in $(grep -c ahead order) layers"
ok "$(awk '$2 == "ahead" && !$NF { bad = 1 } END { exit bad }' order; echo $?)" 'which are one piece on the disk, and one read'
expert=$(jq 'select(.event == "route" and .layer == 5 and .position == 0).experts[0]' all.tr)
place=$(tensor m "language_model.model.layers.5.block_sparse_moe.experts.$expert.w3.weight_packed")
shard=${place%:*} at=${place#*:}
for what in eio eof short stall; do
	K3_FAULT=$place:$((at + 9000)):$what LD_PRELOAD=$shim timeout 60 \
		k3-step -t 2 --mem $((low + 1500000)) --logits all <in >got 2>err
	s=$?
	case $what in
	short | stall)
		is "$s,$(cmp want got),$(cat err)" 0,, "$what: the same logits"
		;;
	*)
		is "$s,$(wc -c <got),$(wc -l <err)" 1,0,1 "$what: status 1, no record, one line"
		ok "$(grep -q "$shard: .*offset" err; echo $?)" "with the file and the offset: $(cat err)"
		;;
	esac
done
for b in 0 1000 4000; do
	K3_FAULT=$shard:$((at + b)):$((at + b + 1)):flip LD_PRELOAD=$shim timeout 60 \
		k3-step -t 2 --mem $((low + 1500000)) --logits all <in >got 2>err
	is "$?,$(wc -c <got)" 1,0 'a flipped bit of an expert: no record'
	ok "$(grep -q "layer 5 expert $expert differs from its sum" err; echo $?)" "and it is named: $(cat err)"
done
plan
