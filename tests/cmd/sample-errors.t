#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-sample: options and input that it must refuse, and outputs that fail.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
cd "$tmp" || exit 1
printf '' >empty

# refused STATUS PATTERN TEXT FILE OPTION...: one line on stderr, nothing on stdout
refused() {
	status=$1 pattern=$2 text=$3 input=$4
	shift 4
	fails "$status" "^k3-sample: $pattern" "$text" k3-sample "$@" <"$input"
	is "$(grep -vc "^Try 'k3-sample --help'" fails.err) $(wc -c <fails.out)" "1 0" "  in one line, alone"
}

# options
k3-sample --help >help
is "$? $(head -c 6 help)" "0 usage:" "--help"
is "$(k3-sample --version)" "k3-sample (k3) $(cat "$top/VERSION")" "--version"
fails 1 'standard output' "--help on a full disk" sh -c 'k3-sample --help >/dev/full'
fails 2 "unrecognized option '--frob'" "an unknown option" k3-sample --frob
fails 2 "requires an argument" "an option without its value" k3-sample -n
refused 2 "'file': the logits come from" "an operand" empty file
refused 2 "-b: '0' is not" "no sequences" empty -b 0
refused 2 "-b: 'all' is not" "sequences that are no number" empty -b all
refused 2 "-n: '0' is not" "a count of 0" empty -n 0
refused 2 "-n: '1e3' is not" "a count that is not whole" empty -n 1e3
refused 2 "-n: '-1' is not" "a negative count" empty -n -1
refused 2 "-n: ' 1' is not" "a blank in front of a number" empty -n ' 1'
refused 2 "-t: '-1' is not" "a negative temperature" empty -t -1
refused 2 "-t: 'nan' is not" "a temperature that is no number" empty -t nan
refused 2 "-k: '0' is not" "top-k 0" empty -t 1 -k 0
refused 2 "-p: '1.1' is not" "top-p above 1" empty -t 1 -p 1.1
refused 2 "--min-p: '-0.1' is not" "min-p below 0" empty -t 1 --min-p -0.1
refused 2 "-s: '18446744073709551616' is not" "a seed of 65 bits" empty -t 1 -s 18446744073709551616
refused 2 "--stop: 'x' is not" "a stop id that is no id" empty --stop x
refused 2 "--stop: '4294967296' is not" "a stop id of 33 bits" empty --stop 4294967296
for o in '-k 3' '-p 0.9' '--min-p 0.1' '-s 1'; do
	# shellcheck disable=SC2086
	refused 2 "${o% *} needs -t" "$o without a temperature" empty $o
done
refused 2 "1 names for 2 sequences" "fewer names than sequences" empty -b 2 --name a
refused 2 "2 names for 1 sequences" "more names than sequences" empty --name a --name b
refused 2 "--name: a name has" "an empty name" empty --name ''
refused 2 "--top needs --json" "--top without --json" empty --top 3
refused 2 "--keep-stop: there is no stop id" "--keep-stop without a stop id" empty --keep-stop
refused 2 "--json -: standard output has" "events on standard output" empty -j -
refused 1 "none/events: No such file" "events in no folder" empty -n 1 -j none/events
refused 1 "/dev/fd/77: Bad file" "events to a closed descriptor" empty -n 1 -j /dev/fd/77

# input
records '[np.eye(10)[[w]] for w in [3, 1, 4]]' >good	# records of 168 bytes
head -c 160 good >cut.npy
refused 1 "standard input: the stream ends at byte 160, inside the values of record 0" \
	"a record cut in its values" cut.npy
head -c 100 good >cut.npy
refused 1 "standard input: the stream ends at byte 100, inside the header of record 0" \
	"a record cut in its header" cut.npy
head -c 5 good >cut.npy
refused 1 "standard input: the stream ends at byte 5, inside the header of record 0" \
	"a record cut in its first bytes" cut.npy
{ head -c 168 good; echo hello; } >text
fails 1 'record 1 at byte 168 is not an npy record' "text behind a record" k3-sample <text
echo 17 >text
refused 1 "standard input: record 0 at byte 0 is not an npy record" "ids instead of logits" text
records '[np.zeros((1, 2, 10))]' >bad
refused 1 "standard input: record 0 at byte 0 has 3 dimensions" "a hidden state instead of logits" bad
records '[np.zeros(10)]' >bad
refused 1 "standard input: record 0 at byte 0 has 1 dimensions" "a vector instead of rows" bad
records '[np.zeros((2, 0))]' >bad
refused 1 "standard input: record 0 has rows of 0 logits" "rows of nothing" bad
records '[np.zeros((1, 10)), np.zeros((1, 11))]' >bad
fails 1 'record 1 at byte 168 has rows of 11 logits, the first had 10' "another width" k3-sample <bad
"$py" -c 'import numpy as np; np.save("bad.npy", np.zeros((1, 10)))'
refused 1 "standard input: header of record 0 at byte 0: its values are '<f8'" "doubles" bad.npy
"$py" -c 'import numpy as np; np.save("bad.npy", np.zeros((10, 2), "f4").T)'
refused 1 "standard input: header of record 0 at byte 0: it is in Fortran order" "columns first" bad.npy
"$py" -c 'import numpy as np
f = open("bad.npy", "wb")
np.lib.format.write_array(f, np.zeros((1, 10), "f4"), version=(2, 0))'
refused 1 "standard input: record 0 at byte 0 is npy version 2.0" "npy version 2.0" bad.npy
"$py" -c 'import numpy as np
f = open("bad.npy", "wb")
np.lib.format.write_array_header_1_0(f,
    {"descr": "<f4", "fortran_order": False, "shape": (1, 1 << 40)})'
refused 1 "standard input: record 0 has rows of 1099511627776 logits" "more ids than there can be" bad.npy
refused 1 "standard input: the stop id 10 is not one of the 10 ids" "a stop id too large" good --stop 10
fails 1 'ends inside round 1, after 1 of 2 records' "a round cut short" k3-sample -b 2 <good
is "$(paste -sd' ' fails.out)" "3 1" "  after the rounds before it"
for v in nan inf -inf; do
	records "([np.eye(10)[[w]] for w in [3, 1, 4]] +
		[np.where(np.arange(10)[None] == 7, float('$v'), 1)])" >bad
	fails 1 "sequence 1, round 1: the logit of id 7 is $v" "a logit that is $v" k3-sample -b 2 <bad
	is "$(paste -sd' ' fails.out)" "3 1" "  and nothing of its round is written"
done
records '[np.eye(10)[[1]], np.zeros((0, 10))]' >bad
refused 1 "standard input: sequence 1 is still running but has no row in round 0" \
	"no row for a running sequence" bad -b 2
fails 1 'Is a directory' "a directory" k3-sample <.

# output
fails 1 'standard output: No space left' "ids on a full disk" sh -c 'k3-sample <good >/dev/full'
fails 1 '/dev/full: No space left' "events on a full disk" k3-sample -j /dev/full <good
is "$(wc -c <fails.out)" 0 "  and no id without its event"
{ sleep 0.2; cat good; } | { k3-sample; echo $? >status; } | true
is "$(cat status)" 141 "a reader that has gone ends it by SIGPIPE"
{ sleep 0.2; cat good; } | "$py" -c '
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
r, w = os.pipe()
os.close(r)
sys.exit(-os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", "exec k3-sample >&%d" % w])
    if os.set_inheritable(w, True) is None else 0)'
is "$?" 13 "even if its parent ignores SIGPIPE"
plan
