#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What limits the memory of a process: the machine, control groups of both versions and those above them, limits of the process.
. tests/cmd/lib.sh
cd "$tmp" || exit 1
shim=${K3_BUILD:-$top/build}/shim/system.so
floor=$(k3-step -m "$demo" --plan | jq .floor)

# machine MEMTOTAL MEMAVAILABLE: in kB, and no groups
machine() {
	rm -rf system
	mkdir -p system/proc/self
	printf 'MemTotal:  %d kB\nMemFree: 1 kB\nMemAvailable:   %d kB\n' "$1" "$2" >system/proc/meminfo
}
# group DIRECTORY FILE CONTENT...: pairs of files below /sys/fs/cgroup
group() {
	mkdir -p "system/sys/fs/cgroup/$1"
	dir=system/sys/fs/cgroup/$1
	shift
	while [ $# -gt 0 ]; do
		echo "$2" >"$dir/$1"
		shift 2
	done
}
there() { K3_SYSTEM=$tmp/system LD_PRELOAD=$shim k3-step -m "$demo" --plan "$@"; }
# usual FREE: what of it is taken without --mem: all but an eighth, or 256 Mi, and at least half
usual() { echo $1 | awk '{ leave = $1 / 8 > 2^28 ? $1 / 8 : 2^28; printf "%d\n", ($1 > 2 * leave ? $1 - leave : $1 / 2) }'; }
# limited TEXT MOST WHAT FREE: so much is allowed, and a byte more is not, which WHAT says; of what is FREE the usual part is taken
limited() {
	is "$(there --mem "$2" | jq .memory)" "$2" "$1: all of it"
	fails 1 "^k3-step: $(($2 + 1)) bytes of memory are more than $3 has, which are $2\$" "$1: but no more" \
		there --mem $(($2 + 1))
	is "$(there | jq .memory)" "$(usual "$4")" "$1: of $4 free bytes without --mem"
}

machine 900000 800000
there >out 2>err
if [ ! -e system/used ]; then
	skip 'another machine' 'nothing can be preloaded here'
	plan
fi
limited 'a machine' 921600000 'the machine' 819200000

group . memory.max 500000000 memory.current 100000000
echo 0::/ >system/proc/self/cgroup
limited 'version 2, a container' 500000000 'the control group' 400000000

machine 900000 800000
group user memory.max 600000000 memory.current 50000000
group user/one memory.max max memory.current 40000000
group user/one/two memory.max 700000000 memory.current 10000000
echo 0::/user/one/two >system/proc/self/cgroup
limited 'version 2, a group above' 600000000 'the control group' 550000000
group user/one/two memory.max 300000000 memory.current 10000000
limited 'version 2, the group itself' 300000000 'the control group' 290000000
group user memory.current 500000000
limited 'version 2, others in a group above' 300000000 'the control group' 100000000
group user memory.current 700000000
fails 1 "^k3-step: 0 bytes of memory are too few: it takes at least $floor\$" 'a group above that has nothing left' there

machine 900000 800000
group memory memory.limit_in_bytes 9223372036854771712 memory.usage_in_bytes 1000000000
group memory/a memory.limit_in_bytes 400000000 memory.usage_in_bytes 90000000
group memory/a/b memory.limit_in_bytes 9223372036854771712 memory.usage_in_bytes 90000000
printf '%s\n' 12:name=systemd:/x 5:cpu,cpuacct:/a/b 4:memory:/a/b 0::/ >system/proc/self/cgroup
limited 'version 1, a group above' 400000000 'the control group' 310000000
# in a container the names of the groups are those outside of it
echo 4:memory:/docker/0123456789abcdef >system/proc/self/cgroup
group memory memory.limit_in_bytes 450000000 memory.usage_in_bytes 100000000
limited 'version 1, a container' 450000000 'the control group' 350000000
echo 5:memory_other:/a/b >system/proc/self/cgroup
limited 'groups of other kinds' 921600000 'the machine' 819200000

machine 900000 800000
echo 'MemTotal: 1 kB' >system/proc/meminfo
fails 1 '^k3-step: /proc/meminfo does not tell how much memory there is$' 'a machine that does not tell' there --mem 100M

machine 900000 800000
for limit in 'v the limit of the address space' 'd the limit of the data segment'; do
	# shellcheck disable=SC3045 # dash has them, too
	under() { (ulimit "-${limit%% *}" 300000 && "$@"); }
	is "$(under there --mem 307200000 | jq .memory)" 307200000 "${limit#* }: all of it"
	fails 1 "^k3-step: 307200001 bytes of memory are more than ${limit#* } has, which are 307200000\$" "${limit#* }: but no more" \
		under there --mem 307200001
	is "$(under there | jq .memory)" 153600000 "${limit#* }: half of that without --mem"
done
plan
