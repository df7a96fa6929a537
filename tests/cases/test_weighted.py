"""The case `weighted` of CASES.md: "P=4, 2000 draws: 500 a rank; 100 draws on P=8: 104 padded, 13 each; 2^24+1 weights
work; frequencies within 5 sigma."
"""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, RepeatedEpochWarning, WeightedDistributedSampler
from fastshard.orders import Weighted


def shares_of(ranks):
    return [list(sampler) for sampler in ranks]


def dealt(shares):
    """All ranks' draws in the order of their positions."""
    longest = max(map(len, shares))
    return [share[i] for i in range(longest) for share in shares if i < len(share)]


@pytest.mark.parametrize("replacement", [True, False])
def test_weighted_gives_each_of_4_ranks_500_of_2000_draws(replacement):
    weights = np.random.default_rng(0).random(3000)
    ranks = [WeightedDistributedSampler(weights, 2000, 4, rank, replacement, seed=3) for rank in range(4)]
    for sampler in ranks:
        sampler.set_epoch(5)
    shares = shares_of(ranks)
    assert [len(sampler) for sampler in ranks] == [len(share) for share in shares] == [500] * 4
    assert {type(sample) for share in shares for sample in share} == {int}
    assert dealt(shares) == Weighted(weights, 2000, 3, replacement).indices(5).tolist()
    if not replacement:
        assert len(set(dealt(shares))) == 2000


@pytest.mark.parametrize("replacement", [True, False])
def test_weighted_pads_100_draws_to_104_on_8_ranks(replacement):
    weights = torch.arange(1, 201)
    ranks = [WeightedDistributedSampler(weights, 100, 8, rank, replacement) for rank in range(8)]
    shares = shares_of(ranks)
    whole = Weighted(weights, 100, 0, replacement).indices(0).tolist()
    assert ranks[0].total_size == 104
    assert [len(sampler) for sampler in ranks] == [len(share) for share in shares] == [13] * 8
    assert [sampler.num_padding for sampler in ranks] == [0] * 4 + [1] * 4
    assert dealt(shares) == whole + whole[:4]

    for uneven, lengths in (("drop", [12] * 8), ("keep", [13] * 4 + [12] * 4)):
        ranks = [WeightedDistributedSampler(weights, 100, 8, r, replacement, uneven=uneven) for r in range(8)]
        shares = shares_of(ranks)
        assert [len(share) for share in shares] == lengths
        assert dealt(shares) == whole[: sum(lengths)]


def test_weighted_takes_2_to_the_24_plus_1_weights():
    """torch.multinomial, which torch's WeightedRandomSampler stands on, stops at 2^24."""
    n = 2**24 + 1
    weights = np.full(n, 1e-12)
    weights[n - 1] = 1.0
    for replacement in (True, False):
        ranks = [WeightedDistributedSampler(weights, 1000, 8, rank, replacement) for rank in range(2)]
        shares = shares_of(ranks)
        assert [len(share) for share in shares] == [125, 125]
        assert shares[0][0] == n - 1
        assert all(0 <= sample < n for sample in shares[0] + shares[1])


def test_weighted_frequencies_over_all_ranks_and_epochs_are_within_5_sigma():
    """A labelled dataset, 90% of one class, drawn evenly by class."""
    labels = np.array([0] * 900 + [1] * 70 + [2] * 30)
    weights = (1 / np.bincount(labels))[labels]
    ranks = [WeightedDistributedSampler(weights, 2000, 4, rank, on_repeated_epoch="advance") for rank in range(4)]
    drawn = np.array([shares_of(ranks) for _ in range(25)])  # (epoch, rank, draw)
    for some in (drawn, drawn[:, 1], drawn[3]):
        counts = np.bincount(labels[some.ravel()], minlength=3)
        assert (np.abs(counts - some.size / 3) < 5 * np.sqrt(some.size * 2 / 9)).all()
    by_sample = np.bincount(drawn.ravel(), minlength=1000)
    expected = drawn.size * weights / weights.sum()
    assert (np.abs(by_sample - expected) < 5 * np.sqrt(expected)).all()


def test_weighted_epochs_differ_and_a_forgotten_set_epoch_warns():
    sampler = WeightedDistributedSampler([1, 2, 3], 100, 2, 0)
    first = list(sampler)
    with pytest.warns(RepeatedEpochWarning):
        assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_weighted_draws_come_in_batches_too():
    order = Weighted([1, 2, 3, 4], 100, 9)
    batches = [DistributedBatchSampler(range(4), 5, 2, rank, order=order) for rank in range(2)]
    assert [len(batch) for batch in batches[0]] == [5] * 10
    assert batches[0].global_batch(2).tolist() == order.indices(0, 20, 30).tolist()
    assert [sample for batch in batches[1] for sample in batch] == order.indices(0, 1, None, 2).tolist()
    loader = DataLoader(range(4), batch_sampler=batches[1], num_workers=1)
    batches[1].set_epoch(1)
    assert torch.cat(list(loader)).tolist() == order.indices(1, 1, None, 2).tolist()


def test_weighted_sampler_is_a_distributed_sampler_and_survives_pickling():
    sampler = WeightedDistributedSampler([1, 2, 3], 10, 2, 1, seed=4, drop_last=True)
    sampler.set_epoch(2)
    again = pickle.loads(pickle.dumps(sampler))
    assert list(again) == list(sampler) == Weighted([1, 2, 3], 10, 4).indices(2, 1, None, 2).tolist()
    assert isinstance(sampler, torch.utils.data.DistributedSampler)
    assert (sampler.seed, sampler.drop_last, sampler.num_samples, len(sampler.dataset)) == (4, True, 5, 3)
    with pytest.raises(TypeError, match="an id has no position"):
        sampler.where(0, 1)


def test_weighted_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"got weights\[1\]=-1"):
        WeightedDistributedSampler([1, -1], 10, 2, 0)
    with pytest.raises(ValueError, match="got num_samples=0"):
        WeightedDistributedSampler([1, 1], 0, 2, 0)
    with pytest.raises(ValueError, match=r"rank must be in \[0, 2\), got rank=2"):
        WeightedDistributedSampler([1, 1], 10, 2, 2)
    with pytest.raises(ValueError, match=r"len\(dataset\)=3 ids, got one of 2"):
        DistributedSampler(range(3), 1, 0, order=Weighted([1, 1], 10))
