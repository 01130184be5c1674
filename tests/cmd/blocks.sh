# shellcheck shell=sh disable=SC2154
# SPDX-License-Identifier: Apache-2.0
# blocks.sh - sourced behind lib.sh and tiny.sh by tests of pages: their commands print what they say.

# blocks PAGE: pastes the commands of a page of the tree into one shell, block after block, in a copy
# of what they use
blocks() {
	mkdir "$tmp/tree" "$tmp/work" && cp -r share scripts README.md docs "$tmp/tree" &&
		cd "$tmp/tree" || exit 1
	# Block N of commands becomes N.sh, the output that is shown behind it N.want.
	awk -v to="$tmp/work/" '
		/^```/ && on { on = 0; close(file); next }
		/^```sh$/ { on = 1; file = to sprintf("%02d.sh", ++n); next }
		/^```text$/ { on = 1; file = to sprintf("%02d.want", n); next }
		/^```/ { print "a block of unknown kind: " $0; on = 1; file = "/dev/null"; next }
		on { print >file }' "$1" >"$tmp/unknown"
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
}
