"""LengthGrouped: global batches of samples of about the same length, in a random order."""

from __future__ import annotations

import bisect
import functools
import hashlib
import numbers
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fastshard import _check
from fastshard._built import _core
from fastshard.orders.arrays import ArrayOrder, whole_numbers
from fastshard.orders.buckets import Bucket, cut

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, eq=False, repr=False)
class LengthGrouped(ArrayOrder):
    """A shuffle for samples of different lengths, whose global batches hold samples of about the same length.

    The samples are sorted by length once and cut into buckets, the longest first. Each epoch shuffles the samples
    within each bucket, takes its global batches from there (num_replicas batches, so that all ranks have about the same
    to do in a step), and puts the global batches of all buckets in an order of their own. What is left over of the
    shortest samples, less than a global batch, comes last.

    A bucket takes in samples down to `spread` below its longest one, and at least `min_steps` global batches, so that
    what meets in a global batch changes from epoch to epoch. Where samples are many, the first rule decides; where
    lengths are rare, the second. What is too little for a bucket of its own goes with the one before.

    Holds the lengths, 4 bytes a sample (8 above 2^32 samples), and up to 2 more for buckets of at most 16,384 samples.
    Any global batch of an epoch costs the same; to find one by its position, 8 bytes a global batch are held.

    Args:
        lengths: of each sample, in tokens or whatever a batch is padded in: any 1-D array-like or torch tensor of ints
            in [0, 2^63).
        batch_size: samples per batch on each rank (the micro-batch b), at least 1. Give either this or max_tokens.
        max_tokens: at most this many in a padded batch, that is, number of samples times longest one; at least the
            longest length. All batches of a bucket have the same number of samples, as many as its longest allows. A
            sample of length 0 counts as one of 1.
        num_replicas: batches side by side in a global batch, at least 1: ranks P that the order is made for.
        seed: any int in [-2^63, 2^64), taken modulo 2^64. No two pairs of (seed, epoch) share an order, other than by
            chance.
        shuffle: False is sorted, the longest first, in every epoch.
        spread: how much shorter than the longest a sample of a bucket may be, as a fraction in [0, 1).
        min_steps: global batches in a bucket, at least, if there are as many; at least 1.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range; the message names it, and the first
            length that is wrong.

    Example:
        >>> order = orders.LengthGrouped([5, 90, 7, 6, 95, 8], batch_size=2, min_steps=1)
        >>> sorted(order.indices(epoch=0, start=0, stop=2).tolist()) in ([1, 4], [2, 5], [0, 3])
        True
        >>> [(bucket.samples, bucket.longest, bucket.shortest) for bucket in order.buckets]
        [(2, 95, 90), (2, 8, 7), (2, 6, 5)]
        >>> [bucket.batch_size for bucket in orders.LengthGrouped([9, 1, 1, 1], max_tokens=9, min_steps=1).buckets]
        [1, 9]
    """

    lengths: npt.NDArray[Any]
    batch_size: int | None = None
    max_tokens: int | None = None
    num_replicas: int = 1
    seed: int = 0
    shuffle: bool = True
    spread: float = 0.05
    min_steps: int = 2
    buckets: list[Bucket] = field(init=False)
    left_over: int = field(init=False)
    _first_steps: npt.NDArray[np.int64] = field(init=False)
    _ids: npt.NDArray[Any] = field(init=False)
    _moving: int = field(init=False)
    _shuffles: list[_core.Shuffled] = field(init=False)
    _begins: tuple[int, npt.NDArray[np.int64]] | None = field(init=False)
    name: ClassVar[str] = "lengths/0"

    def __post_init__(self) -> None:
        lengths = whole_numbers("lengths", "sample", self.lengths)
        lengths = lengths.astype(np.min_scalar_type(lengths.max()))  # a copy; numpy sorts 16 bits by digits
        lengths.flags.writeable = False
        if (self.batch_size is None) == (self.max_tokens is None):
            raise ValueError(
                f"give either batch_size or max_tokens, got batch_size={self.batch_size!r}, "
                f"max_tokens={self.max_tokens!r}"
            )
        checked: dict[str, Any] = {
            "lengths": lengths,
            "num_replicas": _check.integer("num_replicas", self.num_replicas, 1, _check.MAX_LENGTH),
            "seed": _check.seed(self.seed),
            "shuffle": _check.boolean("shuffle", self.shuffle),
            "spread": _checked_spread(self.spread),
            "min_steps": _check.integer("min_steps", self.min_steps, 1, _check.MAX_LENGTH),
        }
        for name in ("batch_size", "max_tokens"):
            if getattr(self, name) is not None:
                checked[name] = _check.integer(name, getattr(self, name), 1, _check.MAX_LENGTH)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.max_tokens is not None:
            _check_tokens(lengths, self.max_tokens)
        object.__setattr__(self, "reshuffles", self.shuffle)
        self._build()

    def _build(self) -> None:
        """Sorts, cuts into buckets, and makes a permutation for each: all that does not depend on the epoch."""
        ids = np.argsort(self.lengths.max() - self.lengths, kind="stable")
        buckets = list(
            cut(self.lengths[ids], self.batch_size, self.max_tokens, self.num_replicas, self.spread, self.min_steps)
        )
        last = buckets[-1]
        left_over = last.samples % last.group
        # What is left over comes last, and before it a whole global batch of its bucket, if there is one: whoever has
        # too little in the last one for all ranks can make two of both.
        moving = last.first_step + last.steps - (left_over > 0 and last.steps > 0)
        sizes = [max(1, moving), *(bucket.samples for bucket in buckets)] if self.shuffle else []
        # Seeds of their own, all different: no bucket shares random numbers with another, nor with another order.
        seeds = _core.Shuffled(_check.MAX_LENGTH, self.seed % 2**64).indices(0, 0, len(sizes), 1).tolist()
        built = {
            "buckets": buckets,
            "left_over": left_over,
            "_first_steps": np.array([bucket.first_step for bucket in buckets], np.int64),
            "_ids": ids.astype(np.uint32) if len(ids) <= 2**32 else ids,
            "_moving": moving,
            "_shuffles": [_core.Shuffled(size, seed) for size, seed in zip(sizes, seeds, strict=True)],
            "_begins": None,
        }
        for name, value in built.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_steps(self) -> int:
        """Whole global batches in an epoch; if `left_over` is not 0, there is another one of so many samples."""
        return self.buckets[-1].first_step + self.buckets[-1].steps

    def steps(self, epoch: int, start: int, stop: int) -> list[tuple[int, range]]:
        """Returns for each whole global batch in [start, stop) of an epoch its bucket, and its places in that."""
        numbers = np.arange(start, stop)
        moved = range(start, min(stop, self._moving))
        if moved:
            numbers[: len(moved)] = self._shuffle(0, epoch, moved)
        found = []
        for bucket, number in zip(self._bucket_of(numbers).tolist(), numbers.tolist(), strict=True):
            _, _, first_step, _, group, _, _ = self.buckets[bucket]
            offset = (number - first_step) * group
            found.append((bucket, range(offset, offset + group)))
        return found

    def bucket_ids(self, epoch: int, bucket: int, places: range) -> npt.NDArray[np.int64]:
        """Returns the ids at some places of a bucket, as the epoch has shuffled it.

        Beyond its end the bucket begins anew, so that who pads gets samples of about the same length.
        """
        start, size = self.buckets[bucket][:2]
        if places and places[-1] >= size:
            at = self._shuffle(1 + bucket, epoch, range(size))[np.array(places) % size]
        else:
            at = self._shuffle(1 + bucket, epoch, places)
        ids: npt.NDArray[np.int64] = self._ids[start : start + size][at].astype(np.int64)
        return ids

    def locate(self, epoch: int, sample: int) -> tuple[int, int, int]:
        """Returns (global batch, bucket, place in the bucket) of an id. What is left over is global batch num_steps."""
        # Sorted by length, and ids of one length by id.
        key = (-int(self.lengths[sample]), sample)
        place = bisect.bisect_left(self._ids, key, key=lambda i: (-int(self.lengths[i]), int(i)))
        bucket = bisect.bisect_right(self.buckets, place, key=lambda bucket: bucket.start) - 1
        here = self.buckets[bucket]
        place -= here.start
        if self.shuffle:
            place = self._shuffles[1 + bucket].position(epoch, place)
        number = here.first_step + place // here.group
        if self.shuffle and number < self._moving:
            number = self._shuffles[0].position(epoch, number)
        return number, bucket, place

    def begins(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns the position at which each global batch of an epoch begins, and at last their end.

        Costs O(global batches) once for each epoch in turn.
        """
        kept = self._begins
        if kept is None or kept[0] != epoch:
            sizes = np.repeat(
                np.array([min(bucket.group, len(self)) for bucket in self.buckets]),
                [bucket.steps for bucket in self.buckets],
            )
            sizes[: self._moving] = sizes[self._shuffle(0, epoch, range(self._moving))]
            ends = np.append(np.cumsum(sizes), [len(self)] * (self.left_over > 0))
            kept = epoch, np.append(0, ends).astype(np.int64)
            object.__setattr__(self, "_begins", kept)  # one assignment: threads see the old pair or the new one
        return kept[1]

    @functools.cached_property
    def samples_digest(self) -> str:
        """As `digest`, of what does not depend on the ranks: a run keeps it at another world size."""
        found = hashlib.blake2b(repr((self.shuffle, self.spread, self.min_steps)).encode(), digest_size=8)
        found.update(self.lengths.data)
        return found.hexdigest()

    def _bucket_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        # A last bucket without a whole global batch begins where all end.
        return np.searchsorted(self._first_steps, numbers, "right") - 1

    def _shuffle(self, which: int, epoch: int, places: range) -> npt.NDArray[np.int64]:
        """What some places of a permutation hold: that of the global batches (0) or that of a bucket (1 + bucket)."""
        if not self.shuffle:
            return np.array(places, np.int64)
        return self._shuffles[which].indices(epoch, places.start, len(places), places.step)

    def _fill(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        begins = self.begins(epoch)
        ids = np.empty(count, np.int64)
        filled = 0
        while filled < count:
            at = start + filled * step
            number = int(np.searchsorted(begins, at, "right")) - 1
            if number < self.num_steps:
                bucket, places = self.steps(epoch, number, number + 1)[0]
            else:
                bucket, size = len(self.buckets) - 1, self.buckets[-1].samples
                places = range(size - self.left_over, size)
            wanted = places[at - int(begins[number]) :: step][: count - filled]
            ids[filled : filled + len(wanted)] = self.bucket_ids(epoch, bucket, wanted)
            filled += len(wanted)
        return ids

    def _position(self, epoch: int, sample: int) -> int:
        number, bucket, place = self.locate(epoch, sample)
        return int(self.begins(epoch)[number]) + place % self.buckets[bucket].group


def _checked_spread(spread: Any) -> float:
    if isinstance(spread, bool) or not isinstance(spread, numbers.Real):
        raise TypeError(f"spread must be a number, got spread={spread!r}")
    number = float(spread)
    if not 0 <= number < 1:
        raise ValueError(f"spread must be in [0, 1), got spread={spread!r}")
    return number


def _check_tokens(lengths: npt.NDArray[Any], max_tokens: int) -> None:
    """One sample that does not fit is named; to leave it out or to cut it is not ours to choose."""
    longest = int(lengths.max())
    if longest > max_tokens:
        too_long = lengths > max_tokens
        first = int(too_long.argmax())
        raise ValueError(
            f"max_tokens must be at least the longest length, {longest}, got max_tokens={max_tokens}: "
            f"lengths[{first}]={lengths[first]} is longer, the first of {np.count_nonzero(too_long)}"
        )
