"""Stream: an iterable dataset that any rank and any worker can enter anywhere.

Each rank goes through its runs of the order (see Runs), cut into batches. Batch t of a pass is worker t mod K's, which
is the order in which a DataLoader takes batches from its workers: so what comes out does not depend on K, and all ranks
get as many batches.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from fastshard import _check
from fastshard._warnings import EmptyRankWarning, warn
from fastshard.cursor import Cursor
from fastshard.samplers.epochs import WithEpochs
from fastshard.samplers.passes import OnRepeatedEpoch, Passes
from fastshard.slicing import Uneven
from fastshard.streaming import ranks
from fastshard.streaming.control import Control
from fastshard.streaming.place import Place
from fastshard.streaming.runs import Runs

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.orders import Order
    from fastshard.streaming.source import StreamSource

READ_AHEAD = 512  # samples whose ids are asked for at a time, and which a reader may bring into the order of the disk


class Stream(WithEpochs, IterableDataset[Any], abc.ABC):
    """A dataset that gives the samples of an order, this rank's and this worker's of them.

    Args:
        order: over all samples.
        batch_size: samples per batch, that of the loader; None where the loader makes no batches and hands out samples.
        uneven: as for Slice.
        rank, num_replicas: this rank and the number of ranks; None asks the process group, or the environment, when a
            pass begins.
        on_repeated_epoch: as for DistributedSampler; in a loop over the dataset itself, or in fastshard.DataLoader.
    """

    def __init__(
        self,
        order: Order,
        batch_size: int | None,
        uneven: Uneven,
        rank: int | None,
        num_replicas: int | None,
        on_repeated_epoch: OnRepeatedEpoch,
    ) -> None:
        self.order = order
        self.batch_size = None if batch_size is None else _check.integer("batch_size", batch_size, 1, _check.MAX_LENGTH)
        self.uneven: Uneven = _check.one_of("uneven", uneven, get_args(Uneven))
        self.on_repeated_epoch = _check.one_of("on_repeated_epoch", on_repeated_epoch, get_args(OnRepeatedEpoch))
        self._given = (rank, num_replicas)
        if rank is not None and num_replicas is not None:
            ranks.find(rank, num_replicas)
        self._passes = Passes()
        self._control = Control()
        self._is_driven = False  # whether a loader of ours says when a pass begins

    @abc.abstractmethod
    def _read(self, ids: npt.NDArray[np.int64]) -> Iterator[Any]:
        """Gives the samples with these ids, in this order."""

    @property
    def rank(self) -> int:
        """This rank."""
        return ranks.find(*self._given)[0]

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return ranks.find(*self._given)[1]

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler.set_epoch. It reaches workers that are running, before their next pass."""
        self._passes.set_epoch(epoch)
        self._control.write(self._passes.next_cursor(len(self.order)))

    def runs(self, began: Cursor) -> Runs:
        """For loaders built on this one: the runs of a pass that begins there."""
        former = began.former if isinstance(began, Place) else ()
        length = len(self.order)
        if began.consumed >= length:
            return Runs(0, self.num_replicas, self.uneven)
        return Runs(length, self.num_replicas, self.uneven, former)

    def ids(self, began: Cursor, rank: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """For loaders built on this one: the ids of a rank's draws [start, stop) in a pass that began there."""
        return self.order.take(began.epoch, self.runs(began).positions(rank, start, stop))

    def __len__(self) -> int:
        """This rank's samples in the next pass."""
        return self.runs(self._passes.next_cursor(len(self.order))).today.draws(self.rank)

    def __iter__(self) -> Iterator[Any]:
        """This rank's samples; in a loader's worker, those of the worker's batches."""
        if get_worker_info() is not None or self._is_driven:
            return self._controlled()
        return self._passes.run(
            self._alone,
            length=len(self.order),
            reshuffles=self.order.reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
        )

    def _controlled(self) -> Iterator[Any]:
        """A pass whose place the main process says. A generator, so that it is read when the first sample is wanted."""
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for ids in self._pieces(self._control.read(), number, workers):
            yield from self._read(ids)

    def _alone(self, began: Cursor) -> Iterator[Iterable[Any]]:
        for ids in self._pieces(began, 0, 1):
            yield _Counted(self._read(ids), len(ids))

    def _pieces(self, began: Cursor, worker: int, num_workers: int) -> Iterator[npt.NDArray[np.int64]]:
        """The ids of a worker's batches, several batches at a time."""
        rank, runs = self.rank, self.runs(began)
        draws, size = runs.today.draws(rank), self.batch_size or 1
        if began.epoch < _check.MAX_EPOCH:
            self.order.prepare(began.epoch + 1)
        together = max(1, READ_AHEAD // size)
        batches = range(worker, -(-draws // size), num_workers)
        for first in range(0, len(batches), together):
            spans = [(batch * size, min((batch + 1) * size, draws)) for batch in batches[first : first + together]]
            positions = [runs.positions(rank, start, stop) for start, stop in spans]
            yield self.order.take(began.epoch, np.concatenate(positions))

    def warn_of_empty_ranks(self) -> None:
        """Warns where the epoch has fewer samples than ranks, and padding does not fill them up."""
        length, num_replicas = len(self.order), self.num_replicas
        if self.uneven != "pad" and length < num_replicas:
            empty = num_replicas - (length if self.uneven == "keep" else 0)
            warn(
                f"{empty} of {num_replicas} ranks get no sample: there are {length} and uneven={self.uneven!r}",
                EmptyRankWarning,
            )

    def loader_source(self, batch_size: int | None, drop_last: bool) -> StreamSource:
        """For loaders built on this one: what they count by.

        Raises:
            ValueError: the loader makes batches of another size.
        """
        from fastshard.streaming.source import StreamSource  # which needs the loader's modules

        return StreamSource(self, batch_size, drop_last)

    def state_dict(self) -> dict[str, Any]:
        """As DistributedSampler.state_dict; counts what a loop over the dataset itself was given."""
        began, items = self._passes.progress(len(self.order))
        return self._source().state_after_draws(began, items)

    def state_at(self, batches: int) -> dict[str, Any]:
        """As DistributedBatchSampler.state_at: for loaders that are not fastshard's, whose workers read ahead."""
        began, _ = self._passes.progress(len(self.order))
        return self._source().state_after(began, _check.integer("batches", batches, 0, _check.MAX_LENGTH))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As DistributedSampler.load_state_dict, at any number of ranks and workers."""
        self._source().load_from(state)

    def go_on(self, place: Place) -> None:
        """For loaders built on this one: goes on from a place that was loaded."""
        self._passes.load(place)
        self._control.write(self._passes.next_cursor(len(self.order)))

    def drive(self, chunks: Callable[[Cursor], Iterable[Iterable[Any]]]) -> Iterator[Any]:
        """For loaders built on this one: a pass that they draw requests for; its place is said to the workers."""

        def begin(cursor: Cursor) -> Iterable[Iterable[Any]]:
            self._control.write(cursor)
            return chunks(cursor)

        return self._passes.run(
            begin,
            length=len(self.order),
            reshuffles=self.order.reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
        )

    def driven(self, driven: bool) -> None:
        """For loaders built on this one: whether the iterator that is made next is theirs."""
        self._is_driven = driven

    def _source(self) -> StreamSource:
        from fastshard.streaming.source import StreamSource

        return StreamSource(self, self.batch_size, False)

    def __getstate__(self) -> dict[str, Any]:
        # A worker that is spawned knows no process group.
        return {**self.__dict__, "_given": ranks.find(*self._given)}


class _Counted:
    """An iterator that knows how many it has left."""

    def __init__(self, items: Iterator[Any], count: int) -> None:
        self._items, self._left = items, count

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self._items)
        self._left -= 1
        return item

    def __length_hint__(self) -> int:
        return self._left
