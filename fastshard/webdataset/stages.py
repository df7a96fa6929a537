"""Plain stages, for those who keep their webdataset pipeline: splitters of shard lists, and whole shards by count.

The splitters look at as many shards as there are ranks times workers, and at none of the shards themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import get_worker_info

from fastshard.streaming import guards, ranks
from fastshard.webdataset.dataset import Stage
from fastshard.webdataset.whole import Deal, WholeShards, check_enough

if TYPE_CHECKING:
    import os

    from fastshard.samplers.passes import OnRepeatedEpoch
    from fastshard.slicing import Uneven
    from fastshard.webdataset.index import TarIndex
    from fastshard.webdataset.reading import OnError
    from fastshard.webdataset.sources import Urls

_NOT_OURS = "no split_by_rank"


class SplitByRank:
    """Gives each rank every P-th shard: `nodesplitter=` of wds.WebDataset, or a stage of a wds.DataPipeline.

    In the place of webdataset's split_by_node and single_node_only. Takes the rank and the number of ranks from the
    process group, else from RANK and WORLD_SIZE, also in workers that were spawned. Ranks get as many shards, to within
    one; how many samples are in them, it does not know: `shards` does.

    Raises:
        ValueError: in the pass, on every rank: there are fewer shards than ranks times workers, so that somebody would
            get none; or another splitter of ranks stands before or behind it.
    """

    def __init__(self, rank: int | None = None, num_replicas: int | None = None) -> None:
        self._given = (rank, num_replicas)

    def __call__(self, source: Iterable[Any]) -> Iterator[Any]:
        """The shards of `source` that are this rank's."""
        return _by_rank(source, *self._given)

    def __repr__(self) -> str:
        return "fastshard.webdataset.split_by_rank"

    def __reduce__(self) -> tuple[Any, ...]:
        rank, num_replicas = ranks.to_send(*self._given)
        replicas = ranks.find(rank, num_replicas)[1]  # to a spawned worker, who does not see who draws from it
        guards.check_not_split_again("split_by_rank", {guards.RANKS}, replicas, 1, _NOT_OURS)
        return SplitByRank, (rank, num_replicas)


split_by_rank = SplitByRank()


def split_by_worker(source: Iterable[Any]) -> Iterator[Any]:
    """Gives each worker of a loader every K-th shard: `workersplitter=` of wds.WebDataset, or a stage, as webdataset's.

    Raises:
        ValueError: in the pass: there are fewer shards than workers; or another splitter of workers stands before or
            behind it. Behind split_by_rank every rank raises, as that one counts the shards of all of them.
    """
    return _by_worker(source)


def _by_rank(source: Iterable[Any], rank: int | None, num_replicas: int | None) -> Iterator[Any]:
    rank, num_replicas = ranks.find(rank, num_replicas)
    workers = _workers()[1]
    guards.check_not_split_again("split_by_rank", {guards.RANKS}, num_replicas, workers, _NOT_OURS)
    _check_not_split_before(source, guards.RANKS, "split_by_rank")
    if any(guards.WORKERS in splitter.over for splitter in guards.before(source)):
        workers = 1  # only one worker's shards come here
    yield from _part(source, rank, num_replicas, num_replicas, workers, "split_by_rank")


def _by_worker(source: Iterable[Any]) -> Iterator[Any]:
    worker, workers = _workers()
    guards.check_not_split_again("split_by_worker", {guards.WORKERS}, 1, workers)
    _check_not_split_before(source, guards.WORKERS, "split_by_worker")
    yield from _part(source, worker, workers, 1, workers, "split_by_worker")


def _part(source: Iterable[Any], number: int, parts: int, num_replicas: int, workers: int, what: str) -> Iterator[Any]:
    """Every part-th shard; without asking for more than has to be there, as resampled lists have no end."""
    shards = iter(source)
    first = list(islice(shards, num_replicas * workers))
    check_enough(len(first), num_replicas, workers, what)
    return islice(chain(first, shards), number, None, parts)


def _workers() -> tuple[int, int]:
    worker = get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def _check_not_split_before(source: Iterable[Any], over: str, what: str) -> None:
    for splitter in guards.before(source):
        if over in splitter.over:
            raise ValueError(
                f"{splitter.name} stands before {what}, and has dealt the shards to {over} already: each would get a "
                "part of its part; leave one of them out"
            )


def shards(
    urls: Urls | TarIndex,
    *,
    batch_size: int | None = None,
    uneven: Uneven = "pad",
    deal: Deal = "largest_first",
    shuffle: bool = True,
    window: int = 8,
    stages: Sequence[Stage] = (),
    seed: int = 0,
    rank: int | None = None,
    num_replicas: int | None = None,
    on_repeated_epoch: OnRepeatedEpoch = "warn",
    on_error: OnError = "raise",
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> WholeShards:
    """A first stage that deals whole shards by their numbers of samples, and gives every rank as many samples.

    It gives samples, as ShardedWebDataset does, which it is one of; only that no shard is cut. A rank keeps its shards
    from epoch to epoch, and goes through them in a new order in each. Batch t of a rank is worker t mod K's, so what
    comes out does not depend on the number of workers, and `len` is known. Where the shards' sizes don't go up, ranks
    are uneven by more than a sample: a warning says by how much, and `samples_per_rank` has it.

    Args:
        urls: as for ShardedWebDataset; or a TarIndex.
        batch_size: samples per batch on each rank, that of the loader, or of the pipeline's `.batched()`.
        uneven: what happens where ranks' shards have not as many samples.
            "pad": every rank gets as many as the fullest has; the others begin their shards once more.
            "drop": every rank gets as many as the emptiest has; others leave out the last ones of each epoch's order.
            "keep": every sample exactly once; ranks end when theirs do.
        deal: "largest_first": the largest shard first, always to the rank that has fewest samples so far.
            "in_turn": shard i to rank i mod P, as split_by_rank does.
        shuffle: False goes through a rank's shards in the order in which they are given.
        window: shards of a rank that are shuffled together.
        stages: what each sample goes through before it is handed out.
        seed: any int in [-2^63, 2^64).
        rank: this rank; None asks the process group, or the environment.
        num_replicas: number of ranks; None as for rank. A resume needs as many as before.
        on_repeated_epoch: as for DistributedSampler.
        on_error: as for ShardedWebDataset.
        cache: as for TarIndex.build.
        progress: as for TarIndex.build.

    Returns:
        The dataset, with `shards_per_rank` and `samples_per_rank`.

    Raises:
        ValueError: on every rank, when it is made or, if ranks are not known by then, in the pass: there are fewer
            shards than ranks.
        TypeError, ValueError, ShardError: as for ShardedWebDataset.

    Warns:
        UnevenShardsWarning: ranks' shards differ by more than a sample.
    """
    return WholeShards(
        urls,
        deal=deal,
        batch_size=batch_size,
        uneven=uneven,
        shuffle=shuffle,
        window=window,
        stages=stages,
        seed=seed,
        rank=rank,
        num_replicas=num_replicas,
        on_repeated_epoch=on_repeated_epoch,
        on_error=on_error,
        cache=cache,
        progress=progress,
    )
