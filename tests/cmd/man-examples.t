#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every example of every manual page, as a reader sees it, runs on the demo model.
. tests/cmd/lib.sh
if ! command -v mandoc >/dev/null; then
	echo "1..0 # SKIP no mandoc"
	exit 0
fi
backspace=$(printf '\b')
copy=$tmp/tree
mkdir "$copy" && cp -r share scripts man "$copy" && cd "$copy" || exit 1

# The displays in EXAMPLES stand further to the right than its text; lines next to each other
# are one script.
for page in man/*.[1-8]; do
	rm -f "$tmp"/example.*
	mandoc -T ascii -O width=500 "$page" | sed "s/.$backspace//g" |
		awk -v to="$tmp/example." '
			/^[A-Z]/ { on = $0 == "EXAMPLES"; next }
			!on { next }
			match($0, /[^ ]/) != 12 && !(open && RSTART > 12) { open = 0; next }
			!open { n++; open = 1 }
			{ print substr($0, 12) >(to sprintf("%03d", n)) }'
	for script in "$tmp"/example.*; do
		if [ ! -e "$script" ]; then
			ok 1 "$page: has examples"
			continue
		fi
		sh -eu "$script" >"$tmp/out" 2>"$tmp/err" </dev/null
		status=$?
		# an example may send its events there, but nothing may complain
		[ $status -eq 0 ] && ! grep -v '^{"event"' "$tmp/err" >/dev/null
		ok $? "$page: $(head -n 1 "$script")"
		[ $status -eq 0 ] || { echo "# status $status"; sed 's/^/# > /' "$script"; }
		sed 's/^/# /' "$tmp/err"
	done
done
plan
