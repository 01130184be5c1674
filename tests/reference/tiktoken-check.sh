#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tiktoken-check.sh [FILE...] - compares k3-tokenize with the tiktoken library, and its pieces
# with a regular expression engine, on many texts.  FILEs are more texts.
# Run from the top of the tree after make; needs node and npm, and fetches one npm package.
# The last line says what was compared; status 1 if anything differed.
set -eu
dir=${TIKTOKEN_DIR:-build/tiktoken}
version=1.0.22
PATH=$(pwd)/build/bin:$PATH

mkdir -p "$dir"
[ -d "$dir/node_modules/tiktoken" ] ||
	npm install --prefix "$dir" --no-audit --no-fund --silent "tiktoken@$version"

# Texts of many languages, as far as this machine has them: messages and manual pages.
texts=$dir/texts
if [ ! -e "$texts.done" ]; then
	rm -rf "$texts"
	mkdir -p "$texts"
	find lib cmd tests scripts share docs man -type f \( -name '*.[ch15]' -o -name '*.py' \
		-o -name '*.md' -o -name '*.json' \) -exec cat {} + >"$texts/tree"
	for f in /usr/share/unicode/NamesList.txt /usr/share/unicode/NormalizationTest.txt.bz2; do
		case $f in
		*.bz2) [ ! -e "$f" ] || bzip2 -dc "$f" | head -c 1000000 ;;
		*) [ ! -e "$f" ] || head -c 1000000 "$f" ;;
		esac >"$texts/$(basename "$f" .bz2)"
	done
	for d in /usr/share/locale/*/LC_MESSAGES; do
		[ -d "$d" ] || continue
		find "$d" -name '*.mo' | sort | head -n 3 | xargs -r cat | tr '\000' '\n' |
			iconv -f UTF-8 -t UTF-8 -c >"$texts/messages" || :
		cat "$texts/messages" >>"$texts/all-messages"
	done
	rm -f "$texts/messages"
	for d in /usr/share/man/[a-z][a-z] /usr/share/man/[a-z][a-z]_[A-Z][A-Z]; do
		[ -d "$d" ] || continue
		find "$d" -name '*.gz' | sort | head -n 40 | xargs -r gzip -dc >>"$texts/manuals"
	done
	find /usr/share/i18n/locales -type f 2>/dev/null | sort | head -n 100 |
		xargs -r cat >"$texts/locales"
	: >"$texts.done"
fi
exec node --stack-size=4000 tests/reference/tiktoken-check.js "$dir" "$texts"/* "$@"
