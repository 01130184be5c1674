#!/usr/bin/env python3
"""Runs a command, and does something to its files between its first two rounds.

    midrun.py ACTION COMMAND...

The command gets the first line of the file `in`; when a record has come, ACTION (for sh) is run, then
the command gets the other lines. Records go to the file `got`, messages to `err`. Prints the
status, or `hang` after half a minute, and how many bytes came.
"""
import os, subprocess, sys, threading

lines = open('in', 'rb').read().splitlines(True)
p = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open('err', 'wb'))
late = []
timer = threading.Timer(30, lambda: (late.append(1), p.kill()))
timer.start()
got = b''
try:
    p.stdin.write(lines[0])
    p.stdin.flush()
    got = os.read(p.stdout.fileno(), 1 << 20)
    subprocess.run(['sh', '-c', sys.argv[1]], check=True)
    p.stdin.write(b''.join(lines[1:]))
    p.stdin.close()
except BrokenPipeError:
    pass
got += p.stdout.read()
status = p.wait()
timer.cancel()
open('got', 'wb').write(got)
print('hang' if late else status, len(got))
