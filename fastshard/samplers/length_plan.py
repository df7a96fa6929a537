"""Plan: the global batches of an epoch, or of what is left of one, for LengthBucketBatchSampler.

A LengthGrouped order is made for a number of ranks. A run that goes on with another number draws the rest of its epoch
by a plan of its own, of the samples that are left, and the epochs after it by the plan of all samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fastshard._warnings import EmptyRankWarning, warn
from fastshard.orders.lengths import LengthGrouped

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.slicing import Uneven


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps of an epoch and this rank's part in them.

    Args:
        order: of as many samples as are planned.
        rank, uneven, drop_last: as for LengthBucketBatchSampler.
        ids: which sample each number of the order stands for; None is that number itself.
        former: the plans that the epoch began with: `sizes` and what was consumed of each, none of it 0.

    Attributes:
        whole: whole global batches.
        last: which places of the last bucket make the global batches after them.
    """

    order: LengthGrouped
    rank: int
    uneven: Uneven
    drop_last: bool
    ids: npt.NDArray[np.int64] | None = None
    former: tuple[Mapping[str, int], ...] = ()
    whole: int = field(init=False)
    last: list[range] = field(init=False)

    def __post_init__(self) -> None:
        whole, last = self._whole_and_last()
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "last", last)

    def _whole_and_last(self) -> tuple[int, list[range]]:
        order, num_replicas = self.order, self.order.num_replicas
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

    @property
    def sizes(self) -> dict[str, int]:
        """What, beside the samples, the order was made for."""
        name = "batch_size" if self.order.max_tokens is None else "max_tokens"
        return {"num_replicas": self.order.num_replicas, name: getattr(self.order, name)}

    @property
    def num_steps(self) -> int:
        """Global batches."""
        return self.whole + len(self.last)

    @property
    def num_batches(self) -> int:
        """Batches of this rank, one in each of the first steps."""
        return self.whole + sum(bool(self._mine(places)) for places in self.last)

    def _mine(self, places: range) -> range:
        return places[self.rank :: self.order.num_replicas]

    def steps(self, epoch: int, start: int, stop: int) -> list[tuple[int, range]]:
        """For each step in [start, stop) of an epoch the bucket, and all ranks' places in that."""
        whole = self.order.steps(epoch, start, min(stop, self.whole))
        last = self.last[max(0, start - self.whole) : max(0, stop - self.whole)]
        return whole + [(len(self.order.buckets) - 1, places) for places in last]

    def global_batch(self, epoch: int, bucket: int, places: range) -> npt.NDArray[np.int64]:
        """The samples at some places of a bucket."""
        at = self.order.bucket_ids(epoch, bucket, places)
        return at if self.ids is None else self.ids[at]

    def batch(self, epoch: int, bucket: int, places: range) -> npt.NDArray[np.int64]:
        """This rank's of them."""
        return self.global_batch(epoch, bucket, self._mine(places))

    def dropped(self, epoch: int) -> npt.NDArray[np.int64]:
        """The samples that no step has."""
        bucket, size = len(self.order.buckets) - 1, self.order.buckets[-1].samples
        first = self.last[-1].stop if self.last else size - self.order.left_over
        return self.global_batch(epoch, bucket, range(first, max(first, size)))

    def padding(self, step: int) -> int:
        """How many of this rank's last samples in a step are padding: 0 or 1."""
        mine = self._mine(self.last[step - self.whole]) if self.whole <= step < self.num_steps else range(0)
        return int(bool(mine) and mine[-1] >= self.order.buckets[-1].samples)

    def where(self, epoch: int, sample: int) -> tuple[int, int, int] | None:
        """Returns (rank, step, slot) of a sample; None if it is not drawn. Of what is left, looks through all ids."""
        if self.ids is not None:
            found = np.flatnonzero(self.ids == sample)
            if not len(found):
                return None
            sample = int(found[0])
        step, bucket, place = self.order.locate(epoch, sample)
        if step < self.whole:
            slot, rank = divmod(place % self.order.buckets[bucket].group, self.order.num_replicas)
            return rank, step, slot
        for number, last in enumerate(self.last):
            if place in last:
                slot, rank = divmod(place - last.start, self.order.num_replicas)
                return rank, self.whole + number, slot
        return None

    @property
    def begin(self) -> int:
        """Samples of the epoch that were consumed by former plans."""
        return sum(part["consumed"] for part in self.former)

    def consumed_before(self, epoch: int, step: int) -> int:
        """Samples of the epoch that all ranks are through with when a step begins."""
        if step >= self.num_steps:
            return self.begin + len(self.order)  # also where the last ones are dropped: nobody comes for them
        if step <= self.whole:
            return self.begin + (int(self.order.begins(epoch)[step]) if step else 0)
        return self.begin + len(self.order) - self.order.buckets[-1].samples + self.last[step - self.whole].start

    def step_at(self, epoch: int, consumed: int) -> int:
        """The first step that begins when so many samples of the epoch, or more, are consumed."""
        if consumed <= self.begin:
            return 0
        if consumed >= self.begin + len(self.order):
            return self.num_steps
        step = min(self.whole, int(np.searchsorted(self.order.begins(epoch), consumed - self.begin)))
        while self.consumed_before(epoch, step) < consumed:  # one of `last`
            step += 1
        return step

    def resume(self, epoch: int, parts: Sequence[Mapping[str, int]]) -> Plan:
        """The plan of what is left of an epoch. This one has all samples and today's sizes.

        Without sorting where all was consumed by this very plan up to the end of a step; else O(samples) for each part.

        Args:
            epoch: any int in [0, 2^64).
            parts: the plans that the epoch had until now, as in `former`.
        """
        ids = None
        for number, part in enumerate(parts):
            plan = self._of(ids, {name: part[name] for name in self.sizes}, parts[:number])
            consumed = plan.begin + part["consumed"]
            same = plan.sizes == self.sizes and number == len(parts) - 1
            if same and plan.consumed_before(epoch, plan.step_at(epoch, consumed)) == consumed:
                return plan
            left = plan.order.indices(epoch, part["consumed"])
            ids = left if ids is None else ids[left]
        return self._of(ids, self.sizes, parts)

    def _of(
        self, ids: npt.NDArray[np.int64] | None, sizes: Mapping[str, int], former: Sequence[Mapping[str, int]]
    ) -> Plan:
        if ids is None and sizes == self.sizes:
            return self
        all_samples = self.order
        order = LengthGrouped(
            all_samples.lengths if ids is None else all_samples.lengths[ids],
            **sizes,
            seed=all_samples.seed,
            shuffle=all_samples.shuffle,
            spread=all_samples.spread,
            min_steps=all_samples.min_steps,
        )
        return replace(self, order=order, ids=ids, former=tuple(former))

    def warn_of_empty_ranks(self) -> None:
        """Warns where a rank gets no batch, or fewer than others."""
        num_replicas = self.order.num_replicas
        if not self.num_steps:
            size = " and ".join(f"{name}={value}" for name, value in self.sizes.items() if name != "num_replicas")
            warn(
                f"no rank gets a batch: {len(self.order)} samples are too few for {num_replicas} ranks with "
                f"{size}, drop_last={self.drop_last} and uneven={self.uneven!r}",
                EmptyRankWarning,
            )
        for last in self.last:
            if len(last) < num_replicas:
                warn(
                    f"{num_replicas - len(last)} of {num_replicas} ranks get no sample in the last step, and "
                    f"a batch less than the others: {len(last)} are left and uneven={self.uneven!r}",
                    EmptyRankWarning,
                )
