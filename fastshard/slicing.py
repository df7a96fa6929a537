"""Slices: which positions of the order are mine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fastshard import _check
from fastshard._built import _core
from fastshard._warnings import EmptyRankWarning, warn

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.orders import Order

Uneven = Literal["pad", "drop", "keep"]


@dataclass(frozen=True)
class Slice:
    """One rank's positions: start + rank, start + rank + num_replicas, ... as torch's DistributedSampler deals them.

    With micro-batches of b, step t of all ranks together uses positions [start + t*b*P, start + (t+1)*b*P), a
    contiguous run of the order, so the global batch depends on b*P and not on P.

    Args:
        length: number of positions in the epoch, in [1, 2^63).
        rank: this rank, in [0, num_replicas).
        num_replicas: number of ranks P, in [1, 2^63).
        uneven: what happens where P does not divide what is left.
            "pad": every rank gets ceil(left / P) positions; position p >= length holds what p mod length holds.
            "drop": every rank gets floor(left / P); the last positions are not used.
            "keep": every position exactly once; ranks differ by at most one.
        start: where a resumed epoch goes on, in [0, length]: what is left is sliced afresh.

    Attributes:
        num_samples: positions of this rank, padding included.
        num_padding: how many of this rank's last positions are padding (0 or 1).
        total_size: positions of all ranks together, padding included.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range; the message names it.

    Warns:
        EmptyRankWarning: something is left, but not enough for every rank to get a position.

    Example:
        >>> [Slice(10, rank, 3, uneven="keep").num_samples for rank in range(3)]
        [4, 3, 3]
        >>> Slice(10, 2, 3).positions, Slice(10, 2, 3).num_padding
        ((2, 14, 3), 1)
    """

    length: int
    rank: int
    num_replicas: int
    uneven: Uneven = "pad"
    start: int = 0
    num_samples: int = field(init=False, compare=False)
    num_padding: int = field(init=False, compare=False)
    total_size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        checked = {
            "length": _check.integer("length", self.length, 1, _check.MAX_LENGTH),
            "num_replicas": _check.integer("num_replicas", self.num_replicas, 1, _check.MAX_LENGTH),
            "uneven": _check.one_of("uneven", self.uneven, get_args(Uneven)),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "rank", _check.integer("rank", self.rank, 0, self.num_replicas - 1))
        object.__setattr__(self, "start", _check.integer("start", self.start, 0, self.length))
        num_samples, num_padding, total_size = _core.slice_shape(
            self.length, self.start, self.rank, self.num_replicas, _core.Uneven[self.uneven]
        )
        object.__setattr__(self, "num_samples", num_samples)
        object.__setattr__(self, "num_padding", num_padding)
        object.__setattr__(self, "total_size", total_size)
        left = self.length - self.start
        if self.uneven != "pad" and 0 < left < self.num_replicas:
            empty = self.num_replicas if self.uneven == "drop" else self.num_replicas - left
            warn(
                f"{empty} of {self.num_replicas} ranks get no sample: {left} are left and uneven={self.uneven!r}",
                EmptyRankWarning,
            )

    @property
    def most_samples(self) -> int:
        """`num_samples` of the rank that has most, which is rank 0."""
        return -(-self.total_size // self.num_replicas)

    @property
    def positions(self) -> tuple[int, int, int]:
        """The positions as (start, stop, step), for `range` or `Order.indices`; padded ones are >= length."""
        first = self.start + self.rank
        return first, first + self.num_samples * self.num_replicas, self.num_replicas

    def indices(self, order: Order, epoch: int, start: int = 0, stop: int | None = None) -> npt.NDArray[np.int64]:
        """Returns the ids that this rank draws from `order`, from its draw `start` to before its draw `stop`.

        Args:
            order: an order of `length` positions.
            epoch: any int in [0, 2^64).
            start: first draw, in [0, num_samples].
            stop: end of the draws, in [start, num_samples]; None is num_samples.

        Returns:
            An int64 array of stop - start ids.
        """
        start = _check.integer("start", start, 0, self.num_samples)
        stop = self.num_samples if stop is None else _check.integer("stop", stop, start, self.num_samples)
        first, _, step = self.positions
        return self._ids(order, epoch, first + start * step, stop - start, step)

    def global_batch(self, order: Order, epoch: int, step: int, batch_size: int) -> npt.NDArray[np.int64]:
        """Returns what all ranks together draw in one step: positions start + [step*b*P, (step+1)*b*P).

        Args:
            order: an order of `length` positions.
            epoch: any int in [0, 2^64).
            step: the step, from 0 up to before the last one of any rank.
            batch_size: samples per batch on each rank (the micro-batch b), at least 1.

        Returns:
            An int64 array of b*P ids, or fewer in the last step; the id at i is drawn by rank i mod P in slot i div P.
        """
        batch_size = _check.integer("batch_size", batch_size, 1, _check.MAX_LENGTH)
        size = batch_size * self.num_replicas
        step = _check.integer("step", step, 0, max(0, -(-self.total_size // size) - 1))
        count = min(size, self.total_size - step * size)
        return self._ids(order, epoch, self.start + step * size, count, 1)

    def draw_of(self, position: int) -> tuple[int, int] | None:
        """Returns (rank, draw) of a position: which rank has it, as which of its draws. None if no rank draws it."""
        offset = position - self.start
        if not 0 <= offset < self.total_size:
            return None
        return offset % self.num_replicas, offset // self.num_replicas

    def _ids(self, order: Order, epoch: int, first: int, count: int, step: int) -> npt.NDArray[np.int64]:
        """Ids at positions first, first + step, ...; at or above length, position p holds what p mod length holds."""
        if len(order) != self.length:
            raise ValueError(f"order must have {self.length} positions, as this slice has, got one of {len(order)}")
        inside = min(count, max(0, -((first - self.length) // step)))
        # One past the last position, not a whole step past it, which may be beyond the order.
        stop = first + (inside - 1) * step + 1
        ids = order.indices(epoch, first, stop, step) if inside else np.empty(0, np.int64)
        if inside == count:
            return ids
        padding = [(first + i * step) % self.length for i in range(inside, count)]
        return np.append(ids, np.array([order.index(epoch, position) for position in padding], np.int64))
