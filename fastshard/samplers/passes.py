"""Passes: who is iterating over a sampler, in which epoch and from where on, and what `set_epoch` means to them.

A pass begins with its first draw, not with `iter()`, so `set_epoch` between the two is obeyed. After the first draw
the pass can't change its epoch any more: if `set_epoch` asks for another one while draws are left, the next one raises.
Draws are handed out from chunks that the core filled thousands at a time, by `itertools.chain`, so a draw costs no
Python call; `set_epoch` reaches a running pass by taking back what is left of its chunk, and how far a pass has come is
told by what is left of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import length_hint
from typing import Any, Literal, TypeVar, cast

from fastshard import _check
from fastshard._warnings import (
    EpochChangedError,
    EpochChangedWarning,
    RepeatedEpochError,
    RepeatedEpochWarning,
    warn,
)
from fastshard.cursor import Cursor
from fastshard.samplers.prefetching import Loader, drawing_loader

OnRepeatedEpoch = Literal["warn", "error", "advance", "ignore"]

T = TypeVar("T")
StateAfter = Callable[[Cursor, int], "dict[str, Any]"]


class Passes:
    """The passes over one sampler. Copies and pickles know the epoch and how often it was passed, not who runs."""

    def __init__(self) -> None:
        self._epoch = 0
        self._resumed = Cursor()  # where the epoch that was loaded last goes on
        self._asked = False  # whether set_epoch was called since, or for it
        self._unused = False  # whether set_epoch was called and no pass began since
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
        if self._fetched is not None and epoch != self._fetched.epoch:
            self._fetched.warn_if_undelivered(epoch)
            self._fetched = None
        if epoch != self._epoch:
            self._latest = None
        self._epoch = epoch
        self._asked = self._unused = True
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

    def coming_cursor(self, length: int, on_repeated_epoch: OnRepeatedEpoch) -> Cursor:
        """As next_cursor, with the advance that the next pass would make first."""
        if self._ended and on_repeated_epoch == "advance":
            return Cursor(self._epoch + 1)
        return self.next_cursor(length)

    def loaded_cursor(self, length: int) -> Cursor | None:
        """The place that was loaded last, be it the epoch's end; None if the epoch is another one by now."""
        if self._resumed.epoch != self._epoch:
            return None
        return Cursor(self._epoch, min(self._resumed.consumed, length))

    def progress(self, length: int) -> tuple[Cursor, int]:
        """Where the latest pass over the epoch began, or else the next one would, and how many items it has given."""
        latest = self._latest
        if latest is None:  # set_epoch went to another epoch, and perhaps came back
            latest = next((running for running in reversed(self._running) if running.is_over(self._epoch)), None)
        if latest is not None and latest.epoch == self._epoch:
            return latest.began, latest.given()
        return self.loaded_cursor(length) or Cursor(self._epoch), 0

    def load(self, cursor: Cursor) -> None:
        """Goes on from `cursor`. Passes that are running, from anywhere, raise EpochChangedError if they draw again."""
        what = f"load_state_dict(), to epoch {cursor.epoch} and consumed={cursor.consumed}, was called"
        if self._fetched is not None:
            self._fetched.raise_if_undelivered(what)
            self._fetched = None
        for running in self._running:
            running.overtake(what)
        # Loaders that load when iteration begins, as torchdata's, do so after the set_epoch that was meant for it.
        self._asked = self._unused = self._unused and cursor.epoch == self._epoch
        self._epoch = cursor.epoch
        self._resumed = cursor
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
        state_after: StateAfter | None = None,
        load: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Iterator[T]:
        """Returns an iterator over the items of `chunks(cursor)`.

        Args:
            chunks: called at the first draw, with the place of that moment; gives chunks with a `len` or length hint.
            length: positions in an epoch.
            reshuffles: whether another epoch would be another order; if not, repeating one is no mistake.
            on_repeated_epoch: as for DistributedSampler.
            state_after: makes the iterator a `Draws`: the state after so many items of a pass that began at a cursor.
            load: what loads such a state, and calls `load` here.
        """
        ticket = _Ticket(self, length, on_repeated_epoch if reshuffles else "ignore")
        items = self._chunks(ticket, chunks)
        if state_after is None or load is None:
            return chain.from_iterable(items)
        draws = cast("Draws[T]", Draws.from_iterable(items))
        draws.ticket, draws.state_after, draws.load = ticket, state_after, load
        return draws

    def _chunks(self, ticket: _Ticket, chunks: Callable[[Cursor], Iterable[Iterable[T]]]) -> Iterator[Iterator[T]]:
        loader = drawing_loader()
        began = ticket.loaded_place()
        over = began is not None and began.consumed >= ticket.length
        if began is None:
            # Two iterators side by side are no repetition. Two loaders' are: `it = iter(loader)` makes the new one,
            # whose workers draw at once, before it lets go of the old one.
            if self._ended or (loader and any(running.loader for running in self._running)):
                self._repeat(ticket.on_repeated_epoch)
            began = self.next_cursor(ticket.length)
        self._epoch = began.epoch
        self._unused = False
        this = self._latest = ticket.begun = _Pass(began, loader)
        self._running.append(this)
        try:
            for chunk in chunks(began):
                this.check()
                yield this.hand_out(chunk)
                while (left := this.take_back()) is not None:
                    yield this.hand_on(left)
            if loader:
                this.check()  # all is drawn, but the workers have not delivered it yet
                self._fetched = this
        finally:
            self._running.remove(this)
            if this.epoch == self._epoch and not over:
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


class Draws(chain[T]):
    """The iterator of a pass, as fast as chain, and Stateful like its sampler: its state is that of this pass.

    The sampler's is that of its latest pass. Loaders that keep the state of iterators, as torchdata's does, also ask
    one that has not drawn yet, and load one that has nothing left, to see it end.
    """

    ticket: _Ticket
    state_after: StateAfter
    load: Callable[[Mapping[str, Any]], None]

    def state_dict(self) -> dict[str, Any]:
        """As the sampler's, for this iterator: before its first draw, where it would begin."""
        return self.state_after(*self.ticket.progress())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the sampler's; and this iterator gives the rest of that epoch, even if that is nothing."""
        self.load(state)
        self.ticket.loaded = True


class _Ticket:
    """An iterator's right to one pass: where it is to begin, and the pass once it began."""

    def __init__(self, passes: Passes, length: int, on_repeated_epoch: OnRepeatedEpoch) -> None:
        self.passes, self.length, self.on_repeated_epoch = passes, length, on_repeated_epoch
        self.loaded = False
        self.begun: _Pass | None = None

    def loaded_place(self) -> Cursor | None:
        """The place that was loaded into the iterator, unless `set_epoch` has gone to another epoch since."""
        return self.passes.loaded_cursor(self.length) if self.loaded else None

    def progress(self) -> tuple[Cursor, int]:
        if self.begun is not None:
            return self.begun.began, self.begun.given()
        place = self.loaded_place()
        return (self.passes.coming_cursor(self.length, self.on_repeated_epoch) if place is None else place), 0


class _Pass:
    """One running pass: where it began, who draws, the chunk it hands out from, and whether it has been overtaken."""

    def __init__(self, began: Cursor, loader: Loader | None) -> None:
        self.began = began
        self.epoch = began.epoch
        self.loader = loader
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
            raise EpochChangedError(
                f"set_epoch({self._changed_to}) was called while a pass over epoch {self.epoch} was running, whose "
                "samples are already being drawn (a DataLoader with workers draws ahead as soon as iter() is called); "
                "call set_epoch before iter()"
            )

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
