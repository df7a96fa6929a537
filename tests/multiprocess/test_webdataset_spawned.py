"""Case "spawned" of the section "Streaming": workers that are spawned know no process group, and read for its ranks."""

from collections import Counter

import pytest
import torch.distributed as dist
from digit_shards import STAGES, write_digit_shards
from launch import run_ranks
from torch.utils.data import DataLoader, IterableDataset

from fastshard import ShardedIterable
from fastshard.webdataset import ShardedWebDataset

pytestmark = pytest.mark.multiprocess

LENGTH = 100


class Numbers:
    """An iterable that a worker which is spawned can be given."""

    def __iter__(self):
        return iter([(number,) for number in range(LENGTH)])


def make(urls):
    return {
        "shards": ShardedWebDataset(urls, batch_size=7, stages=STAGES, progress=False),
        "iterable": ShardedIterable(Numbers(), batch_size=7),
    }


class OneByOne(IterableDataset):
    """All samples of some datasets, because each worker that is spawned costs seconds."""

    def __init__(self, datasets):
        self.datasets = datasets

    def __iter__(self):
        for which, dataset in self.datasets.items():
            for sample in dataset:
                yield which, int(sample[0])


def go_through(urls, store):
    """Returns the ids that this rank got from each kind of dataset, built before the process group was and after."""
    rank, num_replicas = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    before = make(urls)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=num_replicas)
    after = make(urls)
    datasets = {f"{kind} before": before[kind] for kind in before} | {f"{kind} after": after[kind] for kind in after}
    received = {which: [] for which in datasets}
    loader = DataLoader(OneByOne(datasets), None, num_workers=2, multiprocessing_context="spawn")
    for which, id_ in loader:
        received[which].append(id_)
    dist.barrier()  # the slowest one may still be reading
    return received


def test_spawned(tmp_path):
    """N=100, P=4, K=2 under spawn, dataset built before or after the process group: 25 a rank, disjoint, complete."""
    urls = write_digit_shards(tmp_path / "digits", LENGTH, 6)
    ranks = run_ranks(go_through, 4, tmp_path, urls, tmp_path / "store", timeout_s=100)
    assert sorted(ranks[0]) == ["iterable after", "iterable before", "shards after", "shards before"]
    for which in ranks[0]:
        received = [rank[which] for rank in ranks]
        assert [len(ids) for ids in received] == [25, 25, 25, 25], which
        assert Counter(id_ for ids in received for id_ in ids) == Counter(range(LENGTH)), which
