"""Delivering: torch's own iterator, and a count of what it has handed out.

Workers fetch ahead, so how far a sampler has been drawn from says nothing about how far training has come. Here each
batch is counted at the moment at which the loop gets it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from fastshard._warnings import EpochChangedError
from fastshard.samplers.prefetching import Deliveries

if TYPE_CHECKING:
    from fastshard.loader.recording import Recorder
    from fastshard.loader.sources import Source
    from fastshard.samplers.one_pass import Pass


@dataclass
class Handed:
    """A loader's latest pass that has begun: the loader's own, whoever else draws from its sampler.

    Args:
        source: what its batches come from.
        which: the pass; None as long as none has begun.
    """

    source: Source
    which: Pass | None = None

    def __getstate__(self) -> dict[str, Any]:
        which = copy.copy(self.which)  # a copy has the place, and does not go on with the original
        if which is not None:
            which.settle()
        return {**self.__dict__, "which": which}


class Delivering(Iterator[Any]):
    """An iterator over a loader's batches.

    Args:
        batches: torch's iterator.
        source: what the batches come from.
        handed: where to say which pass has begun.
        before: the source's latest pass before this one.
        has_drawn: whether the pass has begun by now, because workers draw at once.
        rereads: whether a resumed pass begins with what was handed out before, to be thrown away.
        recorder: keeps account of what is handed out.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        source: Source,
        handed: Handed,
        before: Pass | None,
        *,
        has_drawn: bool,
        rereads: bool,
        recorder: Recorder | None,
    ) -> None:
        self._batches = batches
        self._source, self._handed, self._before = source, handed, before
        self._recorder = recorder
        self._deliveries = Deliveries()
        # None is the first. A bound method of this object would be a cycle, and the workers would live until it is
        # collected, perhaps in another process.
        self._next: Callable[[], Any] | None = None
        self._pass: Pass | None = None
        self._all: int | None = None  # batches in the pass, if other ranks get no more
        self._skip = 0
        self._rereads = rereads
        if has_drawn:
            self._begin()

    def _begin(self) -> None:
        latest = self._source.passes.latest
        if latest is None or latest is self._before:  # an error came before the first draw
            return
        latest.deliveries = self._deliveries
        self._deliveries.epoch = latest.epoch
        self._pass = self._handed.which = latest
        self._handed.source = self._source
        batches = self._source.batches_from(latest.began)
        if batches is not None and self._source.is_over(latest.began, batches):
            self._all = batches
        if self._rereads:
            self._skip = latest.began.consumed
        if self._recorder is not None:
            self._recorder.begin(latest.began, self._deliveries)

    def _first(self) -> Any:
        """The first batch, with which a pass without workers begins."""
        try:
            batch = next(self._batches)
        finally:
            if self._pass is None:
                self._begin()
        while self._skip:
            self._skip -= 1
            batch = next(self._batches)
        self._next = self._batches.__next__
        return batch

    def __next__(self) -> Any:
        try:
            batch = self.fetch()
        except StopIteration:
            self.end()
            raise
        self.give(batch)
        return batch

    @property
    def deliveries(self) -> Deliveries:
        """What was handed out so far."""
        return self._deliveries

    def fetch(self) -> Any:
        """The next batch, which is not counted before `give`. Who fetches ahead gives in the same order."""
        try:
            batch = self._first() if self._next is None else self._next()
            if self._deliveries.changed_to is not None or self._deliveries.overtaken_by is not None:
                self._deliveries.check()
        except StopIteration:
            raise
        except EpochChangedError as error:
            self._next = partial(_raise_again, str(error))  # the sampler's iterator is at its end; the pass is not
            raise
        except BaseException:
            self._count_lost()
            raise
        return batch

    def give(self, batch: Any) -> None:
        """Counts a batch that was fetched as handed out."""
        deliveries = self._deliveries
        deliveries.batches += 1
        if deliveries.batches == self._all:
            deliveries.ended = True
        if self._handed.which is not self._pass:  # another iterator has had a look meanwhile
            self._handed.source, self._handed.which = self._source, self._pass
        if self._recorder is not None:
            self._recorder.record(batch)

    def end(self, left: Any = None) -> None:
        """Says that the pass is over.

        Args:
            left: a batch that was fetched and that nobody gets; None if there is none.
        """
        self._deliveries.ended = True
        if self._recorder is not None:
            if left is not None:
                self._recorder.drop(left)
            self._recorder.end()

    def _count_lost(self) -> None:
        """A batch that could not be made is passed over: torch goes on with the one after it, and so does a resume."""
        if self._pass is None or self._rereads:
            return
        gone = getattr(self._batches, "_rcvd_idx", None)  # torch's own count of what came from workers
        if gone is None:
            gone = self._source.batches_drawn(self._pass.given())
        while self._deliveries.batches < gone:
            self._deliveries.batches += 1
            if self._recorder is not None:
                self._recorder.lose()
        self._deliveries.ended = self._deliveries.batches == self._all

    def supersede(self) -> None:
        """Says that the workers have gone on to another pass."""
        self._next = _superseded

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":  # a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._batches, name)


def _raise_again(message: str) -> NoReturn:
    raise EpochChangedError(message)


def _superseded() -> NoReturn:
    raise RuntimeError("a later iter() of this loader has taken its persistent workers; only that one goes on")
