#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unicode-table.py [DIR] - writes lib/text/unicode.c from the Unicode Character Database.

DIR holds UnicodeData.txt, Scripts.txt and PropList.txt (Debian package unicode-data; default
/usr/share/unicode).  The table is committed, so that ids do not depend on the machine that
builds: run this only to move to another version of Unicode, and look at the difference.
"""
import re
import sys
import textwrap

# The bits of lib/text/unicode.h.
HAN, UPPER, LOWER, LETTER, NUMBER, BLANK, PYSPACE = (1 << i for i in range(7))
CODES = 0x110000
SHIFT = 7

HEADER = """/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unicode.c - made by scripts/unicode-table.py from the Unicode Character Database,
 * version %s; do not edit.  Copyright of the data: Unicode, Inc. (www.unicode.org/license.txt).
 *
 * A code point's block of %d is looked up first, then its place in that block.
 */
#include "text/unicode.h"
"""


def database(directory):
    """The class bits of every code point, and the version of the database."""
    bits = [0] * CODES
    first = 0
    for line in open(f'{directory}/UnicodeData.txt'):
        code, name, category, _, bidi = line.split(';')[:5]
        code = int(code, 16)
        # Large ranges are given by their first and their last character.
        if name.endswith(', First>'):
            first = code
            continue
        for c in range(first if name.endswith(', Last>') else code, code + 1):
            if category[0] == 'L':
                bits[c] |= LETTER
            if category in ('Lu', 'Lt', 'Lm', 'Lo') or category[0] == 'M':
                bits[c] |= UPPER
            if category in ('Ll', 'Lm', 'Lo') or category[0] == 'M':
                bits[c] |= LOWER
            if category[0] == 'N':
                bits[c] |= NUMBER
            if category == 'Zs' or bidi in ('WS', 'B', 'S'):
                bits[c] |= PYSPACE
    for c in property_of(directory, 'Scripts.txt', 'Han'):
        bits[c] = bits[c] & ~(UPPER | LOWER) | HAN
    for c in property_of(directory, 'PropList.txt', 'White_Space'):
        bits[c] |= BLANK
    version = re.search(r'-([0-9.]+)\.txt', open(f'{directory}/PropList.txt').readline())
    return bits, version.group(1)


def property_of(directory, file, name):
    for line in open(f'{directory}/{file}'):
        fields = line.split('#')[0].split(';')
        if len(fields) == 2 and fields[1].strip() == name:
            ends = [int(x, 16) for x in fields[0].strip().split('..')]
            yield from range(ends[0], ends[-1] + 1)


def rows(values):
    return textwrap.indent(textwrap.fill(', '.join(map(str, values)) + ',', 92), '\t') + '\n'


def main():
    bits, version = database(sys.argv[1] if len(sys.argv) > 1 else '/usr/share/unicode')
    size, blocks, stage1 = 1 << SHIFT, {}, []
    for i in range(0, CODES, size):
        stage1.append(blocks.setdefault(tuple(bits[i:i + size]), len(blocks)))
    assert len(blocks) <= 256
    out = sys.stdout
    out.write(HEADER % (version, size))
    out.write(f'\nconst uint8_t k3i_unicode_block[{len(stage1)}] = {{\n')
    out.write(rows(stage1))
    out.write(f'}};\n\nconst uint8_t k3i_unicode_class[{len(blocks)}][{size}] = {{\n')
    for block in blocks:
        out.write('{\n')
        out.write(rows(block))
        out.write('},\n')
    out.write('};\n')


main()
