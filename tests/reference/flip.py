#!/usr/bin/env python3
"""Changes bytes of a state, one at a time, and runs k3-step on it.

    flip.py STATE N     (K3_MODEL, k3-step on PATH; the file `id` holds a line of ids, `want` its record)

Bytes of both headers and N others, spread by a fixed generator. Every run must either refuse the state
with status 1 and one line on stderr, or write the very record that the whole state gives.
"""
import random, subprocess, sys

name, count = sys.argv[1], int(sys.argv[2])
good = open(name, 'rb').read()
want = open('want', 'rb').read()
places = list(range(0, 320, 5)) + list(range(4088, 4416, 5)) + list(range(8184, 8192))
rng = random.Random(1)
places += [rng.randrange(8192, len(good)) for _ in range(count)]
refused = 0
for at in places:
    bad = bytearray(good)
    bad[at] ^= 1 << rng.randrange(8)
    open('flipped', 'wb').write(bad)
    p = subprocess.run(['k3-step', '-s', 'flipped'], stdin=open('id', 'rb'), capture_output=True)
    if p.returncode == 1 and p.stderr.count(b'\n') == 1 and not p.stdout:
        refused += 1
    elif p.returncode or p.stdout != want:
        sys.exit(f'byte {at}: status {p.returncode}, {p.stderr!r}')
# both headers, and most of what the slots hold, are watched
print('ok' if refused > len(places) // 2 else f'only {refused} of {len(places)} were refused')
