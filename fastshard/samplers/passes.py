"""Passes: who is iterating over a sampler, in which epoch, and what `set_epoch` means to them.

A pass begins with its first draw, not with `iter()`, so `set_epoch` between the two is obeyed. After the first draw
the pass can't change its epoch any more: if `set_epoch` asks for another one while draws are left, the next one raises.
Draws are handed out from chunks that the core filled thousands at a time, by `itertools.chain`, so a draw costs no
Python call; `set_epoch` reaches a running pass by taking back what is left of its chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Literal, TypeVar

from fastshard import _check
from fastshard._warnings import (
    EpochChangedError,
    EpochChangedWarning,
    RepeatedEpochError,
    RepeatedEpochWarning,
    warn,
)
from fastshard.samplers.prefetching import Loader, drawing_loader

OnRepeatedEpoch = Literal["warn", "error", "advance", "ignore"]

T = TypeVar("T")


class Passes:
    """The passes over one sampler. Copies and pickles know the epoch and how often it was passed, not who runs."""

    def __init__(self) -> None:
        self._epoch = 0
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
        self._epoch = epoch
        self._ended = 0

    def run(
        self, chunks: Callable[[int], Iterable[Iterable[T]]], *, reshuffles: bool, on_repeated_epoch: OnRepeatedEpoch
    ) -> Iterator[T]:
        """Returns an iterator over the items of `chunks(epoch)`.

        Args:
            chunks: called at the first draw, with the epoch of that moment.
            reshuffles: whether another epoch would be another order; if not, repeating one is no mistake.
            on_repeated_epoch: as for DistributedSampler.
        """
        return chain.from_iterable(self._chunks(chunks, on_repeated_epoch if reshuffles else "ignore"))

    def _chunks(
        self, chunks: Callable[[int], Iterable[Iterable[T]]], on_repeated_epoch: OnRepeatedEpoch
    ) -> Iterator[Iterator[T]]:
        loader = drawing_loader()
        # Two iterators side by side are no repetition. Two loaders' are: `it = iter(loader)` makes the new one, whose
        # workers draw at once, before it lets go of the old one.
        if self._ended or (loader and any(running.loader for running in self._running)):
            self._repeat(on_repeated_epoch)
        this = _Pass(self._epoch, loader)
        self._running.append(this)
        try:
            for chunk in chunks(this.epoch):
                this.check()
                left: Iterable[T] | None = chunk
                while left is not None:
                    yield this.hand_out(left)
                    left = this.take_back()
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
        return {**self.__dict__, "_running": [], "_fetched": None}


class _Pass:
    """One running pass: its epoch, who draws, the chunk it hands out from, and whether it has been overtaken."""

    def __init__(self, epoch: int, loader: Loader | None) -> None:
        self.epoch = epoch
        self.loader = loader
        self._chunk: Iterator[Any] = iter(())
        self._taken: list[Any] = []
        self._changed_to: int | None = None

    def hand_out(self, draws: Iterable[T]) -> Iterator[T]:
        self._chunk = iter(draws)
        return self._chunk

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
        if self._changed_to is not None:
            raise EpochChangedError(
                f"set_epoch({self._changed_to}) was called while a pass over epoch {self.epoch} was running, whose "
                "samples are already being drawn (a DataLoader with workers draws ahead as soon as iter() is called); "
                "call set_epoch before iter()"
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
