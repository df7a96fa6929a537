"""Cases of the section "Streaming", each named after its word in the list of cases; and persistent-workers.

Each holds for the two kinds of streams: tar shards with an index, and an iterable of which nothing is known but what it
gives, here the same shards read one after the other. `spawned` needs real ranks: tests/multiprocess.
"""

import itertools
import random
import tarfile
from collections import Counter

import pytest
import torch
import webdataset as wds
from torch.utils.data import DataLoader as TorchLoader

from fastshard import DataLoader
from fastshard.streaming.iterable import ShardedIterable
from fastshard.webdataset import ShardedWebDataset

quiet = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")
by_kind = pytest.mark.parametrize("kind", ["shards", "iterable"])
by_loader = pytest.mark.parametrize("loader_class", [DataLoader, TorchLoader])
MODES = ("pad", "drop", "keep")


@pytest.fixture
def write(tmp_path):
    """A function that writes shards of these sizes; a sample is a number, and numbers go on from shard to shard."""

    def write_shards(*sizes):
        numbers = itertools.count()
        paths = [str(tmp_path / f"{shard:03}.tar") for shard in range(len(sizes))]
        for path, size in zip(paths, sizes, strict=True):
            with wds.TarWriter(path) as writer:
                for number in itertools.islice(numbers, size):
                    writer.write({"__key__": f"{number:04}", "cls": number})
        return paths

    return write_shards


class Plain:
    """The samples of shards, in another order of the shards in each epoch; no len, no index."""

    def __init__(self, paths, shuffle, keep=None):
        self.paths, self.shuffle, self.keep, self.epoch = paths, shuffle, keep, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        paths = list(self.paths)
        if self.shuffle:
            random.Random(self.epoch).shuffle(paths)
        for path in paths:
            with tarfile.open(path) as tar:
                for member in tar:
                    number = int(tar.extractfile(member).read())
                    if self.keep is None or self.keep(number):
                        yield {"cls": b"%d" % number}


def make(kind, paths, batch_size, rank=0, num_replicas=1, uneven="pad", shuffle=True):
    of_rank = {"batch_size": batch_size, "rank": rank, "num_replicas": num_replicas, "uneven": uneven}
    if kind == "shards":
        return ShardedWebDataset(paths, shuffle=shuffle, window=2, progress=False, **of_rank)
    return ShardedIterable(Plain(paths, shuffle), **of_rank)


def numbers_of(samples):
    """A collate_fn."""
    return torch.tensor([int(sample["cls"]) for sample in samples])


def load(dataset, num_workers=0, loader_class=DataLoader, **options):
    return loader_class(dataset, dataset.batch_size, num_workers=num_workers, collate_fn=numbers_of, **options)


def lists(loader):
    return [batch.tolist() for batch in loader]


def count(batches):
    return Counter(itertools.chain.from_iterable(batches))


@quiet
@by_kind
@pytest.mark.parametrize("uneven", MODES)
@pytest.mark.parametrize(("shards", "num_replicas"), [(1, 4), (3, 2)])
def test_few_shards(write, kind, uneven, shards, num_replicas):
    """S=1, P=4 and S=3, P=2, K=2: no hang; splitting by sample works and is exact."""
    paths = write(*[7, 8, 4][:shards])
    n = sum([7, 8, 4][:shards])
    left = n % num_replicas
    ranks = [lists(load(make(kind, paths, 2, rank, num_replicas, uneven), 2)) for rank in range(num_replicas)]
    seen = count(itertools.chain(*ranks))
    assert len(seen) == n - (left if uneven == "drop" else 0)
    assert seen.total() - len(seen) == (num_replicas - left if uneven == "pad" else 0)
    if uneven != "keep":
        assert len({tuple(map(len, batches)) for batches in ranks}) == 1


DRAWS = [
    ((5,), "pad", [3, 3]),
    ((5,), "drop", [2, 2]),
    ((5,), "keep", [3, 2]),
    ((3, 4, 5, 6, 7, 8), "pad", [17, 17]),
    ((3, 4, 5, 6, 7, 8), "drop", [16, 16]),
    ((3, 4, 5, 6, 7, 8), "keep", [17, 16]),
]


@by_kind
@by_loader
@pytest.mark.parametrize(("sizes", "uneven", "draws"), DRAWS)
def test_uneven_stream(write, kind, loader_class, sizes, uneven, draws):
    """N=5, P=2, b=2; shards of 3..8 samples over P=2, split by sample: pad 17/17, drop 16/16, keep 17/16."""
    paths, n = write(*sizes), sum(sizes)
    ranks = [lists(load(make(kind, paths, 2, rank, 2, uneven), 0, loader_class)) for rank in range(2)]
    assert [sum(map(len, batches)) for batches in ranks] == draws
    assert [len(batches) for batches in ranks] == [-(-of_rank // 2) for of_rank in draws]
    seen = count(itertools.chain(*ranks))
    assert seen.keys() <= set(range(n))
    assert len(seen) == n - (uneven == "drop")
    assert seen.total() == sum(draws)


@pytest.mark.parametrize(("uneven", "draws"), [("pad", [11, 11]), ("drop", [10, 10]), ("keep", [11, 10])])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_uneven_stream_after_a_filter(write, uneven, draws, num_workers):
    """The three modes hold too after a filter has removed samples: 21 of 33, nobody knew how many."""
    source = Plain(write(3, 4, 5, 6, 7, 8), True, keep=not_in_the_middle)
    ranks = []
    for rank in range(2):
        dataset = ShardedIterable(source, batch_size=2, rank=rank, num_replicas=2, uneven=uneven)
        ranks.append(lists(load(dataset, num_workers)))
    assert [sum(map(len, batches)) for batches in ranks] == draws
    seen = count(itertools.chain(*ranks))
    assert seen.keys() <= {*range(10), *range(22, 33)}
    assert len(seen) == 21 - (uneven == "drop")


def not_in_the_middle(number):
    return not 10 <= number < 22


@by_kind
@by_loader
@pytest.mark.parametrize(
    ("n", "num_workers", "sizes"), [(46, 3, [8] * 5 + [6]), (200, 8, [8] * 25)], ids=["46 samples", "200 samples"]
)
def test_workers_invariant(write, kind, loader_class, n, num_workers, sizes):
    """N=46, b=8, K=3: 6 batches, the last partial; N=200, b=8, K=8: 25. Ids and order do not depend on K."""
    paths = write(*[n // 5] * 4, n - n // 5 * 4)
    alone = lists(load(make(kind, paths, 8), 0, loader_class))
    assert [len(batch) for batch in alone] == sizes
    assert count(alone) == Counter(range(n))
    for workers in (1, num_workers):
        assert lists(load(make(kind, paths, 8), workers, loader_class)) == alone


@by_kind
def test_shuffled_shards(write, kind):
    """S=17, P=8, K=2, shuffled: every shard's samples once an epoch, over 3 epochs, in 3 orders."""
    paths = write(*[3, 4, 5] * 5, 6, 7)
    n = 73
    datasets = [make(kind, paths, 4, rank, 8, "keep") for rank in range(8)]
    loaders = [load(dataset, 2, persistent_workers=True) for dataset in datasets]
    orders = []
    for epoch in range(3):
        ranks = []
        for dataset, loader in zip(datasets, loaders, strict=True):
            dataset.set_epoch(epoch)
            ranks.append(lists(loader))
        assert count(itertools.chain(*ranks)) == Counter(range(n))
        assert sorted(sum(map(len, batches)) for batches in ranks) == [9] * 7 + [10]
        orders.append(ranks)
    assert all(first != second for first, second in itertools.combinations(orders, 2))


@by_kind
@by_loader
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_persistent_workers(write, kind, loader_class, context):
    """S=8 shards, K=2, persistent workers: `set_epoch` reaches the living ones: a new order each epoch, same pids."""
    paths = write(3, 4, 5, 6, 3, 4, 5, 6)
    dataset = make(kind, paths, 4)
    loader = load(dataset, 2, loader_class, persistent_workers=True, multiprocessing_context=context)
    pids, orders = set(), []
    for epoch in (0, 1, 5):
        dataset.set_epoch(epoch)
        batches = iter(loader)
        pids.add(tuple(worker.pid for worker in loader._iterator._workers))
        orders.append(lists(batches))
        assert count(orders[-1]) == Counter(range(36))
        fresh = make(kind, paths, 4)
        fresh.set_epoch(epoch)
        assert orders[-1] == lists(load(fresh))
    assert len(pids) == 1
    assert all(first != second for first, second in itertools.combinations(orders, 2))
