#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The committed tables are what the generator makes of the database they name.
. tests/cmd/lib.sh
if grep -q 'Version 15.0.0' /usr/share/unicode/ReadMe.txt 2>/dev/null; then
	python3 scripts/unicode-table.py >"$tmp/unicode.c"
	same "$tmp/unicode.c" lib/text/unicode.c 'the generator makes lib/text/unicode.c'
else
	skip 'the generator makes lib/text/unicode.c' 'no Unicode Character Database 15.0.0 here'
fi
plan
