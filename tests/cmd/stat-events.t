#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-stat on event streams, against jq.
. tests/cmd/lib.sh
cd "$tmp" || exit 1

cat >ev <<'EOF'
{"event":"layer","layer":0,"seconds":0.25,"hits":[1,2]}
{"event":"layer","layer":1,"seconds":0.75,"name":"kda"}
{"event":"route","layer":1,"bytes":9007199254740991}
{"event":"layer","layer":2,"seconds":-1e-3,"nested":{"x":5}}
{"layer":7}
EOF
k3-stat ev >got
cat >want <<'EOF'
ev: event stream
event        field             count          min          max         mean
layer        -                     3            -            -            -
layer        layer                 3            0            2            1
layer        seconds               3       -0.001         0.75        0.333
route        -                     1            -            -            -
route        layer                 1            1            1            1
route        bytes                 1   9.0072e+15   9.0072e+15   9.0072e+15
-            -                     1            -            -            -
-            layer                 1            7            7            7
EOF
same got want "the table"
k3-stat -j ev >got
jq -c 'del(.fields)' got >some
cat >want <<'EOF'
{"schema":"k3.stat/1","file":"ev","kind":"events","event":"layer","count":3}
{"schema":"k3.stat/1","file":"ev","kind":"events","event":"route","count":1}
{"schema":"k3.stat/1","file":"ev","kind":"events","event":null,"count":1}
EOF
same some want "as JSON"
jq -c '[.event, .fields.layer.count, .fields.layer.min, .fields.layer.max, .fields.layer.mean]' got >some
cat >want <<'EOF'
["layer",3,0,2,1]
["route",1,1,1,1]
[null,1,7,7,7]
EOF
same some want "with the numbers of each field"
is "$(jq -c '.fields.bytes.max // empty' got)" 9007199254740991 "large whole numbers are whole"

# many lines, over the borders of what is read at a time
seq 30000 | jq -c '{event: (if . % 3 == 0 then "a" else "b" end), n: ., half: (. / 2), s: "x"}' >many
k3-stat -j many | jq -c '[.event, .count, .fields.n.min, .fields.n.max, .fields.n.mean, .fields.half.mean]' |
	sort >got
jq -sc 'group_by(.event)[] | [.[0].event, length, (map(.n) | min, max, add / length),
	(map(.half) | add / length)]' many >want
same got want "30000 lines agree with jq"
(while read -r line; do printf '%s\n' "$line"; done <ev) | k3-stat -j | jq -c .count >got
jq -c .count >want <<'EOF'
{"count":3} {"count":1} {"count":1}
EOF
same got want "through a pipe, line by line"
printf '{"event":"x","n":1}' >last
is "$(k3-stat -j last | jq -c '[.event,.count]')" '["x",1]' "a last line without its newline"
printf '{}' >small
is "$(k3-stat -j small | jq -c '[.event,.count,.fields]')" '[null,1,{}]' "an object with nothing in it"
printf '{"event":"\\u001b[2J"}\n' >esc
is "$(k3-stat esc | sed -n '3s/ .*//p')" '?[2J' "control characters do not reach the terminal"

# bad LINE TEXT: a second line that is no event; the first is reported all the same
bad() {
	{ echo '{"event":"a"}'; printf %b "$1"; } >bad
	fails 1 '^k3-stat: bad: line 2 is not a JSON object$' "$2" k3-stat -j bad
	is "$(jq -r .event fails.out)" a "  behind one that is"
}
bad '[1]\n' "an array"
bad '\n' "an empty line"
bad '{"a":1} {"b":2}\n' "two objects"
bad '{"a":1' "a line that is cut"
bad '{"a":1}x\n' "text behind an object"
bad '{"a":\n1}\n' "an object over two lines"
bad '{"a\\0000b' "a NUL"
deep=$("${AWK:-awk}" 'BEGIN { for (i = 0; i < 20000; i++) printf "{\"a\":" }')
bad "$deep" "twenty thousand levels"
echo 'not json' | sed 's/^/{/' >bad
fails 1 'line 1 is not a JSON object' "a brace and no JSON" k3-stat bad
fails 1 'standard output: No space left' "a full disk" sh -c 'k3-stat ev >/dev/full'
plan
