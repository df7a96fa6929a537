"""ShardedWebDataset: samples of tar shards, exact over ranks and workers, in webdataset's own form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fastshard import _check, orders
from fastshard.streaming.stream import Stream
from fastshard.webdataset.index import TarIndex
from fastshard.webdataset.reading import OnError, Reader
from fastshard.webdataset.statistics import Statistics

if TYPE_CHECKING:
    import os

    import numpy as np
    import numpy.typing as npt

    from fastshard.samplers.passes import OnRepeatedEpoch
    from fastshard.slicing import Uneven
    from fastshard.webdataset.sources import Urls

Stage = Callable[[Iterator[Any]], Iterable[Any]]


class ShardedWebDataset(Stream):
    """The samples of WebDataset shards: disjoint, complete, as many on every rank, and resumable.

    A first stage of a `wds.DataPipeline`, or an iterable dataset by itself. Its samples are webdataset's own dicts, so
    `.decode()`, `.to_tuple()` and the like go on working. Shards are shuffled, and samples within windows of shards;
    each rank goes through a run of that order, so it reads few shards; a shard is cut between two ranks where the
    counts demand it. What a rank gets does not depend on the number of its workers.

    Do not split it again: no `split_by_node` or `split_by_worker` behind it.

    Args:
        urls: a url or path, with braces or without, a list of them, or a TarIndex. What is not indexed yet is indexed
            at once, and the index saved; see TarIndex.build.
        batch_size: samples per batch on each rank, that of the loader, or of the pipeline's `.batched()`; None where
            single samples are handed out.
        shuffle: False is the order of the shards, as they are given.
        window: shards that are shuffled together, at least 1. docs/randomness.md shows what it does.
        stages: what each sample goes through before it is handed out, in the worker: stages of webdataset's, such as
            `wds.decode("rgb8")` and `wds.to_tuple("png", "cls", "__index__")`, or any function of an iterator that
            gives an iterable. One sample comes out for one that goes in, in this order; so lengths, resume and ledger
            stay as they are. What leaves out samples, shuffles or batches belongs behind, in a pipeline.
        seed, uneven, on_repeated_epoch: as for DistributedSampler. Padding is the sample after a rank's last one.
        rank, num_replicas: this rank and the number of ranks; None asks the process group, or the environment.
        on_error: "skip": leave out shards that can't be indexed, as TarIndex.build does; and where a sample can't be
            read later, give another one in its place, and warn once for its shard. All ranks stay even, and each
            worker gives as many batches. A ledger finds what was left out missing, and what was given twice double.
        cache, progress: as for TarIndex.build.

    Attributes:
        index: the TarIndex; a sample's number there is its id, which is in the sample as "__index__".

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range.
        ShardError: a shard is not as it should be; the message has offset and key. Also in a pass, where a shard is
            gone, or another one than when it was indexed.

    Warns:
        EmptyRankWarning: there are fewer samples than ranks, and uneven is not "pad".
    """

    def __init__(
        self,
        urls: Urls | TarIndex,
        *,
        batch_size: int | None = None,
        shuffle: bool = True,
        window: int = 8,
        stages: Sequence[Stage] = (),
        seed: int = 0,
        uneven: Uneven = "pad",
        rank: int | None = None,
        num_replicas: int | None = None,
        on_repeated_epoch: OnRepeatedEpoch = "warn",
        on_error: OnError = "raise",
        cache: str | os.PathLike[str] | None = None,
        progress: bool = True,
    ) -> None:
        if not isinstance(urls, TarIndex):
            urls = TarIndex.build(urls, cache=cache, progress=progress, on_error=on_error)
        self.index = urls
        shuffle = _check.boolean("shuffle", shuffle)
        order: orders.Order = orders.Sequential(len(self.index))
        if shuffle:
            order = orders.BlockShuffled(self.index.samples_per_shard, seed, window)
        super().__init__(order, batch_size, uneven, rank, num_replicas, on_repeated_epoch)
        self.stages = tuple(stages)
        for number, stage in enumerate(self.stages):
            if not callable(stage):
                raise TypeError(f"stages must be functions of an iterator, got stages[{number}]={stage!r}")
        self._reader = Reader(self.index, on_error)
        self.warn_of_empty_ranks()

    @property
    def statistics(self) -> Statistics:
        """What this process and its workers have read since the dataset was made."""
        return self._reader.counters.total()

    def _read(self, ids: npt.NDArray[np.int64]) -> Iterator[Any]:
        samples: Iterator[Any] = self._reader.read(ids)
        if not self.stages:
            return samples
        for stage in self.stages:
            samples = iter(stage(samples))
        return _as_many(samples, len(ids))


def _as_many(samples: Iterator[Any], count: int) -> Iterator[Any]:
    given = 0
    for given, sample in enumerate(samples, 1):
        if given > count:
            break
        yield sample
    if given != count:
        few_or_many = "fewer" if given < count else "more"
        raise ValueError(
            f"stages must give one sample for each that goes in, and gave {few_or_many} for {count} samples; "
            "what leaves out samples, adds some, or makes batches of them, belongs behind the dataset, not in it"
        )
