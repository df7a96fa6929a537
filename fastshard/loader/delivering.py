"""Delivering: torch's own iterator, and a count of what it has handed out.

Workers fetch ahead, so how far a sampler has been drawn from says nothing about how far training has come. Here each
batch is counted at the moment at which the loop gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from fastshard._warnings import EpochChangedError, RepeatedEpochError
from fastshard.samplers.prefetching import Deliveries

if TYPE_CHECKING:
    from fastshard.loader.recording import Recorder
    from fastshard.loader.sources import Source

_NOT_DRAWN = (EpochChangedError, RepeatedEpochError)


class Delivering(Iterator[Any]):
    """An iterator over a loader's batches.

    Args:
        batches: torch's iterator.
        source: what the batches come from.
        has_drawn: whether the pass has begun by now, because workers draw at once.
        rereads: whether a resumed pass begins with what was handed out before, to be thrown away.
        recorder: keeps account of what is handed out.
    """

    def __init__(
        self, batches: Iterator[Any], source: Source, *, has_drawn: bool, rereads: bool, recorder: Recorder | None
    ) -> None:
        self._batches = batches
        self._source = source
        self._recorder = recorder
        self._deliveries = Deliveries()
        # None is the first. A bound method of this object would be a cycle, and the workers would live until it is
        # collected, perhaps in another process.
        self._next: Callable[[], Any] | None = None
        self._skip = 0
        self._all: int | None = None  # batches in the pass
        self._rereads = rereads
        self._begun = False
        if has_drawn:
            self._begin()

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        began = self._source.passes.deliver_by(self._deliveries)
        self._all = self._source.batches_from(began)
        if self._rereads:
            self._skip = began.consumed
        if self._recorder is not None:
            self._recorder.begin(began, self._deliveries)

    def _first(self) -> Any:
        """The first batch, with which a pass without workers begins."""
        try:
            batch = next(self._batches)
        except _NOT_DRAWN:
            raise
        except BaseException:
            self._begin()
            raise
        self._begin()
        for _ in range(self._skip):
            batch = next(self._batches)
        self._next = self._batches.__next__
        return batch

    def __next__(self) -> Any:
        try:
            batch = self._first() if self._next is None else self._next()
        except StopIteration:
            self._deliveries.ended = True
            if self._recorder is not None:
                self._recorder.end()
            raise
        except Exception as error:
            self._count_lost(error)
            raise
        deliveries = self._deliveries
        if deliveries.changed_to is not None:
            deliveries.check()
        deliveries.batches += 1
        if deliveries.batches == self._all:
            deliveries.ended = True
        if self._recorder is not None:
            self._recorder.record()
        return batch

    def _count_lost(self, error: Exception) -> None:
        """A batch that could not be made is passed over: torch goes on with the one after it, and so does a resume."""
        if isinstance(error, _NOT_DRAWN) or self._rereads:
            return
        received = getattr(self._batches, "_rcvd_idx", None)  # by torch, from workers
        if received is None or received > self._deliveries.batches:
            self._deliveries.batches += 1
            self._deliveries.ended = self._deliveries.batches == self._all
            if self._recorder is not None:
                self._recorder.lose()

    def supersede(self) -> None:
        """Says that the workers have gone on to another pass."""
        self._next = _superseded

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":  # a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._batches, name)


def _superseded() -> NoReturn:
    raise RuntimeError("a later iter() of this loader has taken its persistent workers; only that one goes on")
