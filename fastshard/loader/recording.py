"""Recording: what a loader hands out, written into a ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastshard.loader.expected import expect
from fastshard.streaming.source import StreamSource

if TYPE_CHECKING:
    from fastshard.cursor import Cursor
    from fastshard.ledger import Ledger
    from fastshard.loader.sources import Source
    from fastshard.samplers.prefetching import Deliveries


class Kept:
    """A sampler whose items are kept until they are handed out, for what comes out of a loader no longer says them."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items
        self.latest: deque[Any] = deque()

    def __iter__(self) -> Iterator[Any]:
        kept: deque[Any] = deque()
        self.latest = kept
        return self._keep(kept)

    def _keep(self, kept: deque[Any]) -> Iterator[Any]:
        for item in self._items:
            kept.append(item)
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


class Recorder:
    """Writes one pass into a ledger.

    Args:
        ledger: where to.
        source: what the loader draws from.
        kept: the indices that were drawn, in the order in which they are handed out; or what takes ids out of a batch.
        num_samples: samples in the dataset.
    """

    def __init__(
        self, ledger: Ledger, source: Source, kept: deque[Any] | Callable[[Any], Any], num_samples: int
    ) -> None:
        self._ledger, self._source, self._kept, self._num_samples = ledger, source, kept, num_samples
        self._began: Cursor | None = None
        self._batch, self._last = 0, -1
        self._has_dropped = False

    def begin(self, began: Cursor, deliveries: Deliveries) -> None:
        """Says where the pass began."""
        batches = self._source.batches_from(began)
        self._began = began
        self._last = -1 if batches is None else batches - 1
        if isinstance(self._source, StreamSource):  # which may pad more than a batch
            self._last = min(self._last, self._source.first_padded(began))
        self._ledger.begin(expect(self._source, began, deliveries, self._num_samples))

    def record(self, batch: Any) -> None:
        """Records the next batch."""
        ids, padding = self._next(batch)
        self._ledger.record(ids, padding)
        if self._batch > self._last:
            self._drop_if_over()

    def drop(self, batch: Any) -> None:
        """Records the next batch as one that nobody gets."""
        ids, padding = self._next(batch)
        self._ledger.drop(ids[: len(ids) - padding])

    def _next(self, batch: Any) -> tuple[Any, int]:
        """Ids of the next batch, and how many of them are padding."""
        ids = self._kept.popleft() if isinstance(self._kept, deque) else self._kept(batch)
        padding = 0
        if self._batch >= self._last:  # padding is at the end; where nobody knows that, it may be here
            assert self._began is not None
            padding = self._source.padding_in(self._began, self._batch)
        self._batch += 1
        return _as_ids(ids), padding

    def end(self) -> None:
        """Says that the pass has come to its end."""
        if self._began is not None and not self._has_dropped:
            self._has_dropped = True
            ids = self._source.dropped_in(self._began)
            if len(ids):
                self._ledger.drop(ids)

    def _drop_if_over(self) -> None:
        assert self._began is not None
        if self._source.is_over(self._began, self._batch):
            self.end()

    def lose(self) -> None:
        """Leaves out the next batch."""
        if isinstance(self._kept, deque):
            self._kept.popleft()
        self._batch += 1
        if self._batch > self._last:
            self._drop_if_over()


def _as_ids(indices: Any) -> Any:
    """What a sampler gave for one batch, or one sample, as a ledger takes it."""
    if isinstance(indices, np.ndarray | torch.Tensor):
        return indices.reshape(-1)
    if isinstance(indices, list):
        return indices
    return list(indices) if isinstance(indices, tuple | range) else [indices]
