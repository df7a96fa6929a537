"""Passes: who is iterating over a sampler, in which epoch and from where on, and what `set_epoch` means to them.

A pass begins with its first draw, not with `iter()`, so `set_epoch` between the two is obeyed. After the first draw
the pass can't change its epoch any more: if `set_epoch` asks for another one while draws are left, the next one raises.
Draws are handed out from chunks that the core filled thousands at a time, by `itertools.chain`, so a draw costs no
Python call; `set_epoch` reaches a running pass by taking back what is left of its chunk, and how far a pass has come is
told by what is left of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import length_hint
from typing import Any, Literal, TypeVar

from fastshard import _check
from fastshard._warnings import (
    EpochChangedError,
    EpochChangedWarning,
    RepeatedEpochError,
    RepeatedEpochWarning,
    warn,
)
from fastshard.cursor import Cursor
from fastshard.samplers.prefetching import Deliveries, Loader, drawing_loader, epoch_changed

OnRepeatedEpoch = Literal["warn", "error", "advance", "ignore"]

T = TypeVar("T")


class Passes:
    """The passes over one sampler. Copies and pickles know the epoch and how often it was passed, not who runs."""

    def __init__(self) -> None:
        self._epoch = 0
        self._resumed = Cursor()  # where the epoch that was loaded last goes on
        self._asked = False  # whether set_epoch was called since
        self._latest: _Pass | None = None  # the last one that began
        self._ended = 0  # passes over this epoch that began and are over, finished or abandoned
        self._running: list[_Pass] = []
        self._fetched: _Pass | None = None  # the last pass that a loader's workers drew to its end
        self._warned = False

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of passes to come; running ones of another epoch raise EpochChangedError if they go on."""
        epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        for running in self._running:
            running.change_to(epoch)
        if self._fetched is not None and self._fetched.deliveries is not None:
            self._fetched.deliveries.change_to(epoch)
        elif self._fetched is not None and epoch != self._fetched.epoch:
            self._fetched.warn_if_undelivered(epoch)
            self._fetched = None
        if epoch != self._epoch:
            self._latest = None
        self._epoch = epoch
        self._asked = True
        self._ended = 0

    def next_cursor(self, length: int) -> Cursor:
        """Where the next pass begins, in an epoch of `length` positions.

        An epoch that was loaded as finished is over: only who asks for it by `set_epoch` gets it, and nothing of it.
        """
        resumed = self._resumed
        if self._epoch != resumed.epoch:
            return Cursor(self._epoch)
        if resumed.consumed < length:
            return resumed
        return Cursor(self._epoch, length) if self._asked else Cursor(self._epoch + 1)

    def progress(self, length: int) -> tuple[Cursor, int]:
        """Where the latest pass over the epoch began, or else the next one would, and how many items it has given.

        After its end that is 2^63 - 1: who was told that nothing is left has all behind it, also where others get more.
        """
        latest = self._latest_of_epoch()
        if latest is None:
            return self._place(length), 0
        return latest.began, _check.MAX_LENGTH if latest.drawn else latest.given()

    def delivered(self, length: int) -> tuple[Cursor, int]:
        """As progress, counting the batches that a loader handed out of what it drew; 0 where none counts them."""
        latest = self._latest_of_epoch()
        if latest is None:
            return self._place(length), 0
        deliveries = latest.deliveries
        if deliveries is None:
            return latest.began, 0
        return latest.began, _check.MAX_LENGTH if deliveries.ended else deliveries.batches

    def deliver_by(self, deliveries: Deliveries) -> Cursor:
        """Says who counts what is handed out of the pass that began last; returns where it began."""
        assert self._latest is not None
        self._latest.deliveries = deliveries
        deliveries.epoch = self._latest.epoch
        return self._latest.began

    def _place(self, length: int) -> Cursor:
        resumed = self._resumed
        if resumed.epoch == self._epoch:
            return Cursor(self._epoch, min(resumed.consumed, length))
        return Cursor(self._epoch)

    def _latest_of_epoch(self) -> _Pass | None:
        latest = self._latest
        if latest is None:  # set_epoch went to another epoch, and perhaps came back
            latest = next((running for running in reversed(self._running) if running.is_over(self._epoch)), None)
        return latest if latest is not None and latest.epoch == self._epoch else None

    def load(self, cursor: Cursor) -> None:
        """Goes on from `cursor`. Passes that are running, from anywhere, raise EpochChangedError if they draw again."""
        what = f"load_state_dict(), to epoch {cursor.epoch} and consumed={cursor.consumed}, was called"
        if self._fetched is not None:
            self._fetched.raise_if_undelivered(what)
            self._fetched = None
        for running in self._running:
            running.overtake(what)
        self._epoch = cursor.epoch
        self._resumed = cursor
        self._asked = False
        self._latest = None
        self._ended = 0
        self._warned = False

    def run(
        self,
        chunks: Callable[[Cursor], Iterable[Iterable[T]]],
        *,
        length: int,
        reshuffles: bool,
        on_repeated_epoch: OnRepeatedEpoch,
    ) -> Iterator[T]:
        """Returns an iterator over the items of `chunks(cursor)`.

        Args:
            chunks: called at the first draw, with the place of that moment; gives chunks with a `len` or length hint.
            length: positions in an epoch.
            reshuffles: whether another epoch would be another order; if not, repeating one is no mistake.
            on_repeated_epoch: as for DistributedSampler.
        """
        return chain.from_iterable(self._chunks(chunks, length, on_repeated_epoch if reshuffles else "ignore"))

    def _chunks(
        self, chunks: Callable[[Cursor], Iterable[Iterable[T]]], length: int, on_repeated_epoch: OnRepeatedEpoch
    ) -> Iterator[Iterator[T]]:
        loader = drawing_loader()
        # Two iterators side by side are no repetition. Two loaders' are: `it = iter(loader)` makes the new one, whose
        # workers draw at once, before it lets go of the old one.
        if self._ended or (loader and any(running.loader for running in self._running)):
            self._repeat(on_repeated_epoch)
        if self._latest is not None and self._latest.is_through():
            self._resumed = Cursor(self._epoch)  # what was left of it has been seen
        began = self.next_cursor(length)
        self._epoch = began.epoch
        this = self._latest = _Pass(began, loader)
        self._running.append(this)
        try:
            for chunk in chunks(began):
                this.check()
                yield this.hand_out(chunk)
                while (left := this.take_back()) is not None:
                    yield this.hand_on(left)
            this.drawn = True
            if loader:
                this.check()  # all is drawn, but the workers have not delivered it yet
                self._fetched = this
        finally:
            self._running.remove(this)
            if this.epoch == self._epoch:
                self._ended += 1

    def _repeat(self, on_repeated_epoch: OnRepeatedEpoch) -> None:
        what = f"another pass over epoch {self._epoch}"
        cure = "call set_epoch(epoch) before each pass"
        if on_repeated_epoch == "advance":
            self._epoch += 1
            self._ended = 0
        elif on_repeated_epoch == "error":
            raise RepeatedEpochError(f"{what} would repeat its order; {cure}")
        elif on_repeated_epoch == "warn" and not self._warned:
            warn(
                f"{what} repeats its order: each rank sees the same samples in the same order again; {cure}, "
                'or build the sampler with on_repeated_epoch="advance"',
                RepeatedEpochWarning,
            )
            self._warned = True

    def __getstate__(self) -> dict[str, Any]:
        # Of the pass that is running a copy knows the place, which is the copy's own from there on.
        latest = copy.copy(self._latest)
        if latest is not None:
            latest.settle()
        return {**self.__dict__, "_running": [], "_fetched": None, "_latest": latest}


class _Pass:
    """One running pass: where it began, who draws, the chunk it hands out from, and whether it has been overtaken."""

    def __init__(self, began: Cursor, loader: Loader | None) -> None:
        self.began = began
        self.epoch = began.epoch
        self.loader = loader
        self.deliveries: Deliveries | None = None
        self.drawn = False  # to its end
        self._chunk: Iterator[Any] = iter(())
        self._before = 0  # items in this chunk and all before it
        self._taken: list[Any] = []
        self._changed_to: int | None = None
        self._overtaken_by: str | None = None

    def hand_out(self, draws: Iterable[T]) -> Iterator[T]:
        self._chunk = iter(draws)
        self._before += length_hint(self._chunk)
        return self._chunk

    def hand_on(self, taken: Iterable[T]) -> Iterator[T]:
        self._chunk = iter(taken)
        return self._chunk

    def given(self) -> int:
        """How many items were handed out so far."""
        return self._before - length_hint(self._chunk) - len(self._taken)

    def settle(self) -> None:
        """Forgets what it hands out from, and keeps the count."""
        self._before, self._chunk, self._taken, self.loader = self.given(), iter(()), [], None
        self.deliveries = copy.copy(self.deliveries)

    def is_through(self) -> bool:
        """Whether all of it was handed out: who has only looked at a resumed epoch comes back for the rest."""
        return self.drawn if self.deliveries is None else self.deliveries.ended

    def is_over(self, epoch: int) -> bool:
        """Whether it goes on in that epoch."""
        return self.epoch == epoch and self._overtaken_by is None

    def overtake(self, by: str) -> None:
        self._overtaken_by = by
        self._taken.extend(self._chunk)

    def change_to(self, epoch: int) -> None:
        self._changed_to = None if epoch == self.epoch else epoch
        if self._changed_to is not None:
            self._taken.extend(self._chunk)  # the next draw finds nothing left, and asks take_back()

    def take_back(self) -> list[Any] | None:
        """What `change_to` took out of the chunk: to go on with if the change was taken back, else an error."""
        if not self._taken:
            return None
        self.check()
        taken, self._taken = self._taken, []
        return taken

    def check(self) -> None:
        if self._overtaken_by is not None:
            raise EpochChangedError(f"{self._overtaken_by} while a pass was running; call it before iter()")
        if self._changed_to is not None:
            raise epoch_changed(self._changed_to, self.epoch)

    def raise_if_undelivered(self, what: str) -> None:
        left = self.loader.undelivered() if self.loader else 0
        if left:
            raise EpochChangedError(
                f"{what} while a DataLoader holds {left} batches of epoch {self.epoch} that its workers have fetched "
                "and nobody has taken; call it before iter()"
            )

    def warn_if_undelivered(self, epoch: int) -> None:
        left = self.loader.undelivered() if self.loader else 0
        if left:
            warn(
                f"set_epoch({epoch}) was called while a DataLoader holds {left} batches of epoch {self.epoch} that its "
                "workers have fetched and nobody has taken; who takes them gets the former epoch's samples; "
                "call set_epoch before iter()",
                EpochChangedWarning,
            )
