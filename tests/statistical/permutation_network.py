"""The Feistel network of `Shuffled` in numpy, for any number of rounds and many keys at once.

Weak permutations for the battery are made of it; `test_permutation_network.py` holds it to the compiled core. It costs
about 10 ns an id and round.
"""

from __future__ import annotations

import math

import numpy as np


def tight_radices(n):
    """Returns (a, b), the least sizes of the two digits of a position. Both may be odd."""
    a = math.isqrt(n - 1) + 1
    return a, -(-n // a)


def radices(n):
    """Returns the core's (a, b), of which one is even: two odd ones would make every permutation an even one."""
    a, b = tight_radices(n)
    return a, b + (a % 2 and b % 2)


def narrow(n):
    """Returns whether the core takes 16-bit words for n."""
    return max(radices(n)) < 2**16


def encrypt(n, keys, positions, bits, radices=radices):
    """Returns the ids at `positions`, one row per row of keys.

    Args:
        n: number of samples.
        keys: uint64 array (rows, rounds), one word a round.
        positions: array (rows, m), or (m,) for the same positions in every row.
        bits: of a word, 16 or 32.
        radices: gives the sizes of the two digits.
    """
    ids = _rounds(radices(n), keys, np.asarray(positions, dtype=np.int64), bits)
    rows, columns = (ids >= n).nonzero()
    while len(rows):
        again = _rounds(radices(n), keys[rows], ids[rows, columns][:, None], bits)[:, 0]
        ids[rows, columns] = again
        still = again >= n
        rows, columns = rows[still], columns[still]
    return ids


def _rounds(sizes, keys, positions, bits):
    a, b = sizes
    word, hash_word = (np.uint32, _hash16) if bits == 16 else (np.uint64, _hash32)
    left, right = (digit.astype(word) for digit in np.divmod(positions, b))
    a, b, bits = word(a), word(b), word(bits)
    for i in range(0, keys.shape[1], 2):
        left = _add(left, hash_word(right, keys[:, i, None]) * a >> bits, a)
        right = _add(right, hash_word(left, keys[:, i + 1, None]) * b >> bits, b)
    return left.astype(np.int64) * np.int64(b) + right.astype(np.int64)


def _add(x, y, radix):
    total = x + y
    total -= radix * (total >= radix)
    return total


def _hash16(value, key):
    low = np.uint32(0xFFFF)
    k0, k1, k2, k3 = ((key >> np.uint64(16 * i)).astype(np.uint32) & low for i in range(4))
    value = (value + k0 & low) * (k1 | np.uint32(1)) & low
    value ^= value >> np.uint32(7)
    value = value * (k2 | np.uint32(1)) & low
    value ^= value >> np.uint32(9)
    return value + k3 & low


def _hash32(value, key):
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    product = (value ^ key & low) * np.uint64(0x9E3779B1)
    product = (product & low ^ product >> half) * np.uint64(0xD2511F53)
    return (product & low ^ product >> half) + (key >> half) & low
