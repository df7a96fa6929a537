"""LengthBucketBatchSampler: batches of samples of about the same length, as many and as long on every rank."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from torch.utils.data import Sampler

from fastshard import _check
from fastshard._warnings import EmptyRankWarning, warn
from fastshard.cursor import Cursor
from fastshard.orders.lengths import LengthGrouped
from fastshard.samplers.distributed import ask_group
from fastshard.samplers.passes import OnRepeatedEpoch, Passes
from fastshard.slicing import Uneven

if TYPE_CHECKING:
    import numpy.typing as npt

# What the batches were planned by. To change one of them afterwards would be obeyed in part.
_FIXED = frozenset(
    {"order", "batch_size", "max_tokens", "num_replicas", "rank", "shuffle", "seed", "drop_last", "uneven"}
)

# Global batches whose numbers are asked of the order at a time. Their ids are computed when a batch is asked for.
STEPS = 1024


class LengthBucketBatchSampler(Sampler[Any]):
    """Gives each rank batches of samples of about the same length, for a DataLoader's `batch_sampler=`.

    In each step the batches of all ranks come from one bucket of neighbours in length and have the same number of
    samples, so no rank pads much, and none waits long for another (see `orders.LengthGrouped`). Every rank gets as many
    batches. At most one global batch of an epoch is partial, the last one, of the shortest samples.

    A batch costs its number of samples times its longest one. In a step, the dearest batch costs at most longest /
    shortest of the bucket times the cheapest: 1 / (1 - spread) where samples are many, more where lengths are rare
    (`sampler.order.buckets` has both). The partial batch, whose ranks may differ by a sample, comes on top of that.

    Args:
        lengths, batch_size, max_tokens, shuffle, seed, spread, min_steps: as for `orders.LengthGrouped`.
        num_replicas, rank: as for DistributedSampler; None asks the process group.
        drop_last: True drops the partial global batch, so that all batches of a bucket have the same size.
        uneven: what happens where P does not divide the partial global batch. None is "drop" with drop_last and "pad"
            without.
            "pad": every rank gets as many samples; what is missing is drawn again from the same bucket.
            "drop": every rank gets as many samples; fewer than P are not drawn.
            "keep": every sample exactly once; ranks differ by at most one sample. If there are fewer than P, they are
            made two global batches with the whole one before them, so that every rank has a batch.
            With drop_last and "pad", ranks are padded first, and what is then short of a whole batch is dropped.
        on_repeated_epoch: as for DistributedSampler.
        as_array: yield int64 arrays, not lists of int: for datasets whose `__getitems__` takes arrays.

    Attributes:
        order: the LengthGrouped order that the batches are from.
        num_padding: how many of this rank's draws are padding: 0 or 1, in the last batch.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of its range, or contradicts another.

    Warns:
        EmptyRankWarning: some rank gets no batch, or fewer than others ("keep" with batches of one sample).

    Example:
        >>> lengths = [3, 70, 5, 72, 4, 71, 6, 73]
        >>> ranks = [LengthBucketBatchSampler(lengths, 2, num_replicas=2, rank=r, min_steps=1) for r in range(2)]
        >>> [sorted(lengths[id] // 10 for id in batch) for batch in zip(*ranks) for batch in batch] in (
        ...     [[0, 0], [0, 0], [7, 7], [7, 7]], [[7, 7], [7, 7], [0, 0], [0, 0]])
        True
        >>> tokens = LengthBucketBatchSampler(lengths, max_tokens=150, num_replicas=2, rank=0, drop_last=True)
        >>> all(len(batch) * max(lengths[id] for id in batch) <= 150 for batch in tokens)
        True
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: Uneven | None = None,
        spread: float = LengthGrouped.spread,
        min_steps: int = LengthGrouped.min_steps,
        on_repeated_epoch: OnRepeatedEpoch = "warn",
        as_array: bool = False,
    ) -> None:
        num_replicas, rank = ask_group(num_replicas, rank)
        order = LengthGrouped(lengths, batch_size, max_tokens, num_replicas, seed, shuffle, spread, min_steps)
        self.order = order
        self.batch_size, self.max_tokens = order.batch_size, order.max_tokens
        self.num_replicas = order.num_replicas
        self.rank = _check.integer("rank", rank, 0, self.num_replicas - 1)
        self.shuffle, self.seed = order.shuffle, order.seed
        self.drop_last, self.as_array = _check.boolean("drop_last", drop_last), _check.boolean("as_array", as_array)
        default: Uneven = "drop" if self.drop_last else "pad"
        self.uneven: Uneven = _check.one_of("uneven", default if uneven is None else uneven, get_args(Uneven))
        self.on_repeated_epoch = _check.one_of("on_repeated_epoch", on_repeated_epoch, get_args(OnRepeatedEpoch))
        self._passes = Passes()
        self._whole, self._last = self._plan()
        mine = [self._mine(last) for last in self._last]
        self.num_padding = sum(bool(places) and places[-1] >= order.buckets[-1].samples for places in mine)
        self._warn_of_empty_ranks()

    def _plan(self) -> tuple[int, list[range]]:
        """How many whole global batches there are, and which places of the last bucket make those after them."""
        order, num_replicas = self.order, self.num_replicas
        _, size, _, batch_size, group, _, _ = order.buckets[-1]
        whole, left, begin = order.num_steps, order.left_over, size - order.left_over
        if self.uneven == "keep" and 0 < left < num_replicas and whole and batch_size > 1 and not self.drop_last:
            # At least 2P + 1 samples: both halves have one for each rank, and none more than batch_size.
            begin -= group
            middle = size - (size - begin) // 2
            return whole - 1, [range(begin, middle), range(middle, size)]
        total = {"pad": left + -left % num_replicas, "drop": left - left % num_replicas, "keep": left}[self.uneven]
        if total == 0 or (self.drop_last and total < group):
            return whole, []
        return whole, [range(begin, begin + total)]

    def _mine(self, places: range) -> range:
        return places[self.rank :: self.num_replicas]

    def _warn_of_empty_ranks(self) -> None:
        if not self._whole and not self._last:
            size = f"batch_size={self.batch_size}" if self.max_tokens is None else f"max_tokens={self.max_tokens}"
            warn(
                f"no rank gets a batch: {len(self.order)} samples are too few for {self.num_replicas} ranks with "
                f"{size}, drop_last={self.drop_last} and uneven={self.uneven!r}",
                EmptyRankWarning,
            )
        for last in self._last:
            if len(last) < self.num_replicas:
                warn(
                    f"{self.num_replicas - len(last)} of {self.num_replicas} ranks get no sample in the last step, and "
                    f"a batch less than the others: {len(last)} are left and uneven={self.uneven!r}",
                    EmptyRankWarning,
                )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and name in self.__dict__:
            raise AttributeError(f"{name} is fixed when the sampler is built, got {name}={value!r}; build a new one")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return self._whole + sum(bool(self._mine(last)) for last in self._last)

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from; assigning to it is `set_epoch`."""
        return self._passes.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._passes.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler.set_epoch."""
        self._passes.set_epoch(epoch)

    def where(self, id: int) -> tuple[int, int, int] | None:  # noqa: A002 (the field's word)
        """Returns (rank, step, slot): who draws sample `id` in the current epoch, in which batch, at which place in it.

        Without walking. None if no rank draws it. A sample that is drawn again as padding is found at its own place.

        Raises:
            TypeError, ValueError: id is not an int in [0, len(lengths)).
        """
        id = _check.integer("id", id, 0, len(self.order) - 1)  # noqa: A001
        step, bucket, place = self.order.locate(self.epoch, id)
        if step < self._whole:
            slot, rank = divmod(place % self.order.buckets[bucket].group, self.num_replicas)
            return rank, step, slot
        for number, last in enumerate(self._last):
            if place in last:
                slot, rank = divmod(place - last.start, self.num_replicas)
                return rank, self._whole + number, slot
        return None

    def global_batch(self, step: int) -> npt.NDArray[np.int64]:
        """Returns the ids that all ranks together draw in one step of the current epoch, without walking there.

        Args:
            step: the step, from 0 up to before the last one of any rank.

        Returns:
            An int64 array; the id at i is drawn by rank i mod P in slot i div P.

        Raises:
            TypeError, ValueError: step is not such an int.
        """
        step = _check.integer("step", step, 0, max(0, self._whole + len(self._last) - 1))
        parts = self._steps(self.epoch, step, step + 1)
        return self.order.bucket_ids(self.epoch, *parts[0]) if parts else np.empty(0, np.int64)

    def __iter__(self) -> Iterator[Any]:
        return self._passes.run(
            self._chunks,
            length=len(self.order),
            reshuffles=self.order.reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
        )

    def _chunks(self, cursor: Cursor) -> Iterator[Iterator[Any]]:
        epoch = cursor.epoch
        for start in range(0, len(self), STEPS):
            parts = self._steps(epoch, start, min(start + STEPS, len(self)))
            batches = (self.order.bucket_ids(epoch, bucket, self._mine(places)) for bucket, places in parts)
            yield batches if self.as_array else (batch.tolist() for batch in batches)

    def _steps(self, epoch: int, start: int, stop: int) -> list[tuple[int, range]]:
        """For each step in [start, stop) of an epoch the bucket, and all ranks' places in that."""
        whole = self.order.steps(epoch, start, min(stop, self._whole))
        last = self._last[max(0, start - self._whole) : max(0, stop - self._whole)]
        return whole + [(len(self.order.buckets) - 1, places) for places in last]

    def __getstate__(self) -> dict[str, Any]:
        # A copy has passes of its own, so that its epoch is its own.
        return {**self.__dict__, "_passes": copy.copy(self._passes)}
