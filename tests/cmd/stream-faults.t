#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step on a disk with faults, and on files that are wrong or change: a sentence that names the place, or the same bits.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
cd "$tmp" || exit 1
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
record=8320	# bytes of one with a row of the demo
cp -r "$demo" m
chmod -R u+w m
rm -f m/*.k3i
k3-index m >/dev/null	# of these very files, so that nobody reads them again to know them
k3-pack -o m.k3t m >/dev/null
floor=$(k3-step -m m --trunk m.k3t -t 3 --plan | jq .floor)
small=$((floor + 300000)) large=$((floor + 30000000))
bare=$((floor + 20000))	# enough for a round of three ids, but for no block of the trunk to stay
printf '5 6 7\n8\n' >in
k3-step -m m --trunk none <in >want

san=
grep -q __asan_init "$(command -v k3-step)" && san=yes
shim=${K3_BUILD:-$top/build}/shim/pread.so
K3_FAULT=.safetensors:0:99999999999:eio LD_PRELOAD=$shim timeout 20 k3-step -m m <in >out 2>err
s=$?
if [ -z "$san" ] && [ $s -eq 1 ] && ! grep -q 'ld.so' err; then
	preload=yes
else
	preload=
	skip 'faults of a disk' 'nothing can be preloaded here'
fi

# block FILE SECTION NUMBER [BYTE]: like tensor, of a block of a trunk file
block() {
	"$python" - "$@" <<'EOF'
import struct, sys
b, section, number = open(sys.argv[1], 'rb').read(), int(sys.argv[2]), int(sys.argv[3])
at, = struct.unpack_from('<Q', b, 48 + 16 * section)
assert number < struct.unpack_from('<I', b, at + 8)[0]
unit, _ = struct.unpack_from('<II', b, at + 24 + 16 * number)
print(sys.argv[1], at + 64 * unit + int((sys.argv + ['0'])[4]), sep=':')
EOF
}
# Of a matrix of the trunk, one that is multiplied as it is decoded and one that is decoded before, and of the head:
# bytes of codes, of mantissas and of escapes that can change and leave blocks with nothing wrong but their sums.
for name in model.layers.5.self_attn.q_proj.weight model.layers.3.self_attn.kv_b_proj.weight/keys lm_head.weight; do
	"$python" "$top/tests/cmd/trunk.py" m.k3t m places $name >places
	for kind in code mantissa escape; do
		echo "${name%/keys} $kind $(sed -n "s/^$kind //p" places) $(sed -n 's/^block //p' places)"
	done
done >inside
is "$(grep -Ec '^[a-z_0-9.]+ [a-z]+ [0-9]+ [0-9]+$' inside)" 9 'places inside coded blocks'
# told NAME BLOCK: the sentence of a block whose sum is wrong
told() {
	echo "offset $2: language_model\\.$(echo "$1" | sed 's/\./\\./g'), rows 0 to [0-9]+: the checksum is wrong\$"
}
# faulty WHAT PLACE COMMAND...: PLACE is FILE:OFFSET
faulty() {
	fault=$2:$((${2##*:} + 1)):$1
	shift 2
	K3_FAULT=$fault LD_PRELOAD=$shim timeout 30 "$@"
}
# each FUNCTION: for threads and budgets
each() { among "$small" "$@"; }
# among LEAST COMMAND...: with the budget LEAST and the large one
among() {
	least=$1
	shift
	for t in 1 3; do
		for mem in $least $large; do
			"$@"
		done
	done
}
# refusal STATUS PATTERN: adds to $wrong what is not status 1, no record, and a line like that
refusal() {
	[ "$1,$(wc -l <err),$(wc -c <got)" = 1,1,0 ] && grep -Eq "$2" err ||
		wrong="$wrong [$t threads, $mem: status $1, $(cat err)]"
}

# ---- reads that fail ----
layer=language_model.model.layers
expert=$(echo 5 | k3-step -m m --logits none --trace /dev/stdout | jq -r 'select(.event == "route" and .layer == 4) | .experts[1]')
e=$layer.4.block_sparse_moe.experts.$expert
# broken WHAT PLACE TRUNK
broken() {
	faulty "$1" "$2" k3-step -m m --trunk "$3" -t $t --mem "$mem" <in >got 2>err
	s=$?
	[ "$s,$(wc -l <err),$(wc -c <got)" = 1,1,0 ] && grep -Eq "^k3-step: .*${2%%:*}: .*offset [0-9]+" err ||
		wrong="$wrong [$t threads, $mem: status $s, $(cat err)]"
}
if [ -n "$preload" ]; then
	for what in eio once eof; do
		for place in "$(block m.k3t 0 0):m.k3t" "$(block m.k3t 3 20 30):m.k3t" "$(block m.k3t 9 5):m.k3t" \
			"$(tensor m $layer.0.self_attn.q_proj.weight 5000):none" "$(tensor m $layer.3.input_layernorm.weight 9):none" \
			"$(tensor m $e.w1.weight_packed):m.k3t" "$(tensor m $e.w2.weight_scale):none" \
			"$(tensor m $e.w3.weight_packed 100):m.k3t" \
			"$(tensor m language_model.lm_head.weight 700000):none" \
			"$(tensor m language_model.model.embed_tokens.weight $((6 * 384))):m.k3t"; do
			wrong=
			each broken $what "${place%:*}" "${place##*:}"
			is "$wrong" '' "$what at $place: status 1, a line with file and offset, no record"
		done
	done

	# whole FILE:FROM:TO:WHAT TRUNK LINES: and these do not matter, but for so many lines of warning
	whole() {
		K3_FAULT=$1 LD_PRELOAD=$shim timeout 30 k3-step -m m --trunk "$2" -t $t --mem "$mem" <in >got 2>err
		s=$?
		[ $s -eq 0 ] && cmp -s want got && [ "$(wc -l <err)" -eq "$3" ] ||
			wrong="$wrong [$t threads, $mem: status $s, $(cat err)]"
	}
	for file in .safetensors:none .safetensors:m.k3t m.k3t:m.k3t; do
		wrong=
		each whole "${file%:*}:0:99999999999:short" "${file#*:}" 0
		is "$wrong" '' "short reads of ${file%:*}, trunk ${file#*:}: the same bits"
		wrong=
		each whole "${file%:*}:0:99999999999:direct" "${file#*:}" 1
		is "$wrong,$(grep -c "${file%:*}: direct reads are refused" err)" ',1' \
			"direct reads of ${file%:*} refused, trunk ${file#*:}: the same bits, and one line says so"
	done
	t=2 mem=$small wrong='' began=$(date +%s)
	whole "m.k3t:900000:1000000:stall" m.k3t 0
	whole ".safetensors:700000:900000:stall" none 0
	is "$wrong,$(($(date +%s) - began >= 4))" ,1 'a disk that stalls'

	# only in the second round: what was written stays, and a state stays at the first
	for t in 1 3; do
		for place in "$(block m.k3t 4 12)" "$(tensor m language_model.model.embed_tokens.weight $((8 * 384)))"; do
			rm -f now s
			r=$(K3_FAULT_WHEN=now faulty eio "$place" "$python" "$top/tests/cmd/midrun.py" 'touch now' \
				k3-step -m m --trunk m.k3t -t $t --mem "$small" -s s)
			is "$r,$(wc -l <err)" "1 $record,1" "a read fails in the second round, $t threads: the first has its record"
			head -c $record want >first
			same first got 'as it must be'
			if [ "$(k3-stat -j s | jq .pending)" -gt 0 ]; then
				k3-step -m m -s s --trunk none </dev/null >got
			else
				echo 8 | k3-step -m m -s s --trunk none >got
			fi
			tail -c $record want >second
			same second got 'and the state goes on where it was'
		done
	done

	# ---- a signal while a disk hangs ----
	mkdir scratch
	head -n 1 in | k3-step -m m --trunk none --logits none -s before
	cp before s
	next=$(tail -n 1 in | k3-step -m m --trunk none --logits none -s s --trace /dev/stdout |
		jq -r 'select(.event == "route" and .layer == 4) | .experts[1]')
	rm -f now
	touch stopped meant
	ls >files
	# ended SIGNAL NUMBER PLACE STATE: it dies by the signal, and leaves one record and the state; the
	# next process comes to the records and to the state of an undisturbed run
	ended() {
		rm -f s
		r=$(TMPDIR=$tmp/scratch K3_FAULT_WHEN=now faulty hang "$3" "$python" "$top/tests/cmd/signalled.py" "$1" \
			"$4" k3-step -m m --trunk m.k3t -t $t --mem "$small" -s s)
		is "$r,$(cat err)" "-$2 $record at once," "$1 in mid-round, $t threads, state $4: it ends at once, without a word"
		head -c $record want >first
		same first got 'behind the record of the first round'
		is "$(ls | diff files -),$(ls scratch)" , 'and no file stays behind'
		k3-stat -j s | jq 'del(.commits, .file)' >stopped
		cp before s2
		case $4 in
		'3 '*) ;;
		*' 0 '*) tail -n 1 in | k3-step -m m --trunk none -s s2 --logits none ;;
		*) tail -n 1 in | k3-step -m m --trunk none -s s2 --until "${4##* }" ;;
		esac
		k3-stat -j s2 | jq 'del(.commits, .file)' >meant
		same meant stopped 'the state is that of a run that was stopped there on purpose'
		rm s2
		case $4 in
		'3 '*) tail -n 1 in | k3-step -m m --trunk none -s s >got ;;
		*' 0 '*) k3-step -m m --trunk none -s s --again </dev/null >got ;;
		*) k3-step -m m --trunk none -s s </dev/null >got ;;
		esac
		tail -c $record want >second
		same second got 'and it goes on to the same bits'
	}
	for t in 1 3; do
		while read -r name number; do
			ended "$name" "$number" "$(tensor m language_model.model.embed_tokens.weight $((8 * 384)))" '3 0 9'
			ended "$name" "$number" "$(block m.k3t 4 12)" '4 1 4'
			ended "$name" "$number" "$(tensor m $layer.4.block_sparse_moe.experts.$next.w3.weight_packed)" '4 1 4'
			ended "$name" "$number" "$(block m.k3t 9 5)" '4 0 9'
		done <<-EOF
			SIGTERM 15
			SIGINT 2
			SIGHUP 1
		EOF
	done

	# ---- a bit that changes on its way ----
	cp -r m sums
	rm -f sums/*.k3i
	k3-index --sum sums >/dev/null
	for t in 1 3; do
		k3-step -m sums --trunk m.k3t -t $t --mem "$large" <in >got
		same want got "an index with sums, $t threads: the same bits"
	done
	# flipped PLACE TRUNK MODEL PATTERN
	flipped() {
		faulty flip "$1" k3-step -m "$3" --trunk "$2" -t $t --mem "$mem" <in >got 2>err
		refusal $? "$4"
	}
	row=$(head -n 1 in | cut -d' ' -f1)
	while read -r text place trunk model pattern; do
		wrong=
		each flipped "$place" "$trunk" "$model" "$pattern"
		is "$wrong" '' "a bit of $text: refused, with its name"
	done <<EOF
a_coded_block $(block m.k3t 3 20 200) m.k3t m m\\.k3t:.offset.[0-9]+:.$layer\\.3\\..*rows.[0-9]+.to.[0-9]+:.the.checksum
the_head_of_a_block $(block m.k3t 1 18 3) m.k3t m m\\.k3t:.offset.[0-9]+:.$layer\\.1\\..*rows.[0-9]+.to.[0-9]+:.the.checksum
a_vector $(block m.k3t 5 4 7) m.k3t m m\\.k3t:.offset.[0-9]+:.$layer\\.5\\.input_layernorm
the_last_block $(block m.k3t 9 18 90) m.k3t m m\\.k3t:.offset.[0-9]+:.language_model\\.lm_head
codes_of_an_expert $(tensor sums $e.w1.weight_packed 77) m.k3t sums sums:.layer.4.expert.$expert.differs.from.its.sum
scales_of_an_expert $(tensor sums $e.w3.weight_scale 3) m.k3t sums sums:.layer.4.expert.$expert.differs.from.its.sum
a_row_of_the_embedding $(tensor sums language_model.model.embed_tokens.weight $((row * 384 + 5))) m.k3t sums sums:.row.$row.of.the.embedding.differs.from.its.sum
its_last_matrix $(tensor sums $e.w2.weight_packed 1000) none sums sums:.layer.4.expert.$expert.differs.from.its.sum
EOF
	while read -r name kind at block; do
		wrong=
		among "$bare" flipped "m.k3t:$at" m.k3t m "^k3-step: .*m\\.k3t: $(told $name "$block")"
		is "$wrong" '' "a bit of a byte of ${kind}s of $name, at $at: refused, with block and name"
	done <inside
	t=2 mem=$large
	faulty flip "$(tensor m $e.w1.weight_packed 77)" k3-step -m m --trunk m.k3t <in >got 2>err
	is "$?,$(cat err)" 0, 'an expert without a sum is believed'
	! cmp -s got want
	ok $? 'so a bit of it does change records'
fi

# ---- files ----
tiny other --seed 7
k3-pack -o other.k3t other >/dev/null
fails 1 'other\.k3t: .*another model' 'a trunk file of another model' k3-step -m m --trunk other.k3t <in
fails 1 'no-such\.k3t' 'one that is not there' k3-step -m m --trunk no-such.k3t <in
fails 1 'm/config\.json: ' 'one that is none' k3-step -m m --trunk m/config.json <in
fails 1 ': ' 'a directory' k3-step -m m --trunk m <in
# changed OFFSET: bad.k3t with another byte there
changed() {
	cp m.k3t bad.k3t
	"$python" -c 'import sys
f = open("bad.k3t", "r+b"); f.seek(int(sys.argv[1])); b = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([b ^ 4]))' "$1"
}
wrong=
at=$(k3-stat -j m.k3t | jq '.sections[4].offset')
for byte in 0 8 12 16 31 32 36 40 47 48 60 150 207 208 215 $at $((at + 8)) $((at + 12)) $((at + 16)) $((at + 24)) \
	$((at + 39)) $((at + 100)); do
	changed "$byte"
	for mem in $small $large; do
		timeout 20 k3-step -m m --trunk bad.k3t --mem "$mem" <in >got 2>err
		[ "$?,$(wc -l <err),$(wc -c <got),$(grep -c 'bad\.k3t' err)" = 1,1,0,1 ] || wrong="$wrong $byte"
	done
done
is "$wrong" '' 'any byte of the head and of a directory'
changed 8
fails 1 'bad\.k3t: .*version' 'another version is named' k3-step -m m --trunk bad.k3t <in
for at in "$(block m.k3t 2 3 1)" "$(block m.k3t 6 22 70)" "$(block m.k3t 9 18 70)"; do
	changed "${at##*:}"
	fails 1 'bad\.k3t: offset [0-9]+: language_model\..*the checksum is wrong' "a byte of a block, at ${at##*:}" \
		timeout 20 k3-step -m m --trunk bad.k3t --mem "$small" -t 3 <in
	is "$(wc -c <fails.out)" 0 'and no record'
done
# spoiled PATTERN: a run with what `changed` made
spoiled() {
	timeout 30 k3-step -m m --trunk bad.k3t -t $t --mem "$mem" <in >got 2>err
	refusal $? "$1"
}
while read -r name kind at block; do
	changed "$at"
	wrong=
	among "$bare" spoiled "^k3-step: bad\\.k3t: $(told $name "$block")"
	is "$wrong" '' "a byte of ${kind}s of $name, at $at: status 1, a line with block and name, no record"
done <inside
wrong=
size=$(wc -c <m.k3t)
for cut in 0 7 8 47 48 100 4096 65535 65536 $((size / 2)) $((size - 65536)) $((size - 1)); do
	head -c "$cut" m.k3t >bad.k3t
	timeout 20 k3-step -m m --trunk bad.k3t --mem "$small" <in >got 2>err
	[ "$?,$(wc -l <err),$(wc -c <got),$(grep -c 'bad\.k3t' err)" = 1,1,0,1 ] || wrong="$wrong $cut"
done
is "$wrong" '' 'cut anywhere'
cat m.k3t in >bad.k3t
fails 1 'bad\.k3t' 'or with more behind its end' k3-step -m m --trunk bad.k3t <in

# ---- files that change in mid-run ----
head -c $record want >first
mid() { "$python" "$top/tests/cmd/midrun.py" "$@"; }
for t in 1 3; do
	cp m.k3t cut.k3t
	r=$(mid 'truncate -s 900000 cut.k3t' k3-step -m m --trunk cut.k3t -t $t --mem "$small")
	is "$r,$(wc -l <err)" "1 $record,1" "a trunk file that is cut, $t threads: status 1 after one record"
	grep -Eq 'cut\.k3t: the file ends at or before offset [0-9]+' err
	ok $? 'with file and offset'
	cp m.k3t cut.k3t
	r=$(mid 'truncate -s 0 cut.k3t' k3-step -m m --trunk cut.k3t -t $t --mem "$large")
	is "$r,$(cat err)" "0 $((2 * record))," 'which nobody notices if all of it is in memory'
	same want got 'and the bits are the same'
	cp m.k3t cut.k3t
	r=$(mid 'cp other.k3t new.k3t && mv new.k3t cut.k3t' k3-step -m m --trunk cut.k3t -t $t --mem "$small")
	is "$r,$(cat err)" "0 $((2 * record))," 'another file under its name'
	same want got 'and the old one goes on being read'
	cp m.k3t cut.k3t
	r=$(mid 'dd if=/dev/zero of=cut.k3t bs=65536 seek=20 count=20 conv=notrunc 2>/dev/null' \
		k3-step -m m --trunk cut.k3t -t $t --mem "$small")
	is "$r,$(wc -l <err),$(grep -c 'cut\.k3t: offset [0-9]*: .*the checksum is wrong' err)" "1 $record,1,1" \
		'and one that is written to'
done
is "$(k3-step -m m --trunk m.k3t -t 3 --mem "$bare" --plan | jq .parts.pinned)" 0 'where no block stays in memory'
while read -r name kind at block; do
	changed "$at"
	change="dd if=bad.k3t of=cut.k3t bs=1 skip=$at seek=$at count=1 conv=notrunc 2>/dev/null"
	cp m.k3t cut.k3t
	r=$(mid "$change" k3-step -m m --trunk cut.k3t -t 3 --mem "$bare")
	is "$r,$(wc -l <err),$(grep -Ec "^k3-step: cut\\.k3t: $(told $name "$block")" err)" "1 $record,1,1" \
		"a byte of ${kind}s of $name that changes between two rounds: one record, and a line"
	same first got 'which is that of the first round'
	cp m.k3t cut.k3t
	r=$(mid "$change" k3-step -m m --trunk cut.k3t -t 3 --mem "$large")
	is "$r,$(cat err)" "0 $((2 * record))," 'and nobody notices where blocks stay in memory'
	same want got 'which are as they were'
done <inside
cp -r m m2
r=$(mid 'truncate -s 500000 m2/model-00002-of-000002.safetensors' k3-step -m m2 --trunk m.k3t --mem "$small")
is "$r,$(wc -l <err)" "1 $record,1" 'a shard that is cut, of which experts are read'
grep -Eq 'm2/model-00002-of-000002\.safetensors: .*offset [0-9]+' err
ok $? 'with file and offset'
for t in 1 3; do
	cp -r m m3
	r=$(mid 'truncate -s 0 m3/model.k3i' k3-step -m m3 --trunk m.k3t --mem "$small" -t $t)
	is "$r,$(wc -l <err)" "1 $record,1" "an index that is cut, $t threads"
	grep -q '^k3-step: a mapped file, most likely the index, .* cut short' err
	ok $? 'which is told, for all that the system does is to send a signal'
	rm -r m3
done
# shellcheck disable=SC2016 # the inner shell's
r=$(mid 'kill -BUS "$(cat pid)"' sh -c 'echo $$ >pid && exec k3-step -m m')
is "$r,$(cat err)" "-7 $record," 'that signal from elsewhere kills without a word of files'
pids=
for i in 1 2 3; do
	timeout 60 k3-step -m m --trunk m.k3t --mem "$small" -t $i <in >"got$i" 2>"err$i" &
	pids="$pids $!"
done
i=0
for pid in $pids; do
	i=$((i + 1))
	wait "$pid"
	is "$?,$(cat err$i)" 0, "three processes on the same files at the same time: number $i ends well, without a word"
	same want got$i 'and with the same bits'
done

# ---- no memory ----
cp in lines
seq 60 | paste -s -d ' ' - >in
k3-step -m m --trunk m.k3t <in >wide
wrong='' refused=0 done=0
if [ -z "$san" ]; then
	for kb in 1000 4000 8000 $(seq 10000 1500 40000) $(seq 42000 6000 120000) 200000 400000; do
		# shellcheck disable=SC3045 # dash has it, too
		(ulimit -v "$kb" && exec timeout 20 k3-step -m m --trunk m.k3t -t 2) <in >got 2>err
		s=$?
		case $s in
		0) cmp -s wide got && done=$((done + 1)) || wrong="$wrong [$kb: other bits]" ;;
		1) [ "$(wc -l <err),$(wc -c <got)" = 1,0 ] && refused=$((refused + 1)) || wrong="$wrong [$kb: $(head -3 err)]" ;;
		*) grep -Eq 'shared|libc|ld\.so|timeout: ' err || wrong="$wrong [$kb: status $s, $(head -3 err)]" ;;
		esac
	done
	is "$wrong" '' 'whatever the limit of the address space, an end with a sentence or the same bits'
	ok "$([ $refused -gt 2 ] && [ $done -gt 2 ]; echo $?)" "both happen: $refused times and $done times"
	# shellcheck disable=SC3045
	(ulimit -v 300000 && exec k3-step -m m --mem 400M) <in >got 2>err
	is "$?,$(grep -c 'more than the limit of the address space has' err)" 1,1 'a budget above that limit is refused'
fi
group=$(sed -n 's|^[0-9]*:memory:|/sys/fs/cgroup/memory|p' /proc/self/cgroup 2>/dev/null)/k3test.$$
if [ -z "$san" ] && [ "${group%%/k3*}" ] && mkdir "$group" 2>/dev/null; then
	if echo 67108864 >"$group/memory.limit_in_bytes" 2>/dev/null; then
		in_group() { sh -c 'echo $$ >"$0/cgroup.procs" && exec timeout 20 "$@"' "$group" "$@"; }
		in_group k3-step -m m --mem 100M <in >got 2>err
		is "$?,$(grep -c 'more than the control group has, which are 67108864' err)" 1,1 \
			'a budget above that of the control group is refused'
		in_group k3-step -m m --trunk m.k3t <in >got 2>err
		is "$?,$(cat err)" 0, 'and without one it is kept'
		same wide got 'with the same bits'
		in_group k3-step -m m --plan >out
		ok "$([ "$(jq .memory out)" -lt 67108864 ]; echo $?)" 'the plan knows of it'
	else
		skip 'control groups' 'this one takes no limit'
	fi
	rmdir "$group"
else
	skip 'control groups' 'none can be made here'
fi
mv lines in

# ---- ends ----
mkdir bin
cat >bin/k3-step <<EOF
#!/bin/sh
exec '$(command -v k3-step)' --mem $small --trunk '$tmp/m.k3t' -t 2 "\$@"
EOF
chmod +x bin/k3-step
is "$(PATH=$tmp/bin:$PATH K3_MODEL=m timeout 60 "$python" "$top/tests/reference/kill.py" 12)" ok \
	'killed in mid-layer at a small budget, the state goes on to the same bits'
for mem in $small $large; do
	{ yes 5 | timeout 20 k3-step -m m --trunk m.k3t --mem "$mem" 2>err; echo $? >status; } | head -c 100000 >/dev/null
	is "$(cat status),$(cat err)" 141, 'a reader that goes away ends it'
done
plan
