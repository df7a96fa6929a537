"""Passes: who is iterating over a sampler, in which epoch, and what `set_epoch` means to them.

A pass begins with its first draw, not with `iter()`, so `set_epoch` between the two is obeyed. After the first draw
the pass can't change its epoch any more: if `set_epoch` asks for another one, the pass raises at its next draw.
Draws are handed out from chunks that the core filled thousands at a time, by `itertools.chain`, so a draw costs no
Python call; `set_epoch` reaches a running pass by emptying its chunk.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Literal, Protocol, TypeVar

from fastshard import _check
from fastshard._warnings import EpochChangedError, RepeatedEpochError, RepeatedEpochWarning

OnRepeatedEpoch = Literal["warn", "error", "advance", "ignore"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Chunk(Protocol[T_co]):
    """Draws that are ready to be handed out: a list of batches, or the core's `Ids`."""

    def __iter__(self) -> Iterator[T_co]:
        """Hands them out."""

    def clear(self) -> None:
        """Forgets the rest, also for iterators that are under way."""


class Passes:
    """The passes over one sampler. Copies and pickles know the epoch and how often it was passed, not who runs."""

    def __init__(self, on_repeated_epoch: OnRepeatedEpoch) -> None:
        self.on_repeated_epoch = on_repeated_epoch
        self._epoch = 0
        self._ended = 0  # passes over this epoch that began and are over, finished or abandoned
        self._running: list[_Pass] = []
        self._warned = False

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of passes to come; running ones of another epoch will raise EpochChangedError."""
        epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        for running in self._running:
            running.change_to(epoch)
        self._epoch = epoch
        self._ended = 0

    def run(self, chunks: Callable[[int], Iterable[Chunk[T]]], *, reshuffles: bool) -> Iterator[T]:
        """Returns an iterator over the items of `chunks(epoch)`.

        Args:
            chunks: called at the first draw, with the epoch of that moment; gives chunks that nobody else holds.
            reshuffles: whether another epoch would be another order; if not, repeating one is no mistake.
        """
        return chain.from_iterable(self._chunks(chunks, reshuffles))

    def _chunks(self, chunks: Callable[[int], Iterable[Chunk[T]]], reshuffles: bool) -> Iterator[Chunk[T]]:
        if self._ended and reshuffles:
            self._repeat()
        this = _Pass(self._epoch)
        self._running.append(this)
        try:
            for chunk in chunks(this.epoch):
                this.chunk = chunk
                yield chunk
                this.check()
        finally:
            self._running.remove(this)
            if this.epoch == self._epoch:
                self._ended += 1

    def _repeat(self) -> None:
        what = f"pass {self._ended + 1} over epoch {self._epoch}"
        cure = "call set_epoch(epoch) before each pass"
        if self.on_repeated_epoch == "advance":
            self._epoch += 1
            self._ended = 0
        elif self.on_repeated_epoch == "error":
            raise RepeatedEpochError(f"{what} would repeat its order; {cure}")
        elif self.on_repeated_epoch == "warn" and not self._warned:
            self._warned = True
            warnings.warn(
                f"{what} repeats its order: each rank sees the same samples in the same order again; {cure}, "
                'or build the sampler with on_repeated_epoch="advance"',
                RepeatedEpochWarning,
                stacklevel=3,
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": []}


class _Pass:
    """One running pass: its epoch, the chunk it hands out from, and whether it has been overtaken."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.chunk: Chunk[Any] = []
        self._changed_to: int | None = None

    def change_to(self, epoch: int) -> None:
        self._changed_to = None if epoch == self.epoch else epoch
        if self._changed_to is not None:
            self.chunk.clear()  # the next draw finds nothing left, and comes to check()

    def check(self) -> None:
        if self._changed_to is not None:
            raise EpochChangedError(
                f"set_epoch({self._changed_to}) was called while a pass over epoch {self.epoch} was running, whose "
                "samples are already being drawn (a DataLoader with workers draws ahead as soon as iter() is called); "
                "call set_epoch before iter()"
            )
