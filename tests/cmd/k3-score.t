#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-score: sums of what k3-step --score tells, choices, and what goes wrong.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
cd "$tmp" || exit 1
TMPDIR=$tmp/temp
mkdir "$TMPDIR"
export TMPDIR K3_MODEL="$demo"

# ---- documents ----
printf 'The capital of France is Paris.\n\nThe\nThe capital of\tJapan is Par\303\255s.\nIceland' >documents
k3-tokenize -l documents >ids
k3-step -b all --score <ids >scores
cat >sums.py <<'EOF2'
# sums.py IDS SCORES TOTALS [NAME...]
import math, sys
lines = [l.split() for l in open(sys.argv[1])]
scores = [l.split() for l in open(sys.argv[2])]
totals = [l.rstrip('\n').split('\t') for l in open(sys.argv[3])]
assert len(totals) == len(lines), '%d lines for %d documents' % (len(totals), len(lines))
names = sys.argv[4:]
for i, (ids, t) in enumerate(zip(lines, totals)):
    own = [float(s[3]) for s in scores if int(s[0]) == i]
    assert int(t[0]) == len(own) == max(len(ids) - 1, 0)
    assert t[4:] == names[i:i + 1], '%r is not the name' % t[4:]
    if not own:
        assert t[1:4] == ['0', '-', '-'], t
        continue
    want = [sum(own), sum(own) / len(own), math.exp(-sum(own) / len(own))]
    assert all(abs(float(a) - b) < 1e-8 * abs(b) for a, b in zip(t[1:], want)), '%r is not %r' % (t, want)
EOF2
k3-score <documents >got
"$py" sums.py ids scores got
ok $? 'lines of standard input'
k3-score --mem 40M <documents >got.mem
same got got.mem '--mem'
K3_MODEL='' k3-score -m "$demo" -- <documents >got.model
same got got.model '-m'
printf 'The capital of France\nis Paris.\n' >'a file'
: >empty
printf 'Iceland is an island' >-x
k3-tokenize -- 'a file' empty -x >ids
k3-step -b all --score <ids >scores
k3-score -- 'a file' empty -x >got
"$py" sums.py ids scores got 'a file' empty -x
ok $? 'files, with their names'
k3-score </dev/null >got
is "$?,$(wc -c <got)" 0,0 'no document'

# ---- choices ----
printf 'The capital of France is\t Paris\t Rome\nThe capital of Cuba is\t Lima\t Havana\t R\303\255o\nThe\t capital\n' >questions
k3-score --choices questions >got
k3-score --choices <questions >got.stdin
same got got.stdin '--choices: a file, or standard input'
"$py" - <<'EOF2'
# against the scores of each choice alone
import math, subprocess
lines = [l.rstrip('\n').split('\t') for l in open('questions')]
got = [l.rstrip('\n').split('\t') for l in open('got')]
def run(*args, input):
    return subprocess.run(args, input=input, stdout=subprocess.PIPE, check=True).stdout
assert len(got) == len(lines)
for (context, *choices), (best, *scores) in zip(lines, got):
    assert len(scores) == 3 * len(choices)
    sums = []
    c = run('k3-tokenize', input=context.encode()).split()
    for i, choice in enumerate(choices):
        ids = run('k3-tokenize', input=choice.encode()).split()
        rows = run('k3-step', '--score', input=b' '.join(c + ids) + b'\n').decode().splitlines()
        s = sum(float(r.split()[3]) for r in rows[-len(ids):])
        sums.append(s)
        for a, b in zip(scores[3 * i:], (s, s / len(ids), s / len(choice.encode()))):
            assert abs(float(a) - b) < 1e-8 * abs(b), (choice, a, b)
    assert int(best) == sums.index(max(sums)) + 1
EOF2
ok $? 'sums, by id and by byte, and the best'
is "$(cut -f 1 got | paste -sd' ' -)" '1 2 1' 'it knows its capitals'
printf 'The\t capital\t capital\t capital' | k3-score --choices >got
is "$?,$(cut -f 1 got)" 0,1 'of equal ones the first; a last line without a newline'
k3-score --choices </dev/null >got
is "$?,$(wc -c <got)" 0,0 'no question'

# ---- what goes wrong ----
fails 1 '^k3-score: line 2: there is no choice' 'a line without a choice' sh -c 'printf "a\tb\nc\n" | k3-score --choices'
fails 1 '^k3-score: line 1: the context is empty' 'no context' sh -c 'printf "\tb\n" | k3-score --choices'
fails 1 '^k3-score: line 1: choice 2 is empty' 'an empty choice' sh -c 'printf "a\tb\t\tc\n" | k3-score --choices'
fails 1 '^k3-score: line 2: choice 1 is empty' 'at the end' sh -c 'printf "a\tb\na\t" | k3-score --choices'
fails 1 'nofile: No such file' 'a file that is not there' k3-score nofile
fails 1 'nofile: No such file' 'of questions' k3-score --choices nofile
fails 1 'nowhere' 'a model that is not there' k3-score -m nowhere documents
fails 1 'it takes at least' 'the status of k3-step' k3-score --mem 1M documents
fails 2 'k3-step: --mem' 'its usage too' k3-score --mem x documents
fails 2 'k3-step: --mem' 'also for an empty one' k3-score --mem '' documents
fails 1 'No space' 'a full disk' sh -c 'k3-score documents >/dev/full'
fails 2 'no model' 'no model' env -u K3_MODEL k3-score documents
fails 2 'there is no option --frob' 'an unknown option' k3-score --frob
fails 2 '-m needs a value' 'a value that is missing' k3-score -m
k3-score -h >got && k3-score --help | cmp - got && grep -q '^usage: k3-score' got
ok $? '-h and --help'
{ sleep 0.2; k3-score documents; echo $? >status; } 2>err | :
while [ ! -s status ]; do sleep 0.05; done
is "$(cat status)" 141 'a reader that goes away'

# ---- a signal to the script alone ends the pass ----
mkdir slow
cat >slow/k3-step <<'EOF2'
#!/bin/sh
trap 'echo ended >ended; exit' TERM
echo >begun
while :; do sleep 0.05; done
EOF2
chmod +x slow/k3-step
PATH=$tmp/slow:$PATH k3-score documents >got 2>err &
pid=$!
while [ ! -e begun ]; do sleep 0.05; done
kill $pid
wait $pid
is "$?" 143 'SIGTERM'
for i in $(seq 100); do [ -s ended ] || sleep 0.05; done
is "$(cat ended)" ended 'ends k3-step too'
is "$(ls "$TMPDIR")" '' 'nothing is left behind'
plan
