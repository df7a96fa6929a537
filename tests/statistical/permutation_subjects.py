"""What the battery is run on: `Shuffled`, numpy's Fisher-Yates, and permutations that are weak on purpose.

A subject gives whole permutations, `orders(n, keys)`, and stretches of large ones, `run(...)`; a key is a pair
(seed, epoch). The weak ones compute every id by a formula, for many keys at once.
"""

from __future__ import annotations

import abc

import numpy as np
from permutation_network import encrypt, narrow, radices
from permutation_statistics import count_cycles

from fastshard.orders import Shuffled


class Subject(abc.ABC):
    name: str
    radices = staticmethod(radices)

    @abc.abstractmethod
    def orders(self, n, keys):
        """Returns an int32 array (len(keys), n) of whole permutations."""

    @abc.abstractmethod
    def run(self, n, key, start, count, step=1):
        """Returns the int64 ids at positions start, start + step, ... of one permutation."""


class Core(Subject):
    name = "shuffled"

    def orders(self, n, keys):
        orders = np.empty((len(keys), n), dtype=np.int32)
        current = None
        for row, (seed, epoch) in enumerate(keys):
            if current != seed:
                current, order = seed, Shuffled(n, int(seed))
            orders[row] = order.indices(int(epoch))
        return orders

    def run(self, n, key, start, count, step=1):
        return Shuffled(n, key[0]).indices(key[1], start, start + (count - 1) * step + 1, step)


class Numpy(Subject):
    """Fisher-Yates of `numpy.random.Generator`: whole, or only as far as ids are asked for."""

    name = "numpy"

    def orders(self, n, keys):
        random = np.random.default_rng([int(word) for word in keys[0]])
        if n < 100:
            return random.permuted(np.tile(np.arange(n, dtype=np.int32), (len(keys), 1)), axis=1)
        orders = np.empty((len(keys), n), dtype=np.int32)
        for row in orders:
            row[:] = np.arange(n)
            random.shuffle(row)
        return orders

    def run(self, n, key, start, count, step=1):
        # Any count positions of a uniform permutation hold a uniform sample without replacement.
        return np.random.default_rng([*key, start, step]).choice(n, count, replace=False)


class Formula(Subject):
    """A weak permutation: `ids` computes (rows, m) ids from one key a row and m positions."""

    def __init__(self, name):
        self.name = name

    @abc.abstractmethod
    def ids(self, n, keys, positions): ...

    def orders(self, n, keys):
        chunk = max(1, 2**20 // n)
        parts = [self.ids(n, keys[i : i + chunk], np.arange(n)) for i in range(0, len(keys), chunk)]
        return np.concatenate(parts).astype(np.int32)

    def run(self, n, key, start, count, step=1):
        return self.ids(n, np.array([key], dtype=np.uint64), start + step * np.arange(count))[0]


def words(keys, count, purpose=0):
    """Returns uint64 words (rows, count) that depend on nothing but the key, the column and the purpose."""
    mixed = _mix(_mix(_mix(keys[:, 0].astype(np.uint64)) + keys[:, 1].astype(np.uint64)) + np.uint64(purpose))
    return _mix(mixed[:, None] + np.arange(count, dtype=np.uint64)[None])


def _mix(x):
    """The output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


class Affine(Formula):
    """Position p holds (a p + c) mod n. For n below 2^31, where the product fits."""

    def ids(self, n, keys, positions):
        a, c = (words(keys, 2) % np.uint64(n)).astype(np.int64).T[..., None]
        while (common := np.gcd(a, n) != 1).any():
            a = (a + common) % n
        return (a * positions + c) % n


class Rounds(Formula):
    """The network of Shuffled with fewer rounds, in words of the core's size or of 32 bits everywhere."""

    def __init__(self, rounds, wide=False):
        super().__init__(f"{rounds} rounds of 32 bits" if wide else f"{rounds} rounds")
        self.rounds, self.wide = rounds, wide

    def ids(self, n, keys, positions):
        return encrypt(n, words(keys, self.rounds), positions, 16 if narrow(n) and not self.wide else 32)


class Shifted(Formula):
    """One good order a seed; every epoch has it shifted cyclically."""

    def ids(self, n, keys, positions):
        shifts = words(keys, 1)[:, 0] % np.uint64(n)
        base = {seed: Shuffled(n, int(seed)) for seed in np.unique(keys[:, 0])}
        if len(positions) == n:
            return np.stack([np.roll(base[s].indices(0), k) for s, k in zip(keys[:, 0], shifts.tolist(), strict=True)])
        step = int(positions[1] - positions[0])
        shifted = (positions + int(shifts[0])) % n
        pieces = np.split(shifted, np.flatnonzero(np.diff(shifted) < 0) + 1)
        order = base[keys[0, 0]]
        return np.concatenate([order.indices(0, int(p[0]), int(p[-1]) + 1, step) for p in pieces])[None]


class Windowed(Formula):
    """Good orders of windows of 64 ids (of 4 below n = 256), and the windows in their places."""

    def ids(self, n, keys, positions):
        size = 64 if n >= 256 else 4
        shapes = 1024
        inner = np.random.default_rng(0).permuted(np.tile(np.arange(size), (shapes, 1)), axis=1)
        window, within = np.divmod(np.asarray(positions), size)
        key = words(keys, 1)
        shape = _mix(key + window.astype(np.uint64)) % np.uint64(shapes)
        shuffled = window * size + inner[shape.astype(np.int64), within]
        return np.where(window * size + size <= n, shuffled, positions)


class Even(Formula):
    """Fisher-Yates made always even by a last swap: flawless but for its parity."""

    def ids(self, n, keys, positions):
        orders = Numpy().orders(n, keys)
        odd = (n - count_cycles(orders)) % 2 == 1
        orders[odd, :2] = orders[odd, 1::-1]
        return orders[:, positions]


GOOD = {subject.name: subject for subject in (Core(), Numpy())}
WEAK = {
    subject.name: subject
    for subject in (
        Affine("affine"),
        Rounds(2),
        Rounds(4),
        Rounds(6),
        Rounds(2, wide=True),
        Rounds(4, wide=True),
        Shifted("shifted"),
        Windowed("windowed"),
        Even("even"),
    )
}
