#!/usr/bin/env python3
"""Reads a trunk file by its manual page, k3-trunk(5), and docs/kernels.md: trunk.py FILE MODEL

Checks every sum, every offset and all zeros, decodes every block, and compares all tensors with the shards. Prints the fingerprint,
the number of sections, and how many blocks are vectors, raw and coded. With a third argument it goes no further than to print
offsets of bytes of each kind in a section with a coded block, a name and an offset a line. A fourth one is the tensor, as `order`
names it, that the block is to be of; no other one is decoded then.
"""
import glob, json, os, struct, sys
import numpy as np
from xxh3 import xxh3

MIX = ['self_attention_res_norm.weight', 'self_attention_res_proj.weight', 'mlp_res_norm.weight', 'mlp_res_proj.weight',
       'input_layernorm.weight', 'post_attention_layernorm.weight']
LONG = [16 * l + 4 * k + m for k in range(4) for l in range(4) for m in range(4)]   # the slots of a step's weights


def shards(model):
    """name -> (shape, bytes)"""
    out = {}
    for path in glob.glob(os.path.join(glob.escape(model), '*.safetensors')):
        b = open(path, 'rb').read()
        n, = struct.unpack('<Q', b[:8])
        for name, t in json.loads(b[8:8 + n]).items():
            if name != '__metadata__':
                begin, end = (8 + n + x for x in t['data_offsets'])
                out[name.removeprefix('language_model.')] = t['shape'], b[begin:end]
    return out


def order(t, i):
    """The names of vectors and of matrices of section i."""
    if i == t['num_hidden_layers']:
        return ['model.' + n + '.weight' for n in ('output_attn_res_norm', 'output_attn_res_proj', 'norm')], ['lm_head.weight']
    p = f'model.layers.{i}.'
    a, m, e = p + 'self_attn.', p + 'mlp.', p + 'block_sparse_moe.'
    vectors = [p + n for n in MIX]
    if i + 1 in t['linear_attn_config']['full_attn_layers']:
        vectors += [a + 'q_a_layernorm.weight', a + 'kv_a_layernorm.weight']
        matrices = 'q_a_proj kv_a_proj_with_mqa g_proj q_b_proj kv_b_proj/keys kv_b_proj/values o_proj'
    else:
        vectors += [a + n for n in ('q_conv1d.weight', 'k_conv1d.weight', 'v_conv1d.weight', 'dt_bias', 'A_log', 'o_norm.weight')]
        matrices = 'f_a_proj q_proj k_proj v_proj g_proj b_proj f_b_proj o_proj'
    matrices = [a + n.replace('/', '.weight/') if '/' in n else a + n + '.weight' for n in matrices.split()]
    if i < t['first_k_dense_replace']:
        return vectors, matrices + [m + n + '_proj.weight' for n in ('gate', 'up', 'down')]
    vectors += [e + 'gate.e_score_correction_bias', e + 'routed_expert_norm.weight']
    return vectors, matrices + [e + n + '.weight' for n in (
        'gate', 'routed_expert_down_proj', 'shared_experts.gate_proj', 'shared_experts.up_proj', 'shared_experts.down_proj',
        'routed_expert_up_proj')]


def cut(t, name, rows, width):
    """(first row, rows) of each block."""
    if '/' in name:
        key, value = t['qk_nope_head_dim'], t['v_head_dim']
        for h in range(t['num_attention_heads']):
            at = h * (key + value)
            yield (at, key) if name.endswith('keys') else (at + key, value)
        return
    limit = 1048576 // width
    limit = max(limit - limit % 8 if limit > 8 else limit, 1)
    n = -(-max(-(-rows // 16), 16384 // width) // 8) * 8
    n = min(n, limit)
    for at in range(0, rows, n):
        yield at, min(n, rows - at)


def chunks(columns):
    while columns:
        n = 512 if columns >= 512 else min(columns, 128)
        yield n
        columns -= n


def gentle(b, begin, end):
    """The first byte of b in begin .. end - 1 with bits, 1 and 4, that can change and leave a block with nothing wrong but its weights."""
    none = dict(raw=0, coded=0, places=None)
    right = decode(b, none)
    for at in range(begin, end):
        try:
            if all((decode(b[:at] + bytes([b[at] ^ bit]) + b[at + 1:], none) != right).any() for bit in (1, 4)):
                return at
        except (AssertionError, IndexError):
            pass


def decode(b, counts):
    """A block -> its rows as uint16; offsets of bytes of each kind go to counts."""
    magic, version, kind, zero, R, C, size = struct.unpack_from('<4sHBBIII', b)
    assert magic == b'k3bl' and version == 1 and zero == 0 and size == len(b) and not any(b[20:64])
    if kind == 0:
        counts['raw'] += 1
        assert size == 64 + 2 * R * C
        return np.frombuffer(b, '<u2', R * C, 64).reshape(R, C)
    assert kind == 1 and size < 64 + 2 * R * C
    counts['coded'] += 1
    table_end = 64 + 5 * R
    body = -(-table_end // 64) * 64
    S = sum(n + 3 * (64 if n == 512 else 16) for n in chunks(C))
    escapes = body + R * S
    assert not any(b[table_end:body]) and not any(b[-16:])
    nibbles = [x for byte in b[escapes:-16] for x in (byte & 15, byte >> 4)]
    if nibbles and 'places' not in counts:
        codes = body + 3 * (64 if C >= 512 else 16)
        counts['places'] = dict(code=gentle(b, body, codes), mantissa=codes, base=64 + 4,
                                escape=gentle(b, escapes, size - 16), end=size - 1)
    out = np.zeros((R, C), '<u2')
    expected = 0
    for r in range(R):
        start, base = struct.unpack_from('<IB', b, 64 + 5 * r)
        assert start == expected
        at, unit, column = body + r * S, 2 * start, 0
        for n in chunks(C):
            L = 64 if n == 512 else 16
            low = np.frombuffer(b, 'u1', 2 * L, at).reshape(2, L)
            third = np.frombuffer(b, 'u1', L, at + 2 * L)
            code = np.stack([low[s // 4] >> 2 * (s % 4) & 3 | (third >> s & 1) << 2 for s in range(8)]).reshape(-1)
            assert not code[n:].any()
            code, sm = code[:n].astype(int), np.frombuffer(b, 'u1', n, at + 3 * L).astype(int)
            e = base - code & 255
            for i in np.flatnonzero(code == 7):
                v = nibbles[unit]
                unit += 1
                if v == 15:
                    e[i] = nibbles[unit] | nibbles[unit + 1] << 4
                    unit += 2
                else:
                    e[i] = 0 if v == 14 else (base - 7 - v if v < 11 else base + v - 10) & 255
            w = (sm >> 7) << 15 | e << 7 | sm & 127
            if L == 64:
                w = w.reshape(8, 64)[:, LONG].reshape(-1)
            out[r, column:column + n] = w
            at += n + 3 * L
            column += n
        expected = (unit + 1) // 2
        assert unit % 2 == 0 or nibbles[unit] == 0
    assert escapes + expected + 16 == size
    return out


def summed(b, begin, end, what):
    assert xxh3(b[begin:end]) == struct.unpack_from('<Q', b, end)[0], f'the sum of {what}'


def read_section(b, t, i, offset, length, tensors, counts, only):
    magic, B, zero, plain = struct.unpack_from('<8sIIQ', b, offset)
    assert magic == b'K3LAYER\n' and zero == 0
    end = 24 + 16 * B
    summed(b, offset, offset + end, f'directory {i}')
    entries = [struct.unpack_from('<IIQ', b, offset + 24 + 16 * k) for k in range(B)]
    end += 8
    blocks = []
    for at, size, total in entries:
        at *= 64
        assert at == -(-end // 64) * 64 and not any(b[offset + end:offset + at])
        end = at + size
        blocks.append(b[offset + at:offset + end])
        assert xxh3(blocks[-1]) == total
    assert length == -(-end // 65536) * 65536 and not any(b[offset + end:offset + length])
    counts.setdefault('padding', offset + end if end < length else None)
    vectors, matrices = order(t, i)
    number = 0
    for name in vectors:
        assert blocks[number] == tensors[name][1], name
        plain -= len(blocks[number])
        counts['vectors'] += 1
        counts.setdefault('vector', offset + entries[number][0] * 64 + 5)
        number += 1
    for name in matrices:
        (R, C), raw = tensors[name.split('/')[0]]
        want = np.frombuffer(raw, '<u2').reshape(R, C)
        for row, rows in cut(t, name, R, 2 * C):
            if only and name != only:
                plain -= 2 * rows * C
                number += 1
                continue
            got = decode(blocks[number], counts)
            if counts.get('places') and 'block' not in counts:
                counts.update(block=offset + entries[number][0] * 64, entry=offset + 24 + 16 * number, directory=offset,
                              name=name, gap=offset + entries[number][0] * 64 + len(blocks[number]))
            assert got.shape == (rows, C) and (got == want[row:row + rows]).all(), (name, row)
            plain -= 2 * rows * C
            number += 1
    assert number == B and plain == 0


def main(path, model, places=None, only=None):
    b = open(path, 'rb').read()
    t = json.load(open(os.path.join(model, 'config.json')))['text_config']
    magic, version, flags, finger, N, zero, length = struct.unpack_from('<8sII16sIIQ', b)
    assert (magic, version, flags, zero, length) == (b'K3TRUNK\n', 1, 0, 0, len(b)) and N == t['num_hidden_layers'] + 1
    end = 48 + 16 * N
    summed(b, 0, end, 'the head')
    at = -(-(end + 8) // 65536) * 65536
    assert not any(b[end + 8:at])
    tensors, counts = shards(model), dict(vectors=0, raw=0, coded=0)
    for i in range(N):
        offset, size = struct.unpack_from('<QQ', b, 48 + 16 * i)
        assert offset == at and size % 65536 == 0
        read_section(b, t, i, offset, size, tensors, counts, only)
        at += size
    assert at == len(b)
    if not places:
        print(finger.hex(), N, counts['vectors'], counts['raw'], counts['coded'])
        return
    for k, v in counts['places'].items():
        print(k, counts['block'] + v)
    for k in ('block', 'entry', 'directory', 'gap', 'padding', 'vector', 'name'):
        print(k, counts[k])


main(*sys.argv[1:])
