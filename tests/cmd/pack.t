#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-pack: trunk files against a reader of its own in Python, and everything that can be wrong with them.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
reader=$top/tests/cmd/trunk.py
patch() { python3 "$top/tests/reference/patch.py" "$@"; }
cd "$tmp" || exit 1

# nothing_left TEXT: no temporary file in this directory
nothing_left() { is "$(find . -name '*.k3t.*')" "" "$1"; }

# ---- what is written ----

# whole FILE MODEL TEXT: the reader understands it, and k3-stat says the same of it
whole() {
	"$python" "$reader" "$1" "$2" >read.out 2>read.err
	ok $? "$3: every sum, offset and weight is right by the page"
	sed 's/^/# /' read.err
	is "$(cut -d ' ' -f 1,2 read.out) $(awk '{ print $3 + $4 + $5 }' read.out)" \
		"$(k3-stat -j "$1" | jq -r '"\(.model) \(.sections | length) \(.blocks)"')" "$3: and k3-stat agrees"
	k3-pack --verify -o "$1" "$2" >out 2>err
	is "$?,$(cat out err)" "0,$1: all tensors are those of the checkpoint" "$3: and --verify"
}

k3-pack -o demo.k3t "$demo" >out 2>err
is "$?,$(cat err)" "0," "the demo is packed"
is "$(cat out)" "demo.k3t: 4456448 bytes for 5353088 in the checkpoint (0.833)" "the report"
whole demo.k3t "$demo" "the demo"
is "$(k3-stat -j demo.k3t | jq '.plain_bytes == (.sections | map(.plain_bytes) | add) and
	.coded_bytes == (.sections | map(.coded_bytes) | add) and .bytes == 4456448 and .ratio < .78')" true "its sums in k3-stat"
is "$(k3-stat demo.k3t | sed -n '1p; $p' | tr -s ' ')" \
	"demo.k3t: trunk file
 9 3801088 19 607145 787584 0.771" "k3-stat as a table"
for t in 1 2 3 16; do
	k3-pack -t $t -o "t$t.k3t" "$demo" >out
	same demo.k3t "t$t.k3t" "$t threads write the same bytes"
	rm "t$t.k3t"
done

# odd shapes: short last blocks, rows of a long chunk, whole ends and a part of one
odd() {
	tiny "$@" --set hidden_size=690 --set vocab_size=1111 --set intermediate_size=333 --set qk_nope_head_dim=9 \
		--set qk_rope_head_dim=5 --set v_head_dim=7 --set num_attention_heads=3 \
		--set num_key_value_heads=3 --set q_lora_rank=21 \
		--set kv_lora_rank=17 --set num_heads=5 --set head_dim=11 --set num_hidden_layers=5
}
odd odd
k3-pack odd >out 2>err
is "$?,$(cat err)" "0," "a model of odd shapes, in its own directory"
whole odd/model.k3t odd "odd shapes"
tiny small
k3-pack -m small >out 2>err && whole small/model.k3t small "rows of 32 columns"
[ "$(cut -d ' ' -f 4 read.out)" -gt 20 ]
ok $? "some of its blocks are raw"
mv small/model.k3t small.k3t
k3-pack small/model.k3i >out 2>err
same small.k3t small/model.k3t "a model named by its index"
K3_MODEL=small k3-pack -o again.k3t >out 2>err
same small.k3t again.k3t "or by the environment"
nothing_left "no temporary file is left"

# weights of any bits: NaN, infinities, denormals
cp -r odd wild
"$python" - wild <<'EOF'
import glob, json, os, struct, sys
import numpy as np
rng = np.random.default_rng(5)
special = np.array([0, 0x8000, 1, 0x807f, 0x7f80, 0xff80, 0x7fc1, 0xffff, 0x0080], '<u2')
for path in glob.glob(sys.argv[1] + '/*.safetensors'):
    b = bytearray(open(path, 'rb').read())
    n, = struct.unpack('<Q', b[:8])
    for name, t in json.loads(b[8:8 + n]).items():
        begin, end = (8 + n + x for x in t['data_offsets'])
        if 'proj' in name and '.layers.1.' in name:
            b[begin:end] = rng.bytes(end - begin)
        elif 'proj' in name and t['dtype'] == 'BF16':
            w = np.frombuffer(bytes(b[begin:end]), '<u2').copy()
            w[rng.integers(0, w.size, w.size // 50)] = rng.choice(special, w.size // 50)
            b[begin:end] = w.tobytes()
    open(path, 'wb').write(b)
EOF
rm wild/model.k3?
k3-pack wild >out 2>err && whole wild/model.k3t wild "zeros, denormals, infinities, NaNs and noise"

# two layers with the same weights: nothing in a section tells which it is
cp -r small twin
"$python" - twin <<'EOF'
import glob, json, struct, sys
place = {}
for path in glob.glob(sys.argv[1] + '/*.safetensors'):
    with open(path, 'rb') as f:
        n, = struct.unpack('<Q', f.read(8))
        place.update((k, (path, 8 + n + t['data_offsets'][0], 8 + n + t['data_offsets'][1]))
                     for k, t in json.loads(f.read(n)).items() if k != '__metadata__')
for name in place:
    if '.layers.1.' in name:
        path, begin, end = place[name]
        raw = open(path, 'rb').read()[begin:end]
        path, begin, end = place[name.replace('.layers.1.', '.layers.2.')]
        with open(path, 'r+b') as f:
            f.seek(begin)
            f.write(raw)
EOF
rm twin/model.k3?
k3-pack twin >out 2>err
for i in 1 2; do
	k3-stat -j twin/model.k3t | jq ".sections[$i] | .offset, .length" | {
		read -r offset && read -r length
		tail -c +$((offset + 1)) twin/model.k3t | head -c "$length" >"section.$i"
	}
done
same section.1 section.2 "layers with the same weights make the same section"

# ---- damage ----

"$python" "$reader" demo.k3t "$demo" places >places 2>err
ok $? "places of each kind of byte"
place() { sed -n "s/^$1 //p" places; }

# flip OFFSET: the file bad.k3t, with all bits of one byte changed
flip() {
	"$python" - "$1" <<'EOF'
import sys
b = bytearray(open('demo.k3t', 'rb').read())
b[int(sys.argv[1])] ^= 255
open('bad.k3t', 'wb').write(b)
EOF
}

# damaged OFFSET PATTERN TEXT: --verify refuses it with one line
damaged() {
	flip "$1"
	fails 1 "bad.k3t: $2" "$3" k3-pack --verify -o bad.k3t "$demo"
	is "$(wc -l <fails.err),$(cat fails.out)" "1," "$3: in one line"
}
name=$(place name | sed 's/\./\\./g')
for at in 12 16 32 36 40 47 48 60 200 207; do
	damaged $at '' "byte $at of the head"
done
damaged 3 'not a trunk file' "a byte of the magic"
damaged 8 'a trunk file of version 254; this program reads version 1' "another version"
damaged 20 'offset 0: the checksum of the head is wrong' "a byte of the fingerprint"
damaged 300 'offset 300: a byte that must be zero is not' "a zero behind the head"
damaged "$(place directory)" 'offset 65536: this is not the beginning of a section' "the magic of a section"
damaged $(($(place directory) + 8)) 'offset 65536: ' "the number of its blocks"
damaged $(($(place directory) + 16)) 'offset 65536: the checksum of the directory of section 0' "its bytes in the checkpoint"
damaged "$(place entry)" 'offset 65536: the checksum of the directory of section 0' "the offset of a block"
damaged $(($(place entry) + 4)) 'offset 65536: the checksum of the directory' "its size"
damaged $(($(place entry) + 9)) 'offset 65536: the checksum of the directory' "its sum"
for kind in base code mantissa escape end; do
	damaged "$(place $kind)" "offset [0-9]+: .*$name, rows 0 to [0-9]+: the checksum is wrong" "a coded block: $kind"
done
damaged "$(place vector)" 'offset [0-9]+: .*layers\.0\.self_attention_res_norm\.weight, rows 0 to 0: the checksum' "a vector"
damaged "$(place gap)" "offset $(place gap): a byte that must be zero is not" "a zero between two blocks"
damaged "$(place padding)" "offset $(place padding): a byte that must be zero is not" "a zero behind the last block"
flip "$(place directory)"
fails 1 'bad.k3t: offset 65536: this is not the beginning' "k3-stat refuses a damaged one too" k3-stat bad.k3t

# bytes chosen at random, of the whole file
"$python" -c 'import random; random.seed(8); print(*random.sample(range(4456448), 40), sep="\n")' >random
missed=
while read -r at; do
	flip "$at"
	k3-pack --verify -o bad.k3t "$demo" >out 2>err && missed="$missed $at"
done <random
is "$missed" "" "40 bytes anywhere: each is noticed"

# bad PATTERN TEXT: bad.k3t is refused
bad() { fails 1 "bad.k3t: $1" "$2" k3-pack --verify -o bad.k3t "$demo"; }
head -c 4456447 demo.k3t >bad.k3t
bad 'the file has 4456447 bytes, but should have 4456448' "one byte too few"
head -c 70000 demo.k3t >bad.k3t
bad 'the file has 70000 bytes, but should' "cut in the first section"
head -c 100 demo.k3t >bad.k3t
bad 'its 100 bytes are too few for 10 sections' "cut in the head"
head -c 20 demo.k3t >bad.k3t
bad 'the file ends' "20 bytes"
: >bad.k3t
bad 'the file ends' "nothing"
{ cat demo.k3t && printf x; } >bad.k3t
bad 'the file has 4456449 bytes, but should have 4456448' "one byte too many"
fails 1 'demo.k3t: a trunk file of another model than small' "another model" k3-pack --verify -o demo.k3t small
fails 1 'none.k3t: No such file' "no file" k3-pack --verify -o none.k3t "$demo"
fails 1 'small: not a regular file' "a directory" k3-pack --verify -o small small
mkfifo fifo
fails 1 'fifo: not a regular file' "a fifo" k3-pack --verify -o fifo small
fails 2 'standard input: ' "k3-stat does not take it from a stream" sh -c 'k3-stat <demo.k3t'

# a weight of a shard that is not what it was, behind the index's back
cp -rp small changed
k3-index -l -m small '*.layers.4.self_attn.o_proj.weight' >line
shard=changed/$(cut -f 4 line)
cp -p "$shard" old
printf '\377' | dd of="$shard" bs=1 seek=$(($(cut -f 5 line) + 5 * 128 + 3)) conv=notrunc 2>err
touch -r old "$shard"
for t in 1 2 7; do
	fails 1 'model.k3t: .*layers.4.self_attn.o_proj.weight differs in row 5 from .*safetensors, offset [0-9]+' \
		"a changed shard: tensor and row, on $t threads" k3-pack -t $t --verify changed
done

# ---- what cannot be written ----

cp demo.k3t was.k3t
fails 1 'was.k3t: .*File too large' "a disk that is full" sh -c 'ulimit -f 2000; k3-pack -o was.k3t "$1"' - "$demo"
same demo.k3t was.k3t "leaves the file that was there"
fails 1 'new.k3t: .*File too large' "and none" sh -c 'ulimit -f 2000; k3-pack -t 1 -o new.k3t "$1"' - "$demo"
[ ! -e new.k3t ]
ok $? "where none was"
nothing_left "and no temporary file"
if [ "$(id -u)" -eq 0 ] && mkdir disk && mount -t tmpfs -o size=2m none disk 2>err; then
	fails 1 'disk/t.k3t: .*No space left on device' "a full tmpfs" k3-pack -o disk/t.k3t "$demo"
	is "$(ls -A disk)" "" "on which nothing is left"
	umount disk
else
	skip "a full tmpfs" "not allowed to mount one"
	skip "on which nothing is left" "not allowed to mount one"
fi
fails 1 'standard output: No space left' "a report that cannot be written" \
	sh -c 'k3-pack -o full.k3t "$1" >/dev/full' - "$demo"
fails 1 'fifo: not a regular file' "to a fifo" k3-pack -o fifo small
fails 1 '/dev/null: not a regular file' "to a device" k3-pack -o /dev/null small
fails 1 'nowhere/t.k3t: No such file' "to a directory that is not there" k3-pack -o nowhere/t.k3t small
elsewhere='small: no trunk file can be written there \(.+\): give -o TRUNK to name another place'
if [ "$(id -u)" -ne 0 ]; then
	chmod a-w small
	fails 1 "$elsewhere" "to a directory that cannot be written" k3-pack small
	chmod u+w small
elif mount --bind small small 2>err && mount -o remount,ro,bind small 2>>err; then
	fails 1 "$elsewhere" "to a file system that cannot be written" k3-pack small
	umount small
else
	skip "to a directory that cannot be written" "root can, and may not mount one"
fi

cp -r small part
rm part/model.k3? part/model-00002-of-000003.safetensors
fails 1 'part/model-00002-of-000003.safetensors: this shard is missing' "a shard is missing" k3-pack part
[ ! -e part/model.k3t ]
ok $? "and nothing is written"

# interrupted: the program is told to stop as soon as it has begun to write
"$python" - "$top" >interrupt 2>&1 <<'EOF'
import glob, signal, subprocess, sys
subprocess.run([sys.executable, sys.argv[1] + '/tests/reference/k3make.py', 'large', '--set', 'vocab_size=30000'],
               check=True, stdout=subprocess.DEVNULL)
subprocess.run(['k3-index', 'large'], check=True, stdout=subprocess.DEVNULL)
for sig in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
    for attempt in range(50):
        open('large/model.k3t', 'w').write('old')
        p = subprocess.Popen(['k3-pack', '-t', '1', 'large'], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while p.poll() is None and not glob.glob('large/model.k3t.*'):
            pass
        p.send_signal(sig)
        err = p.communicate()[1]
        if p.returncode == -sig:
            break
        assert p.returncode == 0, (p.returncode, err)
    print(p.returncode == -sig, err, open('large/model.k3t').read(), glob.glob('large/model.k3t.*'))
EOF
for signal in SIGINT SIGTERM SIGHUP; do
	is "$(head -n 1 interrupt)" "True b'' old []" "$signal ends it, and leaves what was there, and nothing else"
	sed -i 1d interrupt
done
sed 's/^/# /' interrupt

# progress, on a terminal only
"$python" - "$demo" <<'EOF'
import os, pty, re, subprocess, sys
for options in [], ['--verify']:
    master, slave = pty.openpty()
    p = subprocess.Popen(['k3-pack', '-t', '1', '-o', 'tty.k3t', *options, sys.argv[1]], stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    text = b''
    try:        # a terminal hands on what is written when it likes, and ends with EIO
        while piece := os.read(master, 65536):
            text += piece
    except OSError:
        pass
    assert p.wait() == 0 and re.fullmatch(
        rb'(\r0\.\d\d of 0\.01 GB, \d+\.\d\d GB/s, \d+ s left\x1b\[K)+\r\x1b\[K', text), text
EOF
ok $? "a terminal is shown how far it is, and the line is taken away again"

# two at once
for i in 1 2 3 4; do
	k3-pack -o two.k3t "$demo" >"out.$i" 2>&1 &
	k3-pack -o two.k3t "$demo" >out 2>&1
	first=$?
	wait $!
	is "$first $?" "0 0" "two at once, time $i"
	same demo.k3t two.k3t "and the file is whole"
done
nothing_left "and nothing else is there"

# ---- usage ----

fails 2 'too many operands' "two models" k3-pack small odd
fails 2 'the model is named twice' "an operand and -m" k3-pack -m small small
fails 2 'no model' "no model" k3-pack
fails 2 "-t: '0'" "no threads" k3-pack -t 0 small
fails 2 'unknown option' "an unknown option" k3-pack --fast small
fails 1 'none: No such file' "a model that is not there" k3-pack none
plan
