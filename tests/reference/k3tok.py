#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""k3tok.py - a slow and literal tokenizer of K3, for comparison with k3-tokenize.

    k3tok.py encode MODEL [--special] [--pieces]  NUL-ended texts on stdin to lines of ids, or of
                                                  the lengths of pieces in bytes
    k3tok.py random COUNT SEED                    NUL-ended random texts, dense in hard places

The split pattern is matched item by item with giving back, as a regular expression engine
would; classes come from Python's own Unicode tables (so the random texts use only characters
that all its versions since 3.2 agree on), Script=Han from a list.
"""
import base64
import functools
import json
import random
import sys
import unicodedata

TEXT, RUN = 400_000, 25_000
HAN = [(0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007),
       (0x3021, 0x3029), (0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D),
       (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3), (0x16FF0, 0x16FF1), (0x20000, 0x2A6DF),
       (0x2A700, 0x2B739), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1), (0x2CEB0, 0x2EBE0),
       (0x2F800, 0x2FA1D), (0x30000, 0x3134A), (0x31350, 0x323AF)]
WHITE = set('\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000')
WHITE.update(map(chr, range(0x2000, 0x200B)))


@functools.cache
def classes(c):
    """The names of the classes of the pattern that a character is in."""
    category, names = unicodedata.category(c), set()
    han = any(a <= ord(c) <= b for a, b in HAN)
    if han:
        names.add('han')
    if (category in ('Lu', 'Lt', 'Lm', 'Lo') or category[0] == 'M') and not han:
        names.add('upper')
    if (category in ('Ll', 'Lm', 'Lo') or category[0] == 'M') and not han:
        names.add('lower')
    if c not in '\r\n' and category[0] not in 'LN':
        names.add('lead')
    if category[0] == 'N':
        names.add('number')
    if c in WHITE:
        names.add('white')
    else:
        names.add('black')
        if category[0] not in 'LN':
            names.add('other')
    if c in '\r\n':
        names.add('newline')
    if c == ' ':
        names.add('space')
    return frozenset(names)


MANY = 1 << 60
# Each alternative is a list of (class, least, most), all greedy, and what must follow.
WORD = [('lead', 0, 1), ('upper', 0, MANY), ('lower', 1, MANY)]
CAPS = [('lead', 0, 1), ('upper', 1, MANY), ('lower', 0, MANY)]
PATTERN = [([('han', 1, MANY)], None),
           (WORD, 'contraction'),
           (CAPS, 'contraction'),
           ([('number', 1, 3)], None),
           ([('space', 0, 1), ('other', 1, MANY), ('newline', 0, MANY)], None),
           ([('white', 0, MANY), ('newline', 1, MANY)], None),
           ([('white', 1, MANY)], 'not black'),
           ([('white', 1, MANY)], None)]


def match(text, at, items, then):
    """Where the items end that are matched from a place on, or None."""
    if not items:
        if then == 'not black' and at < len(text) and 'black' in classes(text[at]):
            return None
        if then == 'contraction':
            for tail in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
                # casefold makes an s of the long s, as a match that ignores case does
                if text[at:at + len(tail)].casefold() == tail:
                    return at + len(tail)
        return at
    name, least, most = items[0]
    end = at
    while end < len(text) and end - at < most and name in classes(text[end]):
        end += 1
    for end in range(end, at + least - 1, -1):
        found = match(text, end, items[1:], then)
        if found is not None:
            return found
    return None


def pieces(text):
    at = 0
    while at < len(text):
        end = next(e for e in (match(text, at, *a) for a in PATTERN) if e is not None)
        yield text[at:end]
        at = end


def sections(text):
    """The cuts: every TEXT characters, and where a run of blanks or of others exceeds RUN."""
    for start in range(0, len(text), TEXT):
        part, first, length = text[start:start + TEXT], 0, 0
        blank = part[:1].isspace()
        for i, c in enumerate(part):
            if c.isspace() == blank:
                length += 1
            else:
                blank, length = c.isspace(), 1
            if length > RUN:
                yield part[first:i]
                first, length = i, 1
        yield part[first:]


class Tokenizer:
    def __init__(self, directory):
        lines = open(f'{directory}/tiktoken.model').read().splitlines()
        self.rank = {base64.b64decode(t): int(r) for t, r in (x.split() for x in lines)}
        base = len(self.rank)
        self.special = {f'<|reserved_token_{i}|>': i for i in range(base, base + 256)}
        names = json.load(open(f'{directory}/tokenizer_config.json'))['added_tokens_decoder']
        for i, entry in names.items():
            del self.special[f'<|reserved_token_{i}|>']
            self.special[entry['content']] = int(i)

    @functools.cache
    def piece(self, piece):
        data = piece.encode(errors='surrogateescape')
        if data in self.rank:
            return [self.rank[data]]
        parts = [data[i:i + 1] for i in range(len(data))]
        while True:
            best = min(((self.rank[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
                        if a + b in self.rank), default=None)
            if best is None:
                return [self.rank[p] for p in parts]
            i = best[1]
            parts[i:i + 2] = [parts[i] + parts[i + 1]]

    def split(self, text, special):
        """Pieces of text, and special spellings as pairs of spelling and id."""
        for section in sections(text):
            start = at = 0
            while special and at < len(section):
                # the first place where a spelling begins, and the longest there
                here = [s for s in self.special if section.startswith(s, at)]
                if not here:
                    at += 1
                    continue
                yield from pieces(section[start:at])
                spelling = max(here, key=len)
                yield spelling, self.special[spelling]
                start = at = at + len(spelling)
            yield from pieces(section[start:])

    def encode(self, text, special):
        ids = []
        for p in self.split(text, special):
            ids += self.piece(p) if isinstance(p, str) else [p[1]]
        return ids

    def lengths(self, text, special):
        for p in self.split(text, special):
            yield len((p if isinstance(p, str) else p[0]).encode(errors='surrogateescape'))


HARD = ["'s", "'S", "'ſ", "'re", "'RE", "'Ve", "'ll", "'lL", "'d", "'m", "'t", "'", ' ', '  ', '\n',
        '\r\n', '\t', '\x1c', '\x1f', '\x85', '\xa0', '\u2003', '\u3000', '\u2028', '\u200b',
        'a', 'b', 'the', 'A', 'B', 'ABC', 'Ab', 'ǅ', 'ʰ', 'ª', 'א', '\u0301', '\u0903', '\u20dd',
        '你', '好', '⺀', '々', '〇', '〡', '〸', '\u302a', '𠀀', '\U00016fe2', '\U00016ff0', '\U00030000',
        'の', 'ー', '가', 'ก', '\u0e31', 'ا', '1', '12', '1234', '²', '٣', 'Ⅷ', '½', '!', '...', '/', '-',
        '<|', '|>', '<|open|>', '<|end_of_msg|>', '[BOS]', '[EOS', '<|reserved_token_1800|>',
        '<|reserved_token_1792|>', '€', '😀', '\u200d', '\ufe0f', '\u0378', '\uffff', '\x01', '\x7f']
BYTES = [b'\x80', b'\xff', b'\xc0\xaf', b'\xc3', b'\xe4\xbd', b'\xed\xa0\x80', b'\xf0\x9f\x98',
         b'\xf4\x90\x80\x80', b'\xe0\x80\x80', b'\xfe']


def random_texts(count, seed):
    r = random.Random(seed)
    old = unicodedata.ucd_3_2_0
    anywhere = [c for c in map(chr, range(1, 0x30000))
                if old.category(c) == unicodedata.category(c) not in ('Cn', 'Cs', 'Co')]
    for i in range(count):
        if i % 4 == 0:
            pool = [r.choice(anywhere).encode() for _ in range(6)] + [b' ', b'a', b'A', b'\n']
        else:
            pool = [x.encode() for x in r.choices(HARD, k=r.randrange(1, 9))]
        if i % 8 == 1:
            pool += r.choices(BYTES, k=2)
        yield b''.join(r.choices(pool, k=r.randrange(0, 40)))


def main(argv):
    out = sys.stdout.buffer
    if argv[1] == 'random':
        for text in random_texts(int(argv[2]), int(argv[3])):
            out.write(text + b'\0')
        return
    tokenizer = Tokenizer(argv[2])
    what = tokenizer.lengths if '--pieces' in argv else tokenizer.encode
    for text in sys.stdin.buffer.read().split(b'\0')[:-1]:
        numbers = what(text.decode(errors='surrogateescape'), '--special' in argv)
        out.write(b'%s\n' % ' '.join(map(str, numbers)).encode())


main(sys.argv)
