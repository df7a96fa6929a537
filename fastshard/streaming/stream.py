"""Stream: an iterable dataset of a known order, that any rank and any worker can enter anywhere.

Each rank goes through its runs of the order (see Runs), cut into batches. Batch t of a pass is worker t mod K's, which
is the order in which a DataLoader takes batches from its workers: so what comes out does not depend on K, and all ranks
get as many batches.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard import _check
from fastshard._warnings import EmptyRankWarning, warn
from fastshard.cursor import Cursor
from fastshard.streaming.controlled import Controlled
from fastshard.streaming.place import Place
from fastshard.streaming.runs import Runs

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.orders import Order
    from fastshard.samplers.passes import OnRepeatedEpoch
    from fastshard.slicing import Uneven
    from fastshard.streaming.source import StreamSource

READ_AHEAD = 512  # samples whose ids are asked for at a time, and which a reader may bring into the order of the disk


class Stream(Controlled):
    """A dataset that gives the samples of an order, this rank's and this worker's of them.

    Args:
        order: over all samples.
        batch_size, uneven, rank, num_replicas, on_repeated_epoch: as for Controlled.
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
        super().__init__(batch_size, uneven, rank, num_replicas, on_repeated_epoch)
        self._order = order

    @abc.abstractmethod
    def _read(self, ids: npt.NDArray[np.int64]) -> Iterator[Any]:
        """Gives the samples with these ids, in this order."""

    @property
    def order(self) -> Order:
        """What the ranks' runs are cut from."""
        return self._order

    @property
    def length(self) -> int:
        """As Controlled.length: positions of an epoch."""
        return len(self.order)

    @property
    def _reshuffles(self) -> bool:
        return self.order.reshuffles

    def runs(self, began: Cursor) -> Runs:
        """For loaders built on this one: the runs of a pass that begins there."""
        former = began.former if isinstance(began, Place) else ()
        if began.consumed >= self.length:
            return Runs(0, self.num_replicas, self.uneven)
        return self.runs_of(self.num_replicas, former)

    def runs_of(self, num_replicas: int, former: tuple[tuple[int, int], ...]) -> Runs:
        """For loaders built on this one: the runs of so many ranks after these former worlds."""
        return Runs(self.length, num_replicas, self.uneven, former)

    def ids(self, began: Cursor, rank: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """For loaders built on this one: the ids of a rank's draws [start, stop) in a pass that began there."""
        return self.order.take(began.epoch, self.runs(began).positions(rank, start, stop))

    def __len__(self) -> int:
        """This rank's samples in the next pass."""
        return self.runs(self._passes.next_cursor(self.length)).today.draws(self.rank)

    def _pieces(self, began: Cursor, worker: int, num_workers: int) -> Iterator[tuple[int, Iterator[Any]]]:
        rank, runs = self.rank, self.runs(began)
        draws, size = runs.today.draws(rank), self.batch_size or 1
        if began.epoch < _check.MAX_EPOCH:
            self.order.prepare(began.epoch + 1)
        batches = range(worker, -(-draws // size), num_workers)
        first, together = 0, 1
        while first < len(batches):
            spans = [(batch * size, min((batch + 1) * size, draws)) for batch in batches[first : first + together]]
            positions = np.concatenate([runs.positions(rank, start, stop) for start, stop in spans])
            yield len(positions), self._read(self.order.take(began.epoch, positions))
            first += together
            together = min(2 * together, max(1, READ_AHEAD // size))  # so that the first batch need not wait for others

    def warn_of_empty_ranks(self) -> None:
        """Warns where the epoch has fewer samples than ranks, and padding does not fill them up."""
        length, num_replicas = self.length, self.num_replicas
        if self.uneven != "pad" and length < num_replicas:
            empty = num_replicas - (length if self.uneven == "keep" else 0)
            warn(
                f"{empty} of {num_replicas} ranks get no sample: there are {length} and uneven={self.uneven!r}",
                EmptyRankWarning,
            )

    def loader_source(self, batch_size: int | None, drop_last: bool) -> StreamSource:
        """As Controlled.loader_source."""
        from fastshard.streaming.source import StreamSource  # which needs the loader's modules

        return StreamSource(self, batch_size, drop_last)
