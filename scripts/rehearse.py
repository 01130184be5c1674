#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the checkpoint of k3-rehearse: the released geometry, made-up weights, shared extents. Needs numpy and reflinks.

    rehearse.py size                            bytes of disk that all of it takes
    rehearse.py donors DONORS                   then let k3-pack write DONORS/model.k3t
    rehearse.py model DONORS OUT                the checkpoint, out of the donors
    rehearse.py trunk DONORS OUT FINGERPRINT    its trunk file, OUT/model.k3t; the fingerprint as k3-index -j tells it

Files of one kind of layer (dense, KDA, MLA) whose headers have the same length are laid out alike, byte for byte: they make
a class. A class has one to three donors with a trunk of its own, and every layer is a clone of a donor behind its header.
The donors are themselves a checkpoint, with few layers, whose headers are filled up with blanks to the length in their class. So
k3-pack can code them, and a section of their trunk file is that of each layer which is a clone: it contains nothing of its place.

Experts come from one file of bodies, pages in a row, of which every layer takes as many as it has experts, beginning with another
body. Where a page holds the end of one tensor and the beginning of the next depends on the class: therefore the last page of
each tensor of a body, whichever way it is cut, holds bytes that are good codes as well as good scales.
"""
import argparse, ctypes, fcntl, json, multiprocessing, os, signal, statistics, struct, sys
import numpy as np

here = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [here, os.path.join(here, '..', 'tests', 'reference')]
sys.dont_write_bytecode = True
import replica

PAGE = 4096
FICLONERANGE = 0x4020940D
CODED = 0.70            # of bf16, at most (docs/kernels.md)
CHUNK = 8 << 20


# ---- geometry ----

def is_full(t, i):
    return i + 1 in t['linear_attn_config']['full_attn_layers']


class File:
    """A file of the checkpoint: places of its tensors, from the beginning of the file."""

    def __init__(self, tensors, length=0):
        self.header, items = replica.header(tensors)
        if length:
            self.header = replica.fill(self.header, length)
        base = len(self.header)
        self.tensors = [(name, dtype, shape, base + a, base + b) for name, dtype, shape, a, b in items]
        self.size = self.tensors[-1][4]
        experts = [x[3] for x in self.tensors if x[1] == 'U8']
        self.experts = experts[0] if experts else self.size


class Plan:
    def __init__(self, config, bodies):
        self.config, self.t = config, config['text_config']
        t = self.t
        lists = [list(x) for x in replica.files(config)]
        n = t['num_hidden_layers']
        self.layers = [File(x) for x in lists[:n]]
        self.rest = [File(x) for x in lists[n:]]
        self.total = len(lists)
        # a class: (whether it has experts, whether it is MLA, length of the header); dense layers come first
        classes = {}
        for i, f in enumerate(self.layers):
            classes.setdefault((i >= t['first_k_dense_replace'], is_full(t, i), len(f.header)), []).append(i)
        self.donors, self.donor_of = [], [0] * n
        for key in sorted(classes):
            count = min(3, 1 + len(classes[key]) // 16)
            for k, i in enumerate(classes[key]):
                self.donor_of[i] = len(self.donors) + k % count
            self.donors += [key] * count
        m = len(self.donors)
        lin = dict(t['linear_attn_config'], full_attn_layers=[k for k, d in enumerate(self.donors, 1) if d[1]],
                   kda_layers=[k for k, d in enumerate(self.donors, 1) if not d[1]])
        few = dict(t, num_hidden_layers=m, linear_attn_config=lin, first_k_dense_replace=sum(not d[0] for d in self.donors))
        self.few = {k: v for k, v in config.items() if k != 'vision_config'}
        self.few['text_config'] = few
        lists = [list(x) for x in replica.files(self.few)]
        self.donor_files = [File(x, length) for x, (_, _, length) in zip(lists, self.donors)] + [File(lists[m])]
        e, z, w = t['num_experts'], t['routed_expert_hidden_size'], t['moe_intermediate_size']
        self.codes, self.scales = z * w // 2, z * w // 32
        self.body = 3 * (self.codes + self.scales)
        self.bodies = max(e, bodies)
        if self.codes % PAGE or self.scales % PAGE or self.codes < 2 * PAGE:
            sys.exit('rehearse.py: the codes and the scales of an expert must be whole pages')

    def bytes(self):
        """Bytes on the disk: donors, their coded trunk, bodies, headers, and some for the places of shared extents."""
        trunk = sum(f.experts for f in self.donor_files)
        heads = sum(len(f.header) + 2 * PAGE for f in self.layers + self.rest)
        return up(int(trunk * (1 + CODED) + self.bodies * self.body) * 101 // 100 + 3 * heads)


# ---- made-up bytes ----

def normals(n):
    """n quantiles of a normal distribution."""
    inv = statistics.NormalDist().inv_cdf
    half = np.array([inv((i + .5) / n) for i in range(n // 2, n)])
    return np.concatenate([-half[::-1], half])


def bf16(a):
    u = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype('<u2')


def seeded(*words):
    return np.random.SFC64(np.random.SeedSequence(words))


SCALES = 33             # row scales from 1/4 to 4


class Maker:
    def __init__(self):
        self.q = normals(65536)
        self.tables = {}
        self.scale = np.repeat(np.array([118, 119, 120, 121], np.uint8), [24, 126, 90, 16])

    def table(self, std):
        if std not in self.tables:
            self.tables[std] = bf16(self.q * std)
        return self.tables[std]

    def rows(self, raw, rows, cols, std, spread):
        out = np.empty((rows, cols), '<u2')
        bits = raw.random_raw((rows * cols + 3) // 4).view(np.uint16)[:rows * cols].reshape(rows, cols)
        k = raw.random_raw(rows) % SCALES if spread else None
        for r in range(rows):
            s = std * 2 ** (int(k[r]) / ((SCALES - 1) / 4) - 2) if spread else std
            np.take(self.table(s), bits[r], out=out[r], mode='clip')
        return out

    def vector(self, name, shape, t, rng):
        """The small tensors, by the end of their name."""
        n = int(np.prod(shape))
        if name.endswith('norm.weight'):
            return 1 + .05 * rng.standard_normal(n)
        if name.endswith('res_proj.weight'):
            return .02 * rng.standard_normal(n)
        if name.endswith('conv1d.weight'):
            return rng.uniform(-.5, .5, n)
        if name.endswith('A_log'):
            a = np.zeros(n)
            heads = t['linear_attn_config']['num_heads']
            a[:heads] = np.log(rng.uniform(1, 16, heads))
            return a
        if name.endswith('dt_bias'):
            return rng.uniform(-6, 1, n)
        if name.endswith('e_score_correction_bias'):
            return .01 * rng.standard_normal(n)
        return None

    def piece(self, t, seed, name, dtype, shape, row, rows):
        """Bytes of some rows of a tensor of a trunk."""
        raw = seeded(*seed, row)
        if len(shape) == 1 or shape[0] == 1 or dtype == 'F32':
            v = self.vector(name, shape, t, np.random.Generator(raw))
            return (v.astype('<f4') if dtype == 'F32' else bf16(v)).tobytes()
        cols = shape[1]
        std = 1.0 if 'embed_tokens' in name else .02 * (7168 / t['hidden_size']) ** .5
        spread = not name.endswith(('embed_tokens.weight', 'moe.gate.weight'))
        return self.rows(raw, rows, cols, std, spread).tobytes()

    def bodies(self, plan, first, count):
        raw = seeded(7, first)
        for _ in range(count):
            b = raw.random_raw(plan.body // 8).view(np.uint8)       # all codes equally often
            at = 0
            for _ in range(3):
                a, n = at + plan.codes - PAGE, PAGE + plan.scales
                b[a:a + n] = self.scale[raw.random_raw(n // 8).view(np.uint8)]
                at += plan.codes + plan.scales
            yield b


# ---- writing ----

def put(fd, data, at):
    view = memoryview(data).cast('B')
    while view:
        n = os.pwrite(fd, view, at)
        view, at = view[n:], at + n


def clone(to, at, source, first, size):
    """Shares whole pages; where both files end a part of one."""
    if size:
        fcntl.ioctl(to, FICLONERANGE, struct.pack('<qQQQ', source, first, size, at))


def up(n):
    return -(-n // PAGE) * PAGE


def down(n):
    return n // PAGE * PAGE


def experts(fd, f, pool, plan, body):
    """The experts of file f, from body number `body` on, and the end of the file."""
    at, first, whole = up(f.experts), body * plan.body, plan.bodies * plan.body
    end = down(f.size)
    while at < end:
        n = min(end - at, whole - first)
        clone(fd, at, pool, first, n)
        at, first = at + n, (first + n) % whole
    if end < f.size:
        put(fd, os.pread(pool, f.size - end, first), end)


state = {}


def start(plan, dir):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    state.update(plan=plan, dir=dir, maker=Maker())


def work(task):
    plan, maker = state['plan'], state['maker']
    if task[0] == 'bodies':
        _, first, count = task
        with open(os.path.join(state['dir'], 'bodies'), 'r+b') as f:
            for i, b in enumerate(maker.bodies(plan, first, count), first):
                put(f.fileno(), b, i * plan.body)
            os.fdatasync(f.fileno())
        return
    _, k, tensor, rows = task
    f = plan.donor_files[k]
    name, dtype, shape, a, b = f.tensors[tensor]
    with open(donor_path(plan, state['dir'], k), 'r+b') as out:
        each = (b - a) // shape[0]
        for row in rows:
            n = min(step(each), shape[0] - row)
            put(out.fileno(), maker.piece(plan.few['text_config'], (k, tensor), name, dtype, shape, row, n), a + row * each)
        os.fdatasync(out.fileno())


def step(row_bytes):
    return max(1, CHUNK // row_bytes)


def shard(dir, i, total):
    return os.path.join(dir, f'model-{i + 1:05d}-of-{total:06d}.safetensors')


def donor_path(plan, dir, k):
    return shard(dir, k, len(plan.donor_files))


def begin(path, f):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.ftruncate(fd, f.size)
    return fd


def donors(plan, dir, jobs):
    os.makedirs(dir)
    with open(os.path.join(dir, 'config.json'), 'w') as f:
        json.dump(plan.few, f, indent=1)
    with open(os.path.join(dir, 'bodies'), 'wb') as f:
        os.posix_fallocate(f.fileno(), 0, plan.bodies * plan.body)
    tasks = []
    for k, f in enumerate(plan.donor_files):
        fd = begin(donor_path(plan, dir, k), f)
        os.posix_fallocate(fd, 0, f.experts)
        put(fd, f.header, 0)
        os.close(fd)
        for i, (name, dtype, shape, a, b) in enumerate(f.tensors):
            if dtype != 'U8':
                whole = dtype == 'F32' or len(shape) < 2
                rows = [0] if whole else range(0, shape[0], step((b - a) // shape[0]))
                tasks += [('trunk', k, i, rows[j:j + 16]) for j in range(0, len(rows), 16)]
    tasks += [('bodies', i, min(8, plan.bodies - i)) for i in range(0, plan.bodies, 8)]
    with multiprocessing.get_context('fork').Pool(jobs, start, (plan, dir)) as p:
        for _ in p.imap_unordered(work, tasks):
            pass
    pool = os.open(os.path.join(dir, 'bodies'), os.O_RDONLY)
    for k, f in enumerate(plan.donor_files):
        if f.experts < f.size:
            fd = os.open(donor_path(plan, dir, k), os.O_RDWR)
            edge = up(f.experts) - f.experts
            put(fd, os.pread(pool, edge, 0), f.experts)
            experts(fd, f, pool, plan, 0)
            os.close(fd)
    os.close(pool)


def model(plan, dir, out):
    os.makedirs(out)
    with open(os.path.join(out, 'config.json'), 'w') as f:
        json.dump(plan.config, f, indent=1)
    pool = os.open(os.path.join(dir, 'bodies'), os.O_RDONLY)
    sources = [os.open(donor_path(plan, dir, k), os.O_RDONLY) for k in range(len(plan.donor_files))]
    weights = {}
    for i, f in enumerate(plan.layers + plan.rest):
        fd = begin(shard(out, i, plan.total), f)
        if i <= len(plan.layers):
            source = sources[plan.donor_of[i] if i < len(plan.layers) else -1]
            n = up(len(f.header))
            if f.experts < f.size:
                clone(fd, n, source, n, up(f.experts) - n)
                experts(fd, f, pool, plan, i * 389 % plan.bodies)
            else:
                clone(fd, n, source, n, f.size - n)
            put(fd, f.header + os.pread(source, n - len(f.header), len(f.header)), 0)
        else:
            put(fd, f.header, 0)    # nobody reads the vision part
        os.close(fd)
        weights.update((x[0], os.path.basename(shard(out, i, plan.total))) for x in f.tensors)
    with open(os.path.join(out, 'model.safetensors.index.json'), 'w') as f:
        size = sum(f.size - len(f.header) for f in plan.layers + plan.rest)
        json.dump(dict(metadata=dict(total_size=size), weight_map=weights), f)


def trunk(plan, dir, out, fingerprint):
    """A head for these layers, and behind it the sections of their donors (k3-trunk(5))."""
    head, place, step, xxh = 48, 16, 1 << 16, ctypes.CDLL('libxxhash.so.0')
    xxh.XXH3_64bits.restype = ctypes.c_uint64
    xxh.XXH3_64bits.argtypes = ctypes.c_char_p, ctypes.c_size_t
    source = os.open(os.path.join(dir, 'model.k3t'), os.O_RDONLY)
    magic, version, flags, _, count, zero, _ = struct.unpack('<8sII16sIIQ', os.pread(source, head, 0))
    if (magic, version, flags, count) != (b'K3TRUNK\n', 1, 0, len(plan.donor_files)):
        sys.exit(f'rehearse.py: {dir}/model.k3t is not a trunk file of the donors')
    sections = list(struct.iter_unpack('<QQ', os.pread(source, place * count, head)))
    used = [sections[k] for k in plan.donor_of] + sections[-1:]
    at = -(-(head + place * len(used) + 8) // step) * step
    places, end = [], at
    for _, length in used:
        places.append((end, length))
        end += length
    text = struct.pack('<8sII16sIIQ', magic, version, 0, bytes.fromhex(fingerprint), len(used), 0, end)
    text += b''.join(struct.pack('<QQ', *p) for p in places)
    text += struct.pack('<Q', xxh.XXH3_64bits(text, len(text)))
    fd = os.open(os.path.join(out, 'model.k3t'), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    put(fd, text + bytes(at - len(text)), 0)
    for (first, length), (to, _) in zip(used, places):
        clone(fd, to, source, first, length)
    os.close(fd)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # and not without ending the workers
    ap = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    sub = ap.add_subparsers(dest='what', required=True)
    for name, operands in (('size', ''), ('donors', 'donors'), ('model', 'donors out'), ('trunk', 'donors out fingerprint')):
        p = sub.add_parser(name)
        for o in operands.split():
            p.add_argument(o)
        p.add_argument('--config', help='geometry of this config.json instead of the released one')
        p.add_argument('--bodies', type=int, default=0, help='bodies of experts, if more than a layer has experts')
        p.add_argument('--jobs', type=int, default=os.cpu_count())
    a = ap.parse_args()
    config = replica.CONFIG
    if a.config:
        with open(a.config) as f:
            config = json.load(f)
    plan = Plan(config, a.bodies)
    if a.what == 'size':
        print(plan.bytes())
    elif a.what == 'donors':
        donors(plan, a.donors, a.jobs)
    elif a.what == 'model':
        model(plan, a.donors, a.out)
    else:
        trunk(plan, a.donors, a.out, a.fingerprint)


if __name__ == '__main__':
    main()
