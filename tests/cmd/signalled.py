#!/usr/bin/env python3
"""Sends a signal to a command while a read of its second round hangs.

    signalled.py SIGNAL STATE COMMAND...

The command, which keeps the state file `s`, gets the first line of the file `in`; when a record has
come, the file `now` is made, which lets the disk hang, and the command gets the second line. When `now`
is gone, and s holds STATE ("POSITION PENDING LAYER"), it gets the signal. Records go to the file `got`,
messages to `err`. Prints the status, how many bytes came, and whether it ended within two seconds.
"""
import json, os, signal, subprocess, sys, time

lines = open('in', 'rb').read().splitlines(True)
number = getattr(signal, sys.argv[1])


def state():
    # while a slice is being written it cannot be read
    p = subprocess.run(['k3-stat', '-j', 's'], capture_output=True)
    s = json.loads(p.stdout) if p.returncode == 0 else {}
    return f"{s.get('position')} {s.get('pending')} {s.get('layer')}"


def there():
    return not os.path.exists('now') and state() == sys.argv[2]


# a shell may let what it starts in the background ignore some of them
p = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open('err', 'wb'),
                     preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
p.stdin.write(lines[0])
p.stdin.flush()
got = os.read(p.stdout.fileno(), 1 << 20)
open('now', 'w').close()
p.stdin.write(lines[1])
p.stdin.flush()
end = time.monotonic() + 20
while p.poll() is None and not there() and time.monotonic() < end:
    time.sleep(.02)
began = time.monotonic()
if p.poll() is None and there():
    p.send_signal(number)
else:
    print('never there:', state(), end=' ')
    p.kill()
got += p.stdout.read()
status = p.wait()
open('got', 'wb').write(got)
print(status, len(got), 'at once' if time.monotonic() - began < 2 else 'late')
