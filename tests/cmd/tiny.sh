# SPDX-License-Identifier: Apache-2.0
# tiny.sh - sourced after lib.sh: small checkpoints to be broken, and a Python that has numpy.
python=
for p in python3 /usr/bin/python3; do
	if "$p" -c 'import numpy' 2>/dev/null; then
		python=$p
		break
	fi
done
if [ -z "$python" ]; then
	echo "1..0 # SKIP no Python with numpy"
	exit 0
fi

# tiny DIR [OPTION...]: a checkpoint of 9 layers and some 300 KB, in 3 shards
tiny() {
	dir=$1
	shift
	"$python" "$top/tests/reference/k3make.py" "$dir" --set hidden_size=32 \
		--set vocab_size=64 --set intermediate_size=48 --set num_experts=3 \
		--set num_experts_per_token=2 --set routed_expert_hidden_size=32 --set q_lora_rank=16 \
		--set kv_lora_rank=16 --set bos_token_id=1 --set eos_token_id=2 --set pad_token_id=3 "$@"
}

# edit FILE CODE: changes a shard by Python code that sees head (a dict), data (a bytearray)
# and may set text, the bytes of the header, and length, what the file says of them; without a
# change it writes what was there
edit() {
	"$python" - "$1" "$2" <<'EOF'
import json, struct, sys
path, code = sys.argv[1:]
raw = open(path, 'rb').read()
length = struct.unpack('<Q', raw[:8])[0]
v = dict(head=json.loads(raw[8:8 + length]), data=bytearray(raw[8 + length:]), text=None, length=None, json=json,
         dump=lambda h: json.dumps(h, separators=(',', ':')).encode(), pad=lambda t: t + b' ' * (-len(t) % 8))
v['names'] = list(v['head'])
exec(code, v)
text = v['text'] if v['text'] is not None else v['pad'](v['dump'](v['head']))
length = v['length'] if v['length'] is not None else len(text)
open(path, 'wb').write(struct.pack('<Q', length) + text + bytes(v['data']))
EOF
}

# tensor MODEL NAME [BYTE]: the file that it lies in and its offset there, with a colon in between
tensor() {
	"$python" - "$@" <<'EOF'
import glob, json, os, sys
for path in glob.glob(sys.argv[1] + '/*.safetensors'):
    with open(path, 'rb') as f:
        n = int.from_bytes(f.read(8), 'little')
        head = json.loads(f.read(n))
    if sys.argv[2] in head:
        at = 8 + n + head[sys.argv[2]]['data_offsets'][0] + int((sys.argv + ['0'])[3])
        print(os.path.basename(path), at, sep=':')
EOF
}
