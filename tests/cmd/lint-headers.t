#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Public headers compile alone, also as C++, and declare just what the library exports.
. tests/cmd/lib.sh
build=${K3_BUILD:-$top/build}
cc=$(awk '{ print $1; exit }' "$build/flags")

# alone LANGUAGE SUFFIX TEXT FLAG...: each header twice in a file of its own
alone() {
	language=$1 suffix=$2 text=$3
	shift 3
	echo 'int x;' >"$tmp/empty.$suffix"
	if ! "$cc" -x "$language" -fsyntax-only "$tmp/empty.$suffix" 2>/dev/null; then
		skip "$text" "$cc does not compile $language"
		return
	fi
	bad=0
	for h in lib/include/k3/*.h; do
		name=k3/$(basename "$h")
		printf '#include <%s>\n#include <%s>\n' "$name" "$name" >"$tmp/one.$suffix"
		"$cc" "$@" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Ilib/include \
			"$tmp/one.$suffix" 2>"$tmp/messages" || {
			bad=1
			sed 's/^/# /' "$tmp/messages"
		}
	done
	ok $bad "$text"
}

alone c c "every public header compiles alone" -std=c99
alone c++ cc "every public header compiles as C++" -std=c++11

# a declaration: K3_API up to its semicolon or its parenthesis
cat lib/include/k3/*.h | grep -v '^#define' | tr '\n\t' '  ' | grep -oE 'K3_API [^;(]*[;(]' |
	sed 's/[;(]$//; s/.*[ *]//' | sort >"$tmp/declared"
if command -v nm >/dev/null; then
	nm -D --defined-only "$build/libk3core.so" | awk '$2 != "A" { print $3 }' |
		grep -v '^__\|^_init$\|^_fini$\|^_edata$\|^_end$' | sort >"$tmp/exported"
	diff "$tmp/declared" "$tmp/exported" >"$tmp/diff"
	ok $? "the shared library exports what the headers declare"
	sed 's/^/# /' "$tmp/diff"
	nm -g --defined-only "$build/libk3core.a" 2>/dev/null |
		awk 'NF == 3 && $3 !~ /^k3_|^k3i_|^__/ { print "# " $3; bad = 1 } END { exit bad }'
	ok $? "every symbol of the archive begins with k3_ or k3i_"
else
	skip "exported symbols" "no nm"
fi
plan
