"""The oracle itself, checked against what is published or obvious."""

import pytest
import torch

from fastshard import _reference


def test_philox_gives_the_published_vectors():
    # From Random123's kat_vectors, philox4x64 with 10 rounds.
    ones = 2**64 - 1
    assert _reference.philox((0, 0, 0, 0), (0, 0)) == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]
    assert _reference.philox((ones, ones, ones, ones), (ones, ones)) == [
        0x87B092C3013FE90B,
        0x438C3C67BE8D0224,
        0x9CC7D7C69CD777B6,
        0xA09CAEBF594F0BA0,
    ]


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000, 16384, 16385, 17000])
def test_shuffled_is_a_bijection(n):
    at = _reference.shuffled(n, seed=1, epoch=2)
    assert sorted(at(position) for position in range(n)) == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000, 4097])
def test_torch_order_is_randperm(n):
    expected = torch.randperm(n, generator=torch.Generator().manual_seed(12)).tolist()
    assert _reference.torch_order(n, seed=5, epoch=7) == expected


def test_torch_order_by_the_wide_rule_inserts_each_id_at_an_earlier_place():
    order = _reference.torch_order(1000, seed=5, epoch=7, wide=True)
    assert sorted(order) == list(range(1000))
    # The last step puts id 999 at `z` and what was there at the end: undone, it is the order of 999 ids.
    shorter = _reference.torch_order(999, seed=5, epoch=7, wide=True)
    place = order.index(999)
    order[place] = order[-1]
    assert order[:-1] == shorter


def test_slice_positions_are_those_of_torchs_sampler():
    for length in range(1, 25):
        for num_replicas in range(1, 12):
            for rank in range(num_replicas):
                for drop in (False, True):
                    sampler = torch.utils.data.DistributedSampler(
                        range(length), num_replicas, rank, shuffle=False, drop_last=drop
                    )
                    uneven = "drop" if drop else "pad"
                    assert _reference.slice_positions(length, rank, num_replicas, uneven) == list(sampler)


def test_slice_positions_keep_deals_each_position_once():
    dealt = [_reference.slice_positions(10, rank, 4, "keep", start=3) for rank in range(4)]
    assert dealt == [[3, 7], [4, 8], [5, 9], [6]]
