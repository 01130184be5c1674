#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-stat disk: what it reports and what it refuses.  Rates are only asked to be there.
. tests/cmd/lib.sh
build=${K3_BUILD:-$top/build}
cd "$tmp" || exit 1
memory='' shim=''
trap 'rm -rf "$tmp" "$memory" "$shim"' EXIT

mkdir shards shards/more
head -c 80000000 /dev/zero >shards/b
head -c 70000000 /dev/zero >shards/a
head -c 80000000 /dev/zero >shards/c
head -c 90000000 /dev/zero >shards/more/d

k3-stat disk -j --seconds 0.5 shards/a >got 2>err
is "$? $(jq -c '[.schema, .file, .kind, .path]' got)" '0 ["k3.stat/1","shards/a","disk","shards/a"]' "a file"
is "$(jq 'keys | sort | join(" ")' got)" \
	'"depth direct file file_system kind path random_rate rate request ring schema table used_rate warnings"' \
	"all members"
jq -r '.warnings[] | "k3-stat: shards/a: " + .' got >want
same err want "warnings go to stderr too"
is "$(jq '.rate > 0 and .random_rate > 0 and .used_rate > 0 and all(.table[]; .rate > 0)' got)" true "there are rates"
is "$(jq '[.request, .depth, .ring, .rate] as [$r, $d, $i, $s] | any(.table[]; .pattern == "sequential" and
	.request == $r and .depth == $d and .ring == $i and .rate == $s)' got)" true "the best is in the table"
is "$(jq '[.request, .depth, .ring, .random_rate] as [$r, $d, $i, $s] | any(.table[]; .pattern == "random" and
	.request == $r and .depth == $d and .ring == $i and .rate == $s)' got)" true "and the same way at random"
is "$(jq '[.table[] | select(.pattern == "sequential").rate] as $r | .rate >= 0.99 * ($r | max)' got)" true \
	"no other way was better by more than 1 %"
is "$(jq '.table | length == (unique_by([.pattern, .request, .depth, .ring]) | length)' got)" true \
	"each way is there once"
is "$(jq -c '[.table[].request] | unique' got)" "[262144,524288,1048576,2097152,4194304]" "sizes of requests"
is "$(jq -c '[.table[].depth] | unique' got)" "[1,2,4,8]" "depths"
is "$(jq '[.table[].ring] | unique | length > 2' got)" true "rings"
is "$(jq 'all(.table[]; .ring >= .request * .depth)' got)" true "a ring has room for what is under way"

k3-stat disk --seconds 0.3 shards >got 2>err
is "$? $(sed -n '1s/:.*//p' got)" "0 shards/b" "of a directory the largest file, of equals the first"
is "$(awk 'NR == 2 { print NF } NR > 2 && NR < 6 { print $1, NF }' got | paste -sd ' ' -)" "4 best 5 experts 5 used 5" \
	"a table for people"

# ---- holes
truncate -s 300000000 holes
fails 1 '^k3-stat: holes: it is full of holes' "holes only" k3-stat disk holes
dd if=shards/a of=holes bs=1000000 seek=100 count=70 conv=notrunc 2>dd.err
if [ "$(($(stat -c %b holes) * 512))" -lt 200000000 ]; then
	fails 0 'of its 300000000 bytes only 7[0-9]{7} are on the disk' "data between holes" \
		k3-stat disk -j --seconds 0.3 holes
	is "$(jq '[.warnings[] | select(test("holes"))] | length' fails.out)" 1 "which the report tells"
	dd if=shards/a of=holes bs=1000000 seek=10 count=2 conv=notrunc 2>dd.err
	dd if=/dev/null of=holes bs=1000000 seek=160 2>dd.err
	fails 1 '^k3-stat: holes: it is full of holes' "two pieces that are too small" k3-stat disk holes
else
	skip "data between holes" "this file system keeps no holes"
fi

# ---- direct reads that are refused, when they are asked for or when the first comes
cat >shim.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/types.h>
static int refuse(const char *when) { return getenv("REFUSE") && *getenv("REFUSE") == *when; }
int fcntl64(int fd, int cmd, ...)
{
	int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (cmd == F_SETFL && (long)arg & O_DIRECT && refuse("open")) {
		errno = EINVAL;
		return -1;
	}
	return next(fd, cmd, arg);
}
ssize_t pread64(int fd, void *p, size_t n, off_t offset)
{
	ssize_t (*next)(int, void *, size_t, off_t) =
		(ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread64");

	if (refuse("read") && fcntl64(fd, F_GETFL, (void *)0) & O_DIRECT) {
		errno = EINVAL;
		return -1;
	}
	if (refuse("fail") && offset > 20000000) {
		errno = EIO;
		return -1;
	}
	return next(fd, p, n, offset);
}
END
cc=$(awk '{ print $1; exit }' "$build/flags")
if grep -q fsanitize "$build/flags"; then
	skip "refused reads" "sanitizers want to be the first library"
elif ! "$cc" -D_FILE_OFFSET_BITS=64 -shared -fPIC -o shim.so shim.c -ldl 2>shim.err; then
	skip "refused reads" "no shared library can be made"
else
	# LD_PRELOAD takes no blanks
	shim=$(mktemp /tmp/k3-shim.XXXXXX) && cp shim.so "$shim"
	for when in open read; do
		fails 0 '^k3-stat: shards/a: direct reads are refused here' "refused at $when" \
			env LD_PRELOAD="$shim" REFUSE=$when k3-stat disk -j --seconds 0.3 shards/a
		is "$(jq -c '[.direct, .rate > 0]' fails.out)" '[false,true]' "rates are there all the same"
	done
	fails 1 '^k3-stat: shards/a: offset [0-9]+: Input/output error$' "a read that fails" \
		env LD_PRELOAD="$shim" REFUSE=fail k3-stat disk -j --seconds 0.3 shards/a
fi

# ---- what is no disk
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && memory=$(mktemp /dev/shm/k3.XXXXXX) &&
	cp shards/a "$memory" 2>/dev/null; then
	fails 0 'the file system \(tmpfs\) lies in memory' "a file in memory" \
		k3-stat disk -j --seconds 0.1 "$memory"
	is "$(jq -r .file_system fails.out)" tmpfs "and it is named"
else
	skip "a file in memory" "no tmpfs"
fi
rm -f "$memory"

head -c 67108863 shards/a >small
fails 1 '^k3-stat: small: with 67108863 bytes it is too small' "a small file" k3-stat disk small
mkdir none
fails 1 '^k3-stat: none: there is no file in it$' "an empty directory" k3-stat disk none
fails 1 '^k3-stat: /dev/null: neither a file nor a directory$' "a device" k3-stat disk /dev/null
fails 1 '^k3-stat: gone: No such file' "no file" k3-stat disk gone
fails 2 '^k3-stat: disk takes one' "no operand" k3-stat disk
fails 2 '^k3-stat: disk takes one' "two" k3-stat disk shards small
fails 2 "^k3-stat: --seconds: '0' is not" "no time" k3-stat disk --seconds 0 small
fails 2 "^k3-stat: unrecognized option '--top'" "an option of another subcommand" k3-stat disk --top 3 small
fails 1 'standard output: No space left' "a full disk" \
	sh -c 'k3-stat disk --seconds 0.1 shards/a 2>err >/dev/full || { cat err >&2; exit 1; }'
is "$(k3-stat disk --help | head -c 6)" usage: "--help"
plan
