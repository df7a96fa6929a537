"""What `BlockShuffled` is made of, each as a subject of the battery, and the same made weak on purpose.

A key is a pair (seed, number). The number is an epoch for the order of blocks and for a window of all of them; it is
that of a window within one epoch for windows, and of a Permutation's stream for streams. So the tests that look at one
key and the next compare epochs, or the windows of one epoch, or the order of blocks with the first windows.
"""

from __future__ import annotations

import functools

import numpy as np
from permutation_network import encrypt, radices, tight_radices
from permutation_subjects import Formula, Subject, words

from fastshard.orders import BlockShuffled, Shuffled

WINDOWS = 40  # of an epoch; the tests number keys from 0 to 33


class Parts(Subject):
    """A subject whose permutation of one key is a stretch of an order of fastshard's."""

    radices = staticmethod(radices)

    def part(self, n, seed, number):
        """Returns (order, epoch, first): positions first to first + n hold ids that are a permutation modulo n."""
        raise NotImplementedError

    def orders(self, n, keys):
        orders = np.empty((len(keys), n), dtype=np.int32)
        for row, (seed, number) in enumerate(keys):
            order, epoch, first = self.part(n, int(seed), int(number))
            orders[row] = order.indices(epoch, first, first + n) % n
        return orders

    def run(self, n, key, start, count, step=1):
        order, epoch, first = self.part(n, *key)
        start += first
        return order.indices(epoch, start, start + (count - 1) * step + 1, step) % n


class Blocks(Parts):
    """The order of blocks: with one sample in a block and one block in a window there is nothing else."""

    name = "blocks"

    def part(self, n, seed, number):
        return _single_samples(n, seed), number, 0


class Windows(Parts):
    """The windows of an epoch, of one block of n samples each: as many as there are numbers."""

    name = "windows"

    def part(self, n, seed, number):
        return _single_blocks(n, seed), 3, number * n


class Streams(Parts):
    """Everything of one (n, seed, epoch): Shuffled, the order of n blocks, then windows of n samples."""

    name = "streams"

    def part(self, n, seed, number):
        if number == 0:
            return Shuffled(n, seed), 3, 0
        if number == 1:
            return _single_samples(n, seed), 3, 0
        return _single_blocks(n, seed), 3, (number - 2) * n


class OneWindow(Parts):
    """A window of all blocks, whose sizes differ: a full shuffle."""

    name = "one window"

    def part(self, n, seed, number):
        return _ragged(n, seed, n), number, 0


class NarrowWindow(Parts):
    """Windows of 8 blocks of at most 3 samples: no full shuffle, however well the windows are shuffled."""

    name = "narrow window"

    def part(self, n, seed, number):
        return _ragged(n, seed, 8), number, 0


@functools.lru_cache(maxsize=4)
def _single_samples(n, seed):
    return BlockShuffled(np.ones(n, np.int64), seed, 1)


@functools.lru_cache(maxsize=4)
def _single_blocks(n, seed):
    return BlockShuffled(np.full(WINDOWS, n), seed, 1)


@functools.lru_cache(maxsize=4)
def _ragged(n, seed, window):
    """Blocks of 3, 1, 0 and 2 samples again and again, and single ones at the end."""
    return BlockShuffled([*[3, 1, 0, 2] * (n // 6), *[1] * (n % 6)], seed, window)


class OneOrder(Parts):
    """One order for all numbers: windows that share a stream."""

    name = "one order"

    def part(self, n, seed, number):  # noqa: ARG002
        return Shuffled(n, seed), 0, 0


class Twice(Parts):
    """What a window of all blocks would be if it shared its stream with the order of blocks: one permutation, twice."""

    name = "twice"

    def orders(self, n, keys):
        once = np.stack([Shuffled(n, int(seed)).indices(int(epoch)) for seed, epoch in keys]).astype(np.int32)
        return np.take_along_axis(once, once, axis=1)


class LastRound(Formula):
    """Numbers that change the keys of the network's last round alone: a stream too few of whose words depend on it."""

    def ids(self, n, keys, positions):
        seeds = np.stack([keys[:, 0], np.zeros_like(keys[:, 0])], axis=1)
        return encrypt(n, np.concatenate([words(seeds, 7), words(keys, 1)], axis=1), positions, 16)


class OddDigits(Parts):
    """The network with both digits odd, where the core makes one even, in a window's place."""

    name = "odd digits"

    def orders(self, n, keys):
        return encrypt(n, words(keys, 8), np.arange(n), 16, tight_radices).astype(np.int32)


BLOCKS = {subject.name: subject for subject in (Blocks(), Windows(), Streams(), OneWindow())}
WEAK_BLOCKS = {
    subject.name: subject for subject in (OneOrder(), Twice(), LastRound("last round"), OddDigits(), NarrowWindow())
}
