#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shell scripts: shellcheck finds nothing, and what is run has its bit and its first line.
. tests/cmd/lib.sh

find scripts tests .ci -type f | sort | while read -r f; do
	case $f in
	*.t | *.sh) echo "$f" ;;
	*) head -n 1 "$f" | tr -d '\0' | grep -q '^#!/bin/\(ba\)\{0,1\}sh' && echo "$f" ;;
	esac
done >"$tmp/scripts"
grep -qx scripts/k3-generate "$tmp/scripts"
ok $? "scripts are found"

while read -r f; do
	if command -v shellcheck >/dev/null; then
		# -x follows what is sourced; in tests, style and the word batch are left alone
		case $f in
		tests/*) set -- -s sh -S warning -e SC2034,SC2154,SC2238 ;;
		*) set -- ;;
		esac
		shellcheck -x "$@" "$f" >"$tmp/out" 2>&1
		ok $? "$f: nothing for shellcheck to say"
		sed 's/^/# /' "$tmp/out"
	else
		sh -n "$f"
		ok $? "$f: has the syntax of sh (there is no shellcheck)"
	fi
done <"$tmp/scripts"

# files that begin with #! can be run
find scripts .ci -type f | sort | while read -r f; do
	if head -n 1 "$f" | tr -d '\0' | grep -q '^#!' && [ ! -x "$f" ]; then echo "$f"; fi
done >"$tmp/plain"
is "$(cat "$tmp/plain")" "" "files that begin with #! can be run"
plan
