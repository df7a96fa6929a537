"""TorchShuffled is torch's order: element by element that of the installed torch's own DistributedSampler."""

import psutil
import pytest
import torch
from torch.utils.data import DistributedSampler as TorchSampler

from fastshard import Slice, _reference
from fastshard.orders import TorchShuffled

SEEDS = [-(2**63), -1, 0, 1, 2**31, 2**32, 2**32 + 1, 2**63, 2**64 - 1, 17982163893102248868]
WIDE_FROM = 214_748_364  # where torch changes its rule


def randperm(n, seed, epoch=0):
    """torch's own, with the sum taken modulo 2^64 where torch's manual_seed would raise."""
    return torch.randperm(n, generator=torch.Generator().manual_seed((seed + epoch) % 2**64))


def torchs_share(n, rank, num_replicas, seed, epoch, drop_last):
    sampler = TorchSampler(range(n), num_replicas, rank, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)


def assert_ranks_are_torchs(n, num_replicas, seed, epoch):
    order = TorchShuffled(n, seed)
    for drop_last in (False, True):
        for rank in range(num_replicas):
            share = Slice(n, rank, num_replicas, "drop" if drop_last else "pad")
            expected = torchs_share(n, rank, num_replicas, seed, epoch, drop_last)
            assert share.indices(order, epoch).tolist() == expected


@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")
@pytest.mark.parametrize("n", range(1, 66))
def test_every_rank_of_small_jobs_draws_what_torch_draws(n):
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (42, 7), (2**32, 3), (-1, 0), (-5, 3)):
        for num_replicas in (1, 2, 3, 8):
            assert_ranks_are_torchs(n, num_replicas, seed, epoch)


@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")
@pytest.mark.parametrize("num_replicas", [1, 2, 5, 7, 64, 150])
@pytest.mark.parametrize("n", [100, 1000, 4097])
def test_every_rank_of_larger_jobs_draws_what_torch_draws(n, num_replicas):
    for seed, epoch in ((0, 0), (17982163893102248868, 5)):
        assert_ranks_are_torchs(n, num_replicas, seed, epoch)


@pytest.mark.parametrize(("n", "num_replicas"), [(65537, 3), (65537, 8), (1_000_000, 3)])
def test_every_rank_of_large_jobs_draws_what_torch_draws(n, num_replicas):
    assert_ranks_are_torchs(n, num_replicas, seed=2**31, epoch=2)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 100, 1000, 4097])
@pytest.mark.parametrize("seed", SEEDS)
def test_edge_seeds_are_torchs(seed, n):
    for epoch in (0, 1, 2, 100):
        if seed + epoch < 2**64:
            assert TorchShuffled(n, seed).indices(epoch).tolist() == torchs_share(n, 0, 1, seed, epoch, False)


def test_a_sum_that_torch_refuses_wraps_around():
    with pytest.raises((RuntimeError, ValueError)):
        torchs_share(100, 0, 1, 2**64 - 1, 3, False)
    for seed, epoch in ((2**64 - 1, 3), (2**63, 2**63), (2**64 - 1, 2**64 - 1), (-1, 2**64 - 1), (1, 2**64 - 1)):
        assert TorchShuffled(100, seed).indices(epoch).tolist() == randperm(100, seed, epoch).tolist()


def test_seed_and_epoch_are_added_as_torch_does():
    assert TorchShuffled(100, 0).indices(1).tolist() == TorchShuffled(100, 1).indices(0).tolist()


def test_torchs_global_generator_plays_no_part():
    before = torch.get_rng_state()
    first = TorchShuffled(100, 3).indices(1).tolist()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(77)
    assert TorchShuffled(100, 3).indices(1).tolist() == first


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 1000, 50_000])
def test_narrow_rule_equals_the_reference(n):
    assert TorchShuffled(n, -7).indices(3).tolist() == _reference.torch_order(n, -7, 3)


def test_a_new_epoch_of_the_same_order_replaces_the_former_completely():
    # The memory of the former epoch is used again; an array that was handed out before is not touched.
    order = TorchShuffled(5000, 1)
    kept = order.indices(0)
    for epoch in (1, 2, 0, 5):
        assert order.indices(epoch).tolist() == randperm(5000, 1, epoch).tolist()
    assert kept.tolist() == randperm(5000, 1).tolist()


@pytest.mark.parametrize("n", [2**45, 2**61, 2**63 - 1])
def test_a_permutation_that_does_not_fit_is_a_memory_error_with_the_size(n):
    order = TorchShuffled(n)
    with pytest.raises(MemoryError) as caught:
        order.index(0, 0)
    assert f"this order of {n} samples takes 8 bytes a sample" in str(caught.value)
    assert (f"{8 * n} bytes" if 8 * n < 2**64 else "more than 2^64 bytes") in str(caught.value)


def test_an_order_survives_a_permutation_that_did_not_fit():
    order = TorchShuffled(2**45)
    for _ in range(2):
        with pytest.raises(MemoryError, match="35184372088832 samples"):
            order.index(0, 0)


@pytest.mark.timeout(60)
def test_an_order_that_did_not_fit_keeps_no_other_one_waiting():
    orders = [TorchShuffled(2**45) for _ in range(3)]
    for order in orders:  # the former ones are still there
        with pytest.raises(MemoryError, match="35184372088832 samples"):
            order.index(0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("n", [WIDE_FROM - 1, WIDE_FROM])
def test_both_sides_of_torchs_change_of_rule_are_torchs(n):
    # torch's array takes 8 bytes a sample, ours 4, and what is compared at a time little.
    needed = 6 * 2**30
    available = psutil.virtual_memory().available
    if available < needed:
        pytest.skip(f"needs {needed} bytes of memory, {available} are available")
    expected = randperm(n, 5, 2).numpy()
    order = TorchShuffled(n, 5)
    block = 2**24
    for start in range(0, n, block):
        stop = min(start + block, n)
        assert (order.indices(2, start, stop) == expected[start:stop]).all()
