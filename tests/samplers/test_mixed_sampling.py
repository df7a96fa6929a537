"""Samplers, batches, loaders and slices take a Mixed as any other order."""

import itertools

import pytest
import torch
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, Slice
from fastshard.orders import Mixed, Shuffled


@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("num_replicas", [1, 3, 8])
def test_the_ranks_together_draw_the_order_padded_as_any_other(num_replicas, uneven):
    order = Mixed([Shuffled(50, 1), Shuffled(30, 2)], [3, 2], 1)
    dataset = range(80)
    ranks = [DistributedSampler(dataset, num_replicas, r, order=order, uneven=uneven) for r in range(num_replicas)]
    for sampler in ranks:
        sampler.set_epoch(1)
    shares = [list(sampler) for sampler in ranks]
    drawn = [share[i] for i in range(len(shares[0])) for share in shares if i < len(share)]
    whole = order.indices(1).tolist()
    assert drawn == (whole + whole)[: ranks[0].total_size]
    assert {type(sample) for sample in drawn} == {int}


def test_loaders_and_batches_take_it():
    order = Mixed([Shuffled(50, 1), Shuffled(30, 2)], [3, 2], 1, 74)
    batches = DistributedBatchSampler(range(80), 4, 2, 1, order=order)
    assert [sample for batch in batches for sample in batch] == order.indices(0, 1, None, 2).tolist()
    assert batches.global_batch(3).tolist() == order.indices(0, 24, 32).tolist()
    loader = DataLoader(range(80), batch_sampler=batches, num_workers=1)
    batches.set_epoch(1)
    assert torch.cat(list(loader)).tolist() == order.indices(1, 1, None, 2).tolist()


def test_what_is_left_of_an_epoch_is_sliced_afresh_for_another_number_of_ranks():
    order = Mixed([Shuffled(500, 1), Shuffled(300, 2)], [3, 2], 1)
    whole = order.indices(3).tolist()
    rest = [orders_of_rank(order, rank, 3, start=240) for rank in range(3)]
    assert [sample for step in itertools.zip_longest(*rest) for sample in step if sample is not None] == whole[240:]


def orders_of_rank(order, rank, num_replicas, start):
    return Slice(len(order), rank, num_replicas, "keep", start).indices(order, 3).tolist()


def test_a_sampler_with_another_seed_or_dataset_is_refused():
    order = Mixed([Shuffled(50, 1), Shuffled(30, 2)], [3, 2], 1)
    with pytest.raises(ValueError, match="seed=2 contradicts order=Mixed"):
        DistributedSampler(range(80), 1, 0, seed=2, order=order)
    with pytest.raises(ValueError, match=r"len\(dataset\)=50 ids, got one of 80"):
        DistributedSampler(range(50), 1, 0, order=order)
