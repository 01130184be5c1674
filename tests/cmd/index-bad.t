#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints that are wrong in one way each: status 1, one sentence that names the place.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh

tiny "$tmp/good"
s1=model-00001-of-000003.safetensors
s2=model-00002-of-000003.safetensors
s3=model-00003-of-000003.safetensors
m="$tmp/bad model"

fresh() {
	rm -rf "$m"
	cp -r "$tmp/good" "$m"
}

# bad CODE PATTERN TEXT: shard 2 after CODE is refused with PATTERN, and no index is left
bad() {
	fresh
	edit "$m/$s2" "$1"
	fails 1 "$2" "$3" k3-index "$m"
	lines=$(wc -l <"$tmp/fails.err")
	[ "$lines" -eq 1 ] && [ ! -s "$tmp/fails.out" ] && [ -z "$(find "$m" -name '*k3i*')" ]
	ok $? "$3: one line, no report, no index"
}

fresh
k3-index "$m" >"$tmp/out" 2>"$tmp/err"
ok $? "the unbroken checkpoint is indexed"
is "$(cat "$tmp/err")" "" "without a warning"

# the length of the header
bad 'length = len(text or b"") + 10**9' "$s2: a header of [0-9]+ bytes is longer than" "header above 100 MB"
bad 'length = 2**63 + 5' "$s2: a header of 9223372036854775813 bytes" "header of 2^63 bytes"
bad 'length = 99000000' "$s2: the header of 99000000 bytes does not fit" "header beyond the file"
bad 'length = 0' "$s2: the header is empty" "header of 0 bytes"
fresh; printf 'abc' >"$m/$s2"
fails 1 "$s2: 3 bytes are no safetensors" "a file of 3 bytes" k3-index "$m"
fresh; : >"$m/$s2"
fails 1 "$s2: 0 bytes are no safetensors" "an empty file" k3-index "$m"
fresh; rm "$m/$s2"; mkdir "$m/$s2"
fails 1 "$s2: not a regular file" "a directory named like a shard" k3-index "$m"
fresh; rm "$m/$s2"; mkfifo "$m/$s2"
fails 1 "$s2: not a regular file" "a fifo named like a shard" k3-index "$m"
fresh; ln -sf nowhere "$m/$s2"
fails 1 "$s2: No such file" "a dangling link" k3-index "$m"

# the JSON
bad 'text = json.dumps(head).encode()[:-1]' "$s2: broken JSON" "JSON without its end"
bad 'text = b"x" + json.dumps(head).encode()' "$s2: broken JSON" "JSON with rubbish in front"
bad 'text = json.dumps(head).encode() + b"{}"' "$s2: something follows" "a second value"
bad 'text = json.dumps(head).encode() + b"x"' "$s2: something follows" "rubbish behind it"
bad 'text = b"[]"' "$s2: the header is not a JSON object" "a list"
bad 'text = b"[{}]"' "$s2: the header is not a JSON object" "a list of an object"
bad 'text = b"7"' "$s2: the header is not a JSON object" "a number"
bad 'text = b"   "' "$s2: empty" "blanks"
bad 'text = b"["*5000' "$s2: JSON nested deeper than 64" "5000 brackets"
bad 'text = b"{\"a\":"*100000' "$s2: JSON nested deeper than 64" "100000 braces"
bad 'text = b"{\"a\":{\"dtype\":" + b"["*9 + b"]"*9 + b"}}"' "tensor a: " "lists for a dtype"

# one description
one='t = head[names[3]]; '
bad "$one del t['dtype']" "tensor .*: has no dtype" "no dtype"
bad "$one del t['shape']" "tensor .*: has no shape" "no shape"
bad "$one del t['data_offsets']" "tensor .*: has no data_offsets" "no offsets"
bad "$one t['data_offsets'] = [0]" "tensor .*: has no data_offsets of two" "one offset"
bad "$one t['data_offsets'].append(9)" "tensor .*: data_offsets are not two" "three offsets"
bad "$one t['data_offsets'][0] = -1" "tensor .*: data_offsets are not two" "a negative offset"
bad "$one t['data_offsets'][0] = 1.5" "tensor .*: data_offsets are not two" "half an offset"
bad "$one t['data_offsets'][1] = 2**64" "tensor .*: data_offsets are not two" "an offset of 2^64"
bad "$one t['data_offsets'][1] = float('nan')" "tensor .*: data_offsets are not|broken JSON" "NaN"
bad "$one t['data_offsets'] = t['data_offsets'][::-1]" "tensor .*: data_offsets .* do not hold" "reversed offsets"
bad "$one t['data_offsets'] = '0'" "tensor .*: data_offsets are not two" "a string for offsets"
bad "$one t['data_offsets'] = {'a': 1}" "tensor .*: data_offsets are not two" "an object for offsets"
bad "$one t['dtype'] = 'F17'" "tensor .*: unknown dtype F17" "an unknown dtype"
bad "$one t['dtype'] = 7" "tensor .*: dtype is not one short string" "a number for a dtype"
bad "$one t['dtype'] = 'B' * 10000" "tensor .*: dtype is not one short string" "a long dtype"
bad "$one t['shape'] = 7" "tensor .*: shape is not a list" "a number for a shape"
bad "$one t['shape'] = [[1]]" "tensor .*: is described by lists within lists" "a shape of lists"
bad "$one t['shape'] = [1] * 9" "tensor .*: more than 8 dimensions" "nine dimensions"
bad "$one t['shape'] = [2**40, 2**40]" "tensor .*: its shape is too large" "2^80 elements"
bad "$one t['shape'][0] = '3'" "tensor .*: shape is not a list of sizes" "a string in a shape"
bad "$one t['color'] = 'red'" "tensor .*: unknown field color" "an unknown field"
bad "head[names[3]] = 7" "tensor .*: is not described by an object" "a number for a tensor"
bad "head[names[3]] = {}" "tensor .*: is not described by an object" "nothing for a tensor"
bad "head[names[3]] = [1]" "tensor .*: is described by a list" "a list for a tensor"
bad "text = json.dumps(head).replace('\"dtype\"', '\"dtype\": \"F32\", \"dtype\"', 1).encode()" \
	"tensor .*: dtype is not one short string" "a dtype twice"
bad "text = json.dumps(head).replace('\"shape\"', '\"shape\": [5], \"shape\"', 1).encode()" \
	"tensor .*: shape is given twice|more than 8" "a shape twice"
for second in 7 '[]' '{}' '[[1]]' '{"a":1}' null '"x"' '[5]'; do
	bad "text = dump(head).replace(b'\"shape\":', b'\"shape\":[5],\"shape\":$second,\"x\":', 1)" \
		"tensor .*: (shape|is described|unknown|more than|its shape|data_offsets)" "shape [5], then $second"
	bad "text = dump(head).replace(b'\"data_offsets\":', b'\"data_offsets\":$second,\"data_offsets\":', 1)" \
		"tensor .*: (data_offsets|is described)" "data_offsets $second, then others"
	bad "text = dump(head).replace(b'\"dtype\":', b'\"dtype\":$second,\"dtype\":', 1)" \
		"tensor .*: (dtype|is described)" "dtype $second, then another"
done
bad "head['__metadata__'] = {'a': 7}" "__metadata__ is not one object of strings" "numbers as metadata"
bad "head['__metadata__'] = 'x'" "__metadata__ is not one object of strings" "a string as metadata"
bad "text = b'{\"__metadata__\":{\"a\":\"b\"},\"__metadata__\":{}}'" \
	"__metadata__ is not one object of strings" "metadata twice"

# names
bad "n = names[3]; text = json.dumps(head).encode()[:-1] + b',' + json.dumps({n: head[n]}).encode()[1:]" \
	"$s2: tensor .* is there twice" "a name twice in a shard"
fresh
edit "$m/$s3" "n = 'language_model.model.layers.0.input_layernorm.weight'; k = len(data)
head[n] = dict(dtype='BF16', shape=[32], data_offsets=[k, k + 64]); data += bytes(64)"
fails 1 "tensor language_model.model.layers.0.input_layernorm.weight is in both $s1 and $s3" \
	"a name in two shards" k3-index "$m"
bad "head['language_model.extra'] = head.pop(names[3])" \
	"does not imply: language_model.extra in $s2" "an unknown tensor is named"
bad "for i, n in enumerate(names[:9]): head['odd%d' % i] = head.pop(n)" \
	"does not imply: .*odd.*, and 4 more" "many unknown tensors are counted"
bad "head['language_model.model.layers.01.input_layernorm.weight'] = head.pop(names[3])" \
	"does not imply: language_model.model.layers.01" "a layer with a zero in front"
bad "head['x' * 10000] = head.pop(names[3])" "does not imply: x{200} in $s2" "a very long name"
bad "head['bad\\x1b[31m\\n'] = head.pop(names[3])" 'does not imply: bad\?\[31m\?' "control characters are masked"
bad "head['a\\0b'] = head.pop(names[3])" 'does not imply: a' "a name with a NUL"
fresh
"$python" - "$m/config.json" <<'EOF'
import json, sys
c = json.load(open(sys.argv[1]))
c['text_config']['num_experts'] = 2
json.dump(c, open(sys.argv[1], 'w'))
EOF
fails 1 'e_score_correction_bias is F32 \[3\] where config.json implies F32 \[2\]' \
	"a config of another model" k3-index "$m"

# places
bad "data += bytes(8)" "$s2: the file has [0-9]+ bytes, but its tensors end at" "8 bytes too many"
bad "del data[-1:]" "$s2: cut short" "one byte too few"
bad "del data[:]" "$s2: cut short" "no data at all"
bad "
for t in head.values(): t['data_offsets'] = [o + 16 for o in t['data_offsets']]
data[:0] = bytes(16)" "$s2: a hole of 16 bytes in front of tensor" "a hole at the start"
bad "
a = sorted(head.values(), key=lambda t: t['data_offsets'])
for t in a[5:]: t['data_offsets'] = [o + 4 for o in t['data_offsets']]
data += bytes(4)" "$s2: a hole of 4 bytes in front of tensor" "a hole in the middle"
bad "
a = sorted(head.values(), key=lambda t: t['data_offsets'])
for t in a[5:]: t['data_offsets'] = [o - 4 for o in t['data_offsets']]
del data[-4:]" "$s2: tensor .* overlaps tensor" "an overlap"
bad "
a = sorted(head.values(), key=lambda t: t['data_offsets'])
k = a[4]['data_offsets'][1] - a[4]['data_offsets'][0]
b = [t for t in a if t['data_offsets'][1] - t['data_offsets'][0] == k]
b[-1]['data_offsets'] = b[0]['data_offsets']" "$s2: (tensor .* overlaps|a hole)" "two tensors at one place"

# what the config implies
bad "head[names[3]]['shape'].insert(0, 1)" "tensor .* is .* where config.json implies" "a dimension too many"
bad "
t = next(t for t in head.values() if t['dtype'] == 'BF16')
t['dtype'] = 'F16'" "tensor .* is F16 \[.* where config.json implies BF16 \[" "F16 for BF16"
bad "
t = next(t for t in head.values() if len(t['shape']) == 2 and t['shape'][0] != t['shape'][1])
t['shape'] = t['shape'][::-1]" "tensor .* where config.json implies" "a matrix transposed"
bad "
n = next(n for n in names if n.endswith('norm.weight'))
k = head[n]['data_offsets']
for t in head.values():
    if t['data_offsets'][0] >= k[1]: t['data_offsets'] = [o - k[1] + k[0] for o in t['data_offsets']]
del data[k[0]:k[1]]
del head[n]" "tensor language_model.* is in none of the shards" "a tensor missing"
fresh
edit "$m/$s2" "head.clear(); del data[:]"
fails 1 "tensor language_model.* and [0-9]+ more are in none of the shards" "an empty shard" k3-index "$m"

# the directory
fresh; rm "$m"/*.safetensors
fails 1 "no \\*.safetensors file" "no shard at all" k3-index "$m"
fresh; rm "$m/config.json"
fails 1 "config.json: No such file" "no config" k3-index "$m"
fresh; echo '{"model_type":' >"$m/config.json"
fails 1 "config.json: broken JSON" "half a config" k3-index "$m"
fresh; cp "$m/$s2" "$m/model-00002-of-000004.safetensors"
fails 1 "belong to different sets" "shards of two sets" k3-index "$m"
fresh; mv "$m/$s3" "$m/model-00004-of-000003.safetensors"
fails 1 "model-00004-of-000003.safetensors: not a number of a shard" "shard 4 of 3" k3-index "$m"
fails 1 "nowhere: No such file" "no directory" k3-index "$tmp/nowhere"
fails 2 "K3_MODEL" "no model named" k3-index
fails 2 "twice" "two models" k3-index -m a b
fails 2 "exclude" "list and verify" k3-index -l --verify "$m"
fails 2 "unknown option.*--bad" "an unknown option" k3-index --bad
fresh
fails 1 "standard output|No space" "a full disk" sh -c 'k3-index -l -m "$1" >/dev/full' sh "$m"
fails 1 "no/such/dir" "an output that cannot be written" k3-index -o "$tmp/no/such/dir/x" "$m"
mkfifo "$tmp/fifo"
fails 1 "fifo: not a regular file" "an output that is no file" k3-index -o "$tmp/fifo" "$m"
[ -p "$tmp/fifo" ]
ok $? "it stays what it was"
: >"$tmp/old.k3i"
ln -s old.k3i "$tmp/link"
k3-index -o "$tmp/link" "$m" >/dev/null && [ -L "$tmp/link" ] && [ -s "$tmp/old.k3i" ]
ok $? "a link to an output stays a link"

plan
