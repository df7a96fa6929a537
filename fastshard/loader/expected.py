"""What a ledger should come to, for what a loader draws from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fastshard.ledger import Expected, RangeExpected
from fastshard.ledger.expected import PiecewiseExpected, check_parts
from fastshard.orders import Order
from fastshard.samplers.batching import Batching
from fastshard.streaming.source import StreamSource

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fastshard.cursor import Cursor
    from fastshard.loader.sources import Source
    from fastshard.samplers.prefetching import Deliveries

CHUNK = 1 << 16  # ids at a time: they stay in the cache


def expect(source: Source, began: Cursor, deliveries: Deliveries, num_samples: int) -> Expected:
    """What all ranks should draw in a pass that began there, as far as `deliveries` says that it has come."""
    if isinstance(source, Batching):
        return DrawsExpected(source, began, deliveries)
    if isinstance(source, StreamSource):
        return source.expected(began, deliveries)
    return EpochExpected(source, began, deliveries, num_samples)


class DrawsExpected(PiecewiseExpected):
    """The draws of a DistributedSampler, batch by batch: to be held against at any step.

    At the end of an epoch that has each sample once, it is the samples themselves, whatever the order makes of them.
    """

    def __init__(self, batching: Batching, began: Cursor, deliveries: Deliveries) -> None:
        order = batching.sampler.order
        self.epoch, self.start, self.num_ids = began.epoch, began.consumed, order.num_ids
        self._batching, self._began, self._deliveries = batching, began, deliveries
        self._order = order
        self.is_permutation = type(order)._position is not Order._position  # who can say where an id is

    def place(self) -> int:
        """See Expected."""
        consumed: int = self._batching.state_after(self._began, self._deliveries.count())["consumed"]
        return consumed

    def is_over(self) -> bool:
        """See Expected."""
        return self._batching.is_over(self._began, self._deliveries.count())

    def what(self) -> str:
        """See Expected."""
        return "samples" if self.is_permutation else f"draws of {self._order.name}"

    def _check_parts(self, parts: int) -> None:
        check_parts(parts, self._batching.sampler.num_replicas)

    def _pieces(self, start: int, part: int, parts: int) -> Iterator[npt.NDArray[np.int64]]:
        """The ids of one rank's part: a stretch of the epoch, from `start` to the pass or, if it is over, to the end.

        And in a pass that is not over, the rank's own draws in it. They are those of the rank of that number in the
        group, not of the sampler's: two ranks that think that they are the same one differ.
        """
        share = replace(self._batching.sampler.share(self._began.consumed), rank=part)
        reach = (share.length if self.is_over() else self.start) - start
        first, stop = (start + max(0, reach) * at // parts for at in (part, part + 1))
        for at in range(first, stop, CHUNK):
            yield self._order.indices(self.epoch, at, min(at + CHUNK, stop))
        if self.is_over():
            return
        drawn = min(self._deliveries.batches * self._batching.batch_size, self._batching.draws_in(share))
        for at in range(0, min(drawn, share.num_samples - share.num_padding), CHUNK):
            stop = min(at + CHUNK, drawn, share.num_samples - share.num_padding)
            yield share.indices(self._order, self.epoch, at, stop)


class EpochExpected(RangeExpected):
    """Every sample of a dataset once, by the end of the epoch: of a source of which no more is known."""

    def __init__(self, source: Source, began: Cursor, deliveries: Deliveries, num_samples: int) -> None:
        super().__init__(num_samples, began.epoch)
        self.start = source.start_of(began)
        self._source, self._began, self._deliveries = source, began, deliveries

    def place(self) -> int:
        """See Expected."""
        consumed: int = self._source.state_after(self._began, self._deliveries.count())["consumed"]
        return consumed

    def is_over(self) -> bool:
        """See Expected."""
        return self._source.is_over(self._began, self._deliveries.count())

    def _piece(self, start: int, part: int, parts: int) -> tuple[int, int]:
        if not self.is_over():
            raise ValueError(
                "the epoch is not over, and this sampler's can only be verified as a whole; call verify() after its "
                "last batch"
            )
        return super()._piece(start, part, parts)
