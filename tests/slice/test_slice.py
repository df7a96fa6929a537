"""Slice deals positions as torch does, keeps or drops exactly what it says, and names the argument that is wrong."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastshard import EmptyRankWarning, Slice, _reference
from fastshard.orders import Sequential, Shuffled

MAX = 2**63 - 1
MODES = ["pad", "drop", "keep"]
every_mode = pytest.mark.parametrize("uneven", MODES)
few_samples = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")


def ids_of(share):
    """In Sequential order an id is its position, and a padded draw shows which position it repeats."""
    return share.indices(Sequential(share.length), 0).tolist()


@few_samples
@given(
    length=st.integers(1, 60),
    num_replicas=st.integers(1, 80),
    rank=st.integers(0, 79),
    uneven=st.sampled_from(MODES),
    start=st.integers(0, 60),
)
def test_any_share_equals_the_reference(length, num_replicas, rank, uneven, start):
    rank, start = rank % num_replicas, min(start, length)
    share = Slice(length, rank, num_replicas, uneven, start)
    expected = _reference.slice_positions(length, rank, num_replicas, uneven, start)
    assert ids_of(share) == expected
    assert [position % length for position in range(*share.positions)] == expected
    assert share.num_samples == len(expected)
    assert share.num_padding == sum(position >= length for position in range(*share.positions))


@few_samples
@every_mode
def test_all_small_shares_equal_the_reference(uneven):
    for length, num_replicas in itertools.product(range(1, 14), range(1, 10)):
        for start in range(length + 1):
            shares = [Slice(length, rank, num_replicas, uneven, start) for rank in range(num_replicas)]
            expected = [
                _reference.slice_positions(length, rank, num_replicas, uneven, start) for rank in range(num_replicas)
            ]
            assert [ids_of(share) for share in shares] == expected
            assert {share.total_size for share in shares} == {sum(map(len, expected))}


@few_samples
@given(length=st.integers(1, 200), num_replicas=st.integers(1, 40), start=st.integers(0, 200))
def test_keep_uses_every_position_that_is_left_exactly_once(length, num_replicas, start):
    start = min(start, length)
    shares = [Slice(length, rank, num_replicas, "keep", start) for rank in range(num_replicas)]
    assert sorted(itertools.chain.from_iterable(map(ids_of, shares))) == list(range(start, length))
    sizes = [share.num_samples for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sum(share.num_padding for share in shares) == 0


@few_samples
@given(length=st.integers(1, 200), num_replicas=st.integers(1, 40), start=st.integers(0, 200))
def test_pad_and_drop_give_every_rank_the_same_number(length, num_replicas, start):
    start = min(start, length)
    left = length - start
    for uneven, size in (("pad", -(-left // num_replicas)), ("drop", left // num_replicas)):
        shares = [Slice(length, rank, num_replicas, uneven, start) for rank in range(num_replicas)]
        assert {share.num_samples for share in shares} == {size}
        assert {share.total_size for share in shares} == {size * num_replicas}
        padding = size * num_replicas - left
        assert sum(share.num_padding for share in shares) == max(0, padding)


def test_a_global_batch_is_a_contiguous_run_of_positions_whatever_the_number_of_ranks():
    for num_replicas, batch_size in ((1, 12), (2, 6), (3, 4), (4, 3), (12, 1)):
        shares = [ids_of(Slice(120, rank, num_replicas)) for rank in range(num_replicas)]
        for step in range(10):
            drawn = [share[step * batch_size : (step + 1) * batch_size] for share in shares]
            assert sorted(itertools.chain(*drawn)) == list(range(step * 12, (step + 1) * 12))


@pytest.mark.parametrize(
    "order", [Sequential(23), Shuffled(23, 1), Shuffled(20_001, 1)], ids=["23", "23-shuffled", "20001"]
)
@few_samples
def test_indices_of_a_part_are_that_part_of_all_indices(order):
    for uneven, num_replicas, begin in itertools.product(MODES, (1, 4, 30), (0, 5)):
        for rank in {0, num_replicas - 1, num_replicas // 2}:
            share = Slice(len(order), rank, num_replicas, uneven, begin)
            whole = share.indices(order, 2)
            assert whole.dtype == np.int64
            assert len(whole) == share.num_samples
            cuts = {0, 1, share.num_samples // 2, share.num_samples - 1, share.num_samples}
            cuts = sorted(cut for cut in cuts if 0 <= cut <= share.num_samples)
            for start, stop in itertools.combinations_with_replacement(cuts, 2):
                assert share.indices(order, 2, start, stop).tolist() == whole[start:stop].tolist()
            assert (
                share.indices(order, 2, start=share.num_samples // 2).tolist()
                == whole[share.num_samples // 2 :].tolist()
            )


def test_padding_repeats_the_first_entries_of_the_order_not_of_what_is_left():
    assert [ids_of(Slice(10, rank, 4, "pad", start=5)) for rank in range(4)] == [[5, 9], [6, 0], [7, 1], [8, 2]]
    # More padding than samples: around again, as torch does.
    assert [ids_of(Slice(3, rank, 7)) for rank in range(7)] == [[0], [1], [2], [0], [1], [2], [0]]


def test_23_samples_on_4_ranks_share_one_by_padding():
    shares = [ids_of(Slice(23, rank, 4)) for rank in range(4)]
    assert set(shares[0]) & set(shares[3]) == {0}
    assert [Slice(23, rank, 4).num_padding for rank in range(4)] == [0, 0, 0, 1]


def test_a_finished_epoch_has_nothing_left():
    for uneven in MODES:
        share = Slice(10, 2, 3, uneven, start=10)
        assert (share.num_samples, share.num_padding, share.total_size) == (0, 0, 0)
        assert ids_of(share) == []


def test_the_largest_lengths_do_not_overflow():
    keep = Slice(MAX, MAX - 1, MAX, "keep")
    assert (keep.num_samples, keep.total_size, ids_of(keep)) == (1, MAX, [MAX - 1])
    pad = Slice(MAX, 1, 2)
    assert (pad.num_samples, pad.num_padding, pad.total_size) == (2**62, 1, 2**63)
    assert pad.indices(Sequential(MAX), 0, 2**62 - 2).tolist() == [MAX - 2, 0]
    drop = Slice(MAX, 1, 2, "drop")
    assert (drop.num_samples, drop.num_padding, drop.total_size) == (2**62 - 1, 0, 2**63 - 2)
    assert drop.indices(Sequential(MAX), 0, 2**62 - 2).tolist() == [MAX - 2]
    # Two samples more than ranks: nearly twice the length is drawn.
    widest = Slice(MAX, MAX - 3, MAX - 2)
    assert (widest.num_samples, widest.num_padding, widest.total_size) == (2, 1, 2 * (MAX - 2))
    assert ids_of(widest) == [MAX - 3, MAX - 5]
    one = Slice(1, MAX - 1, MAX)
    assert (one.num_samples, one.num_padding, one.total_size, ids_of(one)) == (1, 1, MAX, [0])


@given(
    length=st.integers(1, MAX),
    num_replicas=st.integers(1, MAX),
    rank=st.integers(0, MAX - 1),
    start=st.integers(0, MAX),
    uneven=st.sampled_from(MODES),
)
@few_samples
def test_sizes_of_huge_shares_are_those_of_exact_arithmetic(length, num_replicas, rank, start, uneven):
    rank, start = rank % num_replicas, min(start, length)
    left = length - start
    share = Slice(length, rank, num_replicas, uneven, start)
    each, rest = divmod(left, num_replicas)
    expected = {"pad": each + (rest > 0), "drop": each, "keep": each + (rank < rest)}[uneven]
    assert share.num_samples == expected
    assert share.num_padding == (1 if uneven == "pad" and rest and rank >= rest else 0)
    total = {"pad": expected * num_replicas, "drop": each * num_replicas, "keep": left}[uneven]
    assert share.total_size == total


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, r"length must be in \[1, 2\^63\), got length=0"),
        ({"length": 2**63}, r"length must be in \[1, 2\^63\), got length=9223372036854775808"),
        ({"num_replicas": 0}, r"num_replicas must be in \[1, 2\^63\), got num_replicas=0"),
        ({"num_replicas": -1}, r"num_replicas must be in \[1, 2\^63\), got num_replicas=-1"),
        ({"rank": -1}, r"rank must be in \[0, 4\), got rank=-1"),
        ({"rank": 4}, r"rank must be in \[0, 4\), got rank=4"),
        ({"start": -1}, r"start must be in \[0, 11\), got start=-1"),
        ({"start": 11}, r"start must be in \[0, 11\), got start=11"),
        ({"uneven": "padd"}, "uneven must be one of 'pad', 'drop', 'keep', got uneven='padd'"),
        ({"uneven": None}, "uneven must be one of 'pad', 'drop', 'keep', got uneven=None"),
    ],
)
def test_a_range_error_names_the_argument_and_its_value(arguments, message):
    with pytest.raises(ValueError, match="^" + message):
        Slice(**{"length": 10, "rank": 1, "num_replicas": 4, **arguments})


@pytest.mark.parametrize("name", ["length", "rank", "num_replicas", "start"])
@pytest.mark.parametrize("value", [1.0, "1", None, True])
def test_a_type_error_names_the_argument_and_its_value(name, value):
    with pytest.raises(TypeError) as caught:
        Slice(**{"length": 10, "rank": 1, "num_replicas": 4, name: value})
    assert str(caught.value) == f"{name} must be an int, got {name}={value!r}"


def test_draws_out_of_range_and_foreign_orders_are_refused():
    share = Slice(10, 1, 4)
    with pytest.raises(ValueError, match=r"start must be in \[0, 4\), got start=4"):
        share.indices(Sequential(10), 0, 4)
    with pytest.raises(ValueError, match=r"stop must be in \[2, 4\), got stop=1"):
        share.indices(Sequential(10), 0, 2, 1)
    with pytest.raises(ValueError, match=r"epoch must be in \[0, 2\^64\), got epoch=-1"):
        share.indices(Sequential(10), -1)
    with pytest.raises(ValueError, match="order must have 10 positions, as this slice has, got one of 11"):
        share.indices(Sequential(11), 0)


@pytest.mark.parametrize(
    ("uneven", "start", "message"),
    [
        ("drop", 0, "9 of 9 ranks get no sample: 4 are left and uneven='drop'"),
        ("keep", 0, "5 of 9 ranks get no sample: 4 are left and uneven='keep'"),
        ("keep", 3, "8 of 9 ranks get no sample: 1 are left and uneven='keep'"),
    ],
)
def test_ranks_without_a_sample_are_warned_about_on_every_rank(uneven, start, message):
    for rank in range(9):
        with pytest.warns(EmptyRankWarning) as caught:
            Slice(4, rank, 9, uneven, start)
        assert [str(warning.message) for warning in caught] == [message]
        assert caught[0].filename == __file__


def test_nothing_is_warned_about_where_every_rank_has_a_sample_or_none_is_left():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Slice(4, 8, 9, "pad")
        Slice(9, 8, 9, "drop")
        Slice(9, 8, 9, "keep")
        Slice(9, 8, 9, "drop", start=9)


def test_numpy_integers_become_ints():
    share = Slice(np.int64(10), np.int32(1), np.uint8(4), "keep", np.int64(2))
    assert share == Slice(10, 1, 4, "keep", 2)
    values = (share.length, share.rank, share.num_replicas, share.start, share.num_samples, share.total_size)
    assert {type(value) for value in values} == {int}


def test_slices_are_values():
    share = Slice(10, 1, 4)
    assert hash(share) == hash(Slice(10, 1, 4, "pad", 0))
    assert share != Slice(10, 2, 4)
    for other in (copy.deepcopy(share), pickle.loads(pickle.dumps(share))):
        assert other == share
        assert other.num_samples == share.num_samples
    with pytest.raises(AttributeError):
        share.rank = 2
