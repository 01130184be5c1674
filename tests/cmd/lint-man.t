#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Manual pages: mandoc finds nothing; each program has a page that knows all its options;
# pages refer only to pages that exist, and k3(7) to all of them.
. tests/cmd/lib.sh

if command -v mandoc >/dev/null; then
	for page in man/*.[1-8]; do
		mandoc -T lint -W warning "$page" >"$tmp/lint" 2>&1
		[ ! -s "$tmp/lint" ]
		ok $? "$page: nothing for mandoc to say"
		sed 's/^/# /' "$tmp/lint"
	done
else
	skip "manual pages" "no mandoc"
fi

for page in man/*.[1-8]; do
	missing=
	for section in NAME SYNOPSIS DESCRIPTION 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
		case $page:$section in *.[57]:'EXIT STATUS' | *.[57]:SYNOPSIS) continue ;; esac
		grep -qx "\.Sh $section" "$page" || missing="$missing $section"
	done
	is "$missing" "" "$page: has all sections"
done

for page in man/*.[1-8]; do
	sed -n 's/^\.Xr \([^ ]*\) \([0-9]\).*/\1.\2/p' "$page" | grep '^k3' | sort -u |
		while read -r other; do [ -e "man/$other" ] || echo "$other"; done >"$tmp/dead"
	is "$(cat "$tmp/dead")" "" "$page: refers to pages that exist"
	[ "$page" = man/k3.7 ] && continue
	name=$(basename "$page")
	grep -q "^\.Xr ${name%.*} ${name##*.}" man/k3.7
	ok $? "k3.7 refers to $name"
	sed -n '/^\.Sh SEE ALSO/,$p' "$page" | grep -qx '\.Xr k3 7'
	ok $? "which refers to k3(7)"
done

# every option of --help has its entry in the page, and none is there that help lacks
for program in "${K3_BUILD:-$top/build}"/bin/k3-* scripts/k3-*; do
	name=$(basename "$program")
	page=man/$name.1
	if [ ! -e "$page" ]; then
		ok 1 "$name has a page"
		continue
	fi
	case $name in k3-generate) help=-h ;; *) help=--help ;; esac
	"$program" $help | grep -E '^ *-|^ {6}--' |
		sed -E 's/ {2,}[A-Za-z(].*//; s/   +[a-z].*//' | tr -s ' ,' '\n' |
		grep -E '^--?[a-zA-Z0-9]' | sort -u >"$tmp/help"
	sed -n '/^\.Sh DESCRIPTION/,/^\.Sh EXIT/p' "$page" | grep '^\.It Fl' |
		sed 's/ , -/ --/g; s/Fl -/--/g; s/Fl /-/g' | tr -s ' ,' '\n' | grep -E '^--?[a-zA-Z0-9]' |
		sort -u >"$tmp/page"
	diff "$tmp/help" "$tmp/page" >"$tmp/diff"
	ok $? "$page: has the options that $help shows"
	sed 's/^/# /' "$tmp/diff"
done
plan
