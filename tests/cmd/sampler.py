# SPDX-License-Identifier: Apache-2.0
"""The sampler again, after the text of k3-sample(1): what the tests compare with.

It shares nothing with the C code: XXH64 and Philox from their papers, exp of NumPy.

    sampler.py [-t T] [-k K] [-p P] [--min-p M] [-s SEED] [-b B] [--name NAME]... <logits >ids

writes the ids of every round, one line for a sequence.
"""
import argparse
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../scripts'))
sys.dont_write_bytecode = True
import k3npy

M64 = 2**64 - 1
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                      0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotl(x, n):
    return (x << n | x >> (64 - n)) & M64


def lane(acc, word):
    return rotl((acc + word * P2) & M64, 31) * P1 & M64


def xxh64(data):
    n, at = len(data), 0
    word = lambda i, k: int.from_bytes(data[i:i + k], 'little')
    if n >= 32:
        v = [(P1 + P2) & M64, P2, 0, -P1 & M64]
        while at + 32 <= n:
            v = [lane(v[j], word(at + 8 * j, 8)) for j in range(4)]
            at += 32
        h = (rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18)) & M64
        for x in v:
            h = ((h ^ lane(0, x)) * P1 + P4) & M64
    else:
        h = P5
    h = (h + n) & M64
    while at + 8 <= n:
        h = (rotl(h ^ lane(0, word(at, 8)), 27) * P1 + P4) & M64
        at += 8
    if at + 4 <= n:
        h = (rotl(h ^ word(at, 4) * P1 & M64, 23) * P2 + P3) & M64
        at += 4
    while at < n:
        h = rotl(h ^ data[at] * P5 & M64, 11) * P1 & M64
        at += 1
    h = (h ^ h >> 33) * P2 & M64
    h = (h ^ h >> 29) * P3 & M64
    return h ^ h >> 32


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(seed, stream, n):
    c = philox([n & 0xFFFFFFFF, n >> 32, stream & 0xFFFFFFFF, stream >> 32],
               [seed & 0xFFFFFFFF, seed >> 32])
    return (c[0] + (c[1] << 32) >> 11) / 2**53


def survivors(row, o):
    """Ids that can be drawn, most likely first, and their weights."""
    order = np.lexsort((np.arange(len(row)), -row.astype(np.float64)))
    w = np.exp((row[order].astype(np.float64) - row.max()) / o.temperature)
    if o.top_k:
        order, w = order[:o.top_k], w[:o.top_k]
    if o.top_p < 1:
        n = 1 + int(np.sum(np.cumsum(w)[:-1] < o.top_p * w.sum()))
        order, w = order[:n], w[:n]
    n = max(1, int(np.sum(w >= o.min_p)))
    return order[:n], w[:n]


def pick(row, o, stream, n):
    if o.temperature == 0:
        return int(np.argmax(row))
    order, w = survivors(row, o)
    c = np.cumsum(w)
    return int(order[min(np.searchsorted(c, uniform(o.seed, stream, n) * c[-1], 'right'),
                         len(w) - 1)])


def options():
    p = argparse.ArgumentParser()
    p.add_argument('-t', '--temperature', type=float, default=0)
    p.add_argument('-k', '--top-k', type=int, default=0)
    p.add_argument('-p', '--top-p', type=float, default=1)
    p.add_argument('--min-p', type=float, default=0)
    p.add_argument('-s', '--seed', type=int, default=0)
    p.add_argument('-b', '--batch', type=int, default=1)
    p.add_argument('--name', action='append')
    return p.parse_args()


def main():
    o = options()
    streams = [xxh64(name.encode()) for name in o.name] if o.name else [None] * o.batch
    for i, a in enumerate(k3npy.read(open(0, 'rb', buffering=0, closefd=False))):
        s, n = i % o.batch, i // o.batch
        if streams[s] is None:
            streams[s] = xxh64(a[-1].tobytes())
        print(pick(a[-1], o, streams[s], n))


assert xxh64(b'') == 0xEF46DB3751D8E999 and xxh64(b'abc') == 0x44BC2CF5AD770999
if __name__ == '__main__':
    main()
