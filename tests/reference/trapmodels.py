#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""k3-step against the reference model on checkpoints made to spring traps; prints TAP.

Each model is one of k3make.py, of which some tensors are changed so that a fluent but wrong
computation is far off: where ordinary weights hide an epsilon, a cap or a missing source, these
do not.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import agree
import k3make
import k3ref

LAYERS = 'language_model.model.layers.'


class Weights:
    """The tensors of a checkpoint, changed where they lie in its files."""

    def __init__(self, folder):
        self.t = k3ref.Checkpoint(folder)

    def names(self, part):
        return [n for n in self.t.at if part in n]

    def get(self, name):
        """A tensor as numbers; of experts, the bytes."""
        a, dtype = self.t.raw(name)
        if dtype == 'BF16':
            a = (a.astype(np.uint32) << 16).view(np.float32)
        return a.copy()

    def put(self, name, a):
        path, off, dtype, shape = self.t.at[name]
        a = np.asarray(a).reshape(shape)
        a = k3make.bf16(a) if dtype == 'BF16' else a.astype({'F32': '<f4', 'U8': 'u1'}[dtype])
        with open(path, 'r+b') as f:
            f.seek(off)
            f.write(a.tobytes())

    def change(self, part, fn):
        """Applies fn to every tensor that has part in its name."""
        names = self.names(part)
        assert names, part
        for n in names:
            self.put(n, fn(self.get(n)))


def times(*factors):
    """A change that multiplies tensors: pairs of a part of their names and the factor."""
    def edit(w):
        for part, factor in factors:
            w.change(part, lambda a, f=factor: a * f)
    return edit


def decay_constants(w):
    w.change('A_log', lambda a: np.where(a == a, 1, a))
    w.change('dt_bias', lambda a: 3 * a / np.abs(a).max())


def rope_only(w):
    """No nope part in queries: what attends are the rope slots alone."""
    heads, nope, rope = 4, 24, 8

    def edit(a):
        a = a.reshape(heads, nope + rope, -1)
        a[:, :nope] = 0
        a[:, nope:] *= 3
        return a
    w.change('q_b_proj', edit)


def large_rope(w):
    w.change('kv_a_proj_with_mqa', lambda a: np.vstack([a[:32], 20 * a[32:]]))


def near_ties(w):
    """Pairs of experts whose router rows differ in the last place of one element in eight."""
    def edit(a):
        half = len(a) // 2
        a[half:] = a[:half]
        a[half:, ::8] *= 1 + 2.0 ** -7
        return a
    w.change('gate.weight', edit)
    w.change('e_score_correction_bias', lambda a: np.concatenate([a[:12], a[:12]]))


def twins(w):
    """Pairs of experts that the router cannot tell apart."""
    w.change('gate.weight', lambda a: np.vstack([a[:12], a[:12]]))
    w.change('e_score_correction_bias', lambda a: np.concatenate([a[:12], a[:12]]))


def scales(by):
    def edit(w):
        for part, n in by:
            w.change(part + '.weight_scale', lambda a, n=n: a.astype(int) + n)
    return edit


def quiet_last_block(w):
    """Layers 8 on write next to nothing: the answer is in the snapshots."""
    for part in ('8.self_attn.o_proj', '8.block_sparse_moe.routed_expert_up_proj',
                 '8.block_sparse_moe.shared_experts.down_proj'):
        w.change(LAYERS + part, lambda a: a * 2.0 ** -10)


SPIKY = times(('res_proj', 4))

# (traps, what is special, tokens, settings, edit)
MODELS = [
    ('T3, T4', 'decay constants that the order of bias and product decides', 16, {},
     decay_constants),
    ('T6', 'queries and keys of size 1e-4', 16, {},
     times(('q_proj', 2.0 ** -12), ('k_proj', 2.0 ** -12))),
    ('T6', 'queries and keys of size 1e-5', 16, {},
     times(('q_proj', 2.0 ** -15), ('k_proj', 2.0 ** -15))),
    ('T8, T15', 'output gates of zero', 16, {}, times(('self_attn.g_proj', 0))),
    ('T8, T15', 'large output gates', 16, {}, times(('self_attn.g_proj', 6))),
    ('T11', 'nothing but rope slots attends', 40, {}, rope_only),
    ('T12', 'rope keys 20 times as large', 16, {}, large_rope),
    ('T13', 'MLA latents of rms 1e-3', 16, {},
     times(('kv_a_proj', 2.0 ** -10), ('q_a_proj', 2.0 ** -10))),
    ('T13', 'MLA latents of rms 1e-2', 16, {},
     times(('kv_a_proj', 2.0 ** -7), ('q_a_proj', 2.0 ** -7))),
    ('T16', 'a bias that overrules the scores', 16, {}, times(('e_score_correction_bias', 10))),
    ('T17', 'all experts chosen, and scaled', 16,
     dict(num_experts=8, num_experts_per_token=8, routed_scaling_factor=2.5), None),
    ('T18', 'router products that differ by about 1e-4', 40, {}, near_ties),
    ('T19', 'experts 128 times as large', 16, {}, scales([('w2', 7)])),
    ('T19', 'experts 128 times as small', 16, {}, scales([('w2', -7)])),
    ('T20', 'no routed experts, shared ones alone', 16, {},
     times(('routed_expert_up_proj', 0))),
    ('T21, T22', 'gate branches beyond the cap of SiTU', 16, {}, scales([('w1', 5)])),
    ('T21, T22', 'up branches beyond the cap of SiTU', 16, {}, scales([('w3', 6)])),
    ('T22', 'dense and shared MLPs beyond the caps', 16, {},
     times(('mlp.gate_proj', 10), ('mlp.up_proj', 40), ('shared_experts.gate_proj', 10),
           ('shared_experts.up_proj', 40))),
    ('T25, T26, T28', 'a spiky mix, blocks of 3', 16,
     dict(agree.layers(7, [4, 7]), attn_res_block_size=3), SPIKY),
    ('T25, T26, T28', 'a spiky mix, blocks of 2', 16,
     dict(agree.layers(6, [3, 6]), attn_res_block_size=2), SPIKY),
    ('T25, T26, T28', 'a spiky mix, blocks of 1', 16,
     dict(agree.layers(4, [2]), attn_res_block_size=1), SPIKY),
    ('T27', 'a last block next to nothing', 16, {}, quiet_last_block),
    ('T29', 'embeddings of rms 1e-3', 16, {}, times(('embed_tokens', 2.0 ** -10))),
    ('T29', 'norm weights around 0.1', 16, {}, times(('layernorm', 0.1), ('model.norm', 0.1))),
]


def models(tap):
    for number, (traps, what, tokens, settings, edit) in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as folder:
            agree.make(folder, 200 + number, 3, settings)
            if edit:
                edit(Weights(folder))
            c = agree.Comparison(folder, agree.prompt(folder, tokens, number))
        tap.ok(c.good(), f'{traps}: {what}', str(c))


def padding(tap):
    """T2: what stands behind the heads in A_log changes no bit."""
    with tempfile.TemporaryDirectory() as folder:
        agree.make(folder, 300, 3, {})
        ids = agree.prompt(folder, 20, 1)
        before, = agree.step(folder, ids)
        os.unlink(os.path.join(folder, 'model.k3i'))
        Weights(folder).change('A_log', lambda a: np.concatenate([a[:4], np.full(12, 7.5)]))
        after, = agree.step(folder, ids)
        tap.ok(before.tobytes() == after.tobytes(), 'T2: garbage in the padding of A_log')
        c = agree.Comparison(folder, ids)
        tap.ok(c.good(), 'T2: and the reference agrees', str(c))


def ties(tap):
    """T37: of twins the lower id is taken first, with any number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        agree.make(folder, 301, 3, dict(num_experts_per_token=5))
        twins(Weights(folder))
        ids = agree.prompt(folder, 40, 1)
        trace = os.path.join(folder, 'trace')
        records, one_of_two, lower = [], 0, True
        for threads in ('1', '2', '3', '16'):
            record, = agree.step(folder, ids, '-t', threads, '--trace', trace)
            records.append(record.tobytes())
            for positions in agree.read_routes(trace).values():
                for chosen in positions.values():
                    single = [e for e in chosen if (e + 12) % 24 not in chosen]
                    one_of_two += len(single)
                    lower &= all(e < 12 for e in single)
        tap.ok(lower and one_of_two > 0, f'T37: the lower id of twins, {one_of_two} times')
        tap.ok(len(set(records)) == 1, 'T37: the same bits with 1, 2, 3 and 16 threads')
        c = agree.Comparison(folder, ids)
        tap.ok(c.good(), 'T37: and the reference agrees', str(c))


def quantised(tap):
    """T24: targets and exceptions of the quantisation say nothing about tensors."""
    with tempfile.TemporaryDirectory() as folder:
        agree.make(folder, 303, 3, {})
        ids = agree.prompt(folder, 8, 1)
        before, = agree.step(folder, ids)
        os.unlink(os.path.join(folder, 'model.k3i'))
        path = os.path.join(folder, 'config.json')
        with open(path, encoding='utf-8') as f:
            config = json.load(f)
        config['text_config']['quantization_config'] = {
            'quant_method': 'compressed-tensors', 'format': 'mxfp4-pack-quantized',
            'ignore': ['lm_head', 're:.*self_attn.*', 're:.*shared_experts.*', 're:.*mlp\\..*'],
            'config_groups': {'group_0': {
                'format': 'mxfp4-pack-quantized', 'targets': ['Linear'], 'input_activations': None,
                'weights': {'group_size': 32, 'num_bits': 4, 'type': 'float', 'strategy': 'group',
                            'symmetric': True, 'scale_dtype': 'torch.uint8'}}}}
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(config, f)
        after, = agree.step(folder, ids)
        tap.ok(before.tobytes() == after.tobytes(),
               'T24: a list of exceptions that misses the router and the latent projections')


def head(tap):
    """T32, T41: the head is a matrix of its own, and every id has a logit."""
    with tempfile.TemporaryDirectory() as folder:
        agree.make(folder, 302, 3, {})
        w = Weights(folder)
        vocab, hidden = w.get('language_model.lm_head.weight').shape
        # rows that pick one value of the final state each, twice with different signs
        rows = np.zeros((vocab, hidden))
        rows[np.arange(vocab), np.arange(vocab) % hidden] = \
            np.where(np.arange(vocab) // hidden % 2, -1, 1)
        w.put('language_model.lm_head.weight', rows)
        logits, = agree.step(folder, [0, vocab - 1, 256, 258])
        tap.ok(logits.shape == (4, vocab), 'T41: ids up to the last are taken, each has a logit')
        tap.ok((logits[:, :hidden] == -logits[:, hidden:2 * hidden]).all()
               and len(set(logits[0, :hidden])) > hidden // 2, 'T32: logits come from lm_head')
        failed = subprocess.run(['k3-step', '-m', folder], input=f'{vocab}\n'.encode(), check=False,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        tap.ok(failed.returncode == 1 and str(vocab).encode() in failed.stderr,
               'T41: the first id beyond them is refused')


def main():
    tap = agree.Tap()
    models(tap)
    padding(tap)
    ties(tap)
    quantised(tap)
    head(tap)
    return tap.done()


if __name__ == '__main__':
    sys.exit(main())
