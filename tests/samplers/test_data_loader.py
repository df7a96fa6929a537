"""In a real DataLoader, with and without workers, each batch holds the samples that the sampler drew."""

import itertools

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fastshard import DistributedBatchSampler, DistributedSampler
from fastshard import _reference as reference

WORKERS = [
    pytest.param({"num_workers": 0}, id="in process"),
    pytest.param({"num_workers": 2, "multiprocessing_context": "fork"}, id="2 forked"),
    pytest.param({"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True}, id="2 spawned"),
]
every_start = pytest.mark.parametrize("workers", WORKERS)


class Squares(Dataset):
    def __len__(self):
        return 103

    def __getitem__(self, index):
        assert type(index) is int
        return torch.tensor([index, index * index])


class SquaresAtOnce(Squares):
    """torch gives such a dataset a whole batch of indices, in whatever form the batch sampler made it."""

    def __getitems__(self, indices):
        return torch.stack([torch.as_tensor(indices), torch.as_tensor(indices) ** 2], 1)


class ThatCarriesASampler(Squares):
    """A dataset that goes to the workers together with a sampler, and answers with what it would draw there."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __getitem__(self, index):
        return torch.tensor([index, int(self.sampler.indices(index % len(self.sampler))[0])])


def expected_ids(rank, epoch, order="shuffled"):
    n, seed = 103, 7
    at = (
        reference.shuffled(n, seed, epoch) if order == "shuffled" else reference.torch_order(n, seed, epoch).__getitem__
    )
    return [at(position) for position in reference.slice_positions(n, rank, 3)]


@every_start
def test_a_loader_with_our_sampler_gives_the_samples_drawn_epoch_by_epoch(workers):
    sampler = DistributedSampler(Squares(), 3, 1, seed=7)
    loader = DataLoader(Squares(), batch_size=8, sampler=sampler, **workers)
    for epoch in (0, 1, 5):
        sampler.set_epoch(epoch)
        rows = torch.cat(list(loader))
        assert rows[:, 0].tolist() == expected_ids(1, epoch)
        assert torch.equal(rows[:, 1], rows[:, 0] ** 2)


@every_start
def test_a_loader_with_our_batch_sampler_gives_its_batches(workers):
    batches = DistributedBatchSampler(Squares(), 8, 3, 2, seed=7, order="torch")
    loader = DataLoader(Squares(), batch_sampler=batches, **workers)
    for epoch in (0, 3):
        batches.set_epoch(epoch)
        found = list(loader)
        assert [len(batch) for batch in found] == [8, 8, 8, 8, 3]
        assert torch.cat(found)[:, 0].tolist() == expected_ids(2, epoch, "torch")


@pytest.mark.parametrize("as_array", [False, True])
def test_datasets_that_take_whole_batches_get_lists_or_arrays(as_array):
    batches = DistributedBatchSampler(SquaresAtOnce(), 8, 3, 0, seed=7, as_array=as_array)
    loader = DataLoader(SquaresAtOnce(), batch_sampler=batches, collate_fn=lambda rows: rows)
    rows = torch.cat(list(loader))
    assert rows[:, 0].tolist() == expected_ids(0, 0)
    assert torch.equal(rows[:, 1], rows[:, 0] ** 2)


def test_persistent_workers_follow_set_epoch():
    sampler = DistributedSampler(Squares(), 3, 0, seed=7)
    loader = DataLoader(Squares(), 8, sampler=sampler, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert torch.cat(list(loader))[:, 0].tolist() == expected_ids(0, epoch)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_sampler_carried_into_a_worker_draws_the_same_there(start):
    sampler = DistributedSampler(Squares(), 3, 1, seed=7)
    sampler.set_epoch(4)
    carrying = ThatCarriesASampler(sampler)
    loader = DataLoader(carrying, 5, num_workers=1, multiprocessing_context=start)
    drawn = expected_ids(1, 4)
    assert torch.cat(list(loader))[:, 1].tolist() == [drawn[i % len(drawn)] for i in range(103)]


def test_the_ranks_of_a_loader_cover_the_dataset():
    loaders = [
        DataLoader(Squares(), 8, sampler=DistributedSampler(Squares(), 3, rank, uneven="keep"), num_workers=2)
        for rank in range(3)
    ]
    seen = [torch.cat(list(loader))[:, 0].tolist() for loader in loaders]
    assert sorted(itertools.chain(*seen)) == list(range(103))
