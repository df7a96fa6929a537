"""Whole shards: each shard is one rank's, the same in every epoch, and ranks are as even as that leaves them.

What a rank has read once lies in its machine's page cache, or can be copied to its disk before. Costs about 40 bytes a
shard, and log(ranks) steps a shard when the dataset is made.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from torch.utils.data import get_worker_info

from fastshard import _check, orders
from fastshard._warnings import UnevenShardsWarning, warn
from fastshard.streaming.runs import Cut, Runs
from fastshard.webdataset.dataset import ShardedWebDataset

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.webdataset.index import TarIndex
    from fastshard.webdataset.sources import Urls

Deal = Literal["largest_first", "in_turn"]


def largest_first(sizes: npt.NDArray[np.int64], num_replicas: int) -> list[list[int]]:
    """Deals the largest shard first, always to the rank that has fewest samples; at a tie the lower number goes first.

    The fullest rank has at most 4/3 of what the best dealing of all would leave it.

    Args:
        sizes: samples in each shard.
        num_replicas: ranks, at least 1.

    Returns:
        The numbers of each rank's shards, ascending.

    Source: R. L. Graham, Bounds on multiprocessing timing anomalies (1969), "LPT".

    Example:
        >>> largest_first(np.array([3, 4, 5, 6, 7, 8]), 2)
        [[1, 2, 5], [0, 3, 4]]
    """
    hands: list[list[int]] = [[] for _ in range(num_replicas)]
    fewest = [(0, rank) for rank in range(num_replicas)]
    for shard in np.argsort(-sizes, kind="stable").tolist():
        samples, rank = fewest[0]
        hands[rank].append(shard)
        heapq.heapreplace(fewest, (samples + int(sizes[shard]), rank))
    return [sorted(hand) for hand in hands]


def in_turn(sizes: npt.NDArray[np.int64], num_replicas: int) -> list[list[int]]:
    """Deals shard i to rank i mod P, as split_by_rank does. Args and Returns: as for largest_first."""
    return [list(range(rank, len(sizes), num_replicas)) for rank in range(num_replicas)]


_DEALS: dict[str, Callable[[npt.NDArray[np.int64], int], list[list[int]]]] = {
    "largest_first": largest_first,
    "in_turn": in_turn,
}


@dataclass(frozen=True)
class HandsCut(Cut):
    """One run a rank, as long as its shards; of which each has made `skipped` draws. "pad" begins it once more."""

    sizes: tuple[int, ...] = ()
    skipped: int = 0

    def start(self, rank: int) -> int:
        """As Cut.start."""
        return sum(self.sizes[:rank])

    def run(self, rank: int) -> int:
        """As Cut.run."""
        return max(0, self.sizes[rank] - self.skipped)

    def draws(self, rank: int) -> int:
        """As Cut.draws."""
        same = {"pad": max(self.sizes), "drop": min(self.sizes), "keep": self.sizes[rank]}
        return max(0, same[self.uneven] - self.skipped)

    @property
    def most_draws(self) -> int:
        """As Cut.most_draws, whichever rank that is."""
        return max(0, (min if self.uneven == "drop" else max)(self.sizes) - self.skipped)

    def positions(self, rank: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """As Cut.positions."""
        draws = np.arange(self.skipped + start, self.skipped + stop, dtype=np.int64)
        return self.start(rank) + draws % self.sizes[rank]

    def left(self, draws: int) -> int:
        """As Cut.left."""
        return sum(max(0, size - self.skipped - draws) for size in self.sizes)


@dataclass(frozen=True)
class HandsRuns(Runs):
    """Runs of whole shards: they go on as they were, for as many ranks. `sizes` has the samples of each."""

    sizes: tuple[int, ...] = ()

    @property
    def _skipped(self) -> int:
        return sum(draws for _, draws in self.former)

    @property
    def cuts(self) -> list[Cut]:
        """As Runs.cuts: one."""
        return [HandsCut(self.length, self.num_replicas, self.uneven, self.sizes, self._skipped)]

    def positions(self, rank: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """As Runs.positions."""
        return self.today.positions(rank, start, stop)

    def after(self, draws: int) -> tuple[tuple[int, int], ...]:
        """As Runs.after."""
        draws += self._skipped
        return ((self.num_replicas, draws),) if draws else ()

    def draws_until(self, consumed: int) -> int:
        """As Runs.draws_until."""
        return bisect_left(range(self.today.most_draws + 1), consumed, key=self.consumed)


class Hands(orders.Order):
    """The samples of rank 0's shards, then those of rank 1's and so on; shuffled within each rank.

    Args:
        whole: the order of all shards: Sequential, or BlockShuffled, of which each rank has one of its own.
        sizes: samples in each shard.
        hands: the numbers of each rank's shards.
    """

    name: ClassVar[str] = "hands/0"

    def __init__(self, whole: orders.Order, sizes: npt.NDArray[np.int64], hands: list[list[int]]) -> None:
        self._whole = whole
        self.seed = getattr(whole, "seed", 0)
        object.__setattr__(self, "reshuffles", whole.reshuffles)
        self._sizes, self.hands = sizes, [np.array(hand, np.int64) for hand in hands]
        self._firsts = np.cumsum(sizes) - sizes
        self.samples_per_rank = np.array([int(sizes[hand].sum()) for hand in hands], np.int64)
        self._ends = np.cumsum(self.samples_per_rank)
        self._of_rank: dict[int, orders.Order] = {}

    def __len__(self) -> int:
        return len(self._whole)

    def digest(self) -> str:
        """Of the sizes, and of who has which shards."""
        shards = hashlib.blake2b(np.concatenate([self._sizes, *self.hands]).tobytes(), digest_size=8).hexdigest()
        return f"num_replicas={len(self.hands)}, shards={shards}, {self._whole.digest()}"

    def _fill(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        return self._take(epoch, start + step * np.arange(count, dtype=np.uint64))

    def _take(self, epoch: int, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        places = positions.astype(np.int64)
        ranks = np.searchsorted(self._ends, places, side="right")
        ids = np.empty(len(places), np.int64)
        for rank in np.unique(ranks).tolist():
            hand, chosen = self.hands[rank], ranks == rank
            begin = int(self._ends[rank] - self.samples_per_rank[rank])
            within = self._order_of(rank).take(epoch, places[chosen] - begin)
            ends = np.cumsum(self._sizes[hand])
            shard = np.searchsorted(ends, within, side="right")
            ids[chosen] = within - (ends - self._sizes[hand])[shard] + self._firsts[hand][shard]
        return ids

    def _order_of(self, rank: int) -> orders.Order:
        if rank not in self._of_rank:
            whole, sizes = self._whole, self._sizes[self.hands[rank]]
            order: orders.Order = orders.Sequential(int(sizes.sum()))
            if isinstance(whole, orders.BlockShuffled):
                # Of its own, for shards of one size would else be read in step on all ranks.
                key = hashlib.blake2b(f"{whole.seed % 2**64}, {rank}".encode(), digest_size=8).digest()
                order = orders.BlockShuffled(sizes, int.from_bytes(key, "little"), whole.window)
            self._of_rank[rank] = order
        return self._of_rank[rank]


class WholeShards(ShardedWebDataset):
    """A ShardedWebDataset that cuts no shard; see `fastshard.webdataset.shards`, which makes it.

    Args:
        urls, options: as for ShardedWebDataset.
        deal: as for shards.
    """

    def __init__(self, urls: Urls | TarIndex, *, deal: Deal = "largest_first", **options: Any) -> None:
        self.deal: Deal = _check.one_of("deal", deal, get_args(Deal))
        self._hands: Hands | None = None
        super().__init__(urls, **options)

    @property
    def order(self) -> Hands:
        """All ranks' samples, rank after rank."""
        num_replicas = self.num_replicas
        if self._hands is None or len(self._hands.samples_per_rank) != num_replicas:
            sizes = self.index.samples_per_shard
            check_enough(len(sizes), num_replicas, 1, "shards()")
            self._hands = Hands(self._order, sizes, _DEALS[self.deal](sizes, num_replicas))
            self._say_what_is_uneven(self._hands.samples_per_rank)
        return self._hands

    @property
    def shards_per_rank(self) -> list[list[int]]:
        """The numbers of each rank's shards in `index`."""
        return [hand.tolist() for hand in self.order.hands]

    @property
    def samples_per_rank(self) -> npt.NDArray[np.int64]:
        """Samples in each rank's shards; what padding adds to them, or dropping leaves out, is not counted."""
        return self.order.samples_per_rank

    def _say_what_is_uneven(self, samples: npt.NDArray[np.int64]) -> None:
        worker = get_worker_info()
        least, most = int(samples.min()), int(samples.max())
        if most - least < 2 or (worker is not None and worker.id):
            return
        does = {
            "pad": f"repeats {int((most - samples).sum())}",
            "drop": f"leaves out {int((samples - least).sum())}",
            "keep": "lets some ranks end before others",
        }[self.uneven]
        warn(
            f"{len(self.index.urls)} whole shards leave {len(samples)} ranks uneven, with {least} to {most} samples; "
            f"uneven={self.uneven!r} {does}. ShardedWebDataset cuts shards: ranks then differ by one sample at most",
            UnevenShardsWarning,
        )

    def runs_of(self, num_replicas: int, former: tuple[tuple[int, int], ...]) -> HandsRuns:
        """As Stream.runs_of, of as many ranks as there are now."""
        sizes = tuple(self.samples_per_rank.tolist())
        return HandsRuns(self.length, num_replicas, self.uneven, former, sizes)

    def warn_of_empty_ranks(self) -> None:
        """Deals the shards, so that it is said at once if there are too few; no rank is ever empty."""
        _ = self.order


def check_enough(num_shards: int, num_replicas: int, num_workers: int, what: str) -> None:
    """Refuses to deal fewer whole shards than there are ranks and workers.

    Raises:
        ValueError: on every rank alike, as all of them count alike.
    """
    if num_shards >= num_replicas * num_workers:
        return
    each = f"{num_replicas} ranks" + (f" of {num_workers} workers each" if num_workers > 1 else "")
    enough = num_shards // num_replicas
    fewer = f"num_workers of at most {enough}, " if num_workers > 1 and enough else ""
    raise ValueError(
        f"{what} deals whole shards, and there are too few: {num_shards} for {each}; take {fewer}more shards, or "
        "fastshard.webdataset.ShardedWebDataset, which cuts shards by sample"
    )
