#!/usr/bin/env python3
"""Overwrites bytes of a tensor in a checkpoint.

    patch.py MODEL NAME HEX [FIRST [COUNT]]

HEX is repeated over COUNT bytes (all that are left) from byte FIRST (0) of the tensor. NAME may have
`*`: then all tensors that match are changed. The index of the model is removed, since it is stale now.
"""
import fnmatch, glob, json, os, struct, sys

model, name, fill = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
found = 0
for path in glob.glob(os.path.join(glob.escape(model), '*.safetensors')):
    with open(path, 'r+b') as f:
        n, = struct.unpack('<Q', f.read(8))
        for key, t in json.loads(f.read(n)).items():
            if not fnmatch.fnmatchcase(key, name):
                continue
            begin, end = t['data_offsets']
            count = int(sys.argv[5]) if len(sys.argv) > 5 else end - begin - first
            f.seek(8 + n + begin + first)
            f.write((fill * (count // len(fill) + 1))[:count])
            found += 1
if not found:
    sys.exit(f'{name}: no such tensor')
for path in glob.glob(os.path.join(glob.escape(model), '*.k3i')):
    os.unlink(path)
