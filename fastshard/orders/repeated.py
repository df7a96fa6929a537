"""Repeated: each position of another order several times in a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fastshard import _check
from fastshard.orders.base import Order

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class Repeated(Order):
    """Each position of `order` `repeats` times in a row: position p holds what p // repeats holds there.

    Ranks take positions in turn, so the copies of a sample land on different ranks, in the same step: repeated
    augmentation, as timm's RepeatAugSampler has it. An epoch is `repeats` times as long as the inner order's; where it
    should be as long as the dataset, stop after len(sampler) // repeats draws.

    Costs what the inner order costs, in at most min(repeats, ids asked for) calls of its `indices`.

    Args:
        order: any Order. Its seed, if it has one, and whether it reshuffles hold for this one too.
        repeats: how often, at least 1; len(order) * repeats must be below 2^63.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range; the message names it.

    Example:
        >>> twice = orders.Repeated(orders.Sequential(3), repeats=2)
        >>> twice.indices(epoch=0).tolist()
        [0, 0, 1, 1, 2, 2]
        >>> thrice = orders.Repeated(orders.Shuffled(100, seed=1), repeats=3)
        >>> ranks = [DistributedSampler(range(100), num_replicas=3, rank=rank, order=thrice) for rank in range(3)]
        >>> [len(sampler) for sampler in ranks], len({tuple(sampler) for sampler in ranks})
        ([100, 100, 100], 1)
    """

    order: Order
    repeats: int
    name: ClassVar[str] = "repeated/1"
    _trusted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.order, Order):
            raise TypeError(f"order must be an Order, got order={self.order!r}")
        if not len(self.order):
            raise ValueError(f"order must have at least one position, got order={self.order!r} of none")
        repeats = _check.integer("repeats", self.repeats, 1, _check.MAX_LENGTH)
        if repeats > _check.MAX_LENGTH // len(self.order):
            raise ValueError(
                f"repeats must leave len(order) * repeats below 2^63, got repeats={repeats} of {len(self.order)} "
                "positions"
            )
        object.__setattr__(self, "repeats", repeats)
        # What samplers ask of an order is the inner one's to say. A resume depends on both names.
        inherited = {"name": f"{self.name}({self.order.name})", "reshuffles": self.order.reshuffles}
        if hasattr(self.order, "seed"):
            inherited["seed"] = self.order.seed
        for name, value in inherited.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.order) * self.repeats

    @property
    def num_ids(self) -> int:
        """The inner order's: repeating makes no new ids."""
        return self.order.num_ids

    def digest(self) -> str:
        """The number of repeats, and the inner order's digest."""
        return f"{self.repeats}({len(self.order)}:{self.order.digest()})"

    def _prepare(self, epoch: int) -> None:
        self.order.prepare(epoch)

    def _fill(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        first, offset = divmod(start, self.repeats)
        if step <= self.repeats:
            # The inner positions leave none out, so there are at most as many of them as ids are asked for.
            last = (start + (count - 1) * step) // self.repeats
            ids = self.order.indices(epoch, first, last + 1) if count else np.empty(0, np.int64)
            at = (offset + step * np.arange(count)) // self.repeats  # arange(offset, stop, step) would divide floats
            return ids[at]
        # Every progressions-th draw moves on by a whole number of inner positions: as many strided runs, interleaved.
        progressions = self.repeats // math.gcd(step, self.repeats)
        inner_step = progressions * step // self.repeats
        ids = np.empty(count, np.int64)
        for i in range(min(progressions, count)):
            inner_start = (start + i * step) // self.repeats
            runs = -((i - count) // progressions)
            stop = inner_start + (runs - 1) * inner_step + 1
            ids[i::progressions] = self.order.indices(epoch, inner_start, stop, inner_step)
        return ids

    def _take(self, epoch: int, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        return self.order.take(epoch, positions // np.uint64(self.repeats))
