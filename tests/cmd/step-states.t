#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-step --states: a directory of states, a file for each sequence.
. tests/cmd/lib.sh
cd "$tmp" || exit 1
K3_MODEL=$demo
export K3_MODEL

printf '5 6 7\n\n8\n1 2 3 4\n' >first
printf '9\n10 11\n12\n\n' >second
printf '%s\n' '5 6 7 9' '10 11' '8 12' '1 2 3 4' >whole
k3-step -b 4 <first >want1
k3-step -b all <whole >want
k3-step -b 4 --states d <first >got
ok $? 'four sequences in a new directory'
same want1 got 'their records'
is "$(echo d/*)" 'd/000000.k3s d/000001.k3s d/000002.k3s d/000003.k3s' 'a file for each'
cp -r d e
k3-step --states d <second >got
ok $? 'as many as there are'
k3-step --states d --again </dev/null >got
same want got 'have the records of all their ids'
k3-step -b all --states e <second >got
k3-step -s e/000000.k3s -s e/000001.k3s -s e/000002.k3s -s e/000003.k3s --again </dev/null >got
same want got 'and so with -b all; they are files like others'

cp -r d f
rm f/000003.k3s
k3-step -b 4 --states f <second >got
ok $? 'one that is missing is made'
is "$(k3-stat -j f/000003.k3s | jq .position)" 0 'and empty'
fails 1 '^k3-step: d: has a state 000002.k3s, and there are only 2 sequences$' 'more states than sequences' \
	sh -c 'k3-step -b 2 --states d <first'
fails 1 '^k3-step: d: has a state 000002.k3s, and there are only 2 sequences$' 'than lines' \
	sh -c 'head -n 2 first | k3-step -b all --states d'
mkdir none
fails 1 '^k3-step: none: there is no state 000000.k3s: for new ones say how many, with -b$' 'no states and no number' \
	sh -c 'k3-step --states none <first'
fails 1 '^k3-step: no/such: No such file or directory$' 'a directory in one that is missing' \
	sh -c 'k3-step -b 4 --states no/such <first'
fails 1 '^k3-step: first/000000.k3s: Not a directory$' 'a file' sh -c 'k3-step -b 4 --states first <first'
fails 2 'either in a directory or named' 'with -s' sh -c 'k3-step -b 4 --states d -s s <first'
fails 2 'lookup does not go with a state' 'with --lookup' sh -c 'k3-step -b 1 --states d --lookup 2 <first'
is "$(ls none)" '' 'nothing was made'

# ---- more than a process usually opens; memory for few of them ----
seq 300 | awk '{ print $1 % 500 + 1 }' >many
bash -c 'ulimit -S -n 100 && exec k3-step -b all --states g --mem 40M --logits none' <many
ok $? '300 states'
is "$(ls g | wc -l)" 300 'in 300 files'
k3-step -b all <many >want
k3-step --states g --again --mem 40M </dev/null >got
same want got 'which have the right records'
plan
