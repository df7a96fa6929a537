"""Warning and error classes, one for each suspicious situation, so that each can be filtered alone."""

from __future__ import annotations


class EmptyRankWarning(UserWarning):
    """At least one rank has no sample: it would train on nothing while the others wait for it in their collectives."""


class RepeatedEpochWarning(UserWarning):
    """A second pass over one epoch: every sample comes in the same order again, on the same rank again."""


class RepeatedEpochError(RuntimeError):
    """As RepeatedEpochWarning, where the sampler was built with on_repeated_epoch="error"."""


class EpochChangedError(RuntimeError):
    """The epoch was changed while a pass over the former one was running."""
