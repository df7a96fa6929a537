"""Shuffled is a bijection at every size, equals the reference bit by bit, and its orders have nothing in common."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastshard import _reference
from fastshard.orders import Shuffled

MAX_NARROW = 65535 * 65534  # the last size of the network with 16-bit words
EDGE_SEEDS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 17982163893102248868]
EDGE_EPOCHS = [0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]

seeds = st.sampled_from(EDGE_SEEDS) | st.integers(-(2**63), 2**64 - 1)
epochs = st.sampled_from(EDGE_EPOCHS) | st.integers(0, 2**64 - 1)


def assert_bijection(n, seed=0, epoch=0):
    ids = Shuffled(n, seed).indices(epoch)
    assert ids.dtype == np.int64
    assert ids.shape == (n,)
    assert ids.min() == 0
    assert ids.max() == n - 1
    seen = np.zeros(n, bool)
    seen[ids] = True
    assert seen.all(), f"n={n} misses {np.flatnonzero(~seen)[:5]}"


def test_every_size_up_to_5000_is_a_bijection():
    for n in range(1, 5001):
        assert_bijection(n, seed=n, epoch=3)


def test_sizes_around_the_end_of_the_table_are_bijections():
    for n in range(16300, 16700):
        assert_bijection(n, seed=1, epoch=n)


@pytest.mark.parametrize("n", [65537, 262145, 1048577, 10000019, 2**24 - 1, 2**24, 2**24 + 1])
def test_awkward_large_sizes_are_bijections(n):
    assert_bijection(n, seed=7, epoch=1)


def test_powers_of_two_squares_and_their_neighbours_are_bijections():
    powers = [2**k + d for k in range(15, 21) for d in (-1, 0, 1)]
    squares = [r * r + d for r in (128, 129, 181, 257, 511, 512, 1021) for d in (-1, 0, 1)]
    oblongs = [r * (r + 1) + d for r in (128, 255, 256, 1020) for d in (-1, 0, 1)]
    for n in powers + squares + oblongs:
        assert_bijection(n, seed=-1, epoch=2**64 - 1)


def strided_sample(n, generator):
    """About a million positions, all over [0, n), as (start, stop, step) of 1000 runs of at most 1000."""
    for _ in range(1000):
        start = int(generator.integers(0, n))
        step = int(generator.integers(1, max(2, n // 1000)))
        yield start, min(n, start + 1000 * step), step


@pytest.mark.parametrize(
    "n", [MAX_NARROW - 1, MAX_NARROW, MAX_NARROW + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**62, 2**63 - 1]
)
def test_distinct_positions_of_huge_sizes_have_distinct_ids_in_range(n):
    order = Shuffled(n, seed=5)
    runs = list(strided_sample(n, np.random.default_rng(n)))
    positions = np.concatenate([np.arange(*run) for run in runs])
    ids = np.concatenate([order.indices(9, *run) for run in runs])
    assert len(positions) == len(ids) > 500_000
    assert ids.min() >= 0
    assert ids.max() < n
    assert count_distinct(ids) == count_distinct(positions)


def count_distinct(values):
    return 1 + np.count_nonzero(np.diff(np.sort(values)))


@pytest.mark.parametrize("n", [MAX_NARROW, MAX_NARROW + 1, 2**63 - 1])
def test_ids_of_huge_sizes_spread_over_the_whole_range(n):
    ids = Shuffled(n, seed=5).indices(0, 0, 160_000)
    counts = np.bincount((ids // (n // 16 + 1)).astype(np.int64), minlength=16)
    assert len(counts) == 16
    assert np.abs(counts - 10_000).max() < 600  # six times the standard deviation


@given(n=st.integers(1, 700), seed=seeds, epoch=epochs, data=st.data())
def test_table_form_equals_the_reference(n, seed, epoch, data):
    assert_equal_to_reference(n, seed, epoch, data)


@given(
    n=st.integers(16385, MAX_NARROW) | st.sampled_from([16385, 16386, MAX_NARROW]),
    seed=seeds,
    epoch=epochs,
    data=st.data(),
)
def test_narrow_form_equals_the_reference(n, seed, epoch, data):
    assert_equal_to_reference(n, seed, epoch, data)


@given(
    n=st.integers(MAX_NARROW + 1, 2**63 - 1) | st.sampled_from([MAX_NARROW + 1, 2**62, 2**63 - 1]),
    seed=seeds,
    epoch=epochs,
    data=st.data(),
)
def test_wide_form_equals_the_reference(n, seed, epoch, data):
    assert_equal_to_reference(n, seed, epoch, data)


def assert_equal_to_reference(n, seed, epoch, data):
    start = data.draw(st.integers(0, n) | st.integers(max(0, n - 300), n), "start")
    step = data.draw(st.integers(1, 5) | st.integers(1, n) | st.integers(1, 2**63 - 1), "step")
    count = data.draw(st.integers(0, 150), "count")
    stop = min(n, start + count * step)
    at = _reference.shuffled(n, seed, epoch)
    expected = [at(position) for position in range(start, stop, step)]
    assert Shuffled(n, seed).indices(epoch, start, stop, step).tolist() == expected


@pytest.mark.parametrize("n", [16383, 16384, 16385, 20000])
def test_whole_orders_equal_the_reference(n):
    at = _reference.shuffled(n, seed=-3, epoch=2**40)
    assert Shuffled(n, -3).indices(2**40).tolist() == [at(position) for position in range(n)]


@pytest.mark.parametrize("n", [1000, 20_000])  # the table and the network
def test_orders_of_distinct_seeds_and_epochs_agree_no_more_than_chance(n):
    keys = [(seed, epoch) for seed in (0, 1, 2, 3, 2**32, -1) for epoch in (0, 1, 2, 3, 2**32, 2**64 - 1)]
    orders = np.stack([Shuffled(n, seed).indices(epoch) for seed, epoch in keys])
    agreements = [int((orders[i] == orders[j]).sum()) for i in range(len(keys)) for j in range(i)]
    # Two unrelated permutations agree at Poisson(1) places: 630 pairs, so 630 in all, give or take 25.
    assert max(agreements) < 12
    assert abs(sum(agreements) - 630) < 150


@pytest.mark.parametrize("n", [1000, 20_000])
def test_orders_of_neighbouring_sizes_are_unrelated(n):
    small, large = Shuffled(n, 1).indices(1), Shuffled(n + 1, 1).indices(1)
    assert (small == large[:n]).sum() < 12


def test_epoch_is_not_added_to_the_seed():
    orders = {tuple(Shuffled(50, seed).indices(epoch)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


def test_a_seed_is_taken_modulo_2_to_the_64():
    for n in (100, 20_000, 2**40):
        assert Shuffled(n, -1).indices(3, 0, 50).tolist() == Shuffled(n, 2**64 - 1).indices(3, 0, 50).tolist()
        assert Shuffled(n, -(2**63)).indices(3, 0, 50).tolist() == Shuffled(n, 2**63).indices(3, 0, 50).tolist()


def test_all_64_bits_of_seed_and_epoch_count():
    orders = {tuple(Shuffled(50, 1 << bit).indices(0)) for bit in range(64)}
    orders |= {tuple(Shuffled(50, 0).indices(1 << bit)) for bit in range(64)}
    orders.add(tuple(Shuffled(50, 0).indices(0)))
    assert len(orders) == 129
