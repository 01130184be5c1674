#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes four layers of the released widths with 128 experts each, and the head: 17 GB of made-up weights. Needs numpy.

    wide.py OUT_DIR

A dense layer, two KDA layers and an MLA layer. The values are those of scripts/rehearse.py.
"""
import copy, json, multiprocessing, os, sys
import numpy as np

here = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(here, '..', '..', 'scripts'), os.path.join(here, '..', 'reference')]
sys.dont_write_bytecode = True
import rehearse, replica

LAYERS, EXPERTS = 4, 128


def config():
    c = copy.deepcopy(replica.CONFIG)
    del c['vision_config']
    t = c['text_config']
    t['num_hidden_layers'], t['num_experts'] = LAYERS, EXPERTS
    t['linear_attn_config'].update(full_attn_layers=[LAYERS], kda_layers=list(range(1, LAYERS)))
    return c


def codes(maker, seed, name, size):
    """The bytes of a tensor of an expert: any codes, scales near 1/200."""
    raw = rehearse.seeded(*seed).random_raw(-(-size // 8)).view(np.uint8)[:size]
    return (maker.scale[raw] if name.endswith('scale') else raw).tobytes()


def write(task):
    path, number, tensors, text = task
    maker = rehearse.Maker()
    head, items = replica.header(tensors)
    with open(path, 'wb') as f:
        f.write(head)
        for k, (name, dtype, shape, a, b) in enumerate(items):
            each = (b - a) // shape[0]
            if dtype == 'U8':
                f.write(codes(maker, (number, k), name, b - a))
                continue
            for row in range(0, shape[0], rehearse.step(each)):
                n = min(rehearse.step(each), shape[0] - row)
                f.write(maker.piece(text, (number, k), name, dtype, shape, row, n))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out, c = sys.argv[1], config()
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, 'config.json'), 'w') as f:
        json.dump(c, f)
    files = [list(x) for x in replica.files(c)]
    tasks = [(os.path.join(out, f'model-{i:05d}-of-{len(files):06d}.safetensors'), i, tensors, c['text_config'])
             for i, tensors in enumerate(files, 1)]
    with multiprocessing.Pool(min(os.cpu_count(), len(tasks))) as pool:
        pool.map(write, tasks, 1)


if __name__ == '__main__':
    main()
