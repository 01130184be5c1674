#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The report, the list and the sums, for whole checkpoints and for such with shards missing.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh

# every tensor of a checkpoint as k3-index -l should list it, read by Python
list() {
	"$python" - "$1" <<'EOF' | LC_ALL=C sort
import glob, json, os, struct, sys
for path in glob.glob(glob.escape(sys.argv[1]) + '/*.safetensors'):
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        for name, t in json.loads(f.read(n)).items():
            if name.startswith('language_model.'):
                a, b = t['data_offsets']
                print(name, t['dtype'], ','.join(map(str, t['shape'])), os.path.basename(path), 8 + n + a, b - a, sep='\t')
EOF
}

# a checkpoint in a directory with blanks, in 1, 2 and 7 shards: the list is exact
for shards in 1 2 7; do
	m="$tmp/a model of $shards"
	tiny "$m" --shards $shards
	list "$m" >"$tmp/expected"
	k3-index -l -m "$m" | LC_ALL=C sort >"$tmp/got"
	same "$tmp/got" "$tmp/expected" "$shards shards: the list has each tensor's place"
	[ -f "$m/model.k3i" ]
	ok $? "$shards shards: the index that was missing is made"
done
# in the last one some expert's six tensors lie in two shards
split=$(sed -n 's/^\([^	]*experts\.[0-9]*\)\.w.*\t\(model[^	]*\).*/\1 \2/p' "$tmp/expected" | sort -u |
	cut -d' ' -f1 | uniq -d | wc -l)
[ "$split" -gt 0 ]
ok $? "experts that lie in two shards are found ($split)"

# a layer more heads than head_dim: A_log has one entry a head
tiny "$tmp/heads" --set num_heads=12 --set head_dim=8
is "$(k3-index -l -m "$tmp/heads" '*layers.0.*A_log' | cut -f3)" 12 "A_log with 12 heads of 8"
tiny "$tmp/heads" --set num_heads=3 --set head_dim=16
rm "$tmp/heads/model.k3i"
is "$(k3-index -l -m "$tmp/heads" '*layers.0.*A_log' | cut -f3)" 16 "A_log with 3 heads of 16"

# the demo, whose numbers were counted by hand
k3-index --json -o "$tmp/demo.k3i" "$demo" >"$tmp/json"
ok $? "the report as JSON"
is "$(jq -r '[.schema,.tensors,.bytes,.kda_layers,.mla_layers,.dense_layers,.moe_layers]|@csv' "$tmp/json")" \
	'"k3.index/1",1002,7392896,6,3,1,8' "tensors, bytes and kinds of layers"
is "$(jq -c '[.layers[].kind]' "$tmp/json")" \
	'["kda","kda","kda","mla","kda","kda","kda","mla","mla"]' "the kind of each layer, from 0"
is "$(jq '.experts.bytes, .experts.tensors, .expert.parameters' "$tmp/json" | tr '\n' ' ')" \
	"1253376 768 18432 " "experts"
is "$(jq '.embedding.bytes + .head.bytes + .output.bytes + .trunk.bytes + .experts.bytes == .bytes' "$tmp/json")" \
	true "the parts make up the whole"
is "$(jq '[.layers[].trunk_bytes]|add' "$tmp/json")" "$(jq .trunk.bytes "$tmp/json")" "layers make up the trunk"
is "$(jq -c .runnable "$tmp/json")" '{"embedding":true,"layers":[[0,9]],"output":true}' "all can run"
is "$(jq -r .fingerprint "$tmp/json" | grep -cE '^[0-9a-f]{32}$')" 1 "a fingerprint of 16 bytes"
size=$(wc -c <"$tmp/demo.k3i")
[ "$size" -lt $((40 * 1002)) ]
ok $? "less than 40 bytes a tensor ($size)"
k3-index -o "$tmp/demo.k3i" "$demo" >"$tmp/text"
is "$(sed -n 's/^layers  *//p' "$tmp/text")" "9: 6 KDA and 3 MLA; 1 dense and 8 with experts" "the report as text"
is "$(sed -n 's/^  experts  *//p' "$tmp/text")" "768          2359296          1253376" "and its table"

# lists
is "$(k3-index -l -m "$tmp/demo.k3i" '*lm_head*' | cut -f1-3)" \
	"language_model.lm_head.weight	BF16	2048,192" "a list by a pattern, of an index"
is "$(K3_MODEL=$tmp/demo.k3i k3-index -l | wc -l)" 1002 "the model from the environment"
fails 1 "no tensor matches 'x\*'" "a pattern without a match" k3-index -l -m "$tmp/demo.k3i" 'x*'
k3-index -l -m "$tmp/demo.k3i" <&- >"$tmp/out" && [ "$(wc -l <"$tmp/out")" -eq 1002 ]
ok $? "with stdin closed"
k3-index --help | grep -q '^usage: k3-index' && k3-index -V | grep -q '^k3-index (k3) '
ok $? "help and version"

# metadata and vision tensors are no concern of ours
m="$tmp/vision"
tiny "$m"
edit "$m/model-00003-of-000003.safetensors" "head['__metadata__'] = {'format': 'pt'}; k = len(data)
head['vision_tower.x'] = dict(dtype='F16', shape=[2, 3], data_offsets=[k, k + 12])
head['mm_projector.y'] = dict(dtype='F32', shape=[], data_offsets=[k + 12, k + 16]); data += bytes(16)"
k3-index -j "$m" >"$tmp/json" 2>"$tmp/err"
is "$(jq -c .vision "$tmp/json")" '{"tensors":2,"bytes":16}' "vision tensors are counted"
list "$m" >"$tmp/expected"
k3-index -l -m "$m" | LC_ALL=C sort >"$tmp/got"
same "$tmp/got" "$tmp/expected" "and not listed"
is "$(cat "$tmp/err")" "" "without a warning"
edit "$m/model-00001-of-000003.safetensors" "k = len(data)
head['vision_tower.x'] = dict(dtype='U8', shape=[1], data_offsets=[k, k + 1]); data += bytes(1)"
fails 1 "tensor vision_tower.x is in both model-00001-.* and model-00003-" "vision tensors twice" k3-index "$m"

# one shard is missing
m="$tmp/partial"
tiny "$m" --shards 7
list "$m" >"$tmp/whole"
rm "$m/model-00004-of-000007.safetensors"
k3-index -j "$m" >"$tmp/json" 2>"$tmp/err"
ok $? "a checkpoint with a shard missing has an index"
grep -q '^k3-index: 1 of 7 shards are missing; layers that can run: ' "$tmp/err"
ok $? "and a warning"
is "$(jq -c .missing_shards "$tmp/json")" '["model-00004-of-000007.safetensors"]' "the shard is named"
is "$(jq .missing.bytes "$tmp/json")" \
	"$(awk -F'\t' '$4 ~ /00004/ { n += $6 } END { print n }' "$tmp/whole")" "its bytes are counted"
is "$(jq -c '[.layers[]|select(.missing_tensors > 0)|.layer]' "$tmp/json")" \
	"$(awk -F'\t' '$4 ~ /00004/' "$tmp/whole" | sed -n 's/.*layers\.\([0-9]*\)\..*/\1/p' | sort -u |
		jq -cs .)" "layers that cannot run"
is "$(jq -c '.runnable.layers|map(range(.[0];.[1]))' "$tmp/json")" \
	"$(awk -F'\t' '$4 ~ /00004/' "$tmp/whole" | sed -n 's/.*layers\.\([0-9]*\)\..*/\1/p' | sort -u |
		jq -cs '[range(9)] - .')" "layers that can"
k3-index -l -m "$m" | awk -F'\t' '$5 == "-" { print $1, $4 }' | LC_ALL=C sort >"$tmp/got"
awk -F'\t' '$4 ~ /00004/ { print $1, $4 }' "$tmp/whole" | LC_ALL=C sort >"$tmp/expected"
same "$tmp/got" "$tmp/expected" "each missing tensor is listed with its shard"
rm "$m/model.safetensors.index.json"
k3-index "$m" >"$tmp/out" 2>/dev/null && grep -q '^missing  *model-00004-of-000007.safetensors' "$tmp/out"
ok $? "without the checkpoint's own index too"
is "$(k3-index -l -m "$m" | awk -F'\t' '$4 == "-"' | wc -l)" "$(wc -l <"$tmp/expected")" \
	"then the shard of a tensor is not known"

# a shard that is there lacks what the checkpoint's own index promises
tiny "$m" --shards 7
k3-index "$m" >/dev/null
rm "$m/model-00004-of-000007.safetensors"
jq '(.weight_map[]|select(test("00004"))) = "model-00001-of-000007.safetensors"' \
	"$m/model.safetensors.index.json" >"$tmp/map" && cp "$tmp/map" "$m/model.safetensors.index.json"
fails 1 "should be in model-00001-of-000007.safetensors, but is not" "a tensor that its shard lacks" k3-index "$m"
echo '{"weight_map":{}}' >"$m/model.safetensors.index.json"
fails 1 "does not say where tensor language_model" "a tensor that nobody knows" k3-index "$m"
echo '{"weight_map":' >"$m/model.safetensors.index.json"
fails 1 "model.safetensors.index.json: broken JSON" "half an index" k3-index "$m"

# sums
m="$tmp/sums"
tiny "$m"
fails 1 "has no sums" "nothing to verify" k3-index --verify "$m"
k3-index --sum "$m" | grep -q ', with sums$'
ok $? "sums are added"
is "$(k3-index --verify "$m")" "the experts and the embedding agree with their sums" "and agree"
k3-index "$m" | grep -q ', with sums$'
ok $? "a new index of the same checkpoint keeps them"
at=$(k3-index -l -m "$m" '*layers.2.*experts.1.w3.weight_scale' | cut -f5)
shard=$(k3-index -l -m "$m" '*layers.2.*experts.1.w3.weight_scale' | cut -f4)
touch -r "$m/$shard" "$tmp/time"
swap() {
	edit "$m/$shard" "
a, b = (slice(*head[f'language_model.model.layers.2.block_sparse_moe.experts.1.w{w}.weight_packed']['data_offsets'])
        for w in '13')
data[a], data[b] = data[b], data[a]"
	touch -r "$tmp/time" "$m/$shard"
}
swap
fails 1 "differs from its sum: layer 2 expert 1$" "matrices of one shape that changed places" k3-index --verify "$m"
swap
is "$(k3-index --verify "$m")" "the experts and the embedding agree with their sums" "and are back"
printf '\3' | dd of="$m/$shard" bs=1 seek="$at" conv=notrunc 2>/dev/null
touch -r "$tmp/time" "$m/$shard"
fails 1 "differs from its sum: layer 2 expert 1$" "a changed byte of an expert" k3-index --verify "$m"
at=$(k3-index -l -m "$m" '*embed_tokens*' | cut -f5)
shard=$(k3-index -l -m "$m" '*embed_tokens*' | cut -f4)
touch -r "$m/$shard" "$tmp/time"
edit "$m/$shard" "
begin, _ = head['language_model.model.embed_tokens.weight']['data_offsets']
row = 2 * head['language_model.model.embed_tokens.weight']['shape'][1]
a, b = (slice(begin + row * i, begin + row * (i + 1)) for i in (4, 40))
data[a], data[b] = data[b], data[a]"
touch -r "$tmp/time" "$m/$shard"
fails 1 "sum: layer 2 expert 1, row 4 of the embedding, row 40 of the embedding$" "and rows of the embedding" k3-index --verify "$m"
head -c 3000 /dev/zero | dd of="$m/$shard" bs=1 seek="$at" conv=notrunc 2>/dev/null
touch -r "$tmp/time" "$m/$shard"
fails 1 "expert 1, row 0 of .*, row 3 of the embedding, and [0-9]+ more$" "the first of many" k3-index --verify "$m"
fails 2 "exclude" "sums and list" k3-index --sum -l -m "$m"

plan
