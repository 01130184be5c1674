#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Records against NumPy: our headers are its headers, and both read each other's files.
. tests/cmd/lib.sh
. tests/cmd/numpy.sh
unit=$(dirname "$(command -v k3-stat)")/../unit/npy
cd "$tmp" || exit 1

shapes="1 7 0 1x2048 0x2048 12x163840 3x4x7168 2x3x4x5 1x1 99999x1 1000000000x1x2
	0x18446744 1234567x0x12345x1 1x1x1x9"
# shellcheck disable=SC2086
"$unit" $shapes >ours
# shellcheck disable=SC2086
"$py" -c '
import io, sys, numpy as np
for s in sys.argv[1:]:
    shape = tuple(map(int, s.split("x")))
    b = io.BytesIO()
    if np.prod(shape, dtype=float) < 1e5 and max(shape) < 1e6:
        np.save(b, np.zeros(shape, "<f4"))
        b.truncate(b.tell() - 4 * int(np.prod(shape)))
    else:
        np.lib.format.write_array_header_1_0(
            b, {"descr": "<f4", "fortran_order": False, "shape": shape})
    sys.stdout.buffer.write(b.getvalue())' $shapes >theirs
same ours theirs "headers are byte for byte those of NumPy"

records '[rng.normal(size=s) for s in [(1, 5), (0, 5), (2, 3, 4), (3,)]]' >a.npy
"$py" -c '
import numpy as np
rng = np.random.default_rng(1)
with open("a.npy", "rb") as f:
    for s in [(1, 5), (0, 5), (2, 3, 4), (3,)]:
        a = np.load(f)
        assert a.dtype == np.float32 and a.shape == s
        assert (a == rng.normal(size=s).astype("f4")).all()
    assert not f.read(1)'
ok $? "numpy.load reads what k3npy.write wrote, record after record"

"$py" -c '
import numpy as np
with open("b.npy", "wb") as f:
    for i in range(3):
        np.save(f, np.full((i, 4), i, "f4"))'
k3-stat -j b.npy | jq -c '[.record, .shape, .max]' >got
printf '%s\n' '[0,[0,4],null]' '[1,[1,4],1]' '[2,[2,4],2]' >want
same got want "k3-stat reads what numpy.save wrote"

# a pipe that gives one byte at a time
"$py" -c '
import os
for b in open("a.npy", "rb").read():
    os.write(1, bytes([b]))' | "$py" "$top/scripts/k3npy.py" a >copy
same a.npy copy "k3npy.py copies a stream of single bytes"

"$py" "$top/scripts/k3npy.py" 'a * 2 + i' <b.npy | k3-stat -j | jq -c .max >got
printf '%s\n' null 3 6 >want
same got want "k3npy.py applies an expression"

# the module stops where a record ends, so that another reader can go on
"$py" -c '
import k3npy, os
for a in k3npy.read(open(0, "rb", buffering=0, closefd=False)):
    break
os.execvp("k3-stat", ["k3-stat", "-j"])' <a.npy | jq -c .shape >got
printf '%s\n' '[0,5]' '[2,3,4]' '[3]' >want
same got want "k3npy.read takes no byte beyond its record"

head -c 200 b.npy >cut.npy
fails 1 'ends inside' "k3npy.py: a cut record" "$py" "$top/scripts/k3npy.py" a <cut.npy
"$py" -c 'import numpy as np; np.save("d.npy", np.zeros(3))'
fails 1 'not <f4' "k3npy.py: another dtype" "$py" "$top/scripts/k3npy.py" a <d.npy
fails 1 'version' "k3npy.py: no record" "$py" "$top/scripts/k3npy.py" a <"$top/Makefile"
fails 2 'usage' "k3npy.py: no expression" "$py" "$top/scripts/k3npy.py"
fails 2 'syntax' "k3npy.py: not an expression" "$py" "$top/scripts/k3npy.py" 'a +'
plan
