"""The tests of the battery. Each takes (subject, n, size, seed) and returns the scores of its statistics.

`size` is in permutations for tests of whole ones, and in ids for tests of stretches. Stretches come from n / 8 ids of a
permutation at most, so that ids are nearly independent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from permutation_statistics import (
    SCALINGS,
    cell_sizes,
    cells,
    chi_square_z,
    composition_z,
    count_cycles,
    count_inversions,
    difference_counts,
    difference_z,
    flip_scores,
    goodness_z,
    longest_increasing,
    longest_increasing_law,
    mallows_z,
    mean_z,
    pair_z,
    permutation_index,
    poisson_z,
    relatives,
    table_z,
    worst,
)
from permutation_subjects import words

SEED = 1_000_000
EPOCHS = 16  # of each seed that whole permutations are taken from
STRIDES = (1, 2, 8, 64, 256, 1000, 1024, 65536)

TESTS: dict[str, Callable] = {}


def test(name):
    def register(function):
        TESTS[name] = function
        return function

    return register


# ---- whole permutations, and each as seen from the next: every law below holds for both


def keys_of(seed, samples):
    rows = np.arange(samples)
    return np.stack([seed + rows // EPOCHS, rows % EPOCHS], axis=1)


@functools.lru_cache(maxsize=1)
def whole(subject, n, samples, seed):
    orders = subject.orders(n, keys_of(seed, samples))
    return orders, relatives(orders)


@functools.lru_cache(maxsize=1)
def cycles(subject, n, samples, seed):
    return [count_cycles(orders) for orders in whole(subject, n, samples, seed)]


@functools.lru_cache(maxsize=1)
def inversions(subject, n, samples, seed):
    return [count_inversions(orders) for orders in whole(subject, n, samples, seed)]


def chunks(subject, n, samples, seed):
    """The orders of `samples` keys, about a million ids at a time."""
    keys = keys_of(seed, samples)
    rows = max(1, 2**20 // n)
    for i in range(0, samples, rows):
        yield subject.orders(n, keys[i : i + rows])


@test("all permutations")
def all_permutations(subject, n, samples, seed):
    counts = np.zeros(math.factorial(n))
    for orders in chunks(subject, n, samples, seed):
        counts += np.bincount(permutation_index(orders), minlength=len(counts))
    return [goodness_z(counts, np.full(len(counts), 1 / len(counts)))]


@test("item by position")
def item_by_position(subject, n, samples, seed):
    """Every id at every position up to n = 100; above, 32 classes of each, by high and by low digits."""
    k = min(n, 32) if n > 100 else n
    kinds = SCALINGS if n > k else SCALINGS[:1]
    places = {kind: cells(np.arange(n), n, k, kind) * k for kind in kinds}
    tables = {(one, other): np.zeros(k * k) for one in kinds for other in kinds}
    for orders in chunks(subject, n, samples, seed):
        for other in kinds:
            ids = cells(orders.astype(np.int64), n, k, other)
            for one in kinds:
                tables[one, other] += np.bincount((places[one] + ids).ravel(), minlength=k * k)
    sizes = {kind: cell_sizes(n, k, kind) for kind in kinds}
    return [table_z(table.reshape(k, k), sizes[one], sizes[other], n) for (one, other), table in tables.items()]


@test("parity")
def parity(*args):
    n = args[1]
    return [mean_z((n - count) % 2, 0.5, 0.25) for count in cycles(*args)]


@test("fixed points")
def fixed_points(*args):
    """Of each order, and, as seen from the next, places where two orders agree."""
    n = args[1]
    return [poisson_z(int((orders == np.arange(n)).sum()), len(orders)) for orders in whole(*args)]


@test("cycles")
def cycle_count(*args):
    harmonic = 1 / np.arange(1, args[1] + 1)
    return [mean_z(count, harmonic.sum(), (harmonic - harmonic**2).sum()) for count in cycles(*args)]


@test("adjacent ids")
def adjacent_ids(*args):
    """Ids that differ by one and lie side by side."""
    n = args[1]
    kept = [int((np.abs(np.diff(orders, axis=1)) == 1).sum()) for orders in whole(*args)]
    return [poisson_z(k, 2 * len(orders) * (n - 1) / n) for k, orders in zip(kept, whole(*args), strict=True)]


@test("descents")
def descents(*args):
    n = args[1]
    counts = [(orders[:, 1:] < orders[:, :-1]).sum(axis=1) for orders in whole(*args)]
    return [mean_z(count, (n - 1) / 2, (n + 1) / 12) for count in counts]


@test("inversions")
def inversion_count(*args):
    n = args[1]
    return [mean_z(count, n * (n - 1) / 4, n * (n - 1) * (2 * n + 5) / 72) for count in inversions(*args)]


@test("Mallows kernel")
def mallows_kernel(*args):
    """Distance to the identity, and from each order to the next."""
    return [mallows_z(count, args[1]) for count in inversions(*args)]


# Mean and variance over this many of numpy's permutations; `battery_report.py control` measured them.
CONTROLS = {1024: (58.9265, 7.1403, 50_000), 16385: (247.5684, 19.8017, 5_000)}


@test("longest increase")
def longest_increase(subject, n, samples, seed):
    if n in CONTROLS:
        mean, variance, control = CONTROLS[n]
    else:
        (mean, variance), control = longest_increasing_law(n), math.inf
    inflated = variance * (1 + samples / control)
    return [mean_z(longest_increasing(o), mean, inflated) for o in whole(subject, n, samples, seed)]


@test("differences")
def differences(subject, n, samples, seed):
    """From each id to the next, modulo n: all cells together, and neighbours. The sharpest test of whole orders."""
    counts = np.zeros(n)
    for orders in chunks(subject, n, samples, seed):
        counts += difference_counts(orders)
    return [difference_z(counts), poisson_z(counts[1] + counts[-1], 2 * samples)]


# ---- stretches of permutations: `size` ids in all, at most an eighth of each permutation


def stretches(n, size, seed, step=1):
    """Yields (key, start, count) for stretches that begin anywhere, one key each, of `size` ids in all.

    At most n / 8 ids of a permutation are drawn, so that they are nearly independent; a larger step leaves fewer.
    """
    random = np.random.default_rng([seed, n, size])
    most = min(size, n // 8, (n - 1) // step)
    for i in range(-(-size // most)) if most else ():
        start = int(random.integers(n - (most - 1) * step))
        yield (seed + i // EPOCHS, i % EPOCHS), start, most


@test("wide differences")
def wide_differences(subject, n, size, seed):
    """As `differences`, in 4096 classes of n - 1 values."""
    k = 4096
    counts = {kind: np.zeros(k) for kind in SCALINGS}
    for key, start, count in stretches(n, size, seed):
        steps = np.diff(subject.run(n, key, start, count)) % n
        for kind in SCALINGS:
            counts[kind] += np.bincount(cells(steps, n, k, kind), minlength=k)
    first = np.arange(k) == 0  # no difference is zero
    return [goodness_z(counts[kind], (cell_sizes(n, k, kind) - first) / (n - 1)) for kind in SCALINGS]


@test("serial pairs")
def serial_pairs(subject, n, size, seed):
    """Ids that are a stride apart: 32 x 32 classes."""
    scores, k = [], 32
    for stride in STRIDES:
        if stride > n // 16:
            continue
        counts = {kind: np.zeros((k, k)) for kind in SCALINGS}
        for key, start, count in stretches(n - stride, size, seed):
            ids = subject.run(n, key, start, count + stride)
            for kind in SCALINGS:
                digit = cells(ids, n, k, kind)
                pairs = digit[:count] * k + digit[stride:]
                counts[kind] += np.bincount(pairs, minlength=k * k).reshape(k, k)
        scores += [pair_z(counts[kind], cell_sizes(n, k, kind), n) for kind in SCALINGS]
    return scores


@test("displacements")
def displacements(subject, n, size, seed):
    """(id - position) mod n in 4096 classes, at every stride.

    Hard on a Feistel network where the stride is the size of its lower digit (256 at n = 2^16, 1024 at 2^20, 65536 at
    2^32): the lower digit then stays, which saves the attacker a round.
    """
    scores, k = [], 4096
    for stride in STRIDES:
        if n // stride < 256:
            continue
        counts = {kind: np.zeros(k) for kind in SCALINGS}
        for key, start, count in stretches(n, size, seed, stride):
            steps = (subject.run(n, key, start, count, stride) - (start + stride * np.arange(count))) % n
            for kind in SCALINGS:
                counts[kind] += np.bincount(cells(steps, n, k, kind), minlength=k)
        scores += [goodness_z(counts[kind], cell_sizes(n, k, kind) / n) for kind in SCALINGS]
    return scores


@test("columns")
def columns(subject, n, size, seed):
    """How far the upper digit of n = a b moves, along positions that share the lower one: like dice, in each order.

    Made against this network, as an attacker would: such positions differ in one round's input less, and every two
    rounds more divide the excess of coincidences by b.
    """
    a, b = subject.radices(n)
    chi_square = 0
    for i in range(size // a):
        start = int(words(np.array([[seed, i]]), 1)[0, 0] % np.uint64(b))
        ids = subject.run(n, (seed + i // EPOCHS, i % EPOCHS), start, (n - 1 - start) // b + 1, b)
        counts = np.bincount((ids // b - np.arange(len(ids))) % a, minlength=a)
        expected = len(ids) / a
        chi_square += ((counts - expected) ** 2).sum() / expected
    return [chi_square_z(chi_square, (a - 1) * (size // a))]


@test("batches")
def batches(subject, n, size, seed):
    """Composition of batches of 256 by 64 classes of ids; at stride P, those of one rank of P."""
    scores, batch, k = [], 256, 64
    for stride in STRIDES:
        counts = {kind: [] for kind in SCALINGS}
        for key, start, count in stretches(n, size, seed, stride):
            if count < batch:
                break
            ids = subject.run(n, key, start, count - count % batch, stride).reshape(-1, batch)
            rows = np.arange(len(ids))[:, None] * k
            for kind in SCALINGS:
                flat = np.bincount((rows + cells(ids, n, k, kind)).ravel(), minlength=len(ids) * k)
                counts[kind].append(flat.reshape(-1, k))
        sizes = {kind: cell_sizes(n, k, kind) for kind in SCALINGS}
        scores += [composition_z(np.concatenate(counts[kind]), sizes[kind], n) for kind in SCALINGS if counts[kind]]
    return scores


@test("shares")
def shares(subject, n, size, seed):
    """Composition of a rank's share of an epoch, over a dataset sorted by label into 50 classes of unequal size."""
    labels, scores = 50, []
    bounds = n * np.cumsum(np.arange(labels + 1)) // (labels * (labels + 1) // 2)
    for ranks in (8, 64):
        share = n // ranks
        counts = []
        for i in range(max(16, size // share)):
            ids = subject.run(n, (seed + i // EPOCHS, i % EPOCHS), i % ranks, share, ranks)
            counts.append(np.bincount(np.searchsorted(bounds, ids, side="right") - 1, minlength=labels))
        scores.append(composition_z(np.array(counts), np.diff(bounds), n))
    return scores


@test("across keys")
def across_keys(subject, n, size, seed):
    """Differences of ids at one position under neighbouring keys, in 1024 classes, at every stride."""
    neighbours = {"seed": ((0, 0), (1, 0)), "epoch": ((0, 0), (0, 1)), "exchange": ((0, 1), (1, 0))}
    scores, k = [], 1024
    for stride in STRIDES:
        if n // stride < k:
            continue
        for one, other in neighbours.values():
            counts = {kind: np.zeros(k) for kind in SCALINGS}
            for (s, e), start, count in stretches(n, size, seed, stride):
                pair = [subject.run(n, (s * 2 + ds, e * 2 + de), start, count, stride) for ds, de in (one, other)]
                for kind in SCALINGS:
                    counts[kind] += np.bincount(cells((pair[0] - pair[1]) % n, n, k, kind), minlength=k)
            scores += [goodness_z(counts[kind], cell_sizes(n, k, kind) / n) for kind in SCALINGS]
    return scores


@test("avalanche")
def avalanche(subject, n, size, seed):
    """Flips one bit of the position, the seed or the epoch: every bit of the id flips half of the time. n = 2^k."""
    k = n.bit_length() - 1
    block = 1 << (min(size, n // 16).bit_length() - 1)
    random = np.random.default_rng([seed, n])
    of_position, of_key = [], []
    for bit in range(k):
        key = (seed + bit, 0)
        if 1 << bit < 2 * block:
            start = int(random.integers(n // (2 * block))) * 2 * block
            ids = subject.run(n, key, start, 2 * block).reshape(-1, 2, min(1 << bit, block))
            one, other = ids[:, 0].ravel(), ids[:, 1].ravel()
        else:
            start = int(random.integers(n // block)) * block
            one, other = (subject.run(n, key, at, block) for at in (start, start ^ 1 << bit))
        # Two positions never hold one id, so a bit differs a little more often than not.
        of_position.append(flip_scores(one, other, k, n / 2 / (n - 1)))
    for bit in range(64):
        start = int(random.integers(n - block))
        key = (seed + k + bit, bit)
        near = subject.run(n, key, start, block)
        for flipped in ((key[0] ^ 1 << bit, key[1]), (key[0], key[1] ^ 1 << bit)):
            of_key.append(flip_scores(near, subject.run(n, flipped, start, block), k))
    scores = [worst(of_position), worst(of_key)]
    return scores + [chi_square_z((np.array(z) ** 2).sum(), np.size(z)) for z in (of_position, of_key)]
