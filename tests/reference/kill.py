#!/usr/bin/env python3
"""Kills k3-step again and again while it works on a state, and goes on from the state.

    kill.py KILLS      (K3_MODEL set, k3-step and k3-stat on PATH, in a scratch directory)

What each process writes must be the records of an undisturbed run, from the line that its state
stood at; and the run must come to the same end.
"""
import json, os, random, subprocess, sys, time

rng = random.Random(7)
lines = [[rng.randrange(2048) for _ in range(n)] for n in [9] + [1] * 12 + [5] + [1] * 8]
text = [' '.join(map(str, l)) + '\n' for l in lines]
starts = [sum(map(len, lines[:i])) for i in range(len(lines) + 1)]
RECORD = 128 + 2048 * 4


def step(rounds, out):
    return subprocess.Popen(['k3-step', '-s', 'killed'], stdin=subprocess.PIPE, stdout=open(out, 'wb'))


began = time.monotonic()
subprocess.run(['k3-step', '-s', 'quiet'], input=''.join(text).encode(), stdout=open('quiet.out', 'wb'), check=True)
whole = time.monotonic() - began                    # where starting takes long, one has to wait longer for lines
want = open('quiet.out', 'rb').read()
kills = in_pass = 0
trial = 0
while kills < int(sys.argv[1]) or in_pass < 3:
    trial += 1
    if trial > 500:
        sys.exit(f'only {kills} kills, {in_pass} of them in a pass')
    if os.path.exists('killed'):
        os.unlink('killed')
    done = 0                                        # lines that the state has taken
    pending = False
    while True:
        p = step(text[done:], 'killed.out')
        first = done - 1 if pending else done       # the line of the first record
        feeder = os.fork()
        if feeder == 0:
            try:
                p.stdin.write(''.join(text[done:]).encode())
                p.stdin.close()
            except BrokenPipeError:
                pass
            os._exit(0)
        p.stdin.close()
        wait = rng.uniform(0.001, whole)
        try:
            status = p.wait(wait)
        except subprocess.TimeoutExpired:
            p.kill()
            status = p.wait()
            kills += 1
        os.waitpid(feeder, 0)
        got = open('killed.out', 'rb').read()
        if got != want[first * RECORD:first * RECORD + len(got)]:
            sys.exit(f'trial {trial}: other records from line {first} on')
        if status == 0:
            if first * RECORD + len(got) != len(want):
                sys.exit(f'trial {trial}: the end came too early')
            break
        if status != -9:
            sys.exit(f'trial {trial}: status {status}')
        if not os.path.exists('killed') or not os.path.getsize('killed'):
            continue
        s = json.loads(subprocess.run(['k3-stat', '-j', 'killed'], capture_output=True, check=True).stdout)
        if s['position'] not in starts:
            sys.exit(f"trial {trial}: position {s['position']} is between two lines")
        done, pending = starts.index(s['position']), s['pending'] > 0
        in_pass += pending
print('ok')
