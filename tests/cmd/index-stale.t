#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An index that no longer fits is refused; one that still does is not; where indexes are kept.
. tests/cmd/lib.sh
. tests/cmd/tiny.sh

s1=model-00001-of-000003.safetensors
s2=model-00002-of-000003.safetensors
m="$tmp/a model"
list() { k3-index -l -m "$1" >"$tmp/out" 2>"$tmp/err"; }

fresh() {
	rm -rf "$m"
	tiny "$m"
	k3-index "$m" >/dev/null
}

# times and sizes
fresh
list "$m"
ok $? "a new index is fresh"
touch -d '2001-02-03' "$m/$s2" "$m/config.json"
list "$m"
ok $? "other times with the same contents are no matter"
edit "$m/$s2" "data[0] ^= 1"
fails 1 "model.k3i: stale: .*another model, or was changed" "a changed weight is" k3-index -l -m "$m"
k3-index "$m" >/dev/null && list "$m"
ok $? "k3-index makes it anew"
edit "$m/$s2" "data += bytes(4)"
fails 1 "stale: .*$s2 has [0-9]+ bytes, but had" "another size" k3-index -l -m "$m"
fresh
sed -i 's/"gate_lower_bound": -5.0/"gate_lower_bound": -4.0/' "$m/config.json"
fails 1 "stale" "a changed config of the same size" k3-index -l -m "$m"
echo >>"$m/config.json"
fails 1 "stale: .*config.json has" "a config of another size" k3-index -l -m "$m"
fresh
mv "$m/$s1" "$tmp/away"
fails 1 "stale: .*$s1 is gone" "a shard that is gone" k3-index -l -m "$m"
k3-index "$m" >/dev/null 2>&1
list "$m"
ok $? "an index without that shard"
mv "$tmp/away" "$m/$s1"
fails 1 "stale: .*$s1 was missing and is there now" "a shard that came" k3-index -l -m "$m"
fresh
edit "$m/$s2" "text = pad(dump(head).replace(b'\"U8\"', b'\"I8\"', 1))"
fails 1 "stale" "a header changed in place" k3-index -l -m "$m"

# indexes of other models, and other files
fresh
tiny "$tmp/other" --seed 2
k3-index "$tmp/other" >/dev/null
cp "$tmp/other/model.k3i" "$m/model.k3i"
fails 1 "model.k3i: stale: .* is another model" "the index of another model" k3-index -l -m "$m"
tiny "$tmp/larger" --set vocab_size=96
k3-index "$tmp/larger" >/dev/null
cp "$tmp/larger/model.k3i" "$m/model.k3i"
fails 1 "model.k3i: stale" "of one with another config" k3-index -l -m "$m"
head -c 100 "$tmp/other/model.k3i" >"$m/model.k3i"
fails 1 "model.k3i: .*bytes" "an index cut short" k3-index -l -m "$m"
: >"$m/model.k3i"
fails 1 "model.k3i: 0 bytes are no k3 index" "an empty index" k3-index -l -m "$m"
cp "$m/$s1" "$m/model.k3i"
fails 1 "model.k3i: not a k3 index" "no index at all" k3-index -l -m "$m"
k3-index --sum "$m" >/dev/null
printf '\1' | dd of="$m/model.k3i" bs=1 seek=8 conv=notrunc 2>/dev/null
fails 1 "model.k3i: an index of version 1, .* make it anew with k3-index" "an index of another version" k3-index -l -m "$m"
is "$(k3-index -j "$m" | jq .sums)" false "made anew, it does not take over what sums meant there"
fails 1 "$s1: not a k3 index" "a shard named as the model" k3-index -l -m "$m/$s1"
fails 1 "nowhere: No such file" "nothing named as the model" k3-index -l -m "$tmp/nowhere"

# directories that move
fresh
rm -rf "$tmp/moved"
mv "$m" "$tmp/moved"
list "$tmp/moved" && list "$tmp/moved/model.k3i" && (cd "$tmp/moved" && list model.k3i && list . && list ./)
ok $? "an index moves with its directory"
cp "$tmp/moved/model.k3i" "$tmp/copy.k3i"
fails 1 "config.json is gone" "a copy of it outside does not find the moved model" k3-index -l -m "$tmp/copy.k3i"
k3-index -o "$tmp/elsewhere.k3i" "$tmp/moved" >/dev/null
list "$tmp/elsewhere.k3i" && (cd / && list "$tmp/elsewhere.k3i")
ok $? "an index elsewhere knows where its model is"
one=$(k3-index -j -o "$tmp/x.k3i" "$tmp/moved" | jq -r .fingerprint)
mv "$tmp/moved" "$tmp/moved again"
is "$(k3-index -j "$tmp/moved again" | jq -r .fingerprint)" "$one" "the fingerprint does not depend on the place"
fails 1 "config.json is gone" "a model that moved away from its index" k3-index -l -m "$tmp/elsewhere.k3i"
mv "$tmp/moved again" "$tmp/moved"
touch "$tmp/moved/$s1"
edit "$tmp/moved/$s1" "data[9] ^= 1"
k3-index "$tmp/elsewhere.k3i" >/dev/null && list "$tmp/elsewhere.k3i"
ok $? "k3-index makes a stale index file anew"

# two at once
fresh
rm "$m/model.k3i"
for i in 1 2 3 4 5 6; do
	k3-index -l -m "$m" >"$tmp/at once $i" 2>&1 &
done
wait
good=0
for i in 1 2 3 4 5 6; do
	cmp -s "$tmp/at once $i" "$tmp/at once 1" && [ "$(wc -l <"$tmp/at once $i")" -gt 100 ] && good=$((good + 1))
done
is "$good" 6 "six programs that need the index at once"
is "$(find "$m" -name '*k3i*' | wc -l)" 1 "and no temporary file is left"

# a directory that cannot be written: as another user where root would be let in
unprivileged() {
	if [ "$(id -u)" -ne 0 ]; then
		"$@"
	else
		setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	fi
}
fresh
rm "$m/model.k3i"
chmod 755 "$tmp"
chmod 555 "$m"
mkdir "$XDG_CACHE_HOME"
chmod 777 "$XDG_CACHE_HOME"
if unprivileged true 2>/dev/null && unprivileged test -x "$(command -v k3-index)" -a ! -w "$m"; then
	unprivileged k3-index -l -m "$m" >"$tmp/out" 2>"$tmp/err"
	ok $? "a directory that cannot be written has its index in the cache"
	is "$(find "$XDG_CACHE_HOME/k3" -name 'a model-*.k3i' | wc -l)" 1 "under its name"
	is "$(wc -l <"$tmp/out")" "$(k3-index -l -m "$m" | wc -l)" "which is used again"
	is "$(find "$m" -name '*k3i*' | wc -l)" 0 "nothing is left in the directory"
	unprivileged k3-index -j "$m" | jq -r .index | grep -q "^$XDG_CACHE_HOME/k3/"
	ok $? "k3-index itself writes there too"
	chmod 755 "$m"
	edit "$m/$s2" "data[0] ^= 1"
	chmod 555 "$m"
	fails 1 "cache/k3/a model-.*stale" "the one in the cache may be stale" unprivileged k3-index -l -m "$m"
	unprivileged k3-index "$m" >/dev/null && unprivileged k3-index -l -m "$m" >/dev/null
	ok $? "and is made anew there"
	chmod 755 "$m"
	head -c 100 "$tmp/other/model.k3i" >"$m/model.k3i"
	chmod 555 "$m"
	unprivileged k3-index -l -m "$m" >/dev/null
	ok $? "it helps where a broken one cannot be replaced"
	rm -rf "$XDG_CACHE_HOME/k3"
	fails 1 "model.k3i: .*bytes" "without it the broken one is refused" unprivileged k3-index -l -m "$m"
	chmod 755 "$m"
	rm "$m/model.k3i"
	chmod 555 "$m" "$XDG_CACHE_HOME"
	fails 1 "cache/k3: Permission denied" "no place for an index" unprivileged k3-index -l -m "$m"
	fails 1 "neither XDG_CACHE_HOME nor HOME" "no cache named" \
		unprivileged env -u HOME -u XDG_CACHE_HOME k3-index -l -m "$m"
	chmod 777 "$XDG_CACHE_HOME"
	unprivileged env HOME="$XDG_CACHE_HOME" XDG_CACHE_HOME=relative k3-index -l -m "$m" >/dev/null
	ok $? "a relative cache is not used"
	[ -d "$XDG_CACHE_HOME/.cache/k3" ]
	ok $? "but that of the home directory"
else
	skip "a directory that cannot be written" "no other user to be"
fi
chmod 755 "$m"

plan
