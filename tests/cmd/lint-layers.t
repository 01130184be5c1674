#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The layers of lib: a file includes only what lies in its own layer or in a lower one;
# programs include only public headers and what lies beside them.
. tests/cmd/lib.sh

# check FILE...: prints each include that leads upwards.  One line a layer, lowest first:
# its folder in lib, then the public headers that it implements.
check() {
	awk -v layers='sys err buf io num utf8 disk
data config index npy state trunk
text tokenizer
math cpu
model
engine engine pack cache_policy
sample sample' '
	BEGIN {
		count = split(layers, line, "\n")
		for (i = 1; i <= count; i++) {
			n = split(line[i], word, " ")
			folder[word[1]] = i
			for (k = 2; k <= n; k++)
				public[word[k] ".h"] = i
		}
	}
	function bad(why) { print FILENAME ": " $0 ": " why }
	FNR == 1 {
		split(FILENAME, part, "/")
		mine = count + 1
		if (part[1] == "lib")
			mine = part[2] == "include" ? public[part[4]] : folder[part[2]]
		if (!mine) {
			bad("in no layer that this test knows")
			mine = count + 1
		}
	}
	/^[ \t]*#[ \t]*include/ {
		name = $0
		gsub(/^[^<"]*[<"]|[>"].*$/, "", name)
		split(name, part, "/")
		if (name ~ /^k3\//)
			to = public[part[2]]
		else if (/</)
			next		# the system
		else if (mine == count + 1)
			to = name ~ /\// ? 0 : 1
		else if (FILENAME ~ /^lib\/include/)
			to = 0
		else
			to = folder[part[1]]
		if (!to)
			bad("not for this file")
		else if (to > mine)
			bad("of a higher layer")
	}' "$@"
}

find lib cmd -name '*.[ch]' | sort >"$tmp/files"
# the names have no blanks
# shellcheck disable=SC2046
check $(cat "$tmp/files") >"$tmp/found"
: >"$tmp/none"
same "$tmp/found" "$tmp/none" "no include leads to a higher layer"
sed 's/^/# /' "$tmp/found"

# the check itself can fail
mkdir -p "$tmp/w/lib/sys" "$tmp/w/lib/model" "$tmp/w/lib/include/k3" "$tmp/w/cmd" && cd "$tmp/w" || exit 1
echo '#include "math/kernels.h"' >lib/sys/a.c
echo '#include <k3/engine.h>' >lib/model/a.c
echo '#include "sys/team.h"' >lib/include/k3/err.h
echo '#include "sys/team.h"' >cmd/k3-x.c
echo '#include <k3/new.h>' >cmd/k3-y.c
echo '#include "sys/team.h"' >lib/model/b.c
check lib/sys/a.c lib/model/a.c lib/include/k3/err.h cmd/k3-x.c cmd/k3-y.c lib/model/b.c |
	cut -d: -f1 >found
printf '%s\n' lib/sys/a.c lib/model/a.c lib/include/k3/err.h cmd/k3-x.c cmd/k3-y.c >want
same found want "the check finds what it looks for"
plan
