"""Buckets of samples that are neighbours in length: how a sorted dataset is cut, which does not depend on the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class Bucket(NamedTuple):
    """Neighbours in length, which are shuffled among themselves.

    Attributes:
        start: how many samples are in the buckets before it, whose samples are longer.
        samples: how many are in this one; a multiple of `group`, but in the last bucket.
        first_step: how many whole global batches are in the buckets before it.
        batch_size: samples in a batch of this bucket; in a padded one, at most batch_size * longest tokens.
        group: samples in a global batch of this bucket.
        longest, shortest: lengths.
    """

    start: int
    samples: int
    first_step: int
    batch_size: int
    group: int
    longest: int
    shortest: int

    @property
    def steps(self) -> int:
        """How many whole global batches there are."""
        return self.samples // self.group


def cut(
    descending: npt.NDArray[Any],
    batch_size: int | None,
    max_tokens: int | None,
    num_replicas: int,
    spread: float,
    min_steps: int,
) -> Iterator[Bucket]:
    """Cuts lengths, the longest first, into buckets by the rules of LengthGrouped, whose arguments these are."""
    samples, ascending = len(descending), descending[::-1]
    start = first_step = 0
    numerator, denominator = spread.as_integer_ratio()
    while start < samples:
        longest = int(descending[start])
        size = batch_size if max_tokens is None else max_tokens // max(1, longest)
        assert size is not None
        group = size * num_replicas
        # Of the array's own type: for any other one, searchsorted converts the whole array. Exact, whatever the length.
        shortest = descending.dtype.type(longest - longest * numerator // denominator)
        similar = samples - start - int(np.searchsorted(ascending, shortest))
        taken = max(min_steps, similar // group) * group
        if samples - start - taken < min_steps * group:
            taken = samples - start
        yield Bucket(start, taken, first_step, size, group, longest, int(descending[start + taken - 1]))
        start += taken
        first_step += taken // group
