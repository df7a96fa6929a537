"""The orders and slices once more: slow, short, plain ints. The oracle that the compiled core is tested against.

Nothing here comes from `_core`: random numbers are numpy's, arithmetic is Python's, whose ints can't overflow. An id
costs microseconds and a permutation of n samples a list of n ints, so this is for tests and golden files alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

TABLE_SIZE, STREAM_TABLE_SIZE = 16384, 4096  # of Shuffled, and of the permutations that other orders are made of
ROUNDS = 8
SHUFFLED_VERSION = 1
TORCH_WIDE_FROM = (2**32 - 1) // 20

_KEYS, _TABLE = 0, 1  # what the words of a Philox stream are for


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    """Returns the four words of Philox4x64-10 at `counter`; all words 64 bits, the lowest first."""
    packed = sum(word << 64 * i for i, word in enumerate(counter))
    # numpy adds one to the counter before its first block.
    generator = np.random.Philox(counter=(packed - 1) % 2**256, key=key[0] + (key[1] << 64))
    return [int(word) for word in generator.random_raw(4)]


def shuffled(n: int, seed: int, epoch: int, stream: int = 0) -> Callable[[int], int]:
    """Returns the function position -> id of `Shuffled(n, seed)` in `epoch`; other streams are for other orders."""
    if n <= (STREAM_TABLE_SIZE if stream else TABLE_SIZE):
        return _table(n, _words(n, seed, epoch, stream << 8 | _TABLE)).__getitem__
    words = _words(n, seed, epoch, stream << 8 | _KEYS)
    a = math.isqrt(n - 1) + 1  # ceil(sqrt(n))
    b = -(-n // a)
    b += a % 2 * b % 2  # two odd digits would make every permutation an even one
    bits, hash_word = (16, _hash16) if max(a, b) < 2**16 else (32, _hash32)
    keys = [next(words) for _ in range(ROUNDS)]

    def encrypt(x: int) -> int:
        left, right = divmod(x, b)
        for i in range(0, ROUNDS, 2):
            left = (left + (hash_word(right, keys[i]) * a >> bits)) % a
            right = (right + (hash_word(left, keys[i + 1]) * b >> bits)) % b
        return left * b + right

    def order(position: int) -> int:
        sample = encrypt(position)
        while sample >= n:
            sample = encrypt(sample)
        return sample

    return order


def _words(n: int, seed: int, epoch: int, purpose: int) -> Iterator[int]:
    block = 0
    while True:
        yield from philox((epoch, n, block, purpose), (seed % 2**64, SHUFFLED_VERSION))
        block += 1


def _table(n: int, words: Iterator[int]) -> list[int]:
    draws = (half for word in words for half in (word % 2**32, word >> 32))
    table = list(range(n))
    for i in range(n - 1):
        bound = n - i
        # Lemire's rule: a product whose low half is below 2^32 mod bound would be one too many for its id.
        product = next(draws) * bound
        while product % 2**32 < 2**32 % bound:
            product = next(draws) * bound
        other = i + (product >> 32)
        table[i], table[other] = table[other], table[i]
    return table


def _hash16(value: int, key: int) -> int:
    k0, k1, k2, k3 = (key >> 16 * i & 0xFFFF for i in range(4))
    value = (value + k0) * (k1 | 1) % 2**16
    value ^= value >> 7
    value = value * (k2 | 1) % 2**16
    value ^= value >> 9
    return (value + k3) % 2**16


def _hash32(value: int, key: int) -> int:
    k0, k1 = key % 2**32, key >> 32
    for factor in (0x9E3779B1, 0xD2511F53):
        product = (value ^ k0) * factor
        value, k0 = product % 2**32 ^ product >> 32, 0
    return (value + k1) % 2**32


def torch_order(n: int, seed: int, epoch: int, wide: bool | None = None) -> list[int]:
    """Returns the ids of `TorchShuffled(n, seed)` in `epoch`, in order.

    Args:
        n: number of samples.
        seed: any int.
        epoch: any int; torch adds it to the seed, and its generator uses the low 32 bits of the sum.
        wide: which of torch's two rules; None is the one that torch takes for this n.
    """
    generator = np.random.RandomState((seed + epoch) % 2**32)  # torch seeds its MT19937 as this legacy one
    wide = n >= TORCH_WIDE_FROM if wide is None else wide
    draws = iter(generator.randint(0, 2**32, size=2 * n if wide else n, dtype=np.uint32).tolist())  # raw words
    order = list(range(n))
    if wide:
        for i in range(n):
            other = ((next(draws) << 32) + next(draws)) % (i + 1)
            order[i], order[other] = order[other], i
    else:
        for i in range(n - 1):
            other = i + next(draws) % (n - i)
            order[i], order[other] = order[other], order[i]
    return order


def slice_positions(length: int, rank: int, num_replicas: int, uneven: str = "pad", start: int = 0) -> list[int]:
    """Returns the positions of a rank, padding as the position whose sample it repeats.

    Builds the list of all ranks' positions and deals it out, as torch's DistributedSampler does.
    """
    positions = list(range(start, length))
    rest = len(positions) % num_replicas
    if uneven == "drop":
        del positions[len(positions) - rest :]
    elif uneven == "pad" and rest:
        whole_order = list(range(length))
        padding = num_replicas - rest
        positions += (whole_order * math.ceil(padding / length))[:padding]
    return positions[rank::num_replicas]
