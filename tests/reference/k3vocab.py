#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""k3vocab.py DIR - writes a tokenizer of the released size into DIR, for tests of published ids.

The single bytes, the special ids and the tokens below are those of Kimi K3; every other token is
a filler that no text is encoded to.
"""
import base64
import json
import sys

BASE = 163584
TOKENS = {
    'a': 64, '   ': 274, ' b': 291, 'hello': 22931, '123': 6694, '456': 12972, '789': 16242,
    'before': 14435, 'after': 14306, 'reserved': 64345, '_token': 14147, '163': 18752, '839': 56284,
    'literal': 82319, ' <|': 22652, 'open': 4454, ' and': 316, 'end': 517, '_of': 5118, '_msg': 14222,
    ' [': 793, 'OS': 4110, ' here': 2397, 'message': 2778, ' role': 6244, '="': 878, 'user': 2482,
    'What': 5376, ' is': 387, ' +': 715, 'assistant': 69702, 'think': 39964,
}
SPECIALS = {
    163584: '[BOS]', 163585: '[EOS]', 163586: '<|end_of_msg|>', 163587: '<|open|>',
    163588: '<|close|>', 163589: '<|sep|>', 163590: '[start_header_id]', 163591: '[end_header_id]',
    163593: '[EOT]', 163602: '<|media_begin|>', 163603: '<|media_content|>', 163604: '<|media_end|>',
    163605: '<|media_pad|>', 163649: '<osagent_mode>', 163838: '[UNK]', 163839: '[PAD]',
}


def main(directory):
    # printable characters of Latin-1 first, then the other bytes
    order = [*range(33, 127), *range(161, 173), *range(174, 256), *range(33), *range(127, 161), 173]
    tokens = {i: bytes([b]) for i, b in enumerate(order)}
    for text, i in TOKENS.items():
        assert tokens.get(i, text.encode()) == text.encode()
        tokens[i] = text.encode()
    with open(f'{directory}/tiktoken.model', 'w') as f:
        for i in range(BASE):
            token = tokens.get(i, b'\xff\xfe%06d' % i)
            f.write(f'{base64.b64encode(token).decode()} {i}\n')
    with open(f'{directory}/tokenizer_config.json', 'w') as f:
        names = {str(i): {'content': s, 'special': True} for i, s in SPECIALS.items()}
        json.dump({'added_tokens_decoder': names}, f)


main(sys.argv[1])
