"""Weighted draws without replacement: no sample twice, and in the law of drawing one after the other."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastshard import _reference_orders
from fastshard.orders import Weighted

weight = st.just(0.0) | st.floats(0, 1e9) | st.integers(0, 5).map(float) | st.floats(0, allow_infinity=False)
some_weights = st.lists(weight, min_size=1, max_size=60).filter(any)


def subset(weights, num_samples, seed=0):
    return Weighted(weights, num_samples, seed, replacement=False)


@given(weights=some_weights, seed=st.integers(-(2**63), 2**64 - 1), epoch=st.integers(0, 2**64 - 1), data=st.data())
def test_every_epoch_equals_the_reference(weights, seed, epoch, data):
    count = data.draw(st.integers(1, np.count_nonzero(weights)))
    ids = subset(weights, count, seed).indices(epoch)
    assert ids.dtype == np.int64
    assert ids.tolist() == _reference_orders.weighted_subset(weights, count, seed, epoch)
    assert len(set(ids.tolist())) == count


@pytest.mark.parametrize("count", [1, 10, 1000, 4999, 5000])
def test_few_and_many_draws_are_the_same_ones(count):
    """However many are asked for, they are the first of one sequence: what was let go for room was not missed."""
    weights = np.random.default_rng(5).random(5000)
    assert subset(weights, count, 2).indices(1).tolist() == subset(weights, 5000, 2).indices(1)[:count].tolist()
    backwards = np.sort(weights)  # the least key tends to come last, so that all of the room is used again and again
    assert subset(backwards, count).indices(1).tolist() == subset(backwards, 5000).indices(1)[:count].tolist()


@pytest.mark.parametrize("n", [1000, 100_000])
def test_no_sample_comes_twice_and_none_of_weight_0(n):
    weights = np.random.default_rng(1).random(n)
    weights[::3] = 0
    positive = int((weights > 0).sum())
    ids = subset(weights, positive).indices(3)
    assert sorted(ids.tolist()) == np.flatnonzero(weights).tolist()
    few = subset(weights, positive // 4).indices(3)
    assert len(np.unique(few)) == positive // 4
    assert (weights[few] > 0).all()


def test_weights_too_far_apart_for_doubles_are_all_drawn_the_heavy_ones_first():
    weights = [5e-324, 1.0, 1e308, 0.0, 1e-300]
    assert subset(weights, 4).indices(0).tolist() == [2, 1, 4, 0]


def test_first_draws_are_in_proportion_to_the_weights_within_5_sigma():
    weights = np.array([1.0, 2.0, 3.0, 0.0, 4.0])
    firsts = np.array([subset(weights, 2, seed).index(epoch, 0) for seed in range(100) for epoch in range(200)])
    counts = np.bincount(firsts, minlength=5)
    share = weights / 10
    assert counts[3] == 0
    assert (np.abs(counts - 20_000 * share) < 5 * np.sqrt(20_000 * share * (1 - share)) + 1e-9).all()


def test_whole_orders_have_the_law_of_drawing_one_after_the_other():
    weights = [1.0, 2.0, 5.0]
    order = subset(weights, 3, 7)
    seen = [tuple(order.indices(epoch).tolist()) for epoch in range(20_000)]
    for a, b, c in itertools.permutations(range(3)):
        share = weights[a] / 8 * weights[b] / (weights[b] + weights[c])
        assert abs(seen.count((a, b, c)) - 20_000 * share) < 5 * (20_000 * share * (1 - share)) ** 0.5


def test_epochs_seeds_and_draws_with_replacement_are_unrelated():
    weights = np.ones(1000)
    drawn = [subset(weights, 1000, seed).indices(epoch) for seed in (0, 1, -1) for epoch in (0, 1, 2**64 - 1)]
    drawn.append(Weighted(weights, 1000, 0).indices(0))
    for i in range(len(drawn)):
        for j in range(i):
            assert (drawn[i] == drawn[j]).sum() < 12  # Poisson(1)


def test_more_draws_than_positive_weights_are_refused():
    assert sorted(subset([1, 0, 2], 2).indices(0).tolist()) == [0, 2]
    with pytest.raises(ValueError, match=r"number of weights above 0, 2, without replacement, got num_samples=3"):
        subset([1, 0, 2], 3)


def test_stretches_and_single_positions_are_those_of_the_whole():
    order = subset(np.arange(1, 501), 400, 3)
    whole = order.indices(2)
    assert order.indices(2, 17, 390, 7).tolist() == whole[17:390:7].tolist()
    order.indices(3)
    assert [order.index(2, position) for position in (0, 17, 399)] == whole[[0, 17, 399]].tolist()
    assert order.indices(2, 5, 5).shape == (0,)
