# SPDX-License-Identifier: Apache-2.0
# lib.sh - sourced by the tests in this folder: TAP, a scratch directory, the programs on PATH.
# Run from the top of the tree, after make; K3_BUILD names a build directory other than build.
set -u
top=$(pwd)
PATH=${K3_BUILD:-$top/build}/bin:$top/scripts:$PATH
demo=$top/share/demo
n=0 failures=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/k3 test.XXXXXX")	# the blank is there on purpose
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
XDG_CACHE_HOME=$tmp/cache
export XDG_CACHE_HOME PATH
unset K3_MODEL

# ok STATUS TEXT: one test line
ok() {
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		failures=$((failures + 1))
	fi
}

# same FILE FILE TEXT: the two have the same bytes
same() {
	cmp "$1" "$2" >"$tmp/cmp.out" 2>&1
	ok $? "$3"
	sed 's/^/# /' "$tmp/cmp.out"
}

# is WORDS WORDS TEXT: the two strings are equal
is() {
	[ "$1" = "$2" ]
	ok $? "$3"
	[ "$1" = "$2" ] || printf '# got:      %s\n# expected: %s\n' "$1" "$2"
}

# fails STATUS PATTERN TEXT COMMAND...: it exits with STATUS and says one line that matches
# the extended regular expression; its stdin is what the caller redirects
fails() {
	want=$1 pattern=$2 text=$3
	shift 3
	"$@" >"$tmp/fails.out" 2>"$tmp/fails.err"
	got=$?
	if [ $got -eq "$want" ] && grep -Eq -- "$pattern" "$tmp/fails.err"; then
		ok 0 "$text"
	else
		ok 1 "$text"
		echo "# status $got, expected $want; stderr:"
		sed 's/^/#   /' "$tmp/fails.err"
	fi
}

# skip TEXT REASON: a test that this machine cannot run
skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

plan() {
	echo "1..$n"
	[ "$failures" -eq 0 ]
	exit
}
