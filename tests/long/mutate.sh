#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mutate.sh [-n] [PATTERN] - do the tests notice when a trap is sprung?
#
# Takes the lines of tests/long/mutants one by one (those whose heading matches PATTERN, an
# extended regular expression): changes one file of lib/ in a copy of the tree, builds there, and
# demands that one of the named tests fails.  Run from the top of the tree; some minutes.
# With -n nothing is built: do the lines still change something, and are the tests there?
. tests/cmd/lib.sh
dry=
[ "${1:-}" = -n ] && dry=yes && shift
pattern=${1:-.}
table=$top/tests/long/mutants
# a preloaded library must lie where there is no blank
copy=$(mktemp -d "${TMPDIR:-/tmp}/k3-mutate.XXXXXX")
trap 'rm -rf "$tmp" "$copy"' EXIT

# test_in_copy TEST: builds what it needs and runs it; 0 if it passes, 1 if not, 2 if not built
test_in_copy() {
	case $1 in
	unit/*)
		run=build/$1
		set -- "$run"
		;;
	*)
		run=tests/$1
		set -- all shims
		;;
	esac
	make -s -C "$copy" CFLAGS=-O1 "$@" >"$copy/make.log" 2>&1 || return 2
	# in a shell of its own, which tells of signals where nobody listens
	(cd "$copy" && K3_BUILD=$copy/build sh -c 'timeout 300 sh tests/run "$0"; exit $?' "$run") \
		</dev/null >"$copy/test.log" 2>&1 || return 1
}

# here FILE: can this machine run what is in FILE?
here() {
	case $1 in
	lib/math/lanes.h) [ "$sets" != portable ] ;;
	lib/math/avx2.c) [ "${sets#*avx2}" != "$sets" ] ;;
	# rows in pairs are there with AVX-512 only
	lib/math/avx512.c | lib/math/code_registers.h | lib/math/code_lanes.h) [ "${sets#*avx512}" != "$sets" ] ;;
	lib/math/neon.c) [ "${sets#*neon}" != "$sets" ] ;;
	esac
}

# tests_there: are there the files of all tests?
tests_there() {
	for t in $tests; do
		[ -e "tests/$t" ] || [ -e "tests/$t.c" ] || return 1
	done
}

# noticed: does one of the tests fail?
noticed() {
	for t in $tests; do
		test_in_copy "$t"
		case $? in
		1) ok 0 "$what: $t" && return ;;
		2)
			ok 1 "$what: does not compile"
			sed 's/^/# /' "$copy/make.log" | head -5
			return
			;;
		esac
	done
	ok 1 "$what: no test of $tests notices"
}

# spring: what was collected from the table
spring() {
	sed -f "$copy/sed" "$top/$file" >"$copy/$file"
	if cmp -s "$top/$file" "$copy/$file"; then
		ok 1 "$what: the lines of sed change nothing in $file"
	elif [ -n "$dry" ]; then
		tests_there
		ok $? "$what: $file, $tests"
	elif here "$file"; then
		noticed
	else
		ok 0 "$what # SKIP this machine does not run $file"
	fi
	cp "$top/$file" "$copy/$file"
}

# undisturbed: all of the tests that will be asked must pass before anything is changed
undisturbed() {
	for t in $(grep -E -- "$pattern" "$table" | sed -n 's/^[TNS].* | .* | \(.*\) | .*/\1/p' |
		tr ' ' '\n' | sort -u); do
		test_in_copy "$t"
		status=$?
		ok $status "without a change: $t"
		[ $status -eq 0 ] || for log in make test; do tail -n 3 "$copy/$log.log"; done | sed 's/^/# /'
	done
	make -s -C "$copy" CFLAGS=-O1 all >"$copy/make.log" 2>&1
	sets=$(K3_CPU=none "$copy/build/bin/k3-step" -m share/demo </dev/null 2>&1 |
		sed 's/.*there are: //; s/,//g')
}

for part in Makefile VERSION cmd tests scripts share man; do
	ln -s "$top/$part" "$copy/$part"
done
cp -R "$top/lib" "$copy/lib"
[ -n "$dry" ] || undisturbed

what=
while IFS= read -r line; do
	case $line in
	'#'* | '') ;;
	'	'*) printf '%s\n' "${line#	}" >>"$copy/sed" ;;
	*)
		[ -z "$what" ] || spring
		what=
		: >"$copy/sed"
		printf '%s\n' "$line" | grep -Eq -- "$pattern" || continue
		file=$(printf '%s\n' "$line" | awk -F ' [|] ' '{ print $2 }')
		tests=$(printf '%s\n' "$line" | awk -F ' [|] ' '{ print $3 }')
		what=$(printf '%s\n' "$line" | awk -F ' [|] ' '{ print $1 ": " $4 }')
		;;
	esac
done <"$table"
[ -z "$what" ] || spring
plan
