#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Published ids of Kimi K3's own tokenizer, on a vocabulary of its size and byte order.
. tests/cmd/lib.sh

mkdir "$tmp/m"
python3 tests/reference/k3vocab.py "$tmp/m"
K3_MODEL=$tmp/m
export K3_MODEL

# ids TEXT IDS [OPTION...]: the text has these ids
ids() {
	text=$1 want=$2
	shift 2
	is "$(printf %s "$text" | k3-tokenize "$@")" "$want" "$text $*"
}

ids 1234567890 '6694 12972 16242 15'
ids 'a    b' '64 274 291'
ids 'hello ' '22931 220'
ids 'before<|sep|>after' '14435 163589 14306' --special
# a slot with a name has no reserved spelling, one without a name has
ids '<|reserved_token_163839|>' '27 91 64345 14147 62 18752 56284 91 29' --special
ids '<|reserved_token_163592|><|reserved_token_163837|>' '163592 163837' --special
text='literal <|open|> and <|end_of_msg|> and [BOS] here'
ids "$text" '82319 22652 4454 91 29 316 22652 517 5118 14222 91 29 316 793 33 4110 60 2397'
ids "$text" '82319 220 163587 316 220 163586 316 220 163584 2397' --special

# a conversation: each segment is a document
is "$(printf '%s\n' message ' role' '="' user '"' 'What is 2 + 2?' assistant think |
	k3-tokenize -l | tr '\n' ';')" \
	'2778;6244;878;2482;1;5376 387 220 17 715 220 17 30;69702;39964;' 'segments of a conversation'
ids '<|open|>message role="user"<|sep|>' '163587 2778 6244 878 2482 1 163589' --special

# ids 0 to 255 are the bytes in their own order, not by value
is "$(printf '\000 \n~' | k3-tokenize)" '188 220 198 93' 'NUL, space, newline and ~'
is "$(k3-tokenize -p <"$tmp/m/tokenizer_config.json" | awk -F'\t' '$4 == "\"{\"" { print $2; exit }')" \
	90 '{ is 90'
is "$(echo 0 93 94 105 106 187 | k3-tokenize -d | od -An -tx1)" ' 21 7e a1 ac ae ff' 'ids 0 to 187'
is "$(echo 188 220 221 254 255 | k3-tokenize -d | od -An -tx1)" ' 00 20 7f a0 ad' 'ids 188 to 255'

# the last ids are ids like any other, and the next is none
is "$(echo 163584 163649 163592 163839 | k3-tokenize -d)" \
	'[BOS]<osagent_mode><|reserved_token_163592|>[PAD]' 'special ids decode to their spelling'
fails 1 "line 1, id 1: '163840' is not an id of this model, a number from 0 to 163839" \
	'163840 is out of range' k3-tokenize -d <<END
163840
END

# the cut of a run at 25,000, where three blanks would be a token
is "$(awk 'BEGIN { for (i = 0; i < 25001; i++) printf " " }' | k3-tokenize -p | tail -n 3 | cut -f 1,2 |
	tr '\t\n' ' ;')" '0 220;1 220;;' 'blank 25,001 stands alone'
plan
