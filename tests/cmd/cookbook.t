#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The recipes of the cookbook print what it says.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
. tests/cmd/blocks.sh
blocks docs/cookbook.md

sed -n 's/^## //p' "$top/docs/cookbook.md" | tr 'A-Z ' 'a-z-' | tr -d , >"$tmp/headings"
sed -n 's/^\* \[.*\](#\(.*\))$/\1/p' "$top/docs/cookbook.md" >"$tmp/contents"
same "$tmp/headings" "$tmp/contents" 'its table of contents'
plan
