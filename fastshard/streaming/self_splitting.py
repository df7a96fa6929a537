"""Sources that would split themselves: Hugging Face's IterableDataset, and whatever asks torch which worker it is in.

What ShardedIterable deals must not be split before it: samples would be missing. So a source sees no worker while it is
gone through, which costs two assignments a sample, and one that is split already is refused.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import torch.utils.data._utils.worker as torch_worker
from torch.utils.data import get_worker_info

from fastshard.streaming.controlled import Controlled

# NumPy draws 128 bits where it is given no seed; a seed that somebody chose is hardly ever so long.
_CHOSEN_SEEDS = 1 << 64


def is_hugging_face(source: Any) -> bool:
    """Whether it is a Hugging Face IterableDataset."""
    datasets = sys.modules.get("datasets")
    return datasets is not None and isinstance(source, datasets.IterableDataset)


def check_whole(source: Any) -> None:
    """Raises TypeError or ValueError if source is split over ranks already."""
    if isinstance(source, Controlled):
        raise TypeError(f"source must not be split already, got a {type(source).__name__}, which splits itself")
    if is_hugging_face(source) and source._distributed is not None:
        split = source._distributed
        raise ValueError(
            f"source must not be split already, got a dataset of split_dataset_by_node(rank={split.rank}, "
            f"world_size={split.world_size}): each rank would get a part of its part; give the dataset from before"
        )


def seeds_of(source: Any) -> list[int]:
    """The seeds by which a Hugging Face dataset shuffles or mixes, from the last step to the first."""
    found, steps = [], [getattr(source, "_ex_iterable", None)]
    while steps:
        step = steps.pop(0)
        bits = getattr(getattr(step, "generator", None), "bit_generator", None)
        entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
        if isinstance(entropy, int):
            found.append(entropy)
        steps += [*filter(None, [getattr(step, "ex_iterable", None)]), *getattr(step, "ex_iterables", ())]
    return found


def check_seeded(source: Any, num_replicas: int) -> None:
    """Raises ValueError if a Hugging Face dataset shuffles by a seed that nobody chose, and there are several ranks."""
    if num_replicas > 1 and is_hugging_face(source) and any(seed >= _CHOSEN_SEEDS for seed in seeds_of(source)):
        raise ValueError(
            f"source shuffles without a seed, so each of {num_replicas} ranks would have another order; "
            "call shuffle(seed=...), and interleave_datasets(seed=...), with a number that is the same on all ranks"
        )


def at_epoch(source: Any, epoch: int) -> Any:
    """The source, or what is to be gone through in its place, told the epoch if it has a `set_epoch`."""
    if is_hugging_face(source):
        # set_epoch adds a difference to a number that all workers share. Two that did so at once would be in an epoch
        # that nobody chose; so each has a number of its own.
        own = object.__new__(type(source))
        own.__setstate__({**source.__getstate__(), "_epoch": 0})
        source = own
    if callable(getattr(source, "set_epoch", None)):
        source.set_epoch(epoch)
    return source


def own_shards(source: Any, epoch: int, rank: int, num_replicas: int) -> Any:
    """The rank's shards of a source that has some: every P-th, of Hugging Face's in the order of the epoch.

    Raises:
        ValueError: there are fewer shards than ranks.
    """
    num_shards = source.num_shards
    if num_shards < num_replicas:
        raise ValueError(
            f'by="shards" needs a shard for each rank: source has {num_shards}, and there are {num_replicas} ranks; '
            'by="samples" deals any source'
        )
    if is_hugging_face(source):
        split_by_node = importlib.import_module("datasets.distributed").split_dataset_by_node
        return at_epoch(split_by_node(source, rank, num_replicas, strategy="shards"), epoch)
    return at_epoch(source, epoch).shard(num_shards=num_replicas, index=rank)


def unseen(samples: Iterator[Any]) -> Iterator[Any]:
    """The same samples, from an iterator that finds no worker when it asks torch for one."""
    return samples if get_worker_info() is None else _unseen(samples)


def _unseen(samples: Iterator[Any]) -> Iterator[Any]:
    while True:
        worker, torch_worker._worker_info = torch_worker._worker_info, None
        try:
            sample = next(samples)
        except StopIteration:
            return
        finally:
            torch_worker._worker_info = worker
        yield sample
