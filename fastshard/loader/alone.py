"""Samplers for a loader that was given none: they hold an order that can be resumed where torch's can't.

They are what torch puts there, a RandomSampler and a SequentialSampler, because frameworks go by these classes: who
sees one of them shards it, and who sees a DistributedSampler doesn't.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import RandomSampler, SequentialSampler

from fastshard.samplers.distributed import DistributedSampler

if TYPE_CHECKING:
    from collections.abc import Sized


class AloneShuffled(RandomSampler):
    """Every sample of a dataset once a pass, in fastshard's order; each pass takes the next epoch."""

    def __init__(self, dataset: Sized, seed: int) -> None:
        super().__init__(dataset)
        self.inner: DistributedSampler[Any] = DistributedSampler(
            dataset, num_replicas=1, rank=0, seed=seed, on_repeated_epoch="advance"
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


class AloneSequential(SequentialSampler):
    """Every sample of a dataset once a pass, in the dataset's order."""

    def __init__(self, dataset: Sized) -> None:
        super().__init__(dataset)
        self.inner: DistributedSampler[Any] = DistributedSampler(dataset, num_replicas=1, rank=0, shuffle=False)

    def __iter__(self) -> Iterator[int]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)
