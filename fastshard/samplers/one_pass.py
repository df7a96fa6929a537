"""Pass: one iterator's way through an epoch, and what changes of the epoch mean to it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from operator import length_hint
from typing import Any, TypeVar

from fastshard import _check
from fastshard._warnings import EpochChangedError, EpochChangedWarning, warn
from fastshard.cursor import Cursor
from fastshard.samplers.prefetching import Deliveries, Loader, epoch_changed, overtaken

T = TypeVar("T")


class Pass:
    """One running pass: where it began, who draws, the chunk it hands out from, and whether it has been overtaken."""

    def __init__(self, began: Cursor, loader: Loader | None, loads: int, turn: int) -> None:
        self.began = began
        self.loads = loads  # states that were loaded before it began
        self.turn = turn  # calls of set_epoch and load before it began
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
        """The next chunk, as it is counted."""
        self._chunk = iter(draws)
        self._before += length_hint(self._chunk)
        return self._chunk

    def hand_on(self, taken: Iterable[T]) -> Iterator[T]:
        """What was taken back of a chunk, which was counted before."""
        self._chunk = iter(taken)
        return self._chunk

    def progress(self) -> int:
        """As given; after the end 2^63 - 1."""
        return _check.MAX_LENGTH if self.drawn else self.given()

    def given(self) -> int:
        """How many items were handed out so far."""
        return self._before - length_hint(self._chunk) - len(self._taken)

    def settle(self) -> None:
        """Forgets what it hands out from, and keeps the count."""
        self._before, self._chunk, self._taken, self.loader = self.given(), iter(()), [], None
        self.deliveries = copy.copy(self.deliveries)

    def repeats(self, turn: int) -> bool:
        """Whether a loader with workers draws in it, so that another one's pass in the same turn is a repetition."""
        return self.loader is not None and self.turn == turn

    def is_through(self) -> bool:
        """Whether all of it was handed out: who has only looked at a resumed epoch comes back for the rest."""
        return self.drawn if self.deliveries is None else self.deliveries.ended

    def is_over(self, epoch: int) -> bool:
        """Whether it goes on in that epoch."""
        return self.epoch == epoch and self._overtaken_by is None

    def overtake(self, by: str) -> None:
        """Says that another place was loaded: the next draw raises."""
        self._overtaken_by = by
        self._taken.extend(self._chunk)

    def change_to(self, epoch: int) -> None:
        """Says which epoch `set_epoch` asks for: if it is another one, the next draw raises."""
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
        """Raises EpochChangedError if the pass is not to go on."""
        if self._overtaken_by is not None:
            raise overtaken(self._overtaken_by)
        if self._changed_to is not None:
            raise epoch_changed(self._changed_to, self.epoch)

    def raise_if_undelivered(self, what: str) -> None:
        """Raises EpochChangedError if a torch loader holds batches of it."""
        left = self.loader.undelivered() if self.loader else 0
        if left:
            raise EpochChangedError(
                f"{what} while a DataLoader holds {left} batches of epoch {self.epoch} that its workers have fetched "
                "and nobody has taken; call it before iter()"
            )

    def warn_if_undelivered(self, epoch: int) -> None:
        """Warns of a `set_epoch` that comes while a torch loader holds batches of it."""
        left = self.loader.undelivered() if self.loader else 0
        if left:
            warn(
                f"set_epoch({epoch}) was called while a DataLoader holds {left} batches of epoch {self.epoch} that its "
                "workers have fetched and nobody has taken; who takes them gets the former epoch's samples; "
                "call set_epoch before iter()",
                EpochChangedWarning,
            )
