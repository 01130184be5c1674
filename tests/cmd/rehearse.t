#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-rehearse on a small geometry: with holes; with real weights where this machine can share blocks; and what it leaves.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh

disk=$tmp/disk
mkdir "$disk"
trap 'umount "$disk"/*/disk 2>/dev/null; rm -rf "$tmp"' EXIT
left() { ls "$disk"; grep -cF "${tmp##* }" /proc/mounts; }

# 40 layers like the released ones; experts of 51 pages, in which codes and scales are whole pages
"$python" - "$tmp/config.json" <<'EOF'
import json, sys
sys.path.insert(0, 'tests/reference')
import replica
c, n = replica.CONFIG, 40
t = c['text_config']
t.update(hidden_size=256, num_hidden_layers=n, vocab_size=512, intermediate_size=320, num_attention_heads=2,
         num_key_value_heads=2, q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32,
         num_experts=8, num_experts_per_token=2, moe_intermediate_size=256, routed_expert_hidden_size=512)
full = list(range(4, n + 1, 4))
t['linear_attn_config'].update(num_heads=2, head_dim=32, full_attn_layers=full,
                               kda_layers=[i for i in range(1, n + 1) if i not in full])
c.update(bos_token_id=1, eos_token_id=2, pad_token_id=3)
del c['vision_config']
json.dump(c, open(sys.argv[1], 'w'))
EOF

# ---- usage ----
fails 2 "'-x' is not known" 'an option that is not known' k3-rehearse -x
fails 2 '--mem needs a value' 'an option without its value' k3-rehearse --mem
fails 2 "'0' is not a number of tokens" 'no tokens' k3-rehearse -n 0
fails 2 'there is no such directory' 'no directory' k3-rehearse -d "$disk/none"

# ---- holes ----
k3-rehearse --holes --config "$tmp/config.json" -d "$disk" -n 1 >"$tmp/out" 2>"$tmp/err"
ok $? 'with holes'
is "$(sed '2s/[0-9.]*$/N/; s/  */ /g' "$tmp/out")" 'memory peak GB
default N' 'memory, and no times'
is "$(cat "$tmp/err")" '' 'nothing to complain about'
is "$(left)" 0 'nothing is left'
fails 1 'k3-step --mem 1k did not come to its end' 'a run that fails' \
	k3-rehearse --holes --mem 1k --config "$tmp/config.json" -d "$disk"
is "$(left)" 0 'leaves nothing either'
k3-rehearse --holes --keep --mem=64M --mem 1G --config "$tmp/config.json" -d "$disk" -n 1 >"$tmp/out" 2>"$tmp/err"
is "$? $(awk 'NR < 4 { printf "%s ", $1 }' "$tmp/out")$(sed '1,/^The model is/d' "$tmp/out" | sh -eu; left)" '0 memory 64M 1G 0' \
	'two budgets, and removed as it says'

# ---- weights ----
if [ "$(id -u)" -ne 0 ]; then
	skip 'with weights' 'not root'
	plan
fi
k3-rehearse --make-only --config "$tmp/config.json" -d "$disk" >"$tmp/out" 2>"$tmp/err"
status=$?
if grep -q 'cannot make an image\|holes for data' "$tmp/err"; then
	skip 'with weights' "$(tail -n 1 "$tmp/err")"
	plan
fi
ok $status "with weights"
model=$(sed -n 's/^The model is \(.*\)\. To remove it:/\1/p' "$tmp/out")
[ -d "$model" ] || plan
k3-pack --verify "$model" >"$tmp/verify" 2>&1
ok $? 'its trunk file is that of its weights, bit by bit'

"$python" tests/reference/replica.py --config "$tmp/config.json" "$tmp/replica"
"$python" - "$model" "$tmp/replica" >"$tmp/report" <<'EOF'
import glob, json, math, os, struct, sys
import numpy as np
wrong, bodies, trunks, scales, codes = [], set(), {}, set(), []
files = sorted(glob.glob(sys.argv[1] + '/*.safetensors'))
if len(files) != 41:
    wrong.append('files')
for path in files:
    raw = open(path, 'rb').read()
    n = 8 + struct.unpack('<Q', raw[:8])[0]
    if raw[:n] != open(os.path.join(sys.argv[2], os.path.basename(path)), 'rb').read(n):
        wrong.append('header of ' + path)
    trunk, experts = [], {}
    for name, t in json.loads(raw[8:n]).items():
        a, b = t['data_offsets']
        data = raw[n + a:n + b]
        if t['dtype'] == 'U8':
            experts.setdefault(name.split('.')[6], []).append(data)
            if name.endswith('scale'):
                scales |= set(data)
            else:
                codes.append(np.bincount(np.frombuffer(data[8192:-8192], np.uint8) & 15, minlength=16))
            continue
        trunk.append(data)
        v = np.frombuffer(data, '<f4' if t['dtype'] == 'F32' else '<u2')
        v = v if t['dtype'] == 'F32' else (v.astype(np.uint32) << 16).view(np.float32)
        v = v.reshape(t['shape'])
        if not np.isfinite(v).all() or np.abs(v).max() > 100 or not v.any():
            wrong.append(name)
        if v.ndim == 2 and v.shape[0] > 100 and not name.endswith(('gate.weight', 'embed_tokens.weight')):
            spread = v.std(1)
            if not 8 < spread.max() / spread.min() < 40:
                wrong.append(f'row scales of {name}')
    bodies |= {tuple(map(hash, x)) for x in experts.values()}
    trunks.setdefault(hash(tuple(trunk)), []).append(path)
print(len(wrong), wrong[:3])
print(sorted(scales))
print(len(trunks) - 1, 'trunks')
print(len(bodies) >= 8, 'experts')
share = np.sum(codes, 0) / np.sum(codes)
print(share.min() > .02, 'codes of all kinds')
EOF
is "$(cat "$tmp/report")" "0 []
[118, 119, 120, 121]
6 trunks
True experts
True codes of all kinds" 'headers of the release, sane values, row scales, classes of layers'
echo 5 6 7 | k3-step -m "$model" | k3-stat -j >"$tmp/json"
is "$(jq -c '[.shape, .nonfinite]' "$tmp/json")" '[[1,512],0]' 'it runs'
if command -v filefrag >/dev/null; then
	filefrag -v "$model"/model-00030-of-*.safetensors | grep -c shared >"$tmp/shared"
	[ "$(cat "$tmp/shared")" -gt 0 ]
	ok $? 'its blocks are shared'
else
	skip 'its blocks are shared' 'no filefrag'
fi

# blocks can be shared there, so a rehearsal in it needs no image of its own
k3-rehearse --config "$tmp/config.json" -d "$(dirname "$model")" -n 2 >"$tmp/inner" 2>"$tmp/err"
ok $? 'inside a file system that shares blocks'
is "$(wc -l <"$tmp/inner") $(awk 'NR == 2 { print NF, $1 }' "$tmp/inner")" '2 8 default' 'a line for the run'
is "$(ls "$(dirname "$model")")" model 'nothing is left there'

sed -n '2,$p' "$tmp/out" | sh -eu
ok $? 'it is removed as it says'
is "$(left)" 0 'and nothing is left'

# a signal, while it works
for after in 0.1 0.5 1; do
	k3-rehearse --config "$tmp/config.json" -d "$disk" -n 1000000 >/dev/null 2>&1 &
	pid=$!
	until [ -n "$(ls "$disk")" ]; do sleep 0.01; done
	sleep $after
	kill -TERM $pid
	wait $pid
	is "$? $(left)" '143 0' "SIGTERM after $after s leaves nothing"
done

# right behind what it has to undo, before it can take note of it
for tool in losetup mount; do
	case $model in
	*/disk/model) ;;
	*)
		skip "SIGTERM during $tool" 'needs no image here'
		continue
		;;
	esac
	mkdir -p "$tmp/slow"
	rm -f "$tmp/slow"/*
	printf '#!/bin/sh\n"%s" "$@" || exit\n[ -e "%s/reached" ] && exit\n: >"%s/reached"\nsleep 1\n' \
		"$(command -v $tool)" "$tmp" "$tmp" >"$tmp/slow/$tool"
	chmod +x "$tmp/slow/$tool"
	rm -f "$tmp/reached"
	PATH=$tmp/slow:$PATH k3-rehearse --config "$tmp/config.json" -d "$disk" -n 1 >/dev/null 2>&1 &
	pid=$!
	until [ -e "$tmp/reached" ]; do sleep 0.01; done
	kill -TERM $pid
	wait $pid
	is "$? $(left) $(losetup --list --noheadings --output BACK-FILE | grep -cF "${tmp##* }")" '143 0 0' \
		"SIGTERM during $tool leaves nothing"
done
plan
