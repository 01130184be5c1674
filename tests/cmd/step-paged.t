#!/bin/sh
# k3-step: sequences whose states do not fit into memory, from the first round on or from a later one
. tests/cmd/lib.sh
cd "$tmp" || exit 1
cp -r "$demo" m
chmod -R u+w m
k3-index m >index.out
K3_MODEL=$tmp/m
export K3_MODEL
TMPDIR=$tmp
export TMPDIR

# rounds SEQUENCES IDS...: lines of so many ids, one number of ids for each round
rounds() {
	sequences=$1
	shift
	for ids in "$@"; do
		for i in $(seq "$sequences"); do
			seq $((i * 17 + ids)) 13 $((i * 17 + ids + 13 * (ids - 1))) | tr '\n' ' '
			echo
		done
	done
}

paged() { k3-step -t 2 --plan "$@" | jq .paged; }

# ---- from the first round on ----
rounds 40 1 3 1 >ids
k3-step -t 2 -b 40 --mem 300M <ids >want
ok $? 'forty sequences in memory'
floor=$(k3-step -t 2 -b 40 --mem 300M --plan | jq .floor)
low=$((floor + 300000))
is "$(paged -b 40 --mem 300M),$(paged -b 40 --mem $low)" false,true 'the plan tells which states are paged'
k3-step -t 2 -b 40 --mem $low <ids >got
ok $? 'and with no memory for their states'
same want got 'the same records'
is "$(find . -name '*.npy' -o -name '#*' | wc -l)" 0 'no file is left'

# ---- from a later round on: latents of long sequences outgrow what was enough ----
rounds 40 1 80 2 >ids
k3-step -t 2 -b 40 --mem 300M <ids >want
ok $? 'sequences that grow'
for mem in 40M 42M 45M 50M; do
	k3-step -t 2 -b 40 --mem $mem <ids >got
	ok $? "at $mem"
	same want got 'the same records'
done
is "$(paged -b 40 --mem 40M)" false 'which begins with all states in memory'

# ---- states in files ----
rounds 6 5 1 >ids
states=$(for i in 1 2 3 4 5 6; do printf ' -s s%s' $i; done)
small=$(k3-step -t 2 -b 6 --mem 300M --plan | jq .floor)
# shellcheck disable=SC2086
k3-step -t 2 $states --mem 300M <ids >want
rm -f s?
# shellcheck disable=SC2086
head -n 6 ids | k3-step -t 2 $states --mem $((small + 100000)) >got
# shellcheck disable=SC2086
tail -n 6 ids | k3-step -t 1 $states --mem 300M >>got
same want got 'states that are paged are those that are not'

# ---- no place for them ----
rounds 40 1 >ids
fails 1 "nowhere: no temporary file: No such file" 'a directory for temporary files that is not there' \
	env TMPDIR=nowhere sh -c "k3-step -t 2 -b 40 --mem $low <ids"
is "$(wc -l <fails.err)" 1 'is told in one line'
plan
