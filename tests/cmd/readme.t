#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the README, pasted into one shell one after the other, print what it says.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh
mkdir "$tmp/tree" "$tmp/work" && cp -r share scripts README.md "$tmp/tree" && cd "$tmp/tree" || exit 1

# Block N of commands becomes N.sh, the output that is shown behind it N.want.
awk -v to="$tmp/work/" '
	/^```/ && on { on = 0; close(file); next }
	/^```sh$/ { on = 1; file = to sprintf("%02d.sh", ++n); next }
	/^```text$/ { on = 1; file = to sprintf("%02d.want", n); next }
	/^```/ { print "a block of unknown kind: " $0; on = 1; file = "/dev/null"; next }
	on { print >file }' README.md >"$tmp/unknown"
is "$(cat "$tmp/unknown")" "" "every block is sh or text"

# Lines with /usr/bin/python3 find NumPy there on Debian; elsewhere any other will do.
for f in "$tmp"/work/*.sh; do
	base=${f%.sh}
	[ "$python" = /usr/bin/python3 ] || sed -i "s|/usr/bin/python3|$python|" "$f"
	printf '{\n'
	cat "$f"
	printf '} >"%s.got" 2>"%s.err"\n' "$base" "$base"
done >"$tmp/all"
sh -u "$tmp/all" </dev/null
ok $? "the shell comes to the end"
for f in "$tmp"/work/*.sh; do
	base=${f%.sh}
	[ -e "$base.want" ] || : >"$base.want"
	# shown output ends with a newline, also where the programs wrote none
	[ -z "$(tail -c 1 "$base.got")" ] || echo >>"$base.got"
	same "$base.want" "$base.got" "block $(basename "$base"): $(head -n 1 "$f")"
	[ ! -s "$base.err" ] && [ -e "$base.err" ]
	ok $? "and nothing on stderr"
	sed 's/^/# /' "$base.err"
done

# what is not run here is there, at least: files, and the two commands
for name in $(grep -o '](\([^)h][^)]*\))' "$top/README.md" | tr -d ']()') \
	$(sed -n 's/^    \(scripts.*\)/\1/p' "$top/README.md"); do
	[ -e "$top/$name" ]
	ok $? "there is $name"
done
plan
