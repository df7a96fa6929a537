"""Mixed keeps each source within one of its share, goes through each in its own epochs, and is equal to the twin."""

import copy
import itertools
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset

from fastshard import _reference, _reference_mixed, orders
from fastshard.orders import Mixed, Order, Repeated, Sequential, Shuffled, TorchShuffled, Weighted

MAX = 2**63 - 1

some_shares = st.lists(st.integers(1, 9) | st.integers(1, 300), min_size=1, max_size=6)
seeds = st.sampled_from([-(2**63), -1, 0, 2**64 - 1]) | st.integers(-(2**63), 2**64 - 1)
epochs = st.sampled_from([0, 1, 2**64 - 1]) | st.integers(0, 2**64 - 1)
PROPORTIONS = [(1, 1), (3, 1), (2, 3), (5, 3, 2), (7, 1), (30, 1, 1), (8, 4, 2, 1, 1), (0.7, 0.2, 0.1), (1,) * 8]


def of_counters(weights, seed=0, num_samples=1000):
    """A mix whose ids say which draw of a source they are: epoch 0 of sources that never end."""
    return Mixed([Sequential(2**50)] * len(weights), weights, seed, num_samples)


def sources(order, epoch):
    return order.source_of(order.indices(epoch))[0]


def largest_lag(order, epoch):
    """The largest |count - share| of any source after any number of positions."""
    came = np.stack([sources(order, epoch) == s for s in range(len(order.orders))])
    share = np.array([float(part) for part in order.proportions])[:, None]
    return float(np.abs(np.cumsum(came, axis=1) - share * np.arange(1, len(order) + 1)).max())


@settings(max_examples=60)
@given(
    shares=some_shares,
    lengths=st.lists(st.integers(1, 40), min_size=6, max_size=6),
    seed=seeds,
    epoch=epochs,
    num_samples=st.integers(1, 1200),
)
def test_every_mix_is_that_of_the_reference(shares, lengths, seed, epoch, num_samples):
    lengths = lengths[: len(shares)]
    order = Mixed([Shuffled(n, i) for i, n in enumerate(lengths)], shares, seed, num_samples)
    divisor = int(np.gcd.reduce(shares))
    twins = [shuffled_twin(n, i) for i, n in enumerate(lengths)]
    whole = _reference_mixed.mixed(twins, lengths, [part // divisor for part in shares], seed, num_samples, epoch)
    ids = order.indices(epoch)
    assert ids.dtype == np.int64
    assert ids.tolist() == whole
    assert (len(order), order.num_ids) == (num_samples, sum(lengths))


def shuffled_twin(n, seed):
    made = {}

    def ids(epoch):
        if epoch not in made:
            made[epoch] = list(map(_reference.shuffled(n, seed, epoch), range(n)))
        return made[epoch]

    return ids


@given(shares=some_shares, seed=seeds, epoch=epochs, num_samples=st.integers(1, 5000))
def test_every_prefix_is_within_one_of_every_share(shares, seed, epoch, num_samples):
    """Exactly: before its j-th draw (from 0) at position p, j - p * w > -1, and after it j + 1 - (p + 1) * w < 1."""
    order = of_counters(shares, seed, num_samples)
    came = order.source_of(order.indices(epoch % 2**10))[0]
    for s, part in enumerate(order.proportions):
        at = np.flatnonzero(came == s)
        j = np.arange(len(at))
        assert ((j + 1) * part.denominator > at * part.numerator).all()
        assert (j * part.denominator < (at + 1) * part.numerator).all()
        assert len(at) == order.draws[s]
        assert abs(len(at) - num_samples * part) < 1


@pytest.mark.parametrize("weights", [(0.123457, 0.5, 0.376543), (10**6, 1), (2**20 - 2, 1, 1), (1, 2**30, 10**5)])
def test_long_periods_are_within_one_of_every_share_too(weights):
    order = of_counters(weights, 1, 3 * 10**6)
    assert largest_lag(order, 0) < 1
    assert largest_lag(order, 5) < 1


@pytest.mark.parametrize("weights", PROPORTIONS)
@pytest.mark.parametrize("num_replicas", [2, 3, 4, 8, 16])
def test_every_rank_meets_every_source_in_about_its_proportion(weights, num_replicas):
    """A pattern that repeats would give all of one source to one rank: A, B, A, B on two ranks."""
    order = of_counters(weights, 3, 20_000)
    for epoch in range(3):
        for rank in range(num_replicas):
            came = order.source_of(order.indices(epoch, rank, None, num_replicas))[0]
            for s, part in enumerate(order.proportions):
                deviation = (len(came) * part * (1 - part)) ** 0.5
                assert abs(np.count_nonzero(came == s) - len(came) * part) < 5 * deviation


@pytest.mark.parametrize("weights", PROPORTIONS)
def test_over_many_epochs_no_rank_is_given_more_of_a_source(weights):
    """Chances that look at one pattern alone favour some slots; of (30, 1, 1), one rank of 8 by six tenths."""
    order = of_counters(weights, 3, 2**15)
    drawn = np.zeros((8, len(weights)))
    for epoch in range(20):
        came = sources(order, epoch)
        drawn += [np.bincount(came[rank::8], minlength=len(weights)) for rank in range(8)]
    part = np.array([float(part) for part in order.proportions])
    expected = 20 * 2**12 * part
    assert (np.abs(drawn - expected) < 4.5 * (expected * (1 - part)) ** 0.5).all()


@pytest.mark.parametrize("period", [2, 3, 5, 256])
def test_periods_and_epochs_differ(period):
    order = of_counters([1] * (period - 1) + [1], 1, 4 * 256 * period)
    drawn = {epoch: sources(order, epoch) for epoch in range(3)}
    for epoch, other in itertools.combinations(drawn, 2):
        agree = np.count_nonzero(drawn[epoch] == drawn[other])
        assert abs(agree - len(order) / period) < 6 * (len(order) / period) ** 0.5 + 4 * period
    seeded = sources(of_counters([1] * period, 2, len(order)), 0)
    assert 0 < np.count_nonzero(seeded == drawn[0]) < len(order)
    if period < 256:
        blocks = drawn[0][: len(order) // 1024 * 1024].reshape(-1, 1024)
        assert len({block.tobytes() for block in blocks}) == len(blocks)


@given(
    shares=st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any),
    lengths=st.lists(st.integers(1, 60), min_size=4, max_size=4),
    num_samples=st.integers(1, 700),
    first=st.sampled_from([0, 10**6, 2**63 + 5]),
)
def test_over_epochs_the_draws_of_a_source_are_its_own_epochs_without_gap_or_repeat(
    shares, lengths, num_samples, first
):
    inner = [Shuffled(n, i) for i, n in enumerate(lengths[: len(shares)])]
    order = Mixed(inner, shares, 1, num_samples)
    drawn = [[] for _ in inner]
    for epoch in range(first, first + 5):
        for s, sample in zip(*order.source_of(order.indices(epoch)), strict=True):
            drawn[s].append(sample)
    for s, (source, ids) in enumerate(zip(inner, drawn, strict=True)):
        assert len(ids) == 5 * order.draws[s]
        begin, place = divmod(first * order.draws[s], len(source))
        expected = itertools.chain.from_iterable(
            source.indices((begin + i) % 2**64).tolist() for i in itertools.count()
        )
        assert ids == list(itertools.islice(expected, place, place + len(ids)))


@given(data=st.data(), step=st.integers(1, 600) | st.just(MAX))
def test_any_start_stop_step_is_the_strided_slice_of_the_whole(data, step):
    order = Mixed([Shuffled(700, 1), Shuffled(20_000, 2), Sequential(3)], [5, 4, 1], 3, 9999)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(order))] * 2)))
    assert order.indices(7, start, stop, step).tolist() == order.indices(7)[start:stop:step].tolist()


def test_an_index_is_an_int_and_out_of_range_an_index_error():
    order = Mixed([Shuffled(7, 1), Shuffled(20, 2)], [1, 2])
    whole = order.indices(2).tolist()
    assert [order.index(2, position) for position in range(len(order))] == whole
    assert type(order.index(2, 0)) is int
    with pytest.raises(IndexError, match=r"position must be in \[0, 21\), got position=21"):
        order.index(0, 21)
    with pytest.raises(TypeError, match="may hold an id several times"):
        order.position(0, 3)


def test_huge_epochs_are_had_at_once_at_both_ends():
    order = Mixed([Shuffled(MAX // 2, 1), Shuffled(MAX // 2, 2)], [3, 1], 5, MAX)
    tail = order.indices(2**64 - 1, MAX - 4)
    assert tail.tolist() == [order.index(2**64 - 1, MAX - 4 + i) for i in range(4)]
    s, sample = order.source_of(int(tail[-1]))
    last = (2**64 - 1) * order.draws[s] + order.draws[s] - 1
    length = MAX // 2
    assert sample == order.orders[s].index(last // length % 2**64, last % length)
    assert sum(order.draws) == MAX


@pytest.mark.parametrize(
    ("lengths", "weights", "expected"),
    [
        ([100, 100], [1, 1], 200),
        ([100, 10], [1, 1], 20),
        ([100, 10], [9, 1], 100),
        ([1000, 60], [0.9, 0.1], 600),
        ([10, 10], [3, 1], 13),
        ([1, 1], [1000, 1], 1),
        ([7, 5], [1, 0], 7),
        ([MAX - 1, 1], [1, 2**-60], 2**20),
    ],
)
def test_an_epoch_is_as_long_as_the_first_exhausted_source_lasts(lengths, weights, expected):
    order = Mixed([Sequential(n) for n in lengths], weights)
    assert len(order) == order.num_samples == expected
    assert all(drawn <= n for drawn, n in zip(order.draws, lengths, strict=True))


def test_a_source_of_weight_zero_is_never_drawn_but_counted():
    order = Mixed([Shuffled(10, 1), Shuffled(5, 2), Shuffled(20, 3)], [1, 0, 2], 0, 3000)
    assert order.draws == (1000, 0, 2000)
    assert (order.num_ids, order.proportions) == (35, (Fraction(1, 3), Fraction(0), Fraction(2, 3)))
    assert sorted(set(order.indices(0).tolist())) == [*range(10), *range(15, 35)]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([2, 4], (Fraction(1, 3), Fraction(2, 3))),
        ([0.1, 0.2, 0.7], (Fraction(1, 10), Fraction(1, 5), Fraction(7, 10))),
        ([1e-3, 0.999], (Fraction(1, 1000), Fraction(999, 1000))),
        (np.array([0.3, 0.7], np.float32), (Fraction(3, 10), Fraction(7, 10))),
        (np.array([3, 1], np.uint8), (Fraction(3, 4), Fraction(1, 4))),
        (torch.tensor([3.0, 1.0]), (Fraction(3, 4), Fraction(1, 4))),
        ([Fraction(1, 3), Decimal("0.5"), Fraction(1, 6)], (Fraction(1, 3), Fraction(1, 2), Fraction(1, 6))),
        ([10**30, 1], (Fraction(2**20 - 1, 2**20), Fraction(1, 2**20))),
        ([1e300, 5e-324], (Fraction(2**20 - 1, 2**20), Fraction(1, 2**20))),
        ([2**20 - 1, 1], (Fraction(2**20 - 1, 2**20), Fraction(1, 2**20))),
    ],
)
def test_proportions_are_exact_where_they_can_be(weights, expected):
    order = Mixed([Sequential(10)] * len(expected), weights)
    assert order.proportions == expected
    assert all(type(part) is Fraction for part in order.proportions)


@given(weights=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=30))
def test_rounded_proportions_are_within_a_step_and_add_up_to_one(weights):
    parts = Mixed([Sequential(10)] * len(weights), weights).proportions
    given = [Fraction(str(weight)) for weight in weights]
    assert sum(parts) == 1
    assert all(parts)
    for part, weight in zip(parts, given, strict=True):
        assert part.denominator <= 2**20
        # Those that are raised to one step are taken from the largest.
        assert abs(part - weight / sum(given)) < Fraction(len(parts) if weight == max(given) else 1, 2**20)


def test_ids_are_those_of_a_concat_dataset():
    parts = [[("a", i) for i in range(7)], [("b", i) for i in range(5)], [("c", i) for i in range(9)]]
    order = Mixed([Shuffled(7, 1), Weighted([1.0, 2.0, 0.0, 1.0, 1.0], 50, 2), Repeated(Sequential(9), 2)], [1, 1, 1])
    joined = ConcatDataset(parts)
    assert order.num_ids == len(joined)
    ids = order.indices(1)
    for sample, s, own in zip(ids, *order.source_of(ids), strict=True):
        assert joined[sample] == parts[s][own]
        assert order.source_of(int(sample)) == (s, own)
        assert order.source_of(sample) == (s, own)
    assert [type(part) for part in order.source_of(3)] == [int, int]
    table = order.source_of(np.array([[0, 6], [7, 20]], np.uint32))
    assert [part.tolist() for part in table] == [[[0, 0], [1, 2]], [[0, 6], [0, 8]]]
    assert [part.dtype for part in table] == [np.int64, np.int64]
    assert [part.shape for part in order.source_of([])] == [(0,), (0,)]
    for wrong in (21, -1, [3, 21], [-1]):
        with pytest.raises(ValueError, match=r"ids must be in \[0, 21\), got"):
            order.source_of(wrong)
    for wrong in (1.0, [1.0], "a", None, True):
        with pytest.raises(TypeError, match="ids must be an int"):
            order.source_of(wrong)


class Counted(Order):
    """A user's order that counts how often it is asked."""

    name = "counted/1"
    calls = 0

    def __len__(self):
        return 10**6

    def _fill(self, epoch, start, count, step):
        self.calls += 1
        return (start + epoch % 1000 + step * np.arange(count)) % 10**6


def test_a_batch_costs_a_few_calls_per_source_and_not_one_per_id():
    source = Counted()
    order = Mixed([source, Shuffled(10**6, 1)], [1, 2], 1, 10**6)
    ids = order.indices(0, 3, None, 8)
    assert source.calls == 1
    assert np.count_nonzero(order.source_of(ids)[0] == 0) > 40_000


def test_a_mix_of_mixes_draws_the_inner_one_s_epochs_one_after_another():
    inner = Mixed([Shuffled(30, 1), Shuffled(40, 2)], [1, 3], 1)
    order = Mixed([inner, TorchShuffled(50, 3)], [1, 1], 2, 8000)
    came, ids = order.source_of(order.indices(0))
    assert np.bincount(came).tolist() == [4000, 4000]
    expected = np.concatenate([inner.indices(epoch) for epoch in range(4000 // len(inner) + 1)])
    assert ids[came == 0].tolist() == expected[:4000].tolist()
    assert order.name == "mixed/0(mixed/0(shuffled/1,shuffled/1),torch/1)"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Sequential(3), [1]), TypeError, r"orders must be a sequence of Orders, got orders=Sequential\(n=3\)"),
        (([Sequential(3), "a"], [1, 1]), TypeError, r"got orders\[1\]='a'"),
        ((None, [1]), TypeError, "got orders=None"),
        (([], []), ValueError, "orders must be 1 to 1024 Orders, got 0"),
        (([Sequential(1)] * 1025, [1] * 1025), ValueError, "orders must be 1 to 1024 Orders, got 1025"),
        (([Sequential(2**62)] * 2, [1, 1]), ValueError, r"less than 2\^63 ids together, got 9223372036854775808"),
        (([Sequential(3)] * 2, [1]), ValueError, "weights must be one for each of 2 orders, got 1"),
        (
            ([Sequential(3)] * 2, [0, 0.0]),
            ValueError,
            r"weights must have at least one above 0, got weights=\[0, 0\.0\]",
        ),
        (([Sequential(3)] * 2, [1, -1]), ValueError, r"finite and not negative, got weights\[1\]=-1"),
        (([Sequential(3)] * 2, [1, float("nan")]), ValueError, r"got weights\[1\]=nan"),
        (([Sequential(3)] * 2, [np.float32("inf"), 1]), ValueError, r"got weights\[0\]=inf"),
        (([Sequential(3)] * 2, [Decimal("NaN"), 1]), ValueError, r"got weights\[0\]=NaN"),
        (([Sequential(3)] * 2, [1, "1"]), TypeError, r"weights must be real numbers, got weights\[1\]='1'"),
        (([Sequential(3)] * 2, [1, True]), TypeError, r"got weights\[1\]=True"),
        (([Sequential(3)] * 2, [1, 1j]), TypeError, r"got weights\[1\]=1j"),
        (([Sequential(3)] * 2, "11"), TypeError, "weights must be a sequence of numbers, got weights='11'"),
        (([Sequential(3)] * 2, 3), TypeError, "got weights=3"),
        (([Sequential(3)], [1], 2**64), ValueError, r"seed must be in \[-2\^63, 2\^64\), got seed="),
        (([Sequential(3)], [1], 0, 0), ValueError, r"num_samples must be in \[1, 2\^63\), got num_samples=0"),
        (([Sequential(3)], [1], 0, 2.0), TypeError, r"num_samples must be an int, got num_samples=2\.0"),
    ],
)
def test_wrong_arguments_are_named_with_their_values(arguments, error, message):
    with pytest.raises(error, match=message):
        Mixed(*arguments)


def test_copies_and_pickles_are_equal_and_give_the_same_order():
    order = Mixed([Shuffled(1000, 3), Shuffled(100, 1)], np.array([3, 1]), 2)
    expected = order.indices(4).tolist()
    pickles = [pickle.dumps(order, protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in (copy.copy(order), copy.deepcopy(order), *map(pickle.loads, pickles)):
        assert other == order
        assert hash(other) == hash(order)
        assert (other.name, other.draws, other.proportions) == (order.name, order.draws, order.proportions)
        assert other.indices(4).tolist() == expected
    assert max(map(len, pickles)) < 400
    assert eval(repr(order), vars(orders)) == order
    assert (
        len({order, Mixed(order.orders, (3, 1), 3), Mixed(order.orders, (3, 2), 2), Mixed(order.orders, (3, 1), 2, 9)})
        == 4
    )
    assert (order.name, order.reshuffles, order.seed) == ("mixed/0(shuffled/1,shuffled/1)", True, 2)
    assert Mixed.name == "mixed/0"
    with pytest.raises(FrozenInstanceError):
        order.seed = 3


def test_threads_on_different_epochs_do_not_disturb_each_other():
    shared = Mixed([Shuffled(700, 1), Shuffled(20_000, 2)], [2, 3], 1, 30_000)
    expected = [Mixed(shared.orders, [2, 3], 1, 30_000).indices(epoch).tolist() for epoch in range(4)]
    barrier = threading.Barrier(8)

    def wrong_answers(number):
        barrier.wait()
        epoch, start = number % 4, number * 1000
        return sum(shared.indices(epoch, start).tolist() != expected[epoch][start:] for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(wrong_answers, range(8))) == [0] * 8
