#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# k3-stat on vector streams, against NumPy; and what all kinds have in common.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
cd "$tmp" || exit 1

k3-stat --help >help
is "$? $(head -c 6 help)" "0 usage:" "--help"
is "$(k3-stat -V)" "k3-stat (k3) $(cat "$top/VERSION")" "--version"
fails 2 "unrecognized option '--frob'" "an unknown option" k3-stat --frob
fails 2 "^k3-stat: --top: 'x' is not" "a bad number" k3-stat --top x

records '[rng.normal(size=(1, 500)) * 5, rng.normal(size=(3, 4, 50)), np.zeros((0, 7)),
	rng.normal(size=40000) * 1e20, np.full((2, 2), np.nan),
	np.where(np.arange(12).reshape(3, 4) % 5 == 1, [np.inf, -np.inf, np.nan, 1], -2)]' >a.npy
k3-stat -j --top 5 a.npy >got
"$py" -c '
import json, numpy as np, k3npy
for i, (line, a) in enumerate(zip(open("got"), k3npy.read(open("a.npy", "rb")))):
    r, f, d = json.loads(line), a[np.isfinite(a)], a[np.isfinite(a)].astype(float)
    assert r["schema"] == "k3.stat/1" and r["file"] == "a.npy" and r["kind"] == "vectors"
    assert r["record"] == i and tuple(r["shape"]) == a.shape
    assert r["nonfinite"] == a.size - f.size
    if f.size:
        assert np.float32(r["min"]) == f.min() and np.float32(r["max"]) == f.max()
        assert abs(r["mean"] - d.mean()) <= 1e-12 * np.abs(d).max()
        assert abs(r["rms"] / np.sqrt((d * d).mean()) - 1) < 1e-12
    else:
        assert r["min"] is r["max"] is r["mean"] is r["rms"] is None
    size = np.where(np.isfinite(a), np.abs(a), -1).ravel()
    order = np.argsort(-size, kind="stable")[:min(5, f.size)]
    assert [tuple(e["at"]) for e in r["largest"]] == [np.unravel_index(o, a.shape) for o in order]
    assert [np.float32(e["value"]) for e in r["largest"]] == [a.ravel()[o] for o in order]
assert i == 5'
ok $? "all numbers are those of NumPy"

records '[np.array([[1, -3, 0, 3, 2]]), np.arange(6).reshape(2, 3), np.full((1, 2), np.inf)]' >b.npy
k3-stat b.npy >got
cat >want <<'EOF'
b.npy: vector stream
record  shape                 min          max         mean          rms nonfinite  largest
     0  1x5                    -3            3          0.6      2.14476         0  1:-3 3:3 4:2
     1  2x3                     0            5          2.5      3.02765         0  1,2:5 1,1:4 1,0:3
     2  1x2                     -            -            -            -         2 
EOF
same got want "the table"
k3-stat --top 0 b.npy | sed -n 's/ *$//; 3p' >got
echo '     0  1x5                    -3            3          0.6      2.14476         0' >want
same got want "without largest entries"
k3-stat <b.npy | sed 1d >got
k3-stat b.npy | sed 1d >want
same got want "a stream is like a file"
{ cat b.npy; } | k3-stat - | sed 1d >got
same got want "so is - for a pipe"
mkfifo pipe
cat b.npy >pipe & k3-stat pipe | sed 1d >got
wait
same got want "and a fifo"

# a line comes when its record is there, not at the end
mkfifo in out
timeout 20 k3-stat in >out &
exec 4<out 3>in
cat b.npy >&3
read -r line <&4 && read -r line <&4 && read -r line <&4
is "${line%% *}" 0 "the first record is reported before the stream ends"
exec 3>&- 4<&-
wait

printf '' >empty
k3-stat empty >got
is "$? $(cat got)" "0 empty: empty" "an empty file"
is "$(k3-stat -j empty)" '{"schema":"k3.stat/1","file":"empty","kind":"empty"}' "  as JSON"
k3-stat <&- >got
is "$? $(cat got)" "0 standard input: empty" "a closed stdin"
k3-stat -j a.npy b.npy | jq -r .file | uniq >got
printf '%s\n' a.npy b.npy >want
same got want "two files"
printf '\033"x\n' | tr -d '\n' >name
cp b.npy "$(cat name)"
is "$(k3-stat -j "$(cat name)" | jq -r .file | head -n 1)" "$(cat name)" "an odd name is quoted in JSON"
is "$(k3-stat "$(cat name)" | head -n 1)" '?"x: vector stream' "and does not reach the terminal"

head -c 299 b.npy >cut.npy
fails 1 '^k3-stat: cut.npy: the stream ends at byte 299, inside the values of record 1' \
	"a record that is cut" k3-stat -j cut.npy
is "$(jq .record fails.out)" 0 "  behind one that is good"
{ cat b.npy; echo garbage; } >bad.npy
fails 1 'record 3 at byte [0-9]* is not an npy record' "garbage behind records" k3-stat bad.npy
is "$(wc -l <fails.out)" 5 "  that were good"
echo hello >hello
fails 1 '^k3-stat: hello: its first bytes are not' "something unknown" k3-stat hello
fails 1 '^k3-stat: none: No such file' "a missing file" k3-stat none
fails 1 'Is a directory' "a directory" k3-stat .
k3-stat -j none b.npy hello >got 2>err
is "$? $(wc -l <got) $(wc -l <err)" "1 3 2" "bad files do not keep it from good ones"
fails 1 'standard output: No space left' "a full disk" sh -c 'k3-stat b.npy >/dev/full'
is "$(wc -l <fails.err)" 1 "  is said once"
cat b.npy b.npy b.npy >long
{ sleep 0.2; cat long; } | { k3-stat; echo $? >status; } | true
is "$(cat status)" 141 "a reader that has gone ends it by SIGPIPE"
plan
