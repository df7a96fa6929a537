"""Expected: what all ranks together should draw in a pass, as a Ledger asks for it."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from fastshard import _check
from fastshard._built import _core

if TYPE_CHECKING:
    import numpy.typing as npt

# Ids that are made an array at a time: 8 MB.
CHUNK = 1 << 20


@runtime_checkable
class Expected(Protocol):
    """One pass over an epoch, and what ranks should draw in it. All ranks' must agree.

    Attributes:
        epoch: any int in [0, 2^64).
        start: position at which the pass began, that is, how many the epoch's passes before it had consumed.
        num_ids: ids are in [0, num_ids).
    """

    epoch: int
    start: int
    num_ids: int

    def fingerprint(self, start: int, part: int, parts: int) -> _core.Fingerprint:
        """Of what all ranks together should by now have drawn of the epoch from position `start` on, without padding.

        It is cut into `parts` pieces, so that each rank computes one: this is piece `part`. `start` may lie before the
        pass's own, where the ledger's account spans several passes.
        """

    def add_to(self, coverage: _core.Coverage, start: int, part: int, parts: int) -> None:
        """Adds the ids of that piece to `coverage`."""

    def place(self) -> int:
        """Position up to which this pass has come, on all ranks; of this pass also when a later one has begun."""

    def is_over(self) -> bool:
        """Whether this pass has come to the epoch's end."""

    def what(self) -> str:
        """What is counted: "samples" if each should come once at most, else such as "draws of weighted/1"."""


class PiecewiseExpected(abc.ABC):
    """What a loader's source expects, from the ids of each rank's part; subclasses give these.

    Attributes:
        is_permutation: whether a whole epoch has each id of [0, num_ids) once. Then it is held against the ids
            themselves, whatever the order makes of them.
    """

    epoch: int
    start: int
    num_ids: int
    is_permutation: bool = True

    @abc.abstractmethod
    def is_over(self) -> bool:
        """See Expected."""

    @abc.abstractmethod
    def _check_parts(self, parts: int) -> None:
        """Raises ValueError if the source is not dealt to so many ranks."""

    @abc.abstractmethod
    def _pieces(self, start: int, part: int, parts: int) -> Iterator[npt.NDArray[np.int64]]:
        """The ids of one rank's part."""

    def fingerprint(self, start: int, part: int, parts: int) -> _core.Fingerprint:
        """See Expected."""
        self._check_parts(parts)
        if self.is_permutation and start == 0 and self.is_over():
            return of_range(self.num_ids * part // parts, self.num_ids * (part + 1) // parts)
        fingerprint = _core.Fingerprint()
        for ids in self._pieces(start, part, parts):
            fingerprint.add(ids)
        return fingerprint

    def add_to(self, coverage: _core.Coverage, start: int, part: int, parts: int) -> None:
        """See Expected."""
        self._check_parts(parts)
        for ids in self._pieces(start, part, parts):
            coverage.add(ids)


def check_parts(parts: int, num_replicas: int) -> None:
    """Raises ValueError if the ledger adds up other ranks than those that the samples are dealt to."""
    if parts != num_replicas:
        raise ValueError(
            f"the samples are dealt to {num_replicas} ranks, and the ledger is asked to add up {parts}; call "
            "verify(group) with the group of those ranks"
        )


class RangeExpected:
    """An epoch that has each sample of a dataset once, in whatever order: for who calls `Ledger.begin` by hand.

    Args:
        num_samples: samples in the dataset, in [1, 2^63).
        epoch: any int in [0, 2^64).
        start: positions that were consumed before this pass, where it goes on with a loaded account.

    Attributes:
        consumed: positions of the epoch that all ranks are through with; begins as `start`. Set it before a state of
            the ledger is saved in mid-epoch, and give that number as `start` to the pass that goes on from there.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range.

    Example:
        >>> RangeExpected(10).fingerprint(0, 0, 1).count
        10
    """

    def __init__(self, num_samples: int, epoch: int = 0, *, start: int = 0) -> None:
        self.num_ids = _check.integer("num_samples", num_samples, 1, _check.MAX_LENGTH)
        self.epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        self.start = self.consumed = _check.integer("start", start, 0, self.num_ids)

    def fingerprint(self, start: int, part: int, parts: int) -> _core.Fingerprint:
        """See Expected; `start` must be 0."""
        return of_range(*self._piece(start, part, parts))

    def add_to(self, coverage: _core.Coverage, start: int, part: int, parts: int) -> None:
        """See Expected; `start` must be 0."""
        first, stop = self._piece(start, part, parts)
        for at in range(first, stop, CHUNK):
            coverage.add(np.arange(at, min(at + CHUNK, stop), dtype=np.int64))

    def place(self) -> int:
        """See Expected: `consumed`."""
        return self.consumed

    def is_over(self) -> bool:
        """True: what it expects is the whole epoch."""
        return True

    def what(self) -> str:
        """Samples."""
        return "samples"

    def _piece(self, start: int, part: int, parts: int) -> tuple[int, int]:
        if start:
            raise ValueError(
                f"RangeExpected knows a whole epoch only, and the ledger's account begins at position {start}; "
                "load the ledger's state before begin()"
            )
        return self.num_ids * part // parts, self.num_ids * (part + 1) // parts


def of_range(start: int, stop: int) -> _core.Fingerprint:
    """The fingerprint of ids start to stop - 1; the latest ones are kept, since every epoch asks for the same."""
    return _core.Fingerprint(*_sums_of_range(start, stop))


@functools.lru_cache(maxsize=64)
def _sums_of_range(start: int, stop: int) -> tuple[int, int, int]:
    fingerprint = _core.Fingerprint()
    fingerprint.add_range(start, stop)
    return fingerprint.count, fingerprint.first, fingerprint.second
