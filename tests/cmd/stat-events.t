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

# ---- rounds of a trace: what is expected is worked out by hand ----

# 0	one id: it waited for 1.25 s of 3.5; 4 + 1 GB read, 2.5 + 3 kept; experts 3 of 3 + 1; 7 GB in 3.5 s
# 1	eight ids of three sequences, each an eighth of 2 s, .5 s, 6 + 2 GB, 1 + 8 GB; experts 8 of 8 + 2; 9 GB in 2 s
# 2	no id that any of it could be divided by
# 4	three ids, of 4200 GB; a third of a second has no last digit
cat >rounds <<'EOF'
{"event":"layer","round":0,"layer":0,"tokens":1,"seconds":9,"waited":8,"trunk_bytes":7,"expert_bytes":6}
{"event":"round","round":0,"tokens":1,"seconds":3.5,"waited":1.25,"trunk_bytes":4000000000,"expert_bytes":1000000000,"trunk_kept":2500000000,"expert_kept":3000000000,"disk_bytes":7000000000}
{"event":"route","round":1,"layer":1,"sequence":0,"position":1,"experts":[1,2],"weights":[0.5,0.5]}
{"event":"route","round":1,"layer":1,"sequence":2,"position":0,"experts":[0,2],"weights":[0.5,0.5]}
{"disk_bytes":9000000000,"expert_kept":8000000000,"trunk_kept":1000000000,"expert_bytes":2000000000,"trunk_bytes":6000000000,"waited":0.5,"seconds":2,"tokens":8,"round":1,"event":"round"}
{"event":"round","round":2,"tokens":0,"seconds":0.5,"waited":0.25,"trunk_bytes":10,"expert_bytes":30,"trunk_kept":5,"expert_kept":10,"disk_bytes":400}
{"round":3,"tokens":5,"seconds":1,"waited":1}
{"event":"round","round":4,"tokens":3,"seconds":1000,"waited":0.5,"trunk_bytes":4200000000000,"expert_bytes":0,"trunk_kept":0,"expert_kept":700,"disk_bytes":4300000000000,"drafted":2,"taken":1}
EOF
k3-stat rounds | sed -n '/^$/,$p' >got
cat >want <<'EOF'

a token: seconds, GB of weights; and the disk's GB/s
round  tokens    seconds     waited   computed         read         kept   hits     disk
    0       1     3.5000     1.2500     2.2500     5.000000     5.500000  0.750    2.000
    1       8     0.2500     0.0625     0.1875     1.000000     1.125000  0.800    4.500
    2       0     0.0000     0.0000     0.0000     0.000000     0.000000  0.250    0.000
    4       3   333.3333     0.1667   333.1667  1400.000000     0.000000  1.000    4.300
EOF
same got want "rounds: the table"
k3-stat -j rounds | jq -c 'select(.kind == "round") | map_values(. + if type == "number" then 0 else "" end)' >got
cat >want.j <<'EOF'
{"schema":"k3.stat/1","file":"rounds","kind":"round","round":0,"tokens":1,"seconds_per_token":3.5,"waited_per_token":1.25,"computed_per_token":2.25,"read_per_token":5000000000,"kept_per_token":5500000000,"expert_hits":0.75,"disk_rate":2000000000}
{"schema":"k3.stat/1","file":"rounds","kind":"round","round":1,"tokens":8,"seconds_per_token":0.25,"waited_per_token":0.0625,"computed_per_token":0.1875,"read_per_token":1000000000,"kept_per_token":1125000000,"expert_hits":0.8,"disk_rate":4500000000}
{"schema":"k3.stat/1","file":"rounds","kind":"round","round":2,"tokens":0,"seconds_per_token":0,"waited_per_token":0,"computed_per_token":0,"read_per_token":0,"kept_per_token":0,"expert_hits":0.25,"disk_rate":800}
{"schema":"k3.stat/1","file":"rounds","kind":"round","round":4,"tokens":3,"seconds_per_token":333.333333,"waited_per_token":0.166667,"computed_per_token":333.166667,"read_per_token":1400000000000,"kept_per_token":233,"expert_hits":1,"disk_rate":4300000000}
EOF
same got want.j "rounds: as JSON"
is "$(k3-stat -j rounds | jq -c '[.event, .round]' | paste -s -d ' ' -)" \
	'["layer",null] ["round",null] ["route",null] [null,null] [null,0] [null,1] [null,2] [null,4]' "they come behind the kinds of events"
k3-stat -j rounds rounds ev | jq -r 'select(.kind == "round").round' | paste -s -d ' ' - >got
echo 0 1 2 4 0 1 2 4 >want
same got want "each of two files has its own"
is "$(k3-stat -j <rounds | jq -r 'select(.kind == "round").waited_per_token' | paste -s -d ' ' -)" '1.25 0.0625 0 0.166667' \
	"or a stream"
is "$(k3-stat ev | grep -c 'a token')" 0 "no table where there is no round"

cat >holes <<'EOF'
{"event":"round"}
{"event":"round","round":6,"tokens":2,"seconds":3}
{"event":"round","round":7,"tokens":2,"waited":null,"seconds":"5","trunk_bytes":8,"expert_kept":[4],"disk_bytes":60}
{"event":"round","round":8,"tokens":"2","seconds":4,"waited":1,"expert_bytes":6,"disk_bytes":60}
{"event":"round","round":9,"tokens":2,"trunk_kept":12,"expert_bytes":6}
EOF
k3-stat -j holes >out 2>err
is "$?,$(cat err)" 0, "members that are missing or of another type are no error"
jq -c 'select(.kind == "round") | [.round, .tokens, .seconds_per_token, .waited_per_token, .computed_per_token, .read_per_token,
	.kept_per_token, .expert_hits, .disk_rate] | map(. + 0)' out >got
cat >want <<'EOF'
[0,0,0,0,0,0,0,0,0]
[6,2,1.5,0,1.5,0,0,0,0]
[7,2,0,0,0,4,0,0,0]
[8,0,0,0,0,0,0,0,15]
[9,2,0,0,0,3,6,0,0]
EOF
same got want "and count as 0"

{ sed -n 2p rounds; echo '{"event":"round","round":1'; sed -n 5p rounds; } >bad
fails 1 '^k3-stat: bad: line 2 is not a JSON object$' "a round that is cut" k3-stat -j bad
is "$(jq -c 'select(.kind == "round") | [.round, .waited_per_token + 0]' fails.out)" '[0,1.25]' "and the one before it"
fails 1 'bad: line 2 is not' "the same as a table" k3-stat bad
is "$(tail -n 1 fails.out | tr -s ' ')" ' 0 1 3.5000 1.2500 2.2500 5.000000 5.500000 0.750 2.000' "with its line"
plan
