"""Samplers inside a process group: rank and world size come from it, and DataLoader workers change nothing."""

from itertools import chain

import pytest
import torch
import torch.distributed as dist
from launch import run_ranks
from small_training import IndexedDigits
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler as TorchSampler

from fastshard import (
    DistributedBatchSampler,
    DistributedSampler,
    LengthBucketBatchSampler,
    ShardedBatchSampler,
    orders,
)

pytestmark = pytest.mark.multiprocess


def build_from_the_group():
    """Returns what samplers take from the group, and what their ids and torch's are."""
    sampler = DistributedSampler(range(23), seed=3, order="torch")
    batches = DistributedBatchSampler(range(23), 4, seed=3)
    given = DistributedSampler(range(23), num_replicas=5, rank=4)
    grouped = LengthBucketBatchSampler(range(1, 24), 4, seed=3)
    dealt = ShardedBatchSampler([[0], [1, 2], [3]])
    return {
        "rank": (sampler.rank, batches.sampler.rank, grouped.rank, dealt.rank),
        "num_replicas": (sampler.num_replicas, batches.sampler.num_replicas, grouped.num_replicas, dealt.num_replicas),
        "ids": list(sampler),
        "torch's ids": list(TorchSampler(range(23), seed=3)),
        "batches": list(batches),
        "grouped": list(grouped),
        "dealt": list(dealt),
        "given": (given.rank, given.num_replicas),
    }


def test_rank_and_num_replicas_come_from_the_process_group_unless_given(tmp_path):
    shuffled = orders.Shuffled(23, 3).indices(0).tolist()
    ranks = run_ranks(build_from_the_group, 2, tmp_path)
    grouped = [list(chain.from_iterable(built["grouped"])) for built in ranks]
    assert set(chain.from_iterable(grouped)) == set(range(23))
    assert [len(ids) for ids in grouped] == [12, 12]
    assert [built["dealt"] for built in ranks] == [[[0], [3]], [[1, 2], [0]]]
    for rank, built in enumerate(ranks):
        assert built["rank"] == (rank,) * 4
        assert built["num_replicas"] == (2,) * 4
        assert built["ids"] == built["torch's ids"]
        assert list(chain.from_iterable(built["batches"])) == (shuffled + shuffled[:1])[rank::2]
        assert built["given"] == (4, 5)


@pytest.mark.parametrize("arguments", [{}, {"rank": 0}, {"num_replicas": 1}])
def test_without_a_process_group_the_sampler_raises_what_torchs_raises(arguments):
    assert not dist.is_initialized()

    def error_of(sampler_class):
        with pytest.raises(Exception, match="process group") as caught:
            sampler_class(range(23), **arguments)
        return caught.type, str(caught.value)

    assert error_of(DistributedSampler) == error_of(TorchSampler)


def ids_with_and_without_workers():
    """Returns by num_workers the ids received in three epochs; the two workers live through all of them."""
    dataset = IndexedDigits(101)
    received = {}
    for num_workers in (0, 2):
        sampler = DistributedSampler(dataset, seed=5)
        # Ranks inherit "forkserver" from how the launcher starts them; its workers would import torch anew.
        workers = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}
        loader = DataLoader(dataset, 8, sampler=sampler, **(workers if num_workers else {}))
        received[num_workers] = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            received[num_workers].append(torch.cat([ids for ids, _, _ in loader]).tolist())
    return received


def test_persistent_workers_deliver_the_ids_that_no_workers_deliver(tmp_path):
    order = orders.Shuffled(101, 5)
    for rank, received in enumerate(run_ranks(ids_with_and_without_workers, 2, tmp_path)):
        padded = [[*order.indices(epoch).tolist(), order.index(epoch, 0)] for epoch in range(3)]
        assert received[0] == [ids[rank::2] for ids in padded]
        assert received[2] == received[0]
