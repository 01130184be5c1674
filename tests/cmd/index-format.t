#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An index read by another program that knows only k3-index(5).
. tests/cmd/lib.sh
. tests/cmd/tiny.sh

cat >"$tmp/read.py" <<'EOF'
import json, os, struct, sys

def entries(c):
    """The names in the order of the entries."""
    t = c['text_config']
    p = 'language_model.'
    for n in ('model.embed_tokens', 'lm_head', 'model.norm', 'model.output_attn_res_norm', 'model.output_attn_res_proj'):
        yield p + n + '.weight'
    for i in range(t['num_hidden_layers']):
        l = f'{p}model.layers.{i}.'
        names = 'input_layernorm post_attention_layernorm self_attention_res_norm self_attention_res_proj mlp_res_norm ' \
                'mlp_res_proj self_attn.g_proj self_attn.o_proj'.split()
        full = i + 1 in t['linear_attn_config']['full_attn_layers']
        kda = 'q_proj k_proj v_proj q_conv1d k_conv1d v_conv1d f_a_proj f_b_proj b_proj A_log dt_bias o_norm'
        mla = 'q_a_proj q_a_layernorm q_b_proj kv_a_proj_with_mqa kv_a_layernorm kv_b_proj'
        names += ['self_attn.' + n for n in (mla if full else kda).split()]
        moe = i >= t['first_k_dense_replace']
        if moe:
            names += ['block_sparse_moe.' + n for n in
                      'gate gate.e_score_correction_bias routed_expert_down_proj routed_expert_norm routed_expert_up_proj '
                      'shared_experts.gate_proj shared_experts.up_proj shared_experts.down_proj'.split()]
        else:
            names += ['mlp.gate_proj', 'mlp.up_proj', 'mlp.down_proj']
        for n in names:
            yield l + n + ('' if n.split('.')[-1] in ('A_log', 'dt_bias', 'e_score_correction_bias') else '.weight')
        for x in range(t['num_experts'] if moe else 0):
            for w in '123':
                for part in ('packed', 'scale'):
                    yield f'{l}block_sparse_moe.experts.{x}.w{w}.weight_{part}'

b = open(sys.argv[1], 'rb').read()
magic, version, flags, length, finger, T, S, vt, vb, C, ctime, E, D, N = struct.unpack('<8sIIQ16sQIIQQqQII', b[:96])
assert magic == b'K3INDEX\n' and version == 3 and flags in (2, 3) and length == len(b) and length % 8 == 0
at = 96
records = [struct.unpack_from('<QqQII', b, at + 32 * i) for i in range(S)]
at += 32 * S
places = struct.unpack_from(f'<{T}Q', b, at)
at += 8 * T
sums = struct.unpack_from(f'<{E}Q', b, at)
at += 8 * E
directory, config, names = b[at:at + D].decode(), b[at + D:at + D + C], b[at + D + C:at + D + C + N].decode()
at += D + C + N
assert at + 8 <= length < at + 16 and not any(b[at:length - 8])
shards = []
for size, mtime, header, n, absent in records:
    shards.append(names[:n])
    names = names[n:]
    path = os.path.join(directory, shards[-1])
    if absent:
        assert (size, mtime, header) == (0, 0, 0) and not os.path.exists(path)
        continue
    s = os.stat(path)
    with open(path, 'rb') as f:
        assert (size, mtime, header) == (s.st_size, s.st_mtime_ns, struct.unpack('<Q', f.read(8))[0])
assert not names and shards == sorted(shards)
assert config == open(os.path.join(directory, 'config.json'), 'rb').read()
assert ctime == os.stat(os.path.join(directory, 'config.json')).st_mtime_ns
wanted = list(entries(json.loads(config)))
assert len(wanted) == T
for name, place in zip(wanted, places):
    shard, offset = place >> 48, place & (1 << 48) - 1
    missing = offset == (1 << 48) - 1
    print(name, '-' if shard == 65535 else shards[shard], '-' if missing else offset, sep='\t')
print(*(f'{n:016x}' for n in sums), sep='\n', file=open(sys.argv[2], 'w'))
EOF

cat >"$tmp/sums.py" <<'EOF'
"""The checksum at the end of an index, and the sums of all experts and rows at the places that read.py found."""
import ctypes, ctypes.util, json, os, struct, sys

model, places, out = sys.argv[1:]
xxh3 = ctypes.CDLL(ctypes.util.find_library('xxhash')).XXH3_64bits_withSeed
xxh3.restype, xxh3.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
b = open(os.path.join(model, 'model.k3i'), 'rb').read()
assert struct.unpack('<Q', b[-8:])[0] == xxh3(b, len(b) - 8, 0)
t = json.load(open(os.path.join(model, 'config.json')))['text_config']
latent, width = t['routed_expert_hidden_size'], t['moe_intermediate_size']
w1, w2 = [(width, latent // 2), (width, latent // 32)], [(latent, width // 2), (latent, width // 32)]

def expert(six):
    if any(offset == '-' for _, _, offset in six):
        return 0
    total = 0
    for number, ((_, shard, offset), (rows, n)) in enumerate(zip(six, w1 + w2 + w1)):
        with open(os.path.join(model, shard), 'rb') as f:
            f.seek(int(offset))
            total += sum(xxh3(f.read(n), n, number << 32 | row) for row in range(rows))
    return total % 2 ** 64 or 1

def embedding(name, shard, offset):
    if offset == '-':
        return [0] * t['vocab_size']
    n = 2 * t['hidden_size']
    with open(os.path.join(model, shard), 'rb') as f:
        f.seek(int(offset))
        return [xxh3(f.read(n), n, row) or 1 for row in range(t['vocab_size'])]

places = [line.split() for line in open(places)]
lines = [p for p in places if '.experts.' in p[0]]
sums = [expert(lines[i:i + 6]) for i in range(0, len(lines), 6)]
sums += embedding(*next(p for p in places if 'embed_tokens' in p[0]))
print(*(f'{n:016x}' for n in sums), sep='\n', file=open(out, 'w'))
EOF

m="$tmp/model"
check() {
	"$python" "$tmp/read.py" "$m/model.k3i" "$tmp/sums" >"$tmp/got" 2>"$tmp/err"
	ok $? "$1: it is as the page says"
	sed 's/^/# /' "$tmp/err"
	k3-index -l -m "$m" | cut -f1,4,5 >"$tmp/expected"
	same "$tmp/got" "$tmp/expected" "$1: and has the same places"
}

check_sums() {
	k3-index --sum "$m" >/dev/null 2>&1
	check "$1"
	if ! "$python" -c 'import ctypes, ctypes.util
ctypes.CDLL(ctypes.util.find_library("xxhash")).XXH3_64bits_withSeed' 2>/dev/null; then
		skip "$1: and the same sums" "no libxxhash that Python finds"
		return
	fi
	"$python" "$tmp/sums.py" "$m" "$tmp/got" "$tmp/expected"
	ok $? "$1: and the right checksum at its end"
	same "$tmp/sums" "$tmp/expected" "$1: and the same sums"
}

tiny "$m" --shards 5 --set moe_intermediate_size=96
check_sums "with sums"
rm "$m/model-00002-of-000005.safetensors"
check_sums "with sums and a shard missing"
rm "$m/model-00001-of-000005.safetensors"
check_sums "with sums and the embedding missing"
rm "$m/model.safetensors.index.json" "$m/model.k3i"
k3-index "$m" >/dev/null 2>&1
check "without a map"
rm -r "$m"
# long rows, and matrices of more than 1 MB, which are read in pieces
tiny "$m" --set num_hidden_layers=2 --set num_experts=1 --set num_experts_per_token=1 \
	--set routed_expert_hidden_size=2048 --set moe_intermediate_size=1056
check_sums "with large experts"
plan
