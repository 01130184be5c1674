#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step: rounds whose residual streams do not fit into memory go through a file, with the same bits.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
cd "$tmp" || exit 1
K3_MODEL=$tmp/m
export K3_MODEL
cp -r "$demo" m
chmod -R u+w m
rm -f m/model.k3t
k3-index m >index.out
mkdir t
TMPDIR=$tmp/t
export TMPDIR
shim=${K3_BUILD:-$top/build}/shim/pread.so
san=
grep -q __asan_init "$(command -v k3-step)" && san=yes

# lines LINES IDS: so many lines of so many ids
lines() {
	awk -v lines="$1" -v ids="$2" 'BEGIN { s = 7
		for (l = 0; l < lines; l++)
			for (i = 0; i < ids; i++) {
				s = (s * 1103515 + 12345) % 2147483
				printf "%d%s", int(s / 7) % 512, i + 1 < ids ? " " : "\n"
			} }'
}
# least ARGUMENTS...: the memory without which a round of the lines in `in` is refused
least() {
	floor=$(k3-step --plan "$@" | jq .floor)
	k3-step "$@" --mem "$floor" <in 2>&1 >out | sed -n 's/.*take \([0-9]*\) bytes.*/\1/p'
}

# ---- all that a round can bring and give, at several sizes ----
lines 40 9 >in
low=$(least -t 2 -b all --logits all --tap resid@0:9=x)
ok "$([ "$low" -gt 18000000 ]; echo $?)" "the least memory is named: $low"
k3-step -t 2 -b all --logits all --tap resid@0:9=tapwant <in >want
for more in 0 200000 1000000 2000000; do
	for t in 1 2 5; do
		k3-step -t $t -b all --mem $((low + more + 200000 * (t - 1))) --logits all --tap resid@0:9=tapgot <in >got
		ok $? "forty lines with $more bytes more than the least, $t threads"
		same want got 'the same logits'
		same tapwant tapgot 'the same residual streams'
	done
done
k3-step -t 2 -b all --layers :5 <in >want
k3-step -t 2 -b all --layers :5 --mem $((low + 500000)) <in >got
same want got 'residual streams at a cut'
k3-step -t 2 -b all --layers 5: --logits all <want >whole
k3-step -t 2 -b all --layers 5: --logits all --mem $((low + 8000000)) <want >got
same whole got 'which go on from there'
k3-step -t 2 -b all --score <in >want
k3-step -t 2 -b all --score --mem $((low + 200000)) <in >got
same want got 'scores'
{ sed -n 1p in; echo; sed -n 2,3p in; echo; echo; sed -n 4,40p in; echo; } >gaps
k3-step -t 2 -b all --tap resid@kda=tapwant <gaps >want
k3-step -t 2 -b all --tap resid@kda=tapgot --mem $((low + 400000)) <gaps >got
same want got 'lines without ids between them'
same tapwant tapgot 'in taps too'
is "$(ls t)" '' 'no file is left'
k3-step -t 2 -b all <in >want
TMPDIR=$tmp/nowhere k3-step -t 2 -b all --mem $((low + 90000000)) <in >got
same want got 'what fits into memory asks for no file'
TMPDIR=$tmp/nowhere k3-step -t 2 -b all --mem $((low + 400000)) <in >got 2>err
is "$?,$(wc -c <got)" 1,0 'a directory that is not there'
is "$(cat err)" "k3-step: $tmp/nowhere: no temporary file: No such file or directory" 'is told, so a file it was'

# ---- a long prompt, its state in a file, that is stopped and goes on in another process ----
lines 1 700 >in
low=$(least -t 2 -s s)
k3-step -t 2 --logits all <in >want
k3-step -t 2 -s s --until 4 --mem $((low + 400000)) <in
ok $? 'seven hundred ids as far as layer 4'
# the stream that the state brings is in memory as a whole
brought=4000000
cp s s2
k3-step -t 2 -s s --logits all --mem $((low + brought)) </dev/null >got
ok $? 'and to the end'
same want got 'the same logits'
lines 1 300 >in2
k3-step -t 2 -s u --until 6 <in2
cp u u2
k3-step -t 2 --logits all <in2 >>want
k3-step -t 3 -s s2 -s u --logits all --mem $((low + 2 * brought)) </dev/null >got
ok $? 'two sequences that were stopped in front of layers 4 and 6'
same want got 'the same logits'
k3-step -t 3 -s u2 --logits all </dev/null >got
k3-step -t 3 -s u2 --again </dev/null >again
k3-step -t 3 -s u --again </dev/null >got
same again got 'and the same state'

# ---- a prompt of 8192 ids: each layer and each expert passes once ----
if [ -n "$san" ]; then
	skip '8192 ids' 'too slow with sanitizers'
else
	lines 1 8192 >long
	k3-step -t 2 --mem 200M --trace trace <long >got
	ok $? '8192 ids in 200 MB'
	k3-index -j m >m.json
	jq -s -e --slurpfile i m.json '[.[] | select(.event == "layer") | . as $l |
		.trunk_bytes + .trunk_kept == $i[0].layers[.layer].trunk_bytes and
		.expert_bytes + .expert_kept == .experts * $i[0].expert.bytes] | length == 9 and all' trace >out
	ok $? 'pass through each layer and each expert once'
	{ cut -d ' ' -f -5000 long; cut -d ' ' -f 5001- long; } | k3-step -t 2 --mem 64M --logits none -s p
	k3-step -s p --again </dev/null >again
	same got again 'and are the same in two lines, in 64 MB'
fi

# ---- what the file may do ----
lines 40 9 >in
low=$(least -t 2 -b all)
if mkdir small && mount -t tmpfs -o size=64k none small 2>/dev/null; then
	TMPDIR=$tmp/small k3-step -t 2 -b all --mem $((low + 400000)) <in >got 2>err
	is "$?,$(wc -c <got)" 1,0 'a full disk'
	ok "$(grep -qxE "k3-step: $tmp/small: offset [0-9]+: No space left on device" err; echo $?)" 'is told in one line'
	umount small
else
	ok 0 'a full disk # SKIP no mount'
	ok 0 'is told # SKIP no mount'
fi
# its bytes change while the program waits for a disk that stalls
if [ -n "$san" ]; then
	skip 'bytes of the file that changed' 'nothing can be preloaded here'
	plan
fi
K3_FAULT=00002-of-000002.safetensors:0:99999999999:stall LD_PRELOAD=$shim \
	k3-step -t 2 -b all --mem $((low + 400000)) <in >got 2>err &
pid=$!
fd=
for i in $(seq 100); do
	fd=$(find /proc/$pid/fd -lname "$tmp/t/#*" 2>/dev/null | head -n 1)
	[ -n "$fd" ] && break
	sleep 0.1
done
sleep 1
[ -n "$fd" ] && for at in $(seq 0 8192 400000); do
	printf XXXX | dd of="$fd" bs=1 seek=$((at + 1000)) conv=notrunc 2>/dev/null
done
wait $pid
is "$?,$(wc -c <got)" 1,0 'bytes of the file that changed'
ok "$(grep -qxE "k3-step: $tmp/t: a temporary file: offset [0-9]+: what was written there is not what is read" err; echo $?)" \
	'are told with their place'
plan
