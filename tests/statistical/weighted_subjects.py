"""What the tests of `Weighted` are run on: itself, numpy, which shows the laws are right, and draws wrong on purpose.

A subject gives draws with replacement, `draws(weights, key, start, count, step)`, and epochs without,
`subsets(weights, count, keys)`, one row a key; a key is a pair (seed, epoch).
"""

from __future__ import annotations

import numpy as np

from fastshard.orders import Weighted


class Core:
    name = "weighted"

    def draws(self, weights, key, start, count, step=1):
        stop = start + (count - 1) * step + 1
        return Weighted(weights, 2**63 - 1, key[0]).indices(key[1], start, stop, step)

    def subsets(self, weights, count, keys):
        rows, made = np.empty((len(keys), count), np.int64), {}
        for row, (seed, epoch) in zip(rows, keys, strict=True):
            if seed not in made:
                made = {seed: Weighted(weights, count, int(seed), replacement=False)}
            row[:] = made[seed].indices(int(epoch))
        return rows


class Numpy:
    """By inversion of a uniform number, and by one draw after the other without what has been drawn."""

    name = "numpy"

    def draws(self, weights, key, start, count, step=1):
        uniform = np.random.default_rng([*key, start, step]).random(count)
        return np.searchsorted(np.cumsum(weights) / weights.sum(), uniform, side="right")

    def subsets(self, weights, count, keys):
        random = np.random.default_rng([int(word) for word in keys[0]])
        rows, left = np.empty((len(keys), count), np.int64), np.tile(weights, (len(keys), 1))
        for column in rows.T:
            bounds = np.cumsum(left, axis=1)
            column[:] = (bounds <= (random.random(len(keys)) * bounds[:, -1])[:, None]).sum(axis=1)
            np.put_along_axis(left, column[:, None], 0.0, axis=1)
        return rows


class Coarse(Numpy):
    """Weights in steps of 1/1024 of the largest."""

    name = "coarse"

    def draws(self, weights, *where):
        return super().draws(np.ceil(weights / weights.max() * 1024), *where)


class SharedWords(Core):
    """Two neighbours of every four take the same word."""

    name = "shared words"

    def draws(self, weights, key, start, count, step=1):
        at = start + step * np.arange(count)
        return super().draws(weights, key, start, int(at[-1]) + 1 - start)[at - (at % 4 == 1) - start]


class AddedKeys(Core):
    """Seed and epoch are added."""

    name = "added keys"

    def draws(self, weights, key, *where):
        return super().draws(weights, (key[0] + key[1], 0), *where)


class WrongRace(Core):
    """Sorts by weight times a uniform number, which looks as if it would do."""

    name = "wrong race"

    def subsets(self, weights, count, keys):
        uniform = np.random.default_rng(1).random((len(keys), len(weights)))
        return np.argsort(-uniform * weights, axis=1)[:, :count]


class LikeliestFirst(Core):
    """The right samples, in the order of their weights."""

    name = "likeliest first"

    def subsets(self, weights, count, keys):
        rows = super().subsets(weights, count, keys)
        return np.take_along_axis(rows, np.argsort(-weights[rows], axis=1, kind="stable"), axis=1)


GOOD = {subject.name: subject for subject in (Core(), Numpy())}
WEAK = {subject.name: subject for subject in (Coarse(), SharedWords(), AddedKeys(), WrongRace(), LikeliestFirst())}
