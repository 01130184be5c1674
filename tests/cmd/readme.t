#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the README, pasted into one shell one after the other, print what it says.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
. tests/cmd/blocks.sh
blocks README.md

# what is not run here is there, at least: files, and the two commands
for name in $(grep -o '](\([^)h][^)]*\))' "$top/README.md" | tr -d ']()') \
	$(sed -n 's/^    \(scripts.*\)/\1/p' "$top/README.md"); do
	[ -e "$top/$name" ]
	ok $? "there is $name"
done
plan
