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
from typing import Any, Literal, TypeVar, cast

from fastshard import _check
from fastshard._warnings import RepeatedEpochError, RepeatedEpochWarning, warn
from fastshard.cursor import Cursor
from fastshard.samplers.one_pass import Pass
from fastshard.samplers.prefetching import drawing_loader

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
        self._latest: Pass | None = None  # the last one that began since a state was loaded
        self._loads = 0
        self._turns = 0  # calls of set_epoch and load: what began before one is no repetition after it
        self._ended = 0  # passes over this epoch that began and are over, finished or abandoned
        self._running: list[Pass] = []
        self._fetched: Pass | None = None  # the last pass that a loader's workers drew to its end
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
        self._epoch = epoch
        self._asked = self._unused = True
        self._turns += 1
        self._ended = 0

    def next_cursor(self, length: int) -> Cursor:
        """Where the next pass begins, in an epoch of `length` positions.

        An epoch that was loaded as finished is over: only who asks for it by `set_epoch` gets it, and nothing of it.
        """
        resumed, latest = self._resumed, self._latest_of_epoch()
        if self._epoch != resumed.epoch:
            return Cursor(self._epoch)
        if resumed.consumed >= length:
            return Cursor(self._epoch, length) if self._asked else Cursor(self._epoch + 1)
        # What was left of it has been seen.
        return Cursor(self._epoch) if latest is not None and latest.is_through() else resumed

    def coming_cursor(self, length: int, on_repeated_epoch: OnRepeatedEpoch) -> Cursor:
        """As next_cursor, with the advance that the next pass would make first."""
        if self._ended and self._advances(on_repeated_epoch):
            return Cursor(self._epoch + 1)
        return self.next_cursor(length)

    def _advances(self, on_repeated_epoch: OnRepeatedEpoch) -> bool:
        """Whether a repeated pass goes on to the next epoch: not if it has only been looked at what was resumed."""
        latest = self._latest_of_epoch()
        looked = latest is not None and latest.began.consumed > 0 and not latest.is_through()
        return on_repeated_epoch == "advance" and not looked

    def loaded_cursor(self, length: int) -> Cursor | None:
        """The place that was loaded last, be it the epoch's end; None if the epoch is another one by now."""
        if self._resumed.epoch != self._epoch:
            return None
        return self._resumed if self._resumed.consumed <= length else Cursor(self._epoch, length)

    def progress(self, length: int) -> tuple[Cursor, int]:
        """Where the latest pass over the epoch began, or else the next one would, and how many items it has given.

        After its end that is 2^63 - 1: who was told that nothing is left has all behind it, also where others get more.
        """
        latest = self._latest_of_epoch()
        if latest is None:
            return self._place(length), 0
        return latest.began, latest.progress()

    @property
    def latest(self) -> Pass | None:
        """The pass that began last, in whatever epoch, since a state was loaded."""
        return self._latest

    def delivered(self, handed: Pass | None, length: int) -> tuple[Cursor, int]:
        """As progress, of a pass whose items a loader counts as it hands them out."""
        if handed is None or handed.epoch != self._epoch or handed.loads != self._loads:
            return self._place(length), 0
        assert handed.deliveries is not None
        return handed.began, handed.deliveries.count()

    def _place(self, length: int) -> Cursor:
        return self.loaded_cursor(length) or Cursor(self._epoch)

    def _latest_of_epoch(self) -> Pass | None:
        latest = self._latest
        if latest is None or latest.epoch != self._epoch:  # set_epoch went to another epoch, and perhaps came back
            return next((running for running in reversed(self._running) if running.is_over(self._epoch)), None)
        return latest

    def load(self, cursor: Cursor) -> None:
        """Goes on from `cursor`. Passes that are running, from anywhere, raise EpochChangedError if they draw again."""
        what = f"load_state_dict(), to epoch {cursor.epoch} and consumed={cursor.consumed}, was called"
        if self._fetched is not None and self._fetched.deliveries is not None:
            self._fetched.deliveries.overtaken_by = what
        elif self._fetched is not None:
            self._fetched.raise_if_undelivered(what)
        self._fetched = None
        for running in self._running:
            running.overtake(what)
        # Loaders that load when iteration begins, as torchdata's, do so after the set_epoch that was meant for it.
        self._asked = self._unused = self._unused and cursor.epoch == self._epoch
        self._epoch = cursor.epoch
        self._resumed = cursor
        self._latest = None
        self._loads += 1
        self._turns += 1
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
        ticket = Ticket(self, length, on_repeated_epoch if reshuffles else "ignore")
        items = self._chunks(ticket, chunks)
        if state_after is None or load is None:
            return chain.from_iterable(items)
        draws = cast("Draws[T]", Draws.from_iterable(items))
        draws.ticket, draws.state_after, draws.load = ticket, state_after, load
        return draws

    def _chunks(self, ticket: Ticket, chunks: Callable[[Cursor], Iterable[Iterable[T]]]) -> Iterator[Iterator[T]]:
        loader = drawing_loader()
        began = ticket.loaded_place()
        over = began is not None and began.consumed >= ticket.length
        if began is None:
            # Two iterators side by side are no repetition. Two loaders' are: `it = iter(loader)` makes the new one,
            # whose workers draw at once, before it lets go of the old one.
            if self._ended or (loader and any(running.repeats(self._turns) for running in self._running)):
                self._repeat(ticket.on_repeated_epoch)
            began = self.next_cursor(ticket.length)
            if began.epoch == self._resumed.epoch and began.consumed == 0:
                self._resumed = began
        self._epoch = began.epoch
        self._unused = False
        this = self._latest = ticket.begun = Pass(began, loader, self._loads, self._turns)
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
            if this.turn == self._turns and this.epoch == self._epoch and not over:
                self._ended += 1

    def _repeat(self, on_repeated_epoch: OnRepeatedEpoch) -> None:
        what = f"another pass over epoch {self._epoch}"
        cure = "call set_epoch(epoch) before each pass"
        if on_repeated_epoch == "advance":
            self._epoch += self._advances(on_repeated_epoch)
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

    ticket: Ticket
    state_after: StateAfter
    load: Callable[[Mapping[str, Any]], None]

    def state_dict(self) -> dict[str, Any]:
        """As the sampler's, for this iterator: before its first draw, where it would begin."""
        return self.state_after(*self.ticket.progress())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the sampler's; and this iterator gives the rest of that epoch, even if that is nothing."""
        self.load(state)
        self.ticket.loaded = True


class Ticket:
    """An iterator's right to one pass: where it is to begin, and the pass once it began."""

    def __init__(self, passes: Passes, length: int, on_repeated_epoch: OnRepeatedEpoch) -> None:
        self.passes, self.length, self.on_repeated_epoch = passes, length, on_repeated_epoch
        self.loaded = False
        self.begun: Pass | None = None

    def loaded_place(self) -> Cursor | None:
        """The place that was loaded into the iterator, unless `set_epoch` has gone to another epoch since."""
        return self.passes.loaded_cursor(self.length) if self.loaded else None

    def progress(self) -> tuple[Cursor, int]:
        """As Passes.progress, of this iterator."""
        if self.begun is not None:
            return self.begun.began, self.begun.progress()
        place = self.loaded_place()
        return (self.passes.coming_cursor(self.length, self.on_repeated_epoch) if place is None else place), 0
