"""Coverage of an epoch: what all ranks drew together, held against every sample exactly once.

Pure functions over arrays of ids: no process group, no sampler. One sort of the draws an epoch, and memory that follows
the draws, not the dataset.

A padded draw repeats a sample that another rank has, and is no mistake: 23 ids on 4 ranks are 24 draws of 23 distinct
samples, and ranks 0 and 3 share one. So ranks are not asked for disjoint sets. What is asked is that no sample is drawn
twice once the padding, which is known by its place at the end of a rank's draws, is left out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard import _check

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class Coverage:
    """What the ranks drew in one epoch. Made by `measure_coverage`.

    Attributes:
        num_samples: samples in the dataset.
        draws: draws of all ranks together, padding included.
        distinct: different samples among them; `num_samples - missing`.
        padded: how many of the draws were padding.
        missing: samples that no rank drew.
        overlap: samples drawn by two ranks, or twice by one, other than as padding.
        only_padded: samples drawn as padding alone, though padding repeats what was drawn before: the padded draws were
            not counted rightly.
        digest: 32 bytes that two epochs share only if every rank drew the same ids in the same order.
    """

    num_samples: int
    draws: int
    distinct: int
    padded: int
    missing: int
    overlap: int
    only_padded: int
    digest: bytes = field(repr=False)


def measure_coverage(ids: Sequence[npt.ArrayLike], num_padding: Sequence[int], num_samples: int) -> Coverage:
    """Counts what the ranks drew in one epoch.

    Args:
        ids: for each rank its draws in their order, int64 of shape (draws of the rank,).
        num_padding: for each rank how many of its last draws are padding, in [0, draws of the rank].
        num_samples: samples in the dataset, in [1, 2^63).

    Raises:
        TypeError: ids are no integers.
        ValueError: an id is not in [0, num_samples), an array has other than one dimension, or num_padding does not fit
            ids.

    Example:
        >>> from fastshard import DistributedSampler
        >>> ranks = [DistributedSampler(range(23), num_replicas=4, rank=rank) for rank in range(4)]
        >>> measure_coverage([rank.indices() for rank in ranks], [rank.num_padding for rank in ranks], 23)
        Coverage(num_samples=23, draws=24, distinct=23, padded=1, missing=0, overlap=0, only_padded=0)
    """
    num_samples = _check.integer("num_samples", num_samples, 1, _check.MAX_LENGTH)
    if len(num_padding) != len(ids):
        raise ValueError(f"num_padding must have one number per rank, {len(ids)}, got {len(num_padding)}")
    ranks = [_checked(rank, drawn, num_samples) for rank, drawn in enumerate(ids)]
    unpadded = [
        len(drawn) - _check.integer(f"num_padding[{rank}]", padding, 0, len(drawn))
        for rank, (drawn, padding) in enumerate(zip(ranks, num_padding, strict=True))
    ]
    real = np.sort(_join(drawn[:end] for drawn, end in zip(ranks, unpadded, strict=True)))
    padding = np.unique(_join(drawn[end:] for drawn, end in zip(ranks, unpadded, strict=True)))

    # Sorted, a sample's second draw equals the one before it. So does its third, which must not count once more.
    again = real[1:] == real[:-1]
    second = again.copy()
    second[1:] &= ~again[:-1]
    distinct_real = real.size - int(np.count_nonzero(again))
    only_padded = int(np.count_nonzero(~_contains(real, padding)))
    draws = sum(map(len, ranks))
    return Coverage(
        num_samples=num_samples,
        draws=draws,
        distinct=distinct_real + only_padded,
        padded=draws - real.size,
        missing=num_samples - distinct_real - only_padded,
        overlap=int(np.count_nonzero(second)),
        only_padded=only_padded,
        digest=_digest(ranks),
    )


def repeated_orders(epochs: Iterable[Coverage]) -> list[int]:
    """Returns for each epoch how many earlier ones had the same order: every rank the same ids in the same sequence.

    Orders are compared, not sets: on one rank, or under padding, every epoch draws the same set.

    Example:
        >>> forgotten = [measure_coverage([[2, 0], [1, 3]], [0, 0], 4)] * 3
        >>> repeated_orders(forgotten)
        [0, 1, 2]
    """
    seen: Counter[bytes] = Counter()
    repeats = []
    for epoch in epochs:
        repeats.append(seen[epoch.digest])
        seen[epoch.digest] += 1
    return repeats


def problems(epochs: Iterable[Coverage]) -> list[str]:
    """Returns in words what keeps the epochs from being every sample exactly once, each time in a new order.

    Returns:
        One text for each kind of problem, with the epochs it occurs in (counted from 0); an empty list if all is right.

    Example:
        >>> problems([measure_coverage([[2, 0], [1, 2]], [0, 0], 4)])
        ['1 sample missing in epoch 0', '1 sample seen by two ranks, and not as padding, in epoch 0']
    """
    epochs = list(epochs)
    found = []
    for counts, what in [
        ([epoch.missing for epoch in epochs], "missing"),
        ([epoch.overlap for epoch in epochs], "seen by two ranks, and not as padding,"),
        ([epoch.only_padded for epoch in epochs], "seen as padding only"),
    ]:
        if any(counts):
            found.append(f"{count_of(filter(None, counts), 'sample')} {what} in {_name_epochs(counts)}")
    repeats = repeated_orders(epochs)
    if any(repeats):
        found.append(f"the order of an earlier epoch in {_name_epochs(repeats)}")
    return found


def format_coverage(epochs: Iterable[Coverage]) -> str:
    """Returns a table with one row an epoch, at most 80 columns wide, and a last line that says in words what it shows.

    Args:
        epochs: coverage of epochs 0, 1, ... of one dataset.

    Raises:
        ValueError: there is no epoch, or two are of datasets of different sizes.

    Example:
        >>> print(format_coverage([measure_coverage([[2, 0], [1, 2]], [0, 1], 3)]))
                                                  samples seen
                      distinct  padded  samples   by two ranks    orders
        epoch  draws   samples   draws  missing  (not padding)  repeated
            0      4         3       1        0              0         0
        every one of the 3 samples exactly once, 1 padded draw
    """
    epochs = list(epochs)
    sizes = sorted({epoch.num_samples for epoch in epochs})
    if len(sizes) != 1:
        raise ValueError(f"epochs must be one or more, all of one dataset, got datasets of sizes {sizes}")
    rows = [
        [number, epoch.draws, epoch.distinct, epoch.padded, epoch.missing, epoch.overlap, repeats]
        for number, (epoch, repeats) in enumerate(zip(epochs, repeated_orders(epochs), strict=True))
    ]
    cells = [[*column.split("\n")] for column in _COLUMNS]
    height = max(map(len, cells))
    columns = [
        [""] * (height - len(header)) + header + [f"{row[index]:,}" for row in rows]
        for index, header in enumerate(cells)
    ]
    aligned = [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]
    lines = ["  ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]
    wrong = problems(epochs)
    return "\n".join([*lines, "wrong: " + "; ".join(wrong) if wrong else _all_right(epochs)])


_COLUMNS = (
    "epoch",
    "draws",
    "distinct\nsamples",
    "padded\ndraws",
    "samples\nmissing",
    "samples seen\nby two ranks\n(not padding)",
    "orders\nrepeated",
)


def _all_right(epochs: Sequence[Coverage]) -> str:
    once = all_exactly_once(epochs[0].num_samples, (epoch.padded for epoch in epochs))
    return once if len(epochs) == 1 else f"{once}, in each of {len(epochs):,} epochs; no order repeated"


def all_exactly_once(num_samples: int, padded: Iterable[int]) -> str:
    """Says that every sample came exactly once, and how many draws of each epoch were padding; for the ledger too."""
    return f"every one of the {count_of([num_samples], 'sample')} exactly once, {count_of(padded, 'padded draw')}"


def _checked(rank: int, drawn: npt.ArrayLike, num_samples: int) -> npt.NDArray[np.int64]:
    """The ids of one rank as a contiguous int64 array, each of them in range."""
    array: npt.NDArray[Any] = np.asarray(drawn)
    if array.ndim != 1:
        raise ValueError(f"ids[{rank}] must have one dimension, got shape {array.shape}")
    if not array.size:  # numpy makes float64 of an empty list
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"ids[{rank}] must be integers, got dtype {array.dtype}")
    for id_ in (int(array.min()), int(array.max())):
        if not 0 <= id_ < num_samples:
            raise ValueError(f"ids must be in [0, {num_samples}), got {id_} on rank {rank}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _join(arrays: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def _contains(ordered: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """For each of `wanted`, whether the sorted array has it."""
    after = np.searchsorted(ordered, wanted, side="right")
    return after > np.searchsorted(ordered, wanted, side="left")


def _digest(ranks: Iterable[npt.NDArray[np.int64]]) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for drawn in ranks:
        digest.update(len(drawn).to_bytes(8, "little"))  # or [0, 1], [2] would be [0], [1, 2]
        digest.update(drawn.data)
    return digest.digest()


def count_of(numbers: Iterable[int], noun: str) -> str:
    """Says "1 sample" or "20 samples", and "20 to 30 samples" where the numbers differ."""
    each = sorted(set(numbers))
    span = " to ".join(f"{number:,}" for number in dict.fromkeys([each[0], each[-1]]))
    return f"{span} {noun}" if each == [1] else f"{span} {noun}s"


def _name_epochs(counts: Sequence[int]) -> str:
    """The epochs whose count is not 0: a handful by name; of more, the first ones and the last, to stay one line."""
    numbers = [number for number, count in enumerate(counts) if count]
    if len(numbers) == 1:
        return f"epoch {numbers[0]}"
    listed = ", ".join(map(str, numbers if len(numbers) <= 5 else numbers[:3]))
    return f"epochs {listed}" if len(numbers) <= 5 else f"{len(numbers):,} epochs ({listed}, ..., {numbers[-1]})"
