#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# limit.sh - runs a command on a slower disk: limit.sh RATE FILE COMMAND [ARGUMENT...]
#
# While it runs, the command and what it starts read at most RATE bytes a second from the disk under FILE.  So a program can
# be tried on a disk that is not here, and on one that leaves the processors to it.  It takes root, and
# a kernel with blk-throttle, by cgroups of either version.
set -eu

die() {
	echo "limit: $*" >&2
	exit 1
}

[ $# -ge 3 ] || {
	echo "usage: limit.sh RATE FILE COMMAND [ARGUMENT...]" >&2
	exit 2
}
rate=$1 file=$2
shift 2

# the number of the disk: a part of one cannot be limited
disk=$(stat -c %Hd:%Ld "$file")
[ -e "/sys/dev/block/$disk" ] || die "$file: the file system is not on one disk"
if [ -e "/sys/dev/block/$disk/partition" ]; then
	disk=$(cat "/sys/dev/block/$disk/../dev")
fi

root=$(awk '$3 == "cgroup" && $4 ~ /(^|,)blkio(,|$)/ { print $2; exit }' /proc/mounts)
if [ "$root" ]; then
	limit=blkio.throttle.read_bps_device value="$disk $rate"
else
	root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	[ "$root" ] || die "no cgroups are mounted"
	grep -qw io "$root/cgroup.subtree_control" || echo +io >"$root/cgroup.subtree_control" ||
		die "$root: the disk cannot be limited"
	limit=io.max value="$disk rbps=$rate"
fi

group=$root/k3-limit.$$
mkdir "$group" || die "$group: cannot make a group"
trap 'rmdir "$group"' EXIT
trap 'exit 1' HUP INT TERM
echo "$value" >"$group/$limit" || die "$disk: the disk cannot be limited to $rate"
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
