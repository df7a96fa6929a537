"""Runs: which positions of an epoch are a rank's in a stream: neighbours, where a sampler takes every P-th.

A reader of shards wants neighbours, because neighbours lie in one file. So what is left of an epoch is cut into P
pieces of equal length, one after the other, and each rank goes through its own. After a stop, the ends of all pieces
are what is left; put one after the other they are a shorter epoch, which is cut again. So a place in an epoch is a
short list of how many ranks there were and how far each came, and any draw of any rank can be had without walking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastshard import _check

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.slicing import Uneven


@dataclass(frozen=True)
class Cut:
    """What is left of an epoch, cut into one run a rank: the first ones have a position more, if it does not divide.

    Args:
        length: positions that are left, in [0, 2^63).
        num_replicas: ranks, at least 1.
        uneven: as for Slice. "pad" draws the position after the run's end once more, or, where there are fewer
            positions than ranks, those of the first ranks.
    """

    length: int
    num_replicas: int
    uneven: Uneven = "pad"

    @property
    def _least(self) -> int:
        return self.length // self.num_replicas

    @property
    def _longer(self) -> int:
        """Ranks whose run has a position more."""
        return self.length % self.num_replicas

    def start(self, rank: int) -> int:
        """Where the rank's run begins."""
        return rank * self._least + min(rank, self._longer)

    def run(self, rank: int) -> int:
        """Positions in the rank's run."""
        return self._least + (rank < self._longer)

    def draws(self, rank: int) -> int:
        """Draws of the rank, padding included."""
        if self.uneven == "keep":
            return self.run(rank)
        return self._least + (self.uneven == "pad" and self._longer > 0)

    def padding(self, rank: int) -> int:
        """How many of the rank's draws, the last ones, are padding: 0 or 1."""
        return max(0, self.draws(rank) - self.run(rank))

    @property
    def most_draws(self) -> int:
        """Draws of the rank that has most, which is rank 0."""
        return self.draws(0)

    def positions(self, rank: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Positions, in what is left, of the rank's draws [start, stop)."""
        first = self.start(rank)
        places = np.arange(first + start, first + stop, dtype=np.int64)
        if stop > self.run(rank):
            places[-1] = rank % self.length if self._least == 0 else (first + self.run(rank)) % self.length
        return places

    def left(self, draws: int) -> int:
        """How many positions are left when each rank has made so many draws, or all of its own."""
        return self._longer * self._rest(1, draws) + (self.num_replicas - self._longer) * self._rest(0, draws)

    def _rest(self, more: int, draws: int) -> int:
        return max(0, self._least + more - draws)

    def before(self, places: npt.NDArray[np.int64], draws: int) -> npt.NDArray[np.int64]:
        """Where places in what is left after so many draws were in what was left before."""
        long, short = self._rest(1, draws), self._rest(0, draws)
        end = self._longer * long  # of what is left of the longer runs
        among_long = places < end
        rank = np.where(among_long, places // max(1, long), self._longer + (places - end) // max(1, short))
        within = np.where(among_long, places % max(1, long), (places - end) % max(1, short))
        result: npt.NDArray[np.int64] = rank * self._least + np.minimum(rank, self._longer) + draws + within
        return result


@dataclass(frozen=True)
class Runs:
    """A place in an epoch, and the runs in which today's ranks go on from there.

    Args:
        length: positions of the whole epoch, in [0, 2^63).
        num_replicas: today's ranks, at least 1.
        uneven: as for Slice, for what is left.
        former: for each former world of this epoch its number of ranks, and the draws that each of them made.

    Example:
        >>> [Runs(10, 2).positions(rank, 0, 5).tolist() for rank in range(2)]
        [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        >>> [Runs(10, 3, former=((2, 2),)).positions(rank, 0, 2).tolist() for rank in range(3)]
        [[2, 3], [4, 7], [8, 9]]
    """

    length: int
    num_replicas: int
    uneven: Uneven = "pad"
    former: tuple[tuple[int, int], ...] = ()

    @property
    def cuts(self) -> list[Cut]:
        """That of each former world, and today's."""
        cuts, left = [], self.length
        for num_replicas, draws in self.former:
            cuts.append(Cut(left, num_replicas, self.uneven))
            left = cuts[-1].left(draws)
        return [*cuts, Cut(left, self.num_replicas, self.uneven)]

    @property
    def today(self) -> Cut:
        """Today's."""
        return self.cuts[-1]

    def positions(self, rank: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Positions in the epoch of the rank's draws [start, stop), of which the last may be padding."""
        *former, today = self.cuts
        places = today.positions(rank, start, stop)
        for cut, (_, draws) in zip(reversed(former), reversed(self.former), strict=True):
            places = cut.before(places, draws)
        return places

    def after(self, draws: int) -> tuple[tuple[int, int], ...]:
        """`former` of a run that goes on when each of today's ranks has made so many draws."""
        if not draws:
            return self.former
        if self.former and self.former[-1][0] == self.num_replicas:
            *others, (_, before) = self.former
            # As many ranks go on with their own runs, unless one had come to its end.
            if before <= self.cuts[-2].length // self.num_replicas:
                return (*others, (self.num_replicas, before + draws))
        return (*self.former, (self.num_replicas, draws))

    def consumed(self, draws: int) -> int:
        """Positions of the epoch that are through when each of today's ranks has made so many draws."""
        return self.length - self.today.left(draws)

    def draws_until(self, consumed: int) -> int:
        """Draws that each of today's ranks has made when so many positions of the epoch are through."""
        return max(0, consumed - self.consumed(0)) // self.num_replicas


def parse_former(former: object) -> tuple[tuple[int, int], ...]:
    """`former` from a state, checked.

    Raises:
        TypeError, ValueError: it is no list of pairs of a number of ranks and one of draws.
    """
    if not isinstance(former, Sequence) or isinstance(former, str | bytes):
        raise TypeError(f"former must be a list of [num_replicas, draws], got former={former!r}")
    pairs = []
    for pair in former:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise TypeError(f"former must be a list of [num_replicas, draws], got {pair!r} in it")
        num_replicas = _check.integer("num_replicas", pair[0], 1, _check.MAX_LENGTH)
        pairs.append((num_replicas, _check.integer("draws", pair[1], 1, _check.MAX_LENGTH)))
    return tuple(pairs)
