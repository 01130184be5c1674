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
assert magic == b'K3INDEX\n' and version == 1 and flags in (2, 3) and length == len(b) and length % 8 == 0
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
open(sys.argv[2] + '.config', 'wb').write(finger)
EOF

m="$tmp/model"
tiny "$m" --shards 5
check() {
	"$python" "$tmp/read.py" "$m/model.k3i" "$tmp/sums" >"$tmp/got" 2>"$tmp/err"
	ok $? "$1: it is as the page says"
	sed 's/^/# /' "$tmp/err"
	k3-index -l -m "$m" | cut -f1,4,5 >"$tmp/expected"
	same "$tmp/got" "$tmp/expected" "$1: and has the same places"
}
k3-index --sum "$m" >/dev/null
check "with sums"

# the checksums by another program
if command -v xxhsum >/dev/null && xxhsum -H3 "$m/config.json" >/dev/null 2>&1; then
	size=$(wc -c <"$m/model.k3i")
	head -c $((size - 8)) "$m/model.k3i" >"$tmp/front"
	is "$(xxhsum -H3 "$tmp/front" | sed 's/.*\([0-9a-f]\{16\}\).*/\1/;s/^XXH3_//')" \
		"$(tail -c 8 "$m/model.k3i" | od -An -t x8 | tr -d ' \n')" "the checksum at the end"
	for i in 1 2 3; do
		for part in packed scale; do
			k3-index -l -m "$m" "*layers.1.*experts.0.w$i.weight_$part"
		done
	done | while IFS='	' read -r _ _ _ shard offset bytes; do
		tail -c +$((offset + 1)) "$m/$shard" | head -c "$bytes"
	done >"$tmp/expert"
	is "$(xxhsum -H3 "$tmp/expert" | grep -oE '[0-9a-f]{16}' | head -n 1)" "$(head -n 1 "$tmp/sums")" "the sum of an expert"
else
	skip "the checksum at the end" "no xxhsum that knows XXH3"
	skip "the sum of an expert" "no xxhsum that knows XXH3"
fi
rm "$m/model-00002-of-000005.safetensors"
k3-index "$m" >/dev/null 2>&1
check "with a shard missing"
rm "$m/model.safetensors.index.json"
k3-index "$m" >/dev/null 2>&1
check "without a map"
plan
