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
# the kernel takes 0 for no limit, and ends a number where a letter begins
case $rate in
0* | *[!0-9]* | '') die "$rate: the rate has to be a number of bytes, in digits" ;;
esac

# the number of the disk: a part of one cannot be limited
disk=$(stat -c %Hd:%Ld -- "$file")
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
child=
# What the command started may go on for a moment, and a group with a process in it stays.
leave() {
	status=$?
	trap '' HUP INT TERM
	tries=0
	until rmdir "$group" 2>/dev/null; do
		# shellcheck disable=SC2046 # one word for each process
		[ ! "$child" ] || kill $(cat "$group/cgroup.procs") 2>/dev/null || :
		tries=$((tries + 1))
		[ $tries -lt 100 ] || {
			echo "limit: $group: cannot remove it; it limits what is in it" >&2
			break
		}
		sleep 0.1
	done
	exit "$status"
}
mkdir "$group" || die "$group: cannot make a group"
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
echo "$value" >"$group/$limit" || die "$disk: the disk cannot be limited to $rate"
# In the background, so that a signal to this shell alone ends the command and what it started, too.  They take no notice of
# the one that a terminal sends to all of them, and get another one from here.
exec 3<&0
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@" <&3 3<&- &
child=$!
exec 3<&-
wait "$child" && status=0 || status=$?
child=
exit "$status"
