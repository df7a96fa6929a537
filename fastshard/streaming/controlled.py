"""Controlled: iterable datasets whose workers are told by the main process where a pass begins."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from torch.utils.data import IterableDataset, get_worker_info

from fastshard import _check
from fastshard.cursor import Cursor
from fastshard.samplers.epochs import WithEpochs
from fastshard.samplers.passes import OnRepeatedEpoch, Passes
from fastshard.slicing import Uneven
from fastshard.streaming import guards, ranks
from fastshard.streaming.control import Control

if TYPE_CHECKING:
    from fastshard.streaming.source import BatchSource


class Controlled(WithEpochs, IterableDataset[Any], abc.ABC):
    """An iterable dataset that is split over ranks and workers, and goes on where it was stopped.

    Args:
        batch_size: samples per batch, that of the loader; None where the loader makes no batches and hands out samples.
        uneven: as for Slice.
        rank, num_replicas: this rank and the number of ranks; None asks the process group, or the environment, when a
            pass begins.
        on_repeated_epoch: as for DistributedSampler; in a loop over the dataset itself, or in fastshard.DataLoader.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range.
    """

    def __init__(
        self,
        batch_size: int | None,
        uneven: Uneven,
        rank: int | None,
        num_replicas: int | None,
        on_repeated_epoch: OnRepeatedEpoch,
    ) -> None:
        self.batch_size = None if batch_size is None else _check.integer("batch_size", batch_size, 1, _check.MAX_LENGTH)
        self.uneven: Uneven = _check.one_of("uneven", uneven, get_args(Uneven))
        self.on_repeated_epoch = _check.one_of("on_repeated_epoch", on_repeated_epoch, get_args(OnRepeatedEpoch))
        self._given = (rank, num_replicas)
        if rank is not None and num_replicas is not None:
            ranks.find(rank, num_replicas)
        self._passes = Passes()
        self._control = Control()
        self._is_driven = False  # whether a loader of ours says when a pass begins

    @property
    @abc.abstractmethod
    def length(self) -> int:
        """For loaders built on this one: where a cursor's `consumed` counts as finished."""

    @property
    @abc.abstractmethod
    def _reshuffles(self) -> bool:
        """Whether epochs differ."""

    @abc.abstractmethod
    def _pieces(self, began: Cursor, worker: int, num_workers: int) -> Iterator[tuple[int, Iterator[Any]]]:
        """The samples of a worker's batches in a pass from there, in pieces, of which it is known how many they are."""

    @abc.abstractmethod
    def loader_source(self, batch_size: int | None, drop_last: bool) -> BatchSource:
        """For loaders built on this one: what they count by.

        Raises:
            ValueError: the loader makes batches of another size.
        """

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
        self._check_not_split_again(1)  # a loader of accelerate's says it on all ranks, and draws on the first alone
        super().set_epoch(epoch)
        self._control.write(self._passes.next_cursor(self.length))

    def __iter__(self) -> Iterator[Any]:
        """This rank's samples; in a loader's worker, those of the worker's batches."""
        if get_worker_info() is not None or self._is_driven:
            return self._controlled()
        return self._passes.run(
            self._alone,
            length=self.length,
            reshuffles=self._reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
        )

    def _controlled(self) -> Iterator[Any]:
        """A pass whose place the main process says. A generator, so that it is read when the first sample is wanted."""
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        self._check_not_split_again(workers)
        for _, samples in self._pieces(self._control.read(), number, workers):
            yield from samples

    def _alone(self, began: Cursor) -> Iterator[Iterable[Any]]:
        self._check_not_split_again(1)
        return (_Counted(samples, count) for count, samples in self._pieces(began, 0, 1))

    def _check_not_split_again(self, num_workers: int) -> None:
        over = (guards.RANKS, guards.WORKERS)
        what = f"a {type(self).__name__}"
        guards.check_not_split_again(what, over, self.num_replicas, num_workers, "rank=0, num_replicas=1")

    def state_dict(self) -> dict[str, Any]:
        """As DistributedSampler.state_dict; counts what a loop over the dataset itself was given."""
        return self._source().state_after_draws(*self._passes.progress(self.length))

    def state_at(self, batches: int) -> dict[str, Any]:
        """As DistributedBatchSampler.state_at: for loaders that are not fastshard's, whose workers read ahead."""
        began, _ = self._passes.progress(self.length)
        return self._source().state_after(began, _check.integer("batches", batches, 0, _check.MAX_LENGTH))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As DistributedSampler.load_state_dict, at any number of ranks and workers."""
        self._source().load_from(state)

    def _source(self) -> BatchSource:
        return self.loader_source(self.batch_size, False)

    def go_on(self, place: Cursor) -> None:
        """For loaders built on this one: goes on from a place that was loaded."""
        self._passes.load(place)
        self._control.write(self._passes.next_cursor(self.length))

    def drive(self, chunks: Callable[[Cursor], Iterable[Iterable[Any]]]) -> Iterator[Any]:
        """For loaders built on this one: a pass that they draw requests for; its place is said to the workers."""

        def begin(cursor: Cursor) -> Iterable[Iterable[Any]]:
            self._control.write(cursor)
            return chunks(cursor)

        return self._passes.run(
            begin,
            length=self.length,
            reshuffles=self._reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
        )

    def driven(self, driven: bool) -> None:
        """For loaders built on this one: whether the iterator that is made next is theirs."""
        self._is_driven = driven

    def __getstate__(self) -> dict[str, Any]:
        # A worker that is spawned knows no process group, and who draws from it is not on its stack.
        self._check_not_split_again(1)
        return {**self.__dict__, "_given": ranks.to_send(*self._given)}


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
