#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-tokenize from text to ids: documents, pieces, options, what fails.
. tests/cmd/lib.sh

is "$(k3-tokenize --help | head -n 1)" \
	'usage: k3-tokenize [-m MODEL] [--special] [-l | -0] [-p] [FILE...]' '--help on stdout'
is "$(k3-tokenize -V)" "k3-tokenize (k3) $(cat VERSION)" '-V'
fails 2 'no model: give -m MODEL or set K3_MODEL' 'no model' k3-tokenize </dev/null
fails 1 "nowhere/tiktoken.model: No such file" 'a model that is not there' \
	k3-tokenize -m "$tmp/nowhere" </dev/null
K3_MODEL=$demo
export K3_MODEL
for wrong in '-l -0' '-d -l' '-d -0' '-d -p' '-d --special' '-b 2' '-p -b all' '-d -b 0' '-d -b x' \
	'-d -b -1' '-d -b 1000001' -q --nothing -lq -m '--special=1'; do
	# shellcheck disable=SC2086
	fails 2 '^k3-tokenize: ' "wrong: $wrong" k3-tokenize $wrong </dev/null
done
is "$(k3-tokenize -lq 2>&1 | head -n 1)" 'k3-tokenize: -q is not an option, or has no argument' \
	'the wrong letter is named'
is "$(k3-tokenize --nothing 2>&1 | head -n 1)" "k3-tokenize: '--nothing' is not an option" \
	'the wrong word is named'

# documents: the demo's ids below 256 are bytes, and \001 \002 make no tokens
is "$(printf '\001\n\002\n' | k3-tokenize)" '1 10 2 10' 'all of stdin is one document'
is "$(k3-tokenize </dev/null | od -An -c)" '  \n' 'no text is an empty line'
is "$(k3-tokenize <&- | od -An -c)" '  \n' 'a closed stdin is no text'
is "$(printf '\001\n\n\002' | k3-tokenize -l)" "$(printf '1\n\n2')" '-l: a line is a document'
is "$(printf '\001\n' | k3-tokenize -l)" 1 '-l: an ended line is not followed by an empty one'
is "$(k3-tokenize -l </dev/null | od -An -c)" '' '-l: no text is no line'
is "$(printf '\001\n\000\000\002\n\000' | k3-tokenize -0)" "$(printf '1 10\n\n2 10')" '-0: NUL ends a document'
printf '\001' >"$tmp/a b"
printf '\002\n\003' >"$tmp/c"
is "$(printf '\004' | k3-tokenize "$tmp/a b" - "$tmp/c" /dev/null)" "$(printf '1\n4\n2 10 3\n\n')" \
	'each file is a document, - is stdin'
is "$(k3-tokenize -l "$tmp/c" "$tmp/a b")" "$(printf '2\n3\n1')" 'a file ends its last line'
is "$(cd "$tmp" && ln -s "$demo" 'my model' && k3-tokenize -m 'my model' c)" '2 10 3' \
	'a model with a blank in its name'
mkdir "$tmp/bare"
cp "$demo/tiktoken.model" "$demo/tokenizer_config.json" "$tmp/bare"
chmod a-w "$tmp/bare"
is "$(k3-tokenize -m "$tmp/bare" "$tmp/c")" '2 10 3' 'the two files are enough'

is "$(find "$tmp/bare" -type f | wc -l)" 2 'and nothing was made beside them'
k3-index -o "$tmp/demo.k3i" "$demo" >/dev/null
is "$(k3-tokenize -m "$tmp/demo.k3i" "$tmp/c")" '2 10 3' 'an index for a model'
fails 1 "c: " 'a file that is no index' k3-tokenize -m "$tmp/c" "$tmp/c"

# longer than any buffer, with and without an end
awk 'BEGIN { for (i = 0; i < 30000; i++) printf "line %d of these\n", i }' >"$tmp/long"
k3-tokenize -l "$tmp/long" >"$tmp/ids"
is "$(wc -l <"$tmp/ids")" 30000 '-l: 30,000 lines are as many'
is "$(k3-tokenize -d "$tmp/ids")" "$(tr -d '\n' <"$tmp/long")" '-l: and nothing is lost'
tr -d '\n' <"$tmp/long" | k3-tokenize >"$tmp/one"
tr -d '\n' <"$tmp/long" | k3-tokenize -l | cmp -s - "$tmp/one"
ok $? '-l: a long line is what it is without -l'

# a document is encoded when it ends, not when the input does
mkfifo "$tmp/in"
k3-tokenize -l <"$tmp/in" >"$tmp/out" &
exec 3>"$tmp/in"
printf '\001\n\002' >&3
i=0
while [ "$(cat "$tmp/out")" != 1 ] && [ $i -lt 100 ]; do
	sleep 0.1
	i=$((i + 1))
done
is "$(cat "$tmp/out")" 1 '-l: a line is encoded when it has come'
exec 3>&-
wait
is "$(cat "$tmp/out")" "$(printf '1\n2')" '-l: and the rest at the end'

# every byte comes back
head -c 300000 "$demo/model-00001-of-000002.safetensors" >"$tmp/bytes"
k3-tokenize "$tmp/bytes" | k3-tokenize -d >"$tmp/back"
same "$tmp/back" "$tmp/bytes" 'any bytes come back'

# pieces
printf 'AB\344\275\240\345\245\275c\n' >"$tmp/han"
cat >"$tmp/want" <<'END'
0	65	41	"A"
0	66	42	"B"
1	228	e4	"�"
1	189	bd	"�"
1	160	a0	"�"
1	229	e5	"�"
1	165	a5	"�"
1	189	bd	"�"
2	99	63	"c"
3	10	0a	"\n"

END
k3-tokenize -p "$tmp/han" >"$tmp/got"
same "$tmp/got" "$tmp/want" '-p: Han characters are a piece of their own'
is "$(printf '<|sep|>"' | k3-tokenize -p --special | head -n 1)" \
	"$(printf '0\t1797\t3c7c7365707c3e\t"<|sep|>"')" '-p: a special id is a piece'
is "$(printf '\001\n\n\002' | k3-tokenize -p -l | tr '\t\n' ' ;')" \
	'0 1 01 "\u0001";;;0 2 02 "\u0002";;' '-p -l: an empty line ends a document'
printf '<|sep|>' >"$tmp/special"
is "$(k3-tokenize --special "$tmp/special")" 1797 '--special: the spelling is the id'
is "$(k3-tokenize "$tmp/special" | k3-tokenize -d)" '<|sep|>' 'without it, it is text'
is "$(k3-tokenize "$tmp/special" | grep -c 1797)" 0 'that has no special id'

# what fails
fails 1 "nothing: No such file" 'a file that is not there' k3-tokenize "$tmp/nothing"
fails 1 "bare: Is a directory" 'a directory for a file' k3-tokenize "$tmp/bare"
fails 1 "bare: Is a directory" '-l: a directory for a file' k3-tokenize -l "$tmp/bare"
if [ -w /dev/full ]; then
	for options in '' -l -p; do
		# shellcheck disable=SC2016
		fails 1 'standard output: No space left' "a full disk $options" \
			sh -c 'k3-tokenize $1 "$2" >/dev/full' - "$options" "$tmp/long"
	done
	fails 1 'standard output: No space left' 'a full disk for --help' \
		sh -c 'k3-tokenize --help >/dev/full'
fi
{ k3-tokenize -l "$tmp/long" 2>"$tmp/err"; echo $? >"$tmp/status"; } | head -n 1 >/dev/null
is "$(cat "$tmp/status") $(cat "$tmp/err")" '141 ' 'a reader that goes ends it by SIGPIPE'

# the two files: one sentence with name and line, nothing on stdout
cp -R "$tmp/bare" "$tmp/bad"
chmod u+w "$tmp/bad"
sed '700d' "$demo/tiktoken.model" >"$tmp/bad/tiktoken.model"
fails 1 "bad/tiktoken.model: line 700 has rank 700 where rank 699 must stand" 'a gap' \
	k3-tokenize -m "$tmp/bad" "$tmp/long"
is "$(wc -c <"$tmp/fails.out") $(wc -l <"$tmp/fails.err")" '0 1' 'one line, and no output'
sed 's/$/\r/' "$demo/tiktoken.model" >"$tmp/bad/tiktoken.model"
fails 1 'line 1 ends with a carriage return' 'CRLF' k3-tokenize -m "$tmp/bad" "$tmp/long"
head -c 20000 "$demo/tiktoken.model" >"$tmp/bad/tiktoken.model"
fails 1 'line [0-9]* has no newline: the file is cut short' 'a vocabulary cut short' \
	k3-tokenize -m "$tmp/bad" "$tmp/long"
cp "$demo/tiktoken.model" "$tmp/bad"
head -c 500 "$demo/tokenizer_config.json" >"$tmp/bad/tokenizer_config.json"
fails 1 'bad/tokenizer_config.json: ' 'names cut short' k3-tokenize -m "$tmp/bad" "$tmp/long"
plan
