"""Sources: what a loader's batches come from, and what a count of batches means there.

A sampler of ours goes on by arithmetic. A stream, of which nothing is known but what it gives, is read again from its
start, and what was handed out before is thrown away.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch.distributed as dist
from torch.utils.data import BatchSampler

from fastshard import _check
from fastshard.cursor import Cursor, from_state, to_state
from fastshard.loader.alone import AloneSequential, AloneShuffled
from fastshard.samplers.batch import DistributedBatchSampler
from fastshard.samplers.batching import Batching
from fastshard.samplers.distributed import CHUNK, DistributedSampler
from fastshard.samplers.lengths import LengthBucketBatchSampler
from fastshard.samplers.passes import OnRepeatedEpoch, Passes
from fastshard.samplers.resuming import ResumingBatchSampler
from fastshard.samplers.sharded import ShardedBatchSampler, check_repeatable, has_length, part_with_epochs, parts_of

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch.utils.data import IterableDataset


class Source(Protocol):
    """What a loader counts by."""

    @property
    def passes(self) -> Passes:
        """The passes over it."""
        ...

    @property
    def length(self) -> int:
        """How much `Cursor.consumed` counts to in an epoch."""
        ...

    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """The state after so many batches of a pass that began there."""
        ...

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """Goes on from a state, or raises if it is of another run."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the passes to come."""
        ...

    def batches_from(self, began: Cursor) -> int | None:
        """Batches in a pass from there; None where only the end will tell."""
        ...

    def start_of(self, began: Cursor) -> int:
        """`consumed` where such a pass begins, as a state would say it."""
        ...

    def batches_drawn(self, items: int) -> int:
        """How many batches the items of a pass make so far."""
        ...

    def is_over(self, began: Cursor, batches: int) -> bool:
        """Whether no rank gets a batch after so many of such a pass, as far as is known."""
        ...

    def padding_in(self, began: Cursor, batch: int) -> int:
        """How many draws of that batch, its last ones, are padding."""
        ...

    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:
        """Ids that such a pass leaves out, each on one rank. Asked at its end."""
        ...


def of_indices(sampler: Any, batch_sampler: Any) -> Source | None:
    """The source behind a loader's sampler and batch sampler; None if nothing is known of them."""
    if batch_sampler is None:
        batch_sampler = sampler if isinstance(sampler, BatchSampler) else None
    if batch_sampler is None:
        ours = _sampler_of_ours(sampler)
        return None if ours is None else Batching(ours, 1, drop_last=False)
    # A subclass that gives other batches can't be counted by what the core would give.
    if isinstance(batch_sampler, ResumingBatchSampler):
        known = type(batch_sampler).__iter__ in (LengthBucketBatchSampler.__iter__, ShardedBatchSampler.__iter__)
        return batch_sampler if known else None
    if isinstance(batch_sampler, DistributedBatchSampler):
        return batch_sampler.batching if type(batch_sampler).__iter__ is DistributedBatchSampler.__iter__ else None
    if type(batch_sampler) is BatchSampler:
        ours = _sampler_of_ours(batch_sampler.sampler)
        return None if ours is None else Batching(ours, batch_sampler.batch_size, batch_sampler.drop_last)
    return None


def _sampler_of_ours(sampler: Any) -> DistributedSampler[Any] | None:
    if isinstance(sampler, AloneShuffled | AloneSequential):
        return sampler.inner
    ours = isinstance(sampler, DistributedSampler) and type(sampler).__iter__ is DistributedSampler.__iter__
    return sampler if ours else None


def world_size() -> int:
    """Ranks in the default process group; 1 if there is none."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class Replayed(abc.ABC):
    """What is known of it is what it gave: how many batches were handed out, on this rank and with these workers.

    An epoch that was iterated to its end has all positions there are consumed.

    Args:
        batch_size: samples in a batch; None if something else makes the batches.
    """

    length = _check.MAX_LENGTH

    def __init__(self, batch_size: int | None) -> None:
        self.passes = Passes()
        self._batch_size = batch_size

    @property
    @abc.abstractmethod
    def order(self) -> tuple[str, str, int | None]:
        """Name, digest and length, as in a state."""

    @abc.abstractmethod
    def set_epoch(self, epoch: int) -> None:
        """Tells whom it concerns."""

    def run(self, chunks: Callable[[Cursor], Iterable[Iterable[Any]]], *, has_epochs: bool) -> Iterator[Any]:
        """A pass. Where nobody chooses epochs, each pass is the next one, and begins at its start."""
        policy: OnRepeatedEpoch = "ignore" if has_epochs else "advance"
        return self.passes.run(chunks, length=self.length, reshuffles=True, on_repeated_epoch=policy)

    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """As Source.state_after; consumed counts this rank's batches."""
        consumed = self.length if self.is_over(began, batches) else began.consumed + batches
        return to_state(Cursor(began.epoch, consumed), self._facts(accumulation))

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """As Source.load_from."""
        cursor = from_state(state, self._facts(accumulation))
        self.passes.load(cursor)
        self.set_epoch(cursor.epoch)

    def _facts(self, accumulation: int | None) -> dict[str, Any]:
        order, digest, length = self.order
        num_replicas = world_size()
        return {
            "order": order,
            "order_digest": f"{digest}num_replicas={num_replicas}",  # of what one rank gets nothing follows for two
            "seed": None,
            "length": length,
            "uneven": None,
            "num_replicas": num_replicas,
            "batch_size": self._batch_size,
            "accumulation": accumulation,
        }

    def batches_from(self, began: Cursor) -> int | None:  # noqa: ARG002
        """As Source.batches_from."""
        return None

    def start_of(self, began: Cursor) -> int:
        """As Source.start_of."""
        return began.consumed

    def batches_drawn(self, items: int) -> int:
        """As Source.batches_drawn."""
        return items

    def is_over(self, began: Cursor, batches: int) -> bool:
        """As Source.is_over."""
        all_of_them = self.batches_from(began)
        return batches > 0 and batches >= (self.length if all_of_them is None else all_of_them)

    def padding_in(self, began: Cursor, batch: int) -> int:  # noqa: ARG002
        """As Source.padding_in."""
        return 0

    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:  # noqa: ARG002
        """As Source.dropped_in: none that is known of."""
        return np.empty(0, np.int64)


class Reread(Replayed):
    """An iterable dataset. A resumed one is read again from its start; Delivering throws away what was handed out.

    Args:
        dataset: the dataset, which is told the epoch if it has a `set_epoch`.
        item: what torch asks the dataset's iterator with, for each batch.
        batch_size: samples in a batch; None if the dataset makes the batches.
        num_workers: which has to stay as it is, because the dataset may divide itself by it.
    """

    def __init__(self, dataset: IterableDataset[Any], item: Any, batch_size: int | None, num_workers: int) -> None:
        super().__init__(batch_size)
        self._dataset, self._item, self._num_workers = dataset, item, num_workers
        self._told = False

    def is_told(self) -> bool:
        """Whether the dataset was told an epoch since this was asked."""
        told, self._told = self._told, False
        return told

    @property
    def order(self) -> tuple[str, str, int | None]:
        """As Replayed.order."""
        return f"stream/{type(self._dataset).__name__}", f"num_workers={self._num_workers}, ", None

    def set_epoch(self, epoch: int) -> None:
        """Tells the dataset."""
        if callable(getattr(self._dataset, "set_epoch", None)):
            self._dataset.set_epoch(epoch)  # type: ignore[attr-defined]
            self._told = True

    def __iter__(self) -> Iterator[Any]:
        epoch = self.passes.next_cursor(self.length).epoch
        if epoch != self.passes.epoch:  # the one that was loaded is over
            self.set_epoch(epoch)
        return self.run(self._chunks, has_epochs=callable(getattr(self._dataset, "set_epoch", None)))

    def _chunks(self, cursor: Cursor) -> Iterator[Iterable[Any]]:
        while cursor.consumed < self.length:
            yield repeat(self._item, CHUNK)


# Of samplers that are not ours: attributes of torch's, and of many after its fashion, that their order hangs on.
_TELLING = ("seed", "num_replicas", "shuffle", "drop_last", "batch_size")


class _OurEpoch(int):
    """An epoch that a state told to a sampler. Whoever calls its set_epoch afterwards leaves an int of another type."""


class Indices(Replayed):
    """A sampler or batch sampler that is not ours. A resumed one is drawn from anew; what was handed out is not read.

    Args:
        items: the sampler, which must give the same in every run, by its `epoch` if it has one.
        batch_size: samples in a batch; None if `items` are batches.
    """

    def __init__(self, items: Any, batch_size: int | None) -> None:
        super().__init__(batch_size)
        self._items = items
        self._with_epochs = part_with_epochs(items)

    @property
    def order(self) -> tuple[str, str, int | None]:
        """As Replayed.order."""
        check_repeatable(self._items)
        parts = list(parts_of(self._items))
        known = [(name, getattr(part, name, None)) for part in parts for name in _TELLING]
        digest = "".join(f"{name}={value}, " for name, value in known if isinstance(value, int))
        order = f"indices/{'/'.join(type(part).__name__ for part in parts)}"
        return order, digest, len(self._items) if has_length(self._items) else None

    def set_epoch(self, epoch: int) -> None:
        """Tells the sampler, or the one in it."""
        if self._with_epochs is not None:
            self._with_epochs.set_epoch(_OurEpoch(epoch))

    def __iter__(self) -> Iterator[Any]:
        chosen = self._chosen()
        if chosen is not None:
            self.passes.set_epoch(chosen)
        epoch = self.passes.next_cursor(self.length).epoch
        if epoch != self.passes.epoch:  # the one that was loaded is over
            self.set_epoch(epoch)
        return self.run(self._chunks, has_epochs=self._with_epochs is not None)

    def _chunks(self, cursor: Cursor) -> Iterator[Iterable[Any]]:
        if cursor.consumed < self.length:
            for item in islice(self._items, cursor.consumed, None):
                yield (item,)

    def _chosen(self) -> int | None:
        """The epoch that the training loop chose on the sampler; None if nothing there says one, or a state did."""
        epochs = (getattr(part, "epoch", None) for part in parts_of(self._with_epochs))
        chosen = next((epoch for epoch in epochs if isinstance(epoch, int)), None)
        return None if isinstance(chosen, _OurEpoch) else chosen

    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """As Replayed.state_after; before the first batch of the epoch that was chosen meanwhile."""
        chosen = self._chosen()
        if chosen is not None and chosen != began.epoch:
            began, batches = Cursor(chosen), 0
        return super().state_after(began, batches, accumulation)

    def __len__(self) -> int:
        batches = len(self._items)
        return max(0, batches - self.passes.next_cursor(self.length).consumed)

    def batches_from(self, began: Cursor) -> int | None:
        """As Source.batches_from."""
        return max(0, len(self._items) - began.consumed) if has_length(self._items) else None
