#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The full geometry: 96 sparse files with the headers of the released model. What is expected here was computed
# by hand from the published shapes. K3_RELEASED_INDEX may name the released model.safetensors.index.json
# (or .gz), to compare all names and their files.
. tests/cmd/lib.sh

python=$(command -v python3)
m=$tmp/replica
"$python" tests/reference/replica.py "$m"
ok $? "the replica is written"

# sizes of the files by what is in them
sizes=$(cd "$m" && wc -c -- *.safetensors | sort -n | awk '$2 != "total" { n[$1]++ } END { for (s in n) print n[s], s }' | sort -k2n)
is "$sizes" "1 92289328
1 802448352
1 2341216112
1 4697664072
2 16567501776
22 16567507176
7 16990911504
61 16990916912" "96 files of the released sizes"

start=$(date +%s)
if /usr/bin/time -f '%e s, %M KB' -o "$tmp/time" true 2>/dev/null; then
	/usr/bin/time -f '%e s, %M KB' -o "$tmp/time" k3-index -j "$m" >"$tmp/json" 2>"$tmp/err"
	status=$?
	echo "# indexed in $(cat "$tmp/time")"
	memory=$(sed 's/.* \([0-9]*\) KB/\1/' "$tmp/time")
else
	k3-index -j "$m" >"$tmp/json" 2>"$tmp/err"
	status=$?
	echo "# indexed in $(($(date +%s) - start)) s"
	memory=
fi
# the address sanitizer keeps what was freed
grep -q __asan_init "$(command -v k3-index)" && memory=
ok $status "it is indexed"
is "$(cat "$tmp/err")" "" "without a warning"
if [ -n "$memory" ]; then
	[ "$memory" -lt 100000 ]
	ok $? "in less than 100 MB of memory"
else
	skip "in less than 100 MB of memory" "not measured"
fi

get() { jq -c "$1" "$tmp/json"; }
is "$(get .tensors)" 497220 "497,220 tensors"
is "$(get .bytes)" 1560860324864 "total_size"
is "$(get '[.kda_layers,.mla_layers,.dense_layers,.moe_layers]')" '[69,24,1,92]' "kinds of layers"
is "$(get '[.layers[]|select(.kind=="mla")|.layer]')" \
	'[3,7,11,15,19,23,27,31,35,39,43,47,51,55,59,63,67,71,75,79,83,87,91,92]' "the MLA layers"
is "$(get '.trunk|[.tensors,.bytes]')" '[2455,108811877376]' "trunk"
is "$(get '.layers|[.[0],.[1],.[3]]|map(.trunk_bytes)')" '[2341213184,1267744256,844335616]' \
	"the trunk of a dense, a KDA and an MLA layer"
is "$(get '.layers|map(.expert_bytes)|unique')" '[0,15722348544]' "the experts of a layer"
is "$(get '[.embedding.bytes,.head.bytes,.output.bytes]')" '[2348810240,2348810240,43008]' "embedding and head"
is "$(get '.resident|[.tensors,.parameters,.bytes]')" '[2460,56743648000,113509540864]' "all but experts"
is "$(get '.experts|[.tensors,.parameters,.bytes]')" '[494592,2722740830208,1446456066048]' "experts"
is "$(get '.expert|[.parameters,.bytes]')" '[33030144,17547264]' "one expert"
is "$(get .text.bytes)" 1559965606912 "text"
is "$(get '[.vision.tensors,.vision.bytes]')" '[168,894717952]' "vision"
is "$(get .token.expert_bytes)" 25829572608 "bytes of experts a token"
[ "$(wc -c <"$m/model.k3i")" -le $((40 * 497220)) ]
ok $? "at most 40 bytes a tensor"

# places from the layout of the release: expert 0 of four kinds of files, and one trunk
k3-index -l -m "$m" >"$tmp/list"
place() { awk -F'\t' -v n="language_model.model.layers.$1" '$1 == n { print $4, $5 }' "$tmp/list"; }
e=block_sparse_moe.experts.0.w1.weight_packed
is "$(place 1.$e)" "model-00002-of-000096.safetensors 1268562960" "expert 0 of layer 1"
is "$(place 10.$e)" "model-00011-of-000096.safetensors 1268568368" "of layer 10"
is "$(place 3.$e)" "model-00004-of-000096.safetensors 845153232" "of layer 3"
is "$(place 92.$e)" "model-00093-of-000096.safetensors 845158632" "of layer 92"
is "$(place 1.block_sparse_moe.experts.10.w1.weight_packed)" \
	"model-00002-of-000096.safetensors $((1268562960 + 2 * 17547264))" "expert 10 follows expert 1"
is "$(place 1.self_attn.A_log)" "model-00002-of-000096.safetensors $((818704 + 3584))" "A_log of layer 1"
is "$(place 1.self_attn.v_proj.weight)" "model-00002-of-000096.safetensors $((818704 + 1091583488))" "v_proj"
is "$(place 3.self_attn.q_b_proj.weight)" "model-00004-of-000096.safetensors $((817616 + 787712512))" "q_b_proj"

if [ -n "${K3_RELEASED_INDEX:-}" ]; then
	case $K3_RELEASED_INDEX in
	*.gz) gzip -dc "$K3_RELEASED_INDEX" ;;
	*) cat "$K3_RELEASED_INDEX" ;;
	esac | jq -r '.weight_map|to_entries[]|select(.key|startswith("language_model."))|[.key,.value]|@tsv' |
		LC_ALL=C sort >"$tmp/expected"
	cut -f1,4 "$tmp/list" | LC_ALL=C sort >"$tmp/got"
	same "$tmp/got" "$tmp/expected" "names and files are those of the released index"
else
	skip "names and files are those of the released index" "K3_RELEASED_INDEX is not set"
fi

# shards that were not copied yet
rm "$m/model-00013-of-000096.safetensors" "$m/model-00094-of-000096.safetensors"
k3-index -j "$m" >"$tmp/json" 2>"$tmp/err"
is "$(get .runnable)" '{"embedding":false,"layers":[[0,12],[13,93]],"output":false}' "what runs without two shards"
grep -q '2 of 96 shards are missing; layers that can run: 0:12 13:93$' "$tmp/err"
ok $? "and a warning that says so"

plan
