"""The orders that are made from others or from arrays, once more: slow, short, plain ints. See _reference.py."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from fastshard._reference import philox, shuffled

WEIGHTED_VERSION = int.from_bytes(b"weight/1", "big")

_BLOCKS_STREAM, _WINDOW_STREAM = 1, 2  # the blocks' own permutation, and the first window's
_DRAWS, _SUBSET = 0, 1  # what the words of Weighted's Philox streams are for


def repeated(ids: Sequence[int], repeats: int) -> list[int]:
    """Returns the ids of `Repeated(order, repeats)` in an epoch in which `order` has these ids."""
    return [sample for sample in ids for _ in range(repeats)]


def block_shuffled(block_sizes: Sequence[int], seed: int, window: int, epoch: int) -> list[list[int]]:
    """Returns the ids of each window of `BlockShuffled(block_sizes, seed, window)` in `epoch`, in order."""
    at = block_shuffled_at(block_sizes, seed, window, epoch)
    ends = itertools.accumulate(map(_size, _windows(block_sizes, seed, window, epoch)), initial=0)
    return [[at(position) for position in range(*bounds)] for bounds in itertools.pairwise(ends)]


def block_shuffled_at(block_sizes: Sequence[int], seed: int, window: int, epoch: int) -> Callable[[int], int]:
    """Returns the function position -> id of `BlockShuffled(block_sizes, seed, window)` in `epoch`."""
    windows = _windows(block_sizes, seed, window, epoch)

    @functools.cache
    def inner(number: int) -> Callable[[int], int]:
        return shuffled(_size(windows[number]), seed, epoch, _WINDOW_STREAM + number)

    def order(position: int) -> int:
        number = 0
        while position >= _size(windows[number]):
            position -= _size(windows[number])
            number += 1
        at = inner(number)(position)
        blocks = iter(windows[number])
        first, size = next(blocks)
        while at >= size:
            at -= size
            first, size = next(blocks)
        return first + at

    return order


def _windows(block_sizes: Sequence[int], seed: int, window: int, epoch: int) -> list[list[tuple[int, int]]]:
    """The blocks of each window, as (first id, size) in the epoch's order."""
    firsts = itertools.accumulate(block_sizes, initial=0)
    blocks = list(zip(firsts, block_sizes, strict=False))
    at = shuffled(len(blocks), seed, epoch, _BLOCKS_STREAM)
    laid_out = [blocks[at(place)] for place in range(len(blocks))]
    return [laid_out[first : first + window] for first in range(0, len(blocks), window)]


def _size(blocks: list[tuple[int, int]]) -> int:
    return sum(size for _, size in blocks)


def length_grouped(
    lengths: Sequence[int],
    batch_size: int | None,
    max_tokens: int | None,
    num_replicas: int,
    seed: int,
    epoch: int,
    spread: float = 0.05,
    min_steps: int = 2,
) -> list[list[int]]:
    """Returns the ids of each global batch of `LengthGrouped` with these arguments in `epoch`, in order."""
    waiting = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    steps, left_over, bucket = [], [], 0
    seed_of = shuffled(2**63 - 1, seed, 0)
    while waiting:
        longest = lengths[waiting[0]]
        group = (batch_size or (max_tokens or 0) // max(1, longest)) * num_replicas
        floor = longest - int(Fraction(spread) * longest)
        similar = sum(lengths[i] >= floor for i in waiting)
        size = max(min_steps, similar // group) * group
        if len(waiting) - size < min_steps * group:
            size = len(waiting)
        bucket += 1
        at = shuffled(size, seed_of(bucket), epoch)
        ids = [waiting[at(i)] for i in range(size)]
        waiting = waiting[size:]
        groups = [ids[i : i + group] for i in range(0, size, group)]
        left_over = groups.pop() if size % group else []
        steps += groups
    moving = len(steps) - bool(left_over and groups)
    if moving:
        at = shuffled(moving, seed_of(0), epoch)
        steps = [steps[at(i)] for i in range(moving)] + steps[moving:]
    return steps + [left_over] * bool(left_over)


def weighted(weights: Sequence[float], seed: int, epoch: int) -> Callable[[int], int]:
    """Returns the function position -> id of `Weighted(weights, ..., seed)` in `epoch`."""
    table = alias_table(weights)

    def order(position: int) -> int:
        column, place = divmod(_weighted_word(seed, epoch, position, _DRAWS) * len(table), 2**64)
        threshold, alias = table[column]
        return column if place < threshold else alias

    return order


def integer_masses(weights: Sequence[float]) -> list[int]:
    """Returns the weights as ints in proportion to them, whose sum is below 2^64."""
    exponent = math.frexp(max(weights))[1]
    masses = [int(math.ldexp(weight, 63 - exponent)) for weight in weights]
    excess = max(0, sum(masses).bit_length() - 64)
    return [mass >> excess for mass in masses]


def alias_table(weights: Sequence[float]) -> list[tuple[int, int]]:
    """Returns (threshold of 2^64, alias) of each column."""
    n = len(weights)
    masses = integer_masses(weights)
    capacity = sum(masses)
    left = [mass * n for mass in masses]
    heavy = [i for i in range(n) if left[i] >= capacity]
    light = [i for i in range(n) if left[i] < capacity]
    table = [(0, i) for i in range(n)]
    while heavy:
        first = heavy[0]
        if left[first] > capacity:
            i = light.pop(0)
            table[i] = (left[i] << 64) // capacity, first
            left[first] -= capacity - left[i]
            continue
        heavy.pop(0)
        if left[first] < capacity:
            table[first] = (left[first] << 64) // capacity, heavy[0]
            left[heavy[0]] -= capacity - left[first]
    assert not light
    return table


def weighted_subset(weights: Sequence[float], count: int, seed: int, epoch: int) -> list[int]:
    """Returns the ids of `Weighted(weights, count, seed, replacement=False)` in `epoch`, in order."""
    keys = []
    for i, weight in enumerate(weights):
        if weight > 0:
            mantissa, exponent = math.frexp(weight)
            quotient, more = math.frexp(_exponential(_weighted_word(seed, epoch, i, _SUBSET)) / mantissa)
            keys.append((more - exponent, quotient, i))  # compares as the exact quotient by weight, which may overflow
    return [i for *_, i in sorted(keys)[:count]]


def _weighted_word(seed: int, epoch: int, i: int, use: int) -> int:
    return philox((epoch, i // 4, 0, use), (seed % 2**64, WEIGHTED_VERSION))[i % 4]


def _exponential(word: int) -> float:
    # Every operation rounds as in the core, so keys are equal to the bit.
    m, e = math.frexp(((word >> 12) + 0.5) * 2.0**-52)
    if m < math.sqrt(0.5):
        m, e = m * 2, e - 1
    f = (m - 1) / (m + 1)
    series = 0.0
    for odd in range(21, 0, -2):
        series = series * (f * f) + 1 / odd
    return -(e * math.log(2) + 2 * f * series)
