#!/usr/bin/env python3
"""Runs a command and writes the largest resident size that it had, in bytes, into a file.

    peak.py FILE COMMAND...

Exits as the command does. What this process has itself, some 10 MB, counts at least.
"""
import os, resource, sys

pid = os.fork()
if pid == 0:
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    finally:
        os._exit(127)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], 'w') as f:
    f.write(f'{usage.ru_maxrss * 1024}\n')
sys.exit(os.waitstatus_to_exitcode(status) % 256)
