#!/bin/sh
# k3-step: rounds, records, ranges of layers, taps, traces, and what bad input gets
. tests/cmd/lib.sh
K3_MODEL=$demo
export K3_MODEL
cd "$tmp" || exit 1

shapes() { k3-stat -j "$1" | jq -c .shape | paste -sd' ' -; }
ids() { awk -v n="$1" -v s="$2" 'BEGIN { for (i = 0; i < n; i++) { s = (s * 1103 + 12345) % 65521
	printf "%s%d", i ? " " : "", s % 2048 } print "" }'; }

# ---- records ----
printf '5 6 7\n\n8\n' | k3-step -b 3 >last
is "$(shapes last)" '[1,2048] [0,2048] [1,2048]' 'one record a line, none of them a row for an empty line'
printf '5 6 7\n\n8\n' | k3-step -b 3 --logits all >all
is "$(shapes all)" '[3,2048] [0,2048] [1,2048]' '--logits all: a row an id'
printf '5 6 7\n' | k3-step --logits none >none
is "$(wc -c <none)" 0 '--logits none writes no records'
printf '5 6 7\n' | k3-step --layers 0:5 --logits none >none
is "$?,$(wc -c <none)" 0,0 'nor at a cut'
: | k3-step >nothing
is "$?,$(wc -c <nothing)" 0,0 'no input, no records, status 0'
fails 1 'standard output: Bad file' 'a closed stdout' sh -c 'echo 5 | k3-step >&-'
echo 5 | k3-step --logits none >&-
ok $? 'that gets nothing'
k3-step <&- >nothing
is "$?,$(wc -c <nothing)" 0,0 'a closed stdin is an empty one'
printf '5 6 7\n' | k3-step >a
printf ' 5\t6  7 \n' | k3-step >b
same a b 'blanks and tabs'

# ---- the same bits however the work is cut ----
long=$(ids 24 1)
echo "$long" | k3-step -t 1 --logits all >one
echo "$long" | k3-step -t 2 --logits all >two
same one two 'one thread and two'
sets=$(K3_CPU=none k3-step </dev/null 2>&1 | sed 's/.*there are: //; s/,//g')
for set in $sets; do
	echo "$long" | K3_CPU=$set k3-step --logits all >got
	same one got "the instruction set $set"
done
tail -c 8192 one >want
echo "$long" | tr ' ' '\n' | k3-step | tail -c 8192 >got
same want got 'a prompt in one line and id by id'
for cut in 1 2 3 4 17 23; do
	echo "$long" | awk -v c=$cut '{ for (i = 1; i <= NF; i++) printf "%s%s", $i, i == c || i == NF ? "\n" : " " }' |
		k3-step | tail -c 8192 >got
	same want got "a prompt cut behind id $cut"
done
{ ids 7 2; echo "$long"; echo; ids 31 3; } >batch
k3-step -b 4 <batch >got4
dd if=got4 bs=8320 skip=1 count=1 2>/dev/null | tail -c 8192 >got
same want got 'alone and in a batch with others of other lengths'
k3-step -b all <batch >gotall
same got4 gotall '-b all is one round of all lines'
for at in 0 1 3 4 5 8; do
	echo "$long" | k3-step --layers 0:$at | k3-step --layers $at: >got
	if [ $at -eq 0 ]; then
		ok "$([ ! -s got ]; echo $?)" '--layers 0: wants ids, so embeddings are not ids to it'
	else
		echo "$long" | k3-step >whole
		same whole got "cut at layer $at by a pipe"
	fi
done 2>/dev/null
k3-step -b 4 --layers 0:4 <batch | k3-step -b 4 --layers 4:8 | k3-step -b 4 --layers 8: >got
same got4 got 'a batch through three processes'
is "$(k3-step -b 4 --layers 0:5 <batch | k3-stat -j | jq -c .shape | paste -sd' ' -)" \
	'[7,3,192] [24,3,192] [0,3,192] [31,3,192]' 'hidden records: ids, sources, hidden'

# ---- what has passed a layer can be looked at ----
echo "$long" | k3-step --tap resid@1,3:5=tap --tap 'resid@mla=mla file,rows=last' --logits none
is "$(shapes tap)" '[24,192] [24,192] [24,192]' 'a tap: one record a line and a layer'
is "$(shapes 'mla file')" '[1,192] [1,192] [1,192]' 'rows=last; a name with a blank'
echo "$long" | k3-step --layers 0:5 >hidden
# the running sum is the last source of the last id
tail -c 768 hidden >want
tail -c 768 tap >got
same want got 'resid behind layer 4 is the running sum in front of layer 5'
{ ids 3 1; echo; ids 2 5; } | k3-step -b 3 --tap resid@7:=tap --logits none
is "$(shapes tap)" '[3,192] [0,192] [2,192] [3,192] [0,192] [2,192]' 'layer by layer, line by line'

# ---- everything passes by once ----
{ ids 50 1; ids 50 2; ids 50 3; } >three
k3-step -b 3 --trace trace --logits none <three
is "$(jq -c 'select(.event == "layer") | .layer' trace | paste -sd' ' -)" '0 1 2 3 4 5 6 7 8' \
	'three lines of fifty ids pass every layer once'
is "$(jq -c 'select(.event == "layer") | .tokens' trace | sort -u)" 150 'all of them together'
expert=$(k3-index -j "$demo" | jq .expert.bytes)
is "$(jq -c --argjson x "$expert" 'select(.event == "layer") | .expert_bytes == .experts * $x' trace |
	sort -u)" true 'each expert is read once'
trunk=$(k3-index -l | awk -F'\t' '$1 ~ /layers\.2\./ && $1 !~ /\.experts\./ { n += $6 } END { print n }')
is "$(jq 'select(.event == "layer" and .layer == 2) | .trunk_bytes' trace)" "$trunk" \
	'and the rest of a layer once, all of it'
is "$(jq -s '[.[] | select(.event == "route" and .layer == 1) | .experts[]] | unique | length' trace)" \
	"$(jq 'select(.event == "layer" and .layer == 1) | .experts' trace)" \
	'routes name the experts that were read'
is "$(jq -c 'select(.event == "route") | .experts == (.experts | sort | unique) and (.experts | length) == 4' trace |
	sort -u)" true 'four different experts a token, ascending'

# ---- nothing is read ahead ----
printf '1 2 3\n4\n5\n' >lines
{ k3-step -s ahead --until 3; cat; } <lines >rest
is "$(cat rest)" "$(printf '4\n5')" 'one round of a file is taken, not a byte more'
rm ahead
cat lines | { k3-step -s ahead --until 3; cat; } >rest
is "$(cat rest)" "$(printf '4\n5')" 'nor of a pipe'

# ---- bad input ----
fails 1 "line 1, id 1: '-1' is not an id" 'a negative id' sh -c 'echo -1 | k3-step >out'
fails 1 "line 2, id 1: 'x7' is not an id" 'a word' sh -c 'printf "1\nx7\n" | k3-step >out'
fails 1 'line 1, id 2: 2048 is not below 2048' 'an id beyond the vocabulary' sh -c 'echo 1 2048 | k3-step >out'
fails 1 "line 2, id 2: 'x' is not an id" 'of all lines' sh -c 'printf "1\n7 x\n" | k3-step -b all >out'
fails 1 'is not an id' 'an id beyond 64 bits' sh -c 'echo 99999999999999999999999 | k3-step >out'
fails 1 'line 1: a NUL byte' 'a NUL byte' sh -c 'printf "1\0002\n" | k3-step >out'
fails 1 "after 2 of a round's 3 lines" 'a round cut short' sh -c 'printf "1\n2\n" | k3-step -b 3 >out'
fails 1 'line 2 has no newline' 'a line cut short' sh -c 'printf "1\n62" | k3-step -b 2 >out'
fails 1 'line 1, id 1: .7.*. is not an id' 'a carriage return' sh -c 'printf "7\r\n" | k3-step >out'
fails 1 'record 0' 'a record cut short' sh -c 'head -c 1000 hidden | k3-step --layers 5: >out'
fails 1 'not of the shape \(ids, sources, 192\)' 'logits are no hidden records' \
	sh -c 'k3-step --layers 5: <last >out'
fails 1 '3 sources in front of layer 3, which has 2' 'a cut at another layer' \
	sh -c 'k3-step --layers 3: <hidden >out'
is "$(k3-step --layers 9: <hidden | k3-stat -j | jq -c .shape)" '[1,2048]' \
	'layers 9: takes any number of sources: the lens'
echo "$long" | k3-step --layers 0:8 >hidden8
k3-step --layers 9: <hidden >lens1
k3-step --layers 9: <hidden8 >lens2
cat hidden8 hidden | k3-step -b 2 --layers 9: >lens
cat lens2 lens1 >want
same want lens 'streams of different cuts side by side'
printf '\377\377\377\177' | dd of=hidden bs=1 seek=5000 conv=notrunc 2>/dev/null
fails 1 'sequence 0, position [0-9]+: value [0-9]+ of the residual stream is not finite' 'a NaN that comes in' \
	sh -c 'k3-step --layers 5: <hidden >out'
fails 1 'standard output: No space' 'a full disk' sh -c 'echo 1 | k3-step >/dev/full'
fails 1 'full: No space|/dev/full' 'a full disk under a tap' \
	sh -c 'echo 1 | k3-step --logits none --tap resid@0=/dev/full'
fails 1 '/dev/full' 'a full disk under the trace' sh -c 'echo 1 | k3-step --logits none --trace /dev/full'
fails 2 "no instruction set 'z80' here; there are: portable" 'an instruction set that is not there' \
	env K3_CPU=z80 k3-step
fails 2 'no model' 'no model' env -u K3_MODEL k3-step
fails 1 'nowhere' 'a model that is not there' k3-step -m nowhere

# ---- options ----
while read -r pattern options; do
	# shellcheck disable=SC2086
	fails 2 "$(echo "$pattern" | tr _ ' ')" "k3-step $options" k3-step $options </dev/null
done <<'EOF'
-b_2_with_1_states -s s1 -b 2
--at_needs_a_state --at 3
--again_needs_a_state --again
--until_needs_a_state --until 3
does_not_go_with --until 3 -s s1 --again
does_not_go_with --until 3 -s s1 --logits all
goes_with_--logits_last --again -s s1 --logits all
not_inside_0:9 --until 9 -s s1
not_inside_0:9 --until 0 -s s1
not_A:B --layers 5
not_A:B --layers 5:3
not_A:B --layers 0:10
not_A:B --layers x:3
end_in_front_of_the_head --layers 0:3 --logits all
at_least_one_layer --layers 9: -s s1
not_last,_all_or_none --logits some
no_site_'foo' --tap foo@1=x
form_SITE@LAYERS=FILE --tap resid@1
rows_can_only_be_=last --tap resid@1=x,rows=first
not_a_list_of_layers --tap resid@9=x
not_a_list_of_layers --tap resid@=x
none_of_the_layers_1:3_is_among_5:9 --tap resid@1:3=x --layers 5:
not_a_whole_number -b 0
not_a_whole_number -t 0
not_a_whole_number -t two
ids_come_on_standard_input 1 2 3
unrecognized_option --frobnicate
EOF
ok "$([ ! -e s1 ] && [ ! -e x ]; echo $?)" 'and none of them made a file'
if script -qec true /dev/null >/dev/null 2>&1; then
	echo 1 >one.ids
	script -qec 'k3-step <one.ids' typescript >/dev/null 2>&1
	is "$?" 2 'records do not go to a terminal'
else
	skip 'records do not go to a terminal' 'no script(1)'
fi
k3-step --help >help
is "$?,$(head -c 14 help)" '0,usage: k3-step' '--help'
k3-step -V | grep -q '^k3-step (k3) [0-9]'
ok $? '--version'
for set in $sets; do
	is "$(K3_CPU=$set k3-step -vV | tail -n 1)" "instruction set: $set" "--version -v knows $set"
done
fails 2 'goes with --version' '-v alone' k3-step -v
fails 1 'standard output' '--help on a full disk' sh -c 'k3-step --help >/dev/full'

# ---- signals ----
sh -c 'yes 1 | k3-step; echo $? >status' 2>/dev/null | head -c 100 >/dev/null
sleep 0.2
is "$(cat status)" 141 'a reader that goes away ends it by SIGPIPE'
mkfifo wait
k3-step <wait >out 2>err &
pid=$!
exec 3>wait
sleep 0.3
kill -USR1 $pid
sleep 0.2
exec 3>&-
wait $pid
is "$?,$(cat err)" '0,k3-step: round 0: waiting for its ids' 'SIGUSR1 prints one line, and nothing else happens'
plan
