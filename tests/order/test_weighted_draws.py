"""Weighted draws with replacement: each position alone, in exact proportion, the same as the reference to the bit."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastshard import _reference_orders, orders
from fastshard._built import _core
from fastshard.orders import Weighted

MAX = 2**63 - 1

weight = st.just(0.0) | st.floats(0, 1e9) | st.integers(0, 5).map(float) | st.floats(0, allow_infinity=False)
some_weights = st.lists(weight, min_size=1, max_size=40).filter(any)
seeds = st.sampled_from([-(2**63), -1, 0, 1, 2**64 - 1]) | st.integers(-(2**63), 2**64 - 1)
epochs = st.sampled_from([0, 1, 2**32, 2**64 - 1]) | st.integers(0, 2**64 - 1)


def standard_score(counts, weights):
    """How many sigmas chi-square lies above its mean (by Wilson and Hilferty), and how many the worst count is off."""
    positive = weights > 0
    assert not counts[~positive].any()
    counts, weights = counts[positive], weights[positive]
    expected = counts.sum() * weights / weights.sum()
    freedom = len(counts) - 1
    chi_square = ((counts - expected) ** 2 / expected).sum()
    spread = 2 / (9 * freedom)
    worst = np.abs(counts - expected) / np.sqrt(expected * (1 - weights / weights.sum()))
    return ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5, worst.max()


@given(weights=some_weights, seed=seeds, epoch=epochs, start=st.integers(0, MAX), step=st.integers(1, 9))
def test_any_stretch_equals_the_reference(weights, seed, epoch, start, step):
    order = Weighted(weights, MAX, seed)
    start = min(start, MAX - 50 * step)
    at = _reference_orders.weighted(weights, seed, epoch)
    ids = order.indices(epoch, start, start + 50 * step, step)
    assert ids.dtype == np.int64
    assert ids.tolist() == [at(position) for position in range(start, start + 50 * step, step)]


@given(weights=some_weights, epoch=epochs, start=st.integers(0, 2**40), step=st.integers(1, 2**40))
def test_64_bit_aliases_draw_what_32_bit_ones_do(weights, epoch, start, step):
    array = np.array(weights)
    narrow, wide = _core.WeightedDraws(array, 5), _core.WideWeightedDraws(array, 5)
    assert narrow.indices(epoch, start, 100, step).tolist() == wide.indices(epoch, start, 100, step).tolist()


@given(weights=some_weights)
def test_the_table_has_each_weight_s_mass_exactly(weights):
    """The oracle itself: columns and aliases add up to the masses, which are the weights to 63 bits."""
    n, masses = len(weights), _reference_orders.integer_masses(weights)
    capacity = sum(masses)
    assert 2**61 < capacity < 2**64
    kept = [0] * n
    for column, (threshold, alias) in enumerate(_reference_orders.alias_table(weights)):
        kept[column] += threshold
        kept[alias] += 2**64 - threshold
    total = sum(map(_exact, weights))
    for i in range(n):
        assert abs(kept[i] * capacity - masses[i] * n * 2**64) < n * capacity  # thresholds are rounded down
        assert abs(masses[i] * total - _exact(weights[i]) * capacity) <= (n + 1) * total
        assert (kept[i] == 0) == (masses[i] * n * 2**64 < capacity)


def _exact(weight):
    numerator, denominator = weight.as_integer_ratio()
    return numerator * (2**1074 // denominator)


@given(start=st.integers(0, 1000), stop=st.integers(0, 1000), step=st.integers(1, 1001) | st.just(MAX))
def test_any_start_stop_step_is_the_strided_slice_of_the_whole(start, stop, step):
    start, stop = min(start, stop), max(start, stop)
    order = Weighted([3, 0, 1, 2.5], 1000, 3)
    assert order.indices(7, start, stop, step).tolist() == order.indices(7)[start:stop:step].tolist()


def test_index_is_what_indices_has_there_at_the_far_end_too():
    order = Weighted([3, 0, 1, 2.5], MAX, 3)
    tail = order.indices(2**64 - 1, MAX - 10).tolist()
    assert [order.index(2**64 - 1, position) for position in range(MAX - 10, MAX)] == tail
    assert type(order.index(0, 0)) is int
    with pytest.raises(
        IndexError, match=r"position must be in \[0, 2\^63 - 1\)|position must be in \[0, 9223372036854775807\)"
    ):
        order.index(0, MAX)


@pytest.mark.parametrize(
    "weights",
    [
        [1.0, 1.0],
        [1.0, 2.0, 3.0, 4.0],
        [0.0, 5.0, 0.0, 1e-3, 7.0, 0.0],
        [1e300, 3e300, 2e300],
        [5e-324, 1e-323, 1.5e-323],
        list(range(1000)),
        [1.0] * 999 + [1000.0],
        [float(2**-k) for k in range(12)],
    ],
    ids=["even", "small", "zeros", "huge", "denormal", "ramp", "one-heavy", "powers"],
)
@pytest.mark.parametrize("step", [1, 3])
def test_frequencies_are_within_5_sigma_of_the_weights(weights, step):
    draws = 1_000_000
    ids = Weighted(weights, step * draws, 11).indices(4, 0, None, step)
    score, worst = standard_score(np.bincount(ids, minlength=len(weights)), np.array(weights, float) / max(weights))
    assert abs(score) < 5
    assert worst < 5


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 8])
def test_neighbouring_draws_are_independent(distance):
    weights = np.array([1.0, 2.0, 4.0, 0.5])
    ids = Weighted(weights, 1_000_000, 1).indices(0)
    pairs = np.bincount(ids[:-distance] * 4 + ids[distance:], minlength=16)
    score, worst = standard_score(pairs, np.outer(weights, weights).ravel())
    assert abs(score) < 5
    assert worst < 5


def test_epochs_and_seeds_are_independent_and_not_added():
    weights = np.ones(10)
    drawn = [Weighted(weights, 2000, seed).indices(epoch) for seed in (0, 1, 2**32, -1) for epoch in (0, 1, 2**32, 5)]
    for i in range(len(drawn)):
        for j in range(i):
            assert abs(int((drawn[i] == drawn[j]).sum()) - 200) < 6 * 13.5
    assert Weighted(weights, 50, -1).indices(1).tolist() == Weighted(weights, 50, 2**64 - 1).indices(1).tolist()


def test_a_lone_positive_weight_is_always_drawn():
    for weights in ([1e-300], [0, 0, 4, 0], [0] * 1000 + [5e-324]):
        assert set(Weighted(weights, 1000).indices(0).tolist()) == {len(weights) - 1 if len(weights) != 4 else 2}


def test_2_to_the_24_plus_1_weights_work():
    n = 2**24 + 1
    weights = np.zeros(n, np.float32)
    weights[-1], weights[0], weights[n // 2] = 1, 2, 1
    counts = np.bincount(Weighted(weights, 40_000, 3).indices(0), minlength=n)
    score, worst = standard_score(counts, weights.astype(float))
    assert abs(score) < 5
    assert worst < 5
    ids = Weighted(np.ones(n), 1_000_000, 3).indices(0)
    assert ids.min() < 1000
    assert ids.max() > n - 1000
    assert len(np.unique(ids)) > 960_000  # about n * (1 - exp(-draws / n)) = 970,782 with replacement


@pytest.mark.parametrize(
    "weights",
    [
        [1, 0, 2],
        (1.0, 0.0, 2.0),
        np.array([1, 0, 2], np.uint8),
        np.array([1, 9, 0, 9, 2, 9], np.float32)[::2],
        np.array([1, 0, 2], ">f8"),
        np.array([1, 0, 2], np.float16),
        torch.tensor([1, 0, 2]),
        torch.tensor([1.0, 0.0, 2.0], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([1.0, 9.0, 0.0, 9.0, 2.0, 9.0], dtype=torch.float64)[::2],
        [1.0, -0.0, 2.0],
    ],
    ids=["ints", "tuple", "uint8", "strided", "big-endian", "half", "tensor", "bfloat16-grad", "strided-tensor", "-0"],
)
def test_any_array_like_of_numbers_gives_one_order(weights):
    expected = Weighted(np.array([1.0, 0.0, 2.0]), 100, 1)
    assert Weighted(weights, 100, 1) == expected
    assert Weighted(weights, 100, 1).indices(0).tolist() == expected.indices(0).tolist()
    assert Weighted(weights, 2, 1, replacement=False).indices(0).tolist() == _reference_orders.weighted_subset(
        [1, 0, 2], 2, 1, 0
    )


def test_the_weights_are_copied():
    for given_weights in (np.array([1.0, 0.0]), torch.tensor([1.0, 0.0], dtype=torch.float64)):
        order = Weighted(given_weights, 10)
        given_weights[:] = 7
        assert order.weights.tolist() == [1, 0]
        assert pickle.loads(pickle.dumps(order)).indices(0).tolist() == [0] * 10
    with pytest.raises(ValueError, match="read-only"):
        order.weights[0] = 2


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, -0.5, -1], r"weights must be finite and not negative, got weights\[2\]=-0\.5"),
        ([1, float("nan"), -1], r"weights must be finite and not negative, got weights\[1\]=nan"),
        ([1, 2, float("inf")], r"weights must be finite and not negative, got weights\[2\]=inf"),
        ([-float("inf")], r"weights must be finite and not negative, got weights\[0\]=-inf"),
        (torch.tensor([1.0, -2.0]), r"weights must be finite and not negative, got weights\[1\]=-2\.0"),
        ([0.0, 0, -0.0], "weights must have at least one above 0, got 3 of 0"),
        ([], "weights must have at least one weight, got none"),
        (torch.empty(0), "weights must have at least one weight, got none"),
        ([[1, 2], [3, 4]], r"weights must have one dimension, got weights of shape \(2, 2\)"),
        (3.0, r"weights must have one dimension, got weights of shape \(\)"),
    ],
)
@pytest.mark.parametrize("replacement", [True, False])
def test_wrong_weights_are_refused_with_the_first_wrong_one(weights, message, replacement):
    with pytest.raises(ValueError, match=message):
        Weighted(weights, 1, replacement=replacement)


@pytest.mark.parametrize("weights", ["123", None, ["1", "2"], [1 + 2j], [[1], [2, 3]], iter([1, 2]), {1: 2}])
def test_weights_that_are_no_numbers_are_a_type_error(weights):
    with pytest.raises(TypeError, match="weights must be a 1-D array of real numbers, got weights="):
        Weighted(weights, 1)


def test_the_other_arguments_are_checked():
    for num_samples in (0, -1, 2**63):
        with pytest.raises(ValueError, match=rf"num_samples must be in \[1, 2\^63\), got num_samples={num_samples}"):
            Weighted([1.0], num_samples)
    for num_samples in (1.0, "1", None, True):
        with pytest.raises(TypeError, match="num_samples must be an int, got num_samples="):
            Weighted([1.0], num_samples)
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=rf"seed must be in \[-2\^63, 2\^64\), got seed={seed}"):
            Weighted([1.0], 1, seed)
    for replacement in (0, 1, None, "no"):
        with pytest.raises(TypeError, match="replacement must be a bool, got replacement="):
            Weighted([1.0], 1, 0, replacement)
    with pytest.raises(ValueError, match=r"step must be in \[1, 2\^63\), got step=0"):
        Weighted([1.0], 1).indices(0, step=0)
    with pytest.raises(ValueError, match=r"epoch must be in \[0, 2\^64\), got epoch=-1"):
        Weighted([1.0], 1).indices(-1)


@pytest.mark.parametrize("replacement", [True, False])
def test_a_sample_has_no_one_position(replacement):
    with pytest.raises(
        TypeError, match=r"Weighted\(weights=<2 of float64>, num_samples=2.* may hold an id several times"
    ):
        Weighted([1, 2], 2, replacement=replacement).position(0, 1)


@pytest.mark.parametrize("replacement", [True, False])
def test_copies_and_pickles_are_equal_and_give_the_same_order(replacement):
    order = Weighted(np.arange(1000), np.int64(500), np.int64(3), replacement)
    expected = order.indices(4).tolist()
    pickles = [pickle.dumps(order, protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in (copy.copy(order), copy.deepcopy(order), *map(pickle.loads, pickles)):
        assert type(other) is Weighted
        assert other == order
        assert hash(other) == hash(order)
        assert other.indices(4).tolist() == expected
    assert max(map(len, pickles[1:])) < 8 * 1000 + 400  # the weights, and neither a table nor an epoch
    with pytest.raises(FrozenInstanceError):
        order.seed = 4


def test_orders_are_equal_if_their_arguments_are():
    order = Weighted([1, 2, 3], 3, 4)
    assert order == Weighted(torch.tensor([1.0, 2.0, 3.0]), 3, seed=4, replacement=True)
    others = [Weighted([1, 2], 3, 4), Weighted([1, 2, 4], 3, 4), Weighted([1, 2, 3], 2, 4), Weighted([1, 2, 3], 3, 5)]
    others += [Weighted([1, 2, 3], 3, 4, replacement=False), orders.Shuffled(3, 4)]
    assert all(order != other for other in others)
    assert len({order, *others}) == 7
    assert repr(order) == "Weighted(weights=<3 of float64>, num_samples=3, seed=4, replacement=True)"
    assert (order.name, order.num_ids, len(order), order.reshuffles) == ("weighted/1", 3, 3, True)
