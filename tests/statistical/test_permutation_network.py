"""The numpy network that weak permutations are made of is the core's, and counts of permutations are right."""

import itertools

import numpy as np
import pytest
from permutation_network import encrypt, narrow
from permutation_statistics import (
    count_cycles,
    count_inversions,
    longest_increasing,
    longest_increasing_law,
    permutation_index,
    relatives,
)
from permutation_subjects import WEAK

from fastshard import _reference
from fastshard.orders import Shuffled


@pytest.mark.parametrize("n", [16385, 65536, 65537, 2**24 + 1, 65535 * 65534, 65535 * 65534 + 1, 2**36 + 1, 2**40])
def test_at_the_cores_rounds_the_numpy_network_is_the_core(n):
    seed, epoch, count = 5, 3, 2000
    version = _reference.SHUFFLED_VERSION
    words = [word for block in range(4) for word in _reference.philox((epoch, n, block, 0), (seed, version))]
    keys = np.array([words[: _reference.ROUNDS]], dtype=np.uint64)
    ids = encrypt(n, keys, np.arange(n - count, n), 16 if narrow(n) else 32)
    np.testing.assert_array_equal(ids[0], Shuffled(n, seed).indices(epoch, n - count, n))


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("n", [2, 5, 16, 17, 1000, 4097])
def test_every_key_of_the_numpy_network_gives_a_bijection(n, bits):
    keys = np.random.default_rng(1).integers(2**64, size=(20, 4), dtype=np.uint64)
    ids = encrypt(n, keys, np.arange(n), bits)
    np.testing.assert_array_equal(np.sort(ids, axis=1), np.tile(np.arange(n), (20, 1)))


@pytest.mark.parametrize("subject", WEAK.values(), ids=WEAK)
@pytest.mark.parametrize("n", [5, 17, 300])
def test_weak_permutations_are_permutations(subject, n):
    keys = np.stack([np.arange(40) // 4, np.arange(40) % 4], axis=1)
    np.testing.assert_array_equal(np.sort(subject.orders(n, keys), axis=1), np.tile(np.arange(n), (40, 1)))


ALL_OF_FIVE = np.array(list(itertools.permutations(range(5))), dtype=np.int32)


def test_permutations_are_numbered_without_gaps():
    assert sorted(permutation_index(ALL_OF_FIVE)) == list(range(120))


def test_cycles_of_all_permutations_are_the_stirling_numbers():
    assert np.bincount(count_cycles(ALL_OF_FIVE)).tolist() == [0, 24, 50, 35, 10, 1]


def test_inversions_are_the_pairs_out_of_order():
    random = np.random.default_rng(2)
    for n in (2, 5, 31, 32, 33, 100, 129):
        orders = random.permuted(np.tile(np.arange(n, dtype=np.int32), (20, 1)), axis=1)
        pairs = (orders[:, :, None] > orders[:, None]) & np.triu(np.ones((n, n), dtype=bool), 1)
        np.testing.assert_array_equal(count_inversions(orders), pairs.sum(axis=(1, 2)))


def test_longest_increase_of_all_permutations_has_the_law_of_the_hook_lengths():
    lengths = longest_increasing(ALL_OF_FIVE)
    assert longest_increasing(np.array([[0, 3, 1, 4, 2], [4, 3, 2, 1, 0]], dtype=np.int32)).tolist() == [3, 1]
    assert longest_increasing_law(5) == pytest.approx((lengths.mean(), lengths.var()))


def test_relatives_lead_from_one_order_to_the_next():
    orders = np.array([[2, 0, 1], [1, 2, 0]], dtype=np.int32)
    assert relatives(orders).tolist() == [[1, 2, 0]]
