#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-tokenize -d: ids to bytes as they come, rounds of -b, ids that are none.
. tests/cmd/lib.sh
K3_MODEL=$demo
export K3_MODEL

is "$(printf '72 105\n\n\t33  \n63' | k3-tokenize -d)" 'Hi!?' 'blanks and newlines separate'
is "$(k3-tokenize -d </dev/null | wc -c)" 0 'no ids, no bytes'
is "$(k3-tokenize -d <&- | wc -c)" 0 'a closed stdin is no ids'
is "$(echo 0072 1797 2047 2000 | k3-tokenize -d)" 'H<|sep|>[PAD]<|reserved_token_2000|>' \
	'special ids decode to their spelling'
echo 65 >"$tmp/a"
printf 66 >"$tmp/b"
is "$(printf 67 | k3-tokenize -d "$tmp/a" "$tmp/b" - "$tmp/a")" ABCA 'files follow each other'
is "$(echo 228 189 | k3-tokenize -d | od -An -tx1)" ' e4 bd' 'bytes of a character that is not whole'

# an id is written when the blank behind it has come
mkfifo "$tmp/in"
k3-tokenize -d <"$tmp/in" >"$tmp/out" &
exec 3>"$tmp/in"
# soon BYTES TEXT: the output becomes these bytes while the input stays open
soon() {
	i=0
	while [ "$(cat "$tmp/out")" != "$1" ] && [ $i -lt 100 ]; do
		sleep 0.1
		i=$((i + 1))
	done
	is "$(cat "$tmp/out")" "$1" "$2"
}
printf '72 ' >&3
soon H 'an id in an open line is decoded'
printf '10' >&3
sleep 0.3
is "$(cat "$tmp/out")" H 'one that may go on is not'
printf '5 3' >&3
soon Hi 'until it has ended'
printf '3' >&3
exec 3>&-
wait
is "$(cat "$tmp/out")" 'Hi!' 'the end of the input ends it too'

# rounds
cat >"$tmp/want" <<'END'
{"sequence":0,"ids":[72,105,33],"text":"Hi!"}
{"sequence":1,"ids":[],"text":""}
{"sequence":2,"ids":[228,189,34,1797],"text":"�\"<|sep|>"}
END
printf '72\n\n228 189\n105 33\n\n34 1797\n' | k3-tokenize -d -b 3 >"$tmp/got"
same "$tmp/got" "$tmp/want" '-b 3: two rounds of three lines'
is "$(jq -c '[.sequence, (.ids | length), (.text | length)]' "$tmp/got" | tr '\n' ' ')" \
	'[0,3,3] [1,0,0] [2,4,9] ' 'jq reads them'
printf '72 105 33\n\n228 189 34 1797\n' | k3-tokenize -d -b all >"$tmp/got"
same "$tmp/got" "$tmp/want" '-b all: one round of all lines'
is "$(k3-tokenize -d -b all </dev/null | wc -c)" 0 '-b all: no lines, no sequences'
is "$(k3-tokenize -d -b 2 </dev/null | jq -c .ids | tr '\n' ' ')" '[] [] ' '-b 2: no round at all'
is "$(printf '228\n189\n160\n' | k3-tokenize -d -b 1 | jq -r .text)" 你 'a character across lines'
printf '1\n2\n3\n' >"$tmp/three"
fails 1 'the input ends inside a round: 3 lines are not a multiple of 2' 'a round cut short' \
	k3-tokenize -d -b 2 "$tmp/three"
is "$(wc -c <"$tmp/fails.out")" 0 'nothing is written for it'
printf '1\n2' >"$tmp/cut"
fails 1 'cut: line 2 has no newline: the round is cut short' 'a line cut short' \
	k3-tokenize -d -b 2 "$tmp/cut"

# what is no id
# bad TEXT PATTERN: the text, with escapes as for printf, is refused by a sentence with the pattern
bad() {
	printf '%b' "$1" >"$tmp/bad"
	fails 1 "/bad: $2" "no id: $2" k3-tokenize -d "$tmp/bad"
	fails 1 "/bad: $2" "no id in a round: $2" k3-tokenize -d -b all "$tmp/bad"
	is "$(wc -c <"$tmp/fails.out") $(wc -l <"$tmp/fails.err")" '0 1' 'one line, and no output'
}
bad '1 2\n3 -4\n' "line 2, id 2: '-4' is not an id of this model, a number from 0 to 2047"
bad '2048\n' "line 1, id 1: '2048' is not an id"
bad '\n\n 1 18446744073709551617 \n' "line 3, id 2: '18446744073709551617' is not"
bad '1 two\n' "line 1, id 2: 'two' is not"
bad '1.0\n' "line 1, id 1: '1.0' is not"
bad '+1\n' "line 1, id 1: '\\+1' is not"
bad '0x1\n' "line 1, id 1: '0x1' is not"
bad '1,2\n' "line 1, id 1: '1,2' is not"
bad '1\r\n' "line 1, id 1: '1\\?' is not"
bad '6\00005\n' "line 1, id 1: '6' is not"
bad '0000000000000000000000000000000000000000000000001\n' \
	"line 1, id 1: '0000000000000000000000000000000000000000' is not"
printf '72 105 x 33' >"$tmp/bad"
is "$(k3-tokenize -d "$tmp/bad" 2>/dev/null)" Hi 'what came before is written'
fails 1 'nothing: No such file' 'a file that is not there' k3-tokenize -d "$tmp/nothing"
if [ -w /dev/full ]; then
	# shellcheck disable=SC2016
	fails 1 'standard output: No space left' 'a full disk' \
		sh -c 'k3-tokenize -d "$1" >/dev/full' - "$tmp/three"
	# shellcheck disable=SC2016
	fails 1 'standard output: No space left' 'a full disk for rounds' \
		sh -c 'k3-tokenize -d -b 3 "$1" >/dev/full' - "$tmp/three"
fi
plan
