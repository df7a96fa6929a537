"""Warning and error classes, one for each suspicious situation, so that each can be filtered alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence


class EmptyRankWarning(UserWarning):
    """At least one rank has no sample: it would train on nothing while the others wait for it in their collectives."""


class RepeatedEpochWarning(UserWarning):
    """A second pass over one epoch: every sample comes in the same order again, on the same rank again."""


class RepeatedEpochError(RuntimeError):
    """As RepeatedEpochWarning, where the sampler was built with on_repeated_epoch="error"."""


class EpochChangedError(RuntimeError):
    """The epoch was changed while a pass over the former one was running."""


class EpochChangedWarning(UserWarning):
    """The epoch was changed while a DataLoader held batches of the former one that nobody had taken yet."""


class UnshardedWarning(UserWarning):
    """Every rank goes through the whole dataset, in the same order: they would all train on the same batches."""


class StateMismatchError(ValueError):
    """A state was loaded into a run whose order, or batch size, is another one."""


class LedgerError(RuntimeError):
    """All ranks together did not draw what they should, or their accounts can't be added up. Raised on every rank.

    Attributes:
        missing: with Ledger(exact=True) the first samples that came less often than they should, at most 1,000.
        doubled: with Ledger(exact=True) the first samples that came too often, at most 1,000.
        num_missing: how many there are of the former.
        num_doubled: how many there are of the latter.
    """

    def __init__(
        self,
        message: str,
        *,
        missing: Sequence[int] = (),
        doubled: Sequence[int] = (),
        num_missing: int = 0,
        num_doubled: int = 0,
    ) -> None:
        super().__init__(message)
        self.missing, self.doubled = list(missing), list(doubled)
        self.num_missing, self.num_doubled = num_missing, num_doubled


class GlobalBatchChangedWarning(UserWarning):
    """A run goes on with another number of samples in a step of all ranks: a learning rate may have to follow."""


class ShardError(ValueError):
    """A shard can't be read, or is not what it should be. The message names shard, and where it can offset and key."""


class ShardWarning(UserWarning):
    """A shard is left out, or may be cut off, or its saved index was damaged and is made anew."""


class UnevenShardsWarning(UserWarning):
    """Shards were dealt whole, and ranks differ by more than a sample: padded, dropped, or longer than others."""


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the line of the caller's that led here: the first one outside fastshard and torch."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("fastshard", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
