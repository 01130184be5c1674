#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make install into a directory, installcheck there, and uninstall leaves nothing.
. tests/cmd/lib.sh
# by hand make would build with other flags than those of that directory
if [ -n "${K3_BUILD-}" ] && [ -z "${MAKELEVEL-}" ]; then
	echo "1..0 # SKIP K3_BUILD without make"
	exit 0
fi

make_() {
	"${MAKE:-make}" -s DESTDIR="$tmp/stage" prefix=/opt/k3 "$@" >"$tmp/out" 2>"$tmp/err"
}

make_ install
ok $? "make install, with DESTDIR and a blank in it"
root=$tmp/stage/opt/k3
for file in bin/k3-step bin/k3-generate lib/libk3core.a lib/libk3core.so include/k3/engine.h \
	lib/pkgconfig/k3core.pc share/man/man1/k3-step.1 share/man/man7/k3.7 share/k3/k3npy.py \
	bin/k3-rehearse share/k3/rehearse.py share/k3/replica.py \
	share/k3/demo/config.json; do
	[ -s "$root/$file" ]
	ok $? "installs $file"
done
is "$(readlink "$root/lib/libk3core.so") $(readlink "$root/lib/libk3core.so.0")" \
	"libk3core.so.0 libk3core.so.$(cat VERSION)" "the links of the shared library"
grep -q '^prefix=/opt/k3$' "$root/lib/pkgconfig/k3core.pc"
ok $? "k3core.pc knows the prefix, without DESTDIR"
grep -q 'share/demo' "$root"/share/man/man*/*
is $? 1 "pages name the installed demo"
grep -q '/opt/k3/share/k3/demo' "$root/share/man/man1/k3-step.1"
ok $? "by its place"
[ ! -e "$root/share/k3/demo/model.k3i" ]
ok $? "the index of the demo is not installed"
PATH=$root/bin:$PATH "$root/bin/k3-rehearse" --holes --config share/demo/config.json -d "$tmp" >"$tmp/out" 2>"$tmp/err"
ok $? "the installed k3-rehearse finds what it needs"
make_ installcheck
ok $? "make installcheck"
sed 's/^/# /' "$tmp/err"
make_ uninstall
ok $? "make uninstall"
is "$(cd "$tmp/stage" && find . ! -type d)" "" "leaves no file"
plan
