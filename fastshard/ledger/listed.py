"""ListedExpected: a pass that gives each of some listed ids once, where ids are hashes and no numbers from 0 on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fastshard import _check
from fastshard.ledger.expected import PiecewiseExpected

if TYPE_CHECKING:
    import numpy.typing as npt


class ListedExpected(PiecewiseExpected):
    """A pass that has each of these ids once: for who calls `Ledger.begin` by hand. Every rank lists all of them.

    A Ledger(exact=True) counts by id, from 0 on, so it has no room for ids that are hashes.

    Args:
        ids: 1-D, ints in [0, 2^63 - 1), such as webdataset.hashed_ids makes; each is a sample. In any order, which must
            be the same on all ranks.
        epoch: any int in [0, 2^64).

    Raises:
        TypeError, ValueError, IndexError: an argument is of the wrong type or out of its range, or an id is listed
            twice.

    Example:
        >>> from fastshard import Ledger
        >>> ledger = Ledger()
        >>> ledger.begin(ListedExpected([2**60, 7, 12345]))
        >>> ledger.record([7, 12345, 2**60])
        >>> str(ledger.verify())
        'every one of the 3 samples of a list exactly once, 0 padded draws'
    """

    is_permutation = False

    def __init__(self, ids: npt.ArrayLike, epoch: int = 0) -> None:
        self._ids = _check.positions("ids", ids, _check.MAX_LENGTH).astype(np.int64)
        in_order = np.sort(self._ids)
        twice = in_order[1:][in_order[1:] == in_order[:-1]]
        if len(twice):
            raise ValueError(f"ids must be of different samples, got {twice[0]} twice")
        self.num_ids = _check.MAX_LENGTH
        self.epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        self.start = 0

    def place(self) -> int:
        """See Expected: the pass is expected to be over."""
        return len(self._ids)

    def is_over(self) -> bool:
        """True: what it expects is the whole pass."""
        return True

    def what(self) -> str:
        """Samples."""
        return "samples of a list"

    def _check_parts(self, parts: int) -> None:
        pass  # it belongs to no world size

    def _pieces(self, start: int, part: int, parts: int) -> Iterator[npt.NDArray[np.int64]]:
        if start:
            raise ValueError(f"ListedExpected knows a whole pass only, and the ledger's account begins at {start}")
        count = len(self._ids)
        yield self._ids[count * part // parts : count * (part + 1) // parts]
