#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read and write vector streams of k3 from Python, also through pipes, which numpy.load cannot.

As a module:

    import k3npy
    for a in k3npy.read(open(0, 'rb', buffering=0)):
        k3npy.write(open(1, 'wb', buffering=0, closefd=False), a * 0.5)

As a filter, with a NumPy expression over the record a and its number i:

    k3npy.py 'a * 0.5' <in.npy >out.npy
"""
import ast
import io
import signal
import struct
import sys

import numpy as np


def _exactly(f, n, what):
    """n bytes of f, however small the pieces that it gives."""
    parts = []
    while n:
        part = f.read(n)
        if not part:
            raise EOFError('the stream ends inside ' + what)
        parts.append(part)
        n -= len(part)
    return b''.join(parts)


def read(f):
    """Yields the records of a binary file or pipe as float32 arrays of their own.

    If f is unbuffered, nothing beyond a record is read before the next one is
    asked for. ValueError for anything but npy 1.0 with '<f4' in C order, EOFError for a
    record that is cut.
    """
    while True:
        first = f.read(1)
        if not first:
            return
        lead = first + _exactly(f, 9, 'a header')
        if lead[:8] != b'\x93NUMPY\x01\x00':
            raise ValueError('not a record of npy version 1.0')
        header = _exactly(f, struct.unpack('<H', lead[8:])[0], 'a header')
        try:
            h = ast.literal_eval(header.decode('latin1').strip())
            descr, fortran, shape = h['descr'], h['fortran_order'], h['shape']
        except (SyntaxError, KeyError, TypeError) as e:
            raise ValueError('bad npy header') from e
        if descr != '<f4' or fortran or len(h) != 3 or not isinstance(shape, tuple):
            raise ValueError('the record is not <f4 in C order')
        count = 1
        for n in shape:
            count *= n
        values = _exactly(f, 4 * count, 'values')
        yield np.frombuffer(bytearray(values), '<f4').reshape(shape)


def write(f, a):
    """Writes one array as a record, at once."""
    a = np.ascontiguousarray(a, '<f4')
    b = io.BytesIO()
    np.lib.format.write_array_header_1_0(b, {'descr': '<f4', 'fortran_order': False,
                                             'shape': a.shape})
    rest = memoryview(b.getvalue() + a.tobytes())
    while rest:
        rest = rest[f.write(rest):]
    f.flush()


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ('-h', '--help'):
        asked = len(sys.argv) == 2
        print("usage: k3npy.py EXPRESSION <records >records\n"
              "Applies a NumPy expression over a (the record), i (its number) and np.",
              file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        code = compile(sys.argv[1], 'EXPRESSION', 'eval')
    except SyntaxError as e:
        print('k3npy.py: %s: %s' % (sys.argv[1], e.msg), file=sys.stderr)
        return 2
    out = open(1, 'wb', buffering=0, closefd=False)
    try:
        for i, a in enumerate(read(open(0, 'rb', buffering=0, closefd=False))):
            write(out, eval(code, {'np': np, 'a': a, 'i': i}))
    except (ValueError, EOFError, OSError) as e:
        print('k3npy.py: %s' % e, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
