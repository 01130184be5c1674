#!/usr/bin/env python3
"""Writes a checkpoint whose headers are real and whose data are holes. Needs nothing but Python.

    replica.py OUT_DIR [--config FILE] [--only N,N,...]

Without --config it has the geometry of the released model: 96 files of 1.56 TB together, which take some 80 MB
of disk on a file system with sparse files. The tensors of layer L are in file L+1; after the layers come one file for
embedding and head and, where the config has a vision part, two for that. In each file the tensors lie in
the order F32, BF16, U8, within these by name, as in the release. --only leaves the other files out.
"""
import argparse, json, os, shutil

# The fields of the released configuration that mean something to the text model.
LAYERS = 93
FULL = [i for i in range(4, LAYERS, 4)] + [LAYERS]
CONFIG = dict(
    architectures=['KimiK3ForConditionalGeneration'], model_type='kimi_k3', dtype='bfloat16', tie_word_embeddings=False,
    bos_token_id=163584, eos_token_id=163586, pad_token_id=163839, vision_config=dict(vt_num_hidden_layers=27),
    text_config=dict(
        model_type='kimi_linear', hidden_size=7168, num_hidden_layers=LAYERS, vocab_size=163840, rms_norm_eps=1e-5,
        hidden_act='situ', activation_situ_beta=4.0, activation_situ_linear_beta=25.0, intermediate_size=33792,
        first_k_dense_replace=1, moe_layer_freq=1, num_attention_heads=96, num_key_value_heads=96, q_lora_rank=1536,
        kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, mla_use_nope=True,
        mla_use_output_gate=True, num_experts=896, num_experts_per_token=16, num_shared_experts=2,
        moe_intermediate_size=3072, routed_expert_hidden_size=3584, latent_moe_use_norm=True,
        moe_router_activation_func='sigmoid', moe_renormalize=True, routed_scaling_factor=1.0, num_expert_group=1,
        topk_group=1, use_grouped_topk=True, attn_res_block_size=12, num_nextn_predict_layers=0,
        max_position_embeddings=1048576, tie_word_embeddings=False, top_k=50,
        linear_attn_config=dict(num_heads=96, head_dim=128, short_conv_kernel_size=4, gate_lower_bound=-5.0,
                                use_full_rank_gate=True, full_attn_layers=FULL,
                                kda_layers=[i for i in range(1, LAYERS + 1) if i not in FULL])))


def attention(t, full):
    """(name behind self_attn., dtype, shape) of one layer."""
    h, lin = t['hidden_size'], t['linear_attn_config']
    if full:
        n, nope, rope, v = (t[k] for k in ('num_attention_heads', 'qk_nope_head_dim', 'qk_rope_head_dim', 'v_head_dim'))
        q, kv, width = t['q_lora_rank'], t['kv_lora_rank'], n * v
        rows = [('q_a_proj.weight', [q, h]), ('q_a_layernorm.weight', [q]), ('q_b_proj.weight', [n * (nope + rope), q]),
                ('kv_a_proj_with_mqa.weight', [kv + rope, h]), ('kv_a_layernorm.weight', [kv]),
                ('kv_b_proj.weight', [n * (nope + v), kv])]
    else:
        n, d = lin['num_heads'], lin['head_dim']
        width = n * d
        rows = [(c + '_proj.weight', [width, h]) for c in 'qkv']
        rows += [('f_a_proj.weight', [d, h]), ('f_b_proj.weight', [width, d]), ('b_proj.weight', [n, h])]
        for c in 'qkv':
            yield c + '_conv1d.weight', 'F32', [width, 1, lin['short_conv_kernel_size']]
        yield 'A_log', 'F32', [max(n, d)]
        yield 'dt_bias', 'F32', [width]
        yield 'o_norm.weight', 'F32', [d]
    for name, shape in rows + [('g_proj.weight', [width, h]), ('o_proj.weight', [h, width])]:
        yield name, 'BF16', shape


def layer(t, i):
    h, p = t['hidden_size'], f'language_model.model.layers.{i}.'
    for n in ('input_layernorm', 'post_attention_layernorm', 'self_attention_res_norm', 'mlp_res_norm'):
        yield p + n + '.weight', 'BF16', [h]
    for n in ('self_attention_res_proj', 'mlp_res_proj'):
        yield p + n + '.weight', 'BF16', [1, h]
    for n, dtype, shape in attention(t, i + 1 in t['linear_attn_config']['full_attn_layers']):
        yield p + 'self_attn.' + n, dtype, shape
    if i < t['first_k_dense_replace']:
        w = t['intermediate_size']
        for n, shape in (('gate', [w, h]), ('up', [w, h]), ('down', [h, w])):
            yield f'{p}mlp.{n}_proj.weight', 'BF16', shape
        return
    p, z, w, e = p + 'block_sparse_moe.', t['routed_expert_hidden_size'], t['moe_intermediate_size'], t['num_experts']
    yield p + 'gate.weight', 'BF16', [e, h]
    yield p + 'gate.e_score_correction_bias', 'F32', [e]
    yield p + 'routed_expert_down_proj.weight', 'BF16', [z, h]
    yield p + 'routed_expert_up_proj.weight', 'BF16', [h, z]
    yield p + 'routed_expert_norm.weight', 'BF16', [z]
    s = w * t['num_shared_experts']
    for n, shape in (('gate', [s, h]), ('up', [s, h]), ('down', [h, s])):
        yield f'{p}shared_experts.{n}_proj.weight', 'BF16', shape
    for x in range(e):
        for n, rows, cols in (('w1', w, z), ('w2', z, w), ('w3', w, z)):
            yield f'{p}experts.{x}.{n}.weight_packed', 'U8', [rows, cols // 2]
            yield f'{p}experts.{x}.{n}.weight_scale', 'U8', [rows, cols // 32]


def files(c):
    """The tensors of each file."""
    t = c['text_config']
    h, v, p = t['hidden_size'], t['vocab_size'], 'language_model.model.'
    for i in range(t['num_hidden_layers']):
        yield layer(t, i)
    yield [('language_model.lm_head.weight', 'BF16', [v, h]), (p + 'embed_tokens.weight', 'BF16', [v, h]),
           (p + 'norm.weight', 'BF16', [h]), (p + 'output_attn_res_norm.weight', 'BF16', [h]),
           (p + 'output_attn_res_proj.weight', 'BF16', [1, h])]
    if 'vision_config' not in c:
        return
    yield [('mm_projector.proj.0.weight', 'BF16', [4096, 4096]), ('mm_projector.proj.2.weight', 'BF16', [h, 4096]),
           ('mm_projector.post_norm.weight', 'BF16', [h])]
    block = (('mlp.fc0', [4096, 1024]), ('mlp.fc1', [1024, 4096]), ('norm0', [1024]), ('norm1', [1024]),
             ('wo', [1024, 1536]), ('wqkv', [4608, 1024]))
    p = 'vision_tower.'
    yield [(f'{p}encoder.blocks.{b}.{n}.weight', 'BF16', s) for b in range(c['vision_config']['vt_num_hidden_layers'])
           for n, s in block] + [(p + 'encoder.final_layernorm.weight', 'BF16', [1024]),
                                 (p + 'patch_embed.pos_emb.weight', 'BF16', [64, 64, 1024]),
                                 (p + 'patch_embed.proj.weight', 'BF16', [1024, 3, 14, 14])]


def header(tensors):
    """The first bytes of a file, up to its data, and (name, dtype, shape, begin, end) of each tensor, as places in the data."""
    width, group = dict(F32=4, BF16=2, U8=1), ('F32', 'BF16', 'U8')
    at, items = 0, []
    for name, dtype, shape in sorted(tensors, key=lambda t: (group.index(t[1]), t[0])):
        n = width[dtype]
        for s in shape:
            n *= s
        items.append((name, dtype, shape, at, at + n))
        at += n
    text = ('{' + ','.join(f'"{name}":{{"dtype":"{dtype}","shape":[{",".join(map(str, shape))}],"data_offsets":[{a},{b}]}}'
                           for name, dtype, shape, a, b in items) + '}').encode()
    return fill(b' ' * 8 + text, -(-(8 + len(text)) // 8) * 8), items


def fill(head, size):
    """The same header with blanks up to size bytes."""
    text = head[8:].rstrip(b' ')
    assert 8 + len(text) <= size
    return (size - 8).to_bytes(8, 'little') + text + b' ' * (size - 8 - len(text))


def write_file(path, tensors):
    head, items = header(tensors)
    with open(path, 'wb') as f:
        f.write(head)
        f.truncate(len(head) + items[-1][4])


def main():
    ap = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    ap.add_argument('out')
    ap.add_argument('--config')
    ap.add_argument('--only', type=lambda s: {int(n) for n in s.split(',')})
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    to = os.path.join(a.out, 'config.json')
    if a.config:
        shutil.copyfile(a.config, to)
        with open(to) as f:
            c = json.load(f)
    else:
        c = CONFIG
        with open(to, 'w') as f:
            json.dump(c, f, indent=1)
    total = c['text_config']['num_hidden_layers'] + (3 if 'vision_config' in c else 1)
    for i, tensors in enumerate(files(c), 1):
        if a.only is None or i in a.only:
            write_file(os.path.join(a.out, f'model-{i:05d}-of-{total:06d}.safetensors'), tensors)


if __name__ == '__main__':
    main()
