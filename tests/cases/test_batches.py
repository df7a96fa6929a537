"""The cases `batch-sampler` and `length-groups` of CASES.md: each test is named after its case's word and quotes it."""

import itertools

import numpy as np
import pytest
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from fastshard import LengthBucketBatchSampler, ShardedBatchSampler

SEVEN = [[0, 1, 2], [3], [4, 5], [6, 7, 8, 9], [10], [11, 12, 13], [14]]


class WithoutLength:
    def __iter__(self):
        return iter(SEVEN)


@pytest.mark.parametrize("batch_sampler", [SEVEN, WithoutLength()], ids=["len", "no-len"])
@pytest.mark.parametrize(
    ("uneven", "expected"),
    [
        ("keep", [[0, 2, 4, 6], [1, 3, 5]]),
        ("pad", [[0, 2, 4, 6], [1, 3, 5, 0]]),
        ("drop", [[0, 2, 4], [1, 3, 5]]),
    ],
)
def test_batch_sampler(uneven, expected, batch_sampler):
    """7 batches of different sizes over P=2: keep 4/3, pad 4/4, drop 3/3; batches intact and in order."""
    for rank in range(2):
        sampler = ShardedBatchSampler(batch_sampler, 2, rank, uneven=uneven)
        assert list(sampler) == [SEVEN[number] for number in expected[rank]]
        if batch_sampler is SEVEN:
            assert len(sampler) == len(expected[rank])
            loader = DataLoader(range(15), batch_sampler=sampler)
            assert [batch.tolist() for batch in loader] == [SEVEN[number] for number in expected[rank]]


def test_batch_sampler_of_torch():
    """The same for torch's own, whose last batch is smaller."""
    torchs = BatchSampler(SequentialSampler(range(20)), 3, drop_last=False)
    shares = [list(ShardedBatchSampler(torchs, 2, rank)) for rank in range(2)]
    assert shares[0] == [[0, 1, 2], [6, 7, 8], [12, 13, 14], [18, 19]]
    assert shares[1] == [[3, 4, 5], [9, 10, 11], [15, 16, 17], [0, 1, 2]]


@pytest.mark.parametrize("sizes", [{"batch_size": 8}, {"max_tokens": 3000}], ids=["batch_size", "max_tokens"])
@pytest.mark.parametrize("n", [1, 5, 31, 32, 33, 1000, 2003])
def test_length_groups(n, sizes):
    """Union of all ranks is a permutation; `len` equals the number of batches; all ranks have the same number."""
    lengths = np.clip(np.random.default_rng(1).lognormal(5, 1, n).astype(int), 1, 3000)
    for num_replicas in (num_replicas for num_replicas in (1, 2, 4, 5) if num_replicas <= n):
        for epoch in range(3):
            ranks = [
                LengthBucketBatchSampler(lengths, **sizes, num_replicas=num_replicas, rank=rank, uneven="keep")
                for rank in range(num_replicas)
            ]
            for sampler in ranks:
                sampler.set_epoch(epoch)
            drawn = [list(sampler) for sampler in ranks]
            assert sorted(itertools.chain(*itertools.chain(*drawn))) == list(range(n))
            assert [len(sampler) for sampler in ranks] == [len(batches) for batches in drawn]
            assert len({len(batches) for batches in drawn}) == 1
            assert all(batches and all(batches) for batches in drawn)
