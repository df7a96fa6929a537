"""Repeated holds each position of its inner order several times in a row, whatever the order and the stride."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, _reference_orders, orders
from fastshard.orders import Order, Repeated, Sequential, Shuffled, TorchShuffled

MAX = 2**63 - 1


class Halved(Order):
    """An order of a user's own: every second id, some of them never drawn, and the same in each epoch."""

    name = "halved/1"
    reshuffles = False

    def __init__(self, n):
        self.n = n
        self.calls = 0

    def __len__(self):
        return self.n

    @property
    def num_ids(self):
        return 2 * self.n

    def _fill(self, epoch, start, count, step):  # noqa: ARG002
        self.calls += 1
        return 2 * (start + step * np.arange(count))


@given(
    n=st.integers(1, 60),
    repeats=st.integers(1, 12),
    start=st.integers(0, 700),
    count=st.integers(0, 300),
    step=st.integers(1, 30) | st.integers(1, MAX),
)
def test_any_stretch_is_that_of_the_reference(n, repeats, start, count, step):
    order = Repeated(Shuffled(n, 3), repeats)
    expected = _reference_orders.repeated(Shuffled(n, 3).indices(5).tolist(), repeats)
    start = min(start, len(order))
    stop = min(len(order), start + count * step)
    ids = order.indices(5, start, stop, step)
    assert ids.dtype == np.int64
    assert ids.tolist() == expected[start:stop:step]
    assert order.indices(5).tolist() == expected


@given(
    repeats=st.integers(1, 20) | st.integers(1, 2**62),
    step=st.integers(1, 100) | st.integers(1, MAX),
    start=st.integers(0, MAX),
    count=st.integers(0, 200),
)
def test_huge_lengths_repeats_and_steps_are_exact(repeats, step, start, count):
    order = Repeated(Sequential(MAX // repeats), repeats)
    start = min(start, len(order))
    stop = min(len(order), start + count * step)
    assert order.indices(0, start, stop, step).tolist() == [p // repeats for p in range(start, stop, step)]


def test_a_user_s_own_order_is_repeated_too():
    order = Repeated(Halved(5), 3)
    assert order.indices(0).tolist() == [0, 0, 0, 2, 2, 2, 4, 4, 4, 6, 6, 6, 8, 8, 8]
    assert order.indices(0, 1, None, 5).tolist() == [0, 4, 6]
    assert (len(order), order.num_ids, order.reshuffles) == (15, 10, False)
    assert not hasattr(order, "seed")
    again = Repeated(order, 2)
    assert again.indices(0, 4, 10).tolist() == [0, 0, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("repeats", "step", "calls"), [(3, 1, 1), (3, 2, 1), (3, 3, 1), (3, 8, 3), (3, 6, 1), (4, 6, 2)]
)
def test_the_inner_order_is_asked_once_per_progression_and_not_per_id(repeats, step, calls):
    inner = Halved(100_000)
    Repeated(inner, repeats).indices(0, 5, 200_000, step)
    assert inner.calls == calls


def test_the_inner_order_is_not_asked_for_ids_that_were_not_asked_for():
    inner = Shuffled(MAX // 4, 1)  # any stretch that is not short would not fit in memory
    order = Repeated(inner, 4)
    assert order.index(0, len(order) - 1) == inner.index(0, len(inner) - 1)
    assert order.indices(0, 3, len(order), 2**61).tolist() == [inner.index(0, (3 + i * 2**61) // 4) for i in range(4)]


def test_index_gives_an_int_and_out_of_range_is_an_index_error():
    order = Repeated(Shuffled(10, 1), 3)
    whole = order.indices(2).tolist()
    assert [order.index(2, position) for position in range(30)] == whole
    assert type(order.index(2, 0)) is int
    with pytest.raises(IndexError, match=r"position must be in \[0, 30\), got position=30"):
        order.index(0, 30)


def test_repeats_of_one_is_the_inner_order_and_epochs_differ_as_there():
    inner = TorchShuffled(1000, 2)
    for epoch in (0, 1):
        assert Repeated(inner, 1).indices(epoch).tolist() == inner.indices(epoch).tolist()
    assert Repeated(inner, 2).indices(0).tolist() != Repeated(inner, 2).indices(1).tolist()


def test_an_id_has_several_positions_so_none_is_given():
    with pytest.raises(TypeError, match="may hold an id several times"):
        Repeated(Sequential(10), 2).position(0, 3)


def test_wrong_arguments_are_named_with_their_values():
    for repeats in (0, -1, 2**63):
        with pytest.raises(ValueError, match=rf"repeats must be in \[1, 2\^63\), got repeats={repeats}"):
            Repeated(Sequential(10), repeats)
    for repeats in (2.0, "2", None, True):
        with pytest.raises(TypeError, match="repeats must be an int, got repeats="):
            Repeated(Sequential(10), repeats)
    for order in ("shuffled", range(10), None):
        with pytest.raises(TypeError, match="order must be an Order, got order="):
            Repeated(order, 2)


def test_a_length_beyond_63_bits_is_refused_and_the_last_one_within_is_not():
    with pytest.raises(ValueError, match=r"below 2\^63, got repeats=2 of 4611686018427387904 positions"):
        Repeated(Sequential(2**62), 2)
    with pytest.raises(ValueError, match=r"below 2\^63, got repeats=9223372036854775807 of 2 positions"):
        Repeated(Sequential(2), MAX)
    assert len(Repeated(Sequential(1), MAX)) == MAX
    assert len(Repeated(Sequential(MAX), 1)) == MAX


def test_what_samplers_ask_of_an_order_is_the_inner_one_s():
    order = Repeated(Shuffled(10, 7), 3)
    assert (order.name, order.seed, order.reshuffles, order.num_ids) == ("repeated/1(shuffled/1)", 7, True, 10)
    assert Repeated(Sequential(10), 3).name == "repeated/1(sequential/1)"
    assert Repeated.name == "repeated/1"
    assert not Repeated(Sequential(10), 3).reshuffles


def test_copies_and_pickles_are_equal_and_give_the_same_order():
    order = Repeated(Shuffled(1000, 3), np.int64(2))
    expected = order.indices(4).tolist()
    pickles = [pickle.dumps(order, protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in (copy.copy(order), copy.deepcopy(order), *map(pickle.loads, pickles)):
        assert other == order
        assert hash(other) == hash(order)
        assert (other.name, other.seed, other.reshuffles) == (order.name, order.seed, order.reshuffles)
        assert other.indices(4).tolist() == expected
    assert max(map(len, pickles)) < 400
    assert eval(repr(order), vars(orders)) == order
    assert order != Repeated(Shuffled(1000, 3), 3)
    with pytest.raises(FrozenInstanceError):
        order.repeats = 3


def test_three_ranks_draw_the_three_copies_of_a_sample_in_the_same_step():
    order = Repeated(Shuffled(100, 1), 3)
    ranks = [DistributedSampler(range(100), 3, rank, order=order) for rank in range(3)]
    for sampler in ranks:
        sampler.set_epoch(2)
        assert list(sampler) == Shuffled(100, 1).indices(2).tolist()


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
def test_the_ranks_together_draw_the_order_padded_as_any_other(num_replicas, uneven):
    order = Repeated(Shuffled(50, 1), 3)
    expected = order.indices(1).tolist()
    ranks = [DistributedSampler(range(50), num_replicas, r, order=order, uneven=uneven) for r in range(num_replicas)]
    for sampler in ranks:
        sampler.set_epoch(1)
    shares = [list(sampler) for sampler in ranks]
    drawn = [share[i] for i in range(len(shares[0])) for share in shares if i < len(share)]
    total = ranks[0].total_size
    assert drawn == (expected + expected)[:total]
    assert [len(sampler) for sampler in ranks] == list(map(len, shares))


def test_loaders_and_batches_take_it():
    order = Repeated(Shuffled(50, 1), 3)
    batches = DistributedBatchSampler(range(50), 4, 2, 1, order=order)
    assert [sample for batch in batches for sample in batch] == order.indices(0, 1, None, 2).tolist()
    assert batches.global_batch(3).tolist() == order.indices(0, 24, 32).tolist()
    loader = DataLoader(range(50), 5, sampler=DistributedSampler(range(50), 2, 0, order=order), num_workers=1)
    assert [int(sample) for batch in loader for sample in batch] == order.indices(0, 0, None, 2).tolist()


def test_a_sampler_with_another_seed_or_dataset_is_refused():
    order = Repeated(Shuffled(50, 1), 3)
    with pytest.raises(ValueError, match="seed=2 contradicts order=Repeated"):
        DistributedSampler(range(50), 1, 0, seed=2, order=order)
    with pytest.raises(ValueError, match=r"len\(dataset\)=150 ids, got one of 50"):
        DistributedSampler(range(150), 1, 0, order=order)
