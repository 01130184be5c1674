"""XXH3-64 with seed 0 of 9 bytes or more, from the published description of the algorithm."""
import numpy as np

M = (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                      0x27D4EB2F165667C5)
SECRET = bytes.fromhex(
    'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221'
    'b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8'
    'a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb'
    '170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e')
PAIR = [1, 0, 3, 2, 5, 4, 7, 6]
STRIPE = np.stack([np.frombuffer(SECRET, '<u8', 8, 8 * n) for n in range(16)])


def word(b, at):
    return int.from_bytes(b[at:at + 8], 'little')


def fold(a, b):
    p = a * b
    return (p & M) ^ (p >> 64)


def avalanche(h):
    h = (h ^ h >> 37) * 0x165667919E3779F9 & M
    return h ^ h >> 32


def mix(b, at, secret):
    return fold(word(b, at) ^ word(SECRET, secret), word(b, at + 8) ^ word(SECRET, secret + 8))


def short(b):
    low = word(b, 0) ^ word(SECRET, 24) ^ word(SECRET, 32)
    high = word(b, len(b) - 8) ^ word(SECRET, 40) ^ word(SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, 'little'), 'big')
    return avalanche((len(b) + swapped + high + fold(low, high)) & M)


def middle(b):
    n = len(b)
    acc = n * P1
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            acc += mix(b, 16 * i, 32 * i) + mix(b, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(acc & M)
    acc = avalanche((acc + sum(mix(b, 16 * i, 16 * i) for i in range(8))) & M)
    acc += sum(mix(b, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16)) + mix(b, n - 16, 136 - 17)
    return avalanche(acc & M)


def accumulate(acc, stripes, secret):
    key = stripes ^ secret
    return acc + stripes[:, PAIR].sum(0) + ((key & np.uint64(0xffffffff)) * (key >> np.uint64(32))).sum(0)


def xxh3(b):
    n = len(b)
    assert n > 8
    if n <= 16:
        return short(b)
    if n <= 240:
        return middle(b)
    acc = np.array([P32_3, P1, P2, P3, P4, P32_2, P5, P32_1], '<u8')
    blocks = (n - 1) // 1024
    for i in range(blocks):
        acc = accumulate(acc, np.frombuffer(b, '<u8', 128, 1024 * i).reshape(16, 8), STRIPE)
        acc = (acc ^ acc >> np.uint64(47) ^ np.frombuffer(SECRET, '<u8', 8, 128)) * np.uint64(P32_1)
    left = (n - 1 - 1024 * blocks) // 64
    if left:
        acc = accumulate(acc, np.frombuffer(b, '<u8', 8 * left, 1024 * blocks).reshape(left, 8), STRIPE[:left])
    acc = accumulate(acc, np.frombuffer(b[-64:], '<u8').reshape(1, 8), np.frombuffer(SECRET, '<u8', 8, 121).reshape(1, 8))
    acc = [int(a) for a in acc]
    total = n * P1 + sum(fold(acc[2 * i] ^ word(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ word(SECRET, 19 + 16 * i))
                         for i in range(4))
    return avalanche(total & M)
