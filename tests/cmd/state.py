#!/usr/bin/env python3
"""Reads a state file by its manual page, k3-state(5): state.py FILE

Checks every sum, and prints a line with ids, pass and next layer, one with the ids, one with the shape of the residual stream, and one
for each layer: number, positions, norm of its matrices or latents.
"""
import math, struct, sys

M = (1 << 64) - 1
P1, P2, P3, P4, P5 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579,
                      2870177450012600261)


def rotate(x, n):
    return (x << n | x >> 64 - n) & M


def round_(acc, word):
    return rotate((acc + word * P2) & M, 31) * P1 & M


def xxh64(data, seed=0):
    """From the published description of the algorithm."""
    at = 0
    if len(data) >= 32:
        acc = [(seed + P1 + P2) & M, (seed + P2) & M, seed, (seed - P1) & M]
        while at + 32 <= len(data):
            acc = [round_(a, w) for a, w in zip(acc, struct.unpack_from('<4Q', data, at))]
            at += 32
        h = (rotate(acc[0], 1) + rotate(acc[1], 7) + rotate(acc[2], 12) + rotate(acc[3], 18)) & M
        for a in acc:
            h = ((h ^ round_(0, a)) * P1 + P4) & M
    else:
        h = (seed + P5) & M
    h = (h + len(data)) & M
    while at + 8 <= len(data):
        h = (rotate(h ^ round_(0, struct.unpack_from('<Q', data, at)[0]), 27) * P1 + P4) & M
        at += 8
    if at + 4 <= len(data):
        h = (rotate(h ^ struct.unpack_from('<I', data, at)[0] * P1 & M, 23) * P2 + P3) & M
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * P5 & M, 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return h ^ h >> 32


def chain(rows):
    seed = 0
    for row in rows:
        seed = xxh64(row, seed)
    return seed


def page_up(n):
    return -(-n // 4096) * 4096


assert xxh64(b'') == 0xEF46DB3751D8E999          # published values
assert xxh64(b'abc') == 0x44BC2CF5AD770999

f = open(sys.argv[1], 'rb').read()
size = struct.unpack_from('<I', f, 12)[0]
best = None
for which in (0, 1):
    h = f[which * size:(which + 1) * size]
    if which == 1 and not any(h):
        continue
    assert h[:8] == b'K3state\n' and struct.unpack_from('<II', h, 8) == (1, size)
    assert struct.unpack_from('<Q', h, size - 8)[0] == xxh64(h[:-8]), 'sum of a header'
    commit = struct.unpack_from('<Q', h, 64)[0]
    assert commit % 2 == which
    if best is None or commit > best[0]:
        best = commit, h
h = best[1]
first, last, width, heads, dim, conv, rank, rope = struct.unpack_from('<8I', h, 32)
ids, pending, ids_sum, at, rows, row_sum = struct.unpack_from('<6Q', h, 72)
following, free, sources = struct.unpack_from('<3I', h, 120)
assert size == page_up(168 + 16 * (last - first)) and not any(h[132:160])
entries = [struct.unpack_from('<IIQ', h, 160 + 16 * i) for i in range(last - first)]
mla = [i for i, e in enumerate(entries) if e[0] == 1]
kda = [i for i, e in enumerate(entries) if e[0] == 0]
assert sorted([entries[i][1] for i in kda] + [free]) == list(range(len(kda) + 1)), 'slots'
matrices, history = heads * dim * dim * 4, 3 * (conv - 1) * heads * dim * 4
slot, latent = page_up(matrices + history), (rank + rope) * 4
groups = 2 * size + (len(kda) + 1) * slot
group = page_up(256 + len(mla) * 64 * latent)


def place(position, offset, bytes_each):
    start = groups + position // 64 * group + offset + position % 64 * bytes_each
    return f[start:start + bytes_each]


words = [place(p, 0, 4) for p in range(ids)]
assert chain(words) == ids_sum, 'sum of the ids'
residual = f[at:at + rows * sources * width * 4]
assert len(residual) == rows * sources * width * 4 and (not rows or xxh64(residual) == row_sum), 'residual stream'
print(ids, pending, following)
print(*(struct.unpack('<I', w)[0] for w in words))
print(rows, sources, width)
for i, (kind, number, total) in enumerate(entries):
    taken = ids - (pending if first + i >= following else 0)
    if kind == 1:
        values = [place(p, 256 + mla.index(i) * 64 * latent, latent) for p in range(taken)]
        assert chain(values) == total, f'layer {first + i}'
        values = b''.join(values)
    elif taken:
        start = 2 * size + number * slot
        assert xxh64(f[start:start + matrices + history]) == total, f'layer {first + i}'
        values = f[start:start + matrices]
    else:
        values = b''
    norm = math.sqrt(sum(x * x for x in struct.unpack(f'<{len(values) // 4}f', values)))
    print(first + i, taken, f'{norm:.5g}')
