#!/bin/sh
# the loop: text to text through a fifo, and how it ends when one of its stages does
. tests/cmd/lib.sh
K3_MODEL=$demo
export K3_MODEL
cd "$tmp" || exit 1
mkfifo next
printf 'The capital of France is' >prompt.txt

# within N COMMAND: its status, or 124 when it does not end; a loop must never wait for ever
within() { timeout -k 1 "$@"; }

# ---- as the manual writes it ----
within 30 sh -c '{ k3-tokenize <prompt.txt && cat; } <next |
	k3-step | k3-sample -n 12 | tee next | k3-tokenize -d >text'
is "$?,$(head -c 6 text)" '0, Paris' 'the loop runs and says Paris'

# ---- every stage, missing, failing at its start, or dying in mid-run ----
# The bodies of the four stages come as words; the status of the last and the sampler's are kept.
loop() {
	rm -f ended ids
	within 20 sh -c "{ k3-tokenize <prompt.txt && cat; } <next | ${1:-k3-step} |
		{ ${2:-k3-sample -n 400}; echo \$? >ended; } | ${3:-tee next} | ${4:-k3-tokenize -d} >text" 2>err
	status=$?
	[ $status -ne 124 ]
}
loop false
ok $? 'k3-step that fails at its start ends the loop'
is "$(cat ended)" 1 'and k3-sample says 1'
grep -q '^k3-sample: .*ends after 0 rounds' err
ok $? 'and why'
loop 'k3-step -m nowhere'
ok $? 'k3-step without a model ends the loop'
loop 'head -c 20000 /dev/zero'
ok $? 'rubbish in place of records ends the loop'
is "$(cat ended)" 1 'with status 1'
loop '' false
ok $? 'a sampler that fails ends the loop'
loop '' '' 'sed -un 1,3p\;3q >next'
ok $? 'ids that are fed back no longer: the loop ends'
loop '' '' '' 'false'
ok $? 'a reader of the text that fails ends the loop'
loop '' '' '' 'head -c 20'
ok $? 'a reader of the text that has enough ends the loop'
loop 'k3-step | dd bs=10 count=2000 iflag=fullblock 2>dd.err'
ok $? 'k3-step whose records stop in mid-run ends the loop'
is "$(cat ended)" 1 'and a cut record is status 1'
loop '' 'k3-sample -n 3'
ok $? 'a sampler that has its count ends the loop'
is "$(cat ended)" 0 'with status 0'
# killed in mid-run, one after the other
for victim in k3-step k3-sample tee 'k3-tokenize -d'; do
	(
		sleep 0.7
		# the stages of this loop only: they hold the fifo or its pipes in this directory
		for pid in $(pgrep -f "^$victim( |\$)"); do
			[ "$(readlink "/proc/$pid/cwd")" = "$tmp" ] && kill -9 "$pid"
		done
	) &
	# without a model the sampler knows no stop id and would go on for a long time
	loop '' 'env -u K3_MODEL k3-sample -n 100000'
	ok $? "$victim killed in mid-run ends the loop"
	wait
done

# ---- k3-generate ----
k3-generate -n 12 'The capital of France is' >got
head -c 6 got | grep -q '^ Paris$'
ok $? 'k3-generate: a prompt as an argument'
k3-generate -n 12 <prompt.txt >got2
same got got2 'and on standard input'
k3-generate -n 12 The capital of France is >got2
same got got2 'and as words'
k3-generate -n 8 -t 1 -s 3 'The capital of' >a
k3-generate -n 8 -t 1 -s 3 'The capital of' >b
k3-generate -n 8 -t 1 -s 4 'The capital of' >c
same a b 'a seed gives the same text again'
ok "$(cmp -s a c; [ $? -eq 1 ]; echo $?)" 'another seed another text'
k3-generate -n 200 'The capital of' >a
k3-generate -n 200 --lookup 8 --mem=100M 'The capital of' >b
same a b '--lookup and --mem change no text'
fails 2 '^k3-step: --lookup: .*17' 'k3-generate --lookup is the one of k3-step' k3-generate --lookup 17 hello
fails 1 '^k3-step: 1000000 bytes of memory are too few' 'and --mem too' k3-generate --mem 1M hello
fails 2 '^k3-step: --mem' 'and it is not left out if it is empty' k3-generate --mem '' hello
fails 2 'k3-generate: --mem needs a value' 'a long option without its value' k3-generate --mem
for option in --memory --memory=8G --version -x; do
	fails 2 'try .k3-generate -h' "there is no $option" k3-generate $option
done
fails 2 'no model' 'k3-generate without a model' env -u K3_MODEL k3-generate hello
fails 2 'the prompt is empty' 'k3-generate without a prompt' sh -c 'k3-generate </dev/null'
fails 1 'nowhere' 'k3-generate with a model that is not there' k3-generate -m nowhere hello
fails 2 'not a number' 'k3-generate -t with a word' k3-generate -t hot hello
fails 2 'not a whole number' 'k3-generate -n 0' k3-generate -n 0 hello
fails 1 'No space left|standard output' 'k3-generate onto a full disk' sh -c 'k3-generate -n 3 hello >/dev/full'
TMPDIR=$tmp sh -c 'k3-generate -n 30 hello 2>err; echo $? >status' | head -c 3 >/dev/null
is "$(cat status)" 141 'k3-generate whose reader has enough ends by SIGPIPE'
TMPDIR=$tmp K3_CPU=portable k3-generate -n 100000 'The terrain of' >/dev/null 2>&1 &
pid=$!
sleep 0.1
kill $pid
wait $pid
is "$?" 143 'k3-generate ends by a signal to it alone'
is "$(find "$tmp" -maxdepth 1 -name 'k3-generate.*' | wc -l)" 0 \
	'k3-generate leaves nothing behind when it or its reader is stopped'
plan
