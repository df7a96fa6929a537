"""What every order promises, whatever its ids: random access, checks, identity, copies."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastshard import orders
from fastshard.orders import Sequential, Shuffled, TorchShuffled

MAX = 2**63 - 1

EXAMPLES = [
    pytest.param(Sequential(1000), id="sequential"),
    pytest.param(Shuffled(1000, 3), id="shuffled-table"),
    pytest.param(Shuffled(20_000, 3), id="shuffled-narrow"),
    pytest.param(TorchShuffled(1000, 3), id="torch"),
]
every_order = pytest.mark.parametrize("order", EXAMPLES)
MAKERS = [Sequential, Shuffled, TorchShuffled]
every_maker = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@every_order
def test_whole_order_is_an_int64_permutation(order):
    ids = order.indices(7)
    assert ids.dtype == np.int64
    assert sorted(ids.tolist()) == list(range(len(order)))
    assert order.num_ids == len(order)


@every_order
def test_any_start_stop_step_is_the_strided_slice_of_the_whole(order):
    n = len(order)

    @given(start=st.integers(0, n), stop=st.integers(0, n), step=st.integers(1, n + 1) | st.just(MAX))
    def check(start, stop, step):
        start, stop = min(start, stop), max(start, stop)
        assert order.indices(7, start, stop, step).tolist() == whole[start:stop:step].tolist()

    whole = order.indices(7)
    check()
    assert order.indices(7, 0, None, 3).tolist() == whole[::3].tolist()
    assert order.indices(7, n - 1, n, MAX).tolist() == whole[-1:].tolist()


@pytest.mark.parametrize("step", [1, 2, 3, 63, 64, 65, 127, 128, 129])
@pytest.mark.parametrize("order", [Shuffled(16385, 1), Shuffled(65537, 1)], ids=["16385", "65537"])
def test_blocks_of_the_network_join_without_a_seam(order, step):
    whole = order.indices(2)
    for start in (0, 1, 63, 64, 65):
        for count in (1, 63, 64, 65, 127, 128, 129, 200):
            stop = start + count * step
            if stop <= len(order):
                assert order.indices(2, start, stop, step).tolist() == whole[start:stop:step].tolist()


@every_order
def test_index_is_what_indices_has_at_that_position(order):
    whole = order.indices(5)
    for position in (0, 1, len(order) // 2, len(order) - 1):
        found = order.index(5, position)
        assert type(found) is int
        assert found == whole[position]


@every_order
def test_returned_arrays_belong_to_the_caller(order):
    first = order.indices(5)
    expected = first.tolist()
    first[:] = 0
    assert order.indices(5).tolist() == expected


@every_order
def test_going_back_to_an_earlier_epoch_gives_its_order_again(order):
    first = order.indices(0).tolist()
    order.indices(1)
    assert order.indices(0).tolist() == first


def test_sequential_is_the_identity_in_every_epoch():
    order = Sequential(MAX)
    assert order.indices(0, 5, 20, 6).tolist() == [5, 11, 17]
    assert order.indices(2**64 - 1, MAX - 2).tolist() == [MAX - 2, MAX - 1]
    assert order.indices(1, 0, MAX, 2**61).tolist() == [0, 2**61, 2 * 2**61, 3 * 2**61]
    assert order.index(9, MAX - 1) == MAX - 1
    assert not Sequential.reshuffles


def test_steps_that_overshoot_the_64_bits_are_right():
    order = Shuffled(MAX, 1)
    expected = [order.index(0, position) for position in (MAX - 2, MAX - 1)]
    assert order.indices(0, MAX - 2, MAX, 1).tolist() == expected
    assert order.indices(0, MAX - 2, MAX, MAX).tolist() == expected[:1]
    assert order.indices(0, 1, MAX, 2**62).tolist() == [order.index(0, 1), order.index(0, 2**62 + 1)]
    assert order.indices(0, 0, MAX, 2**57).tolist() == [order.index(0, i * 2**57) for i in range(64)]
    assert order.indices(0, 0, MAX, 2**56).tolist() == [order.index(0, i * 2**56) for i in range(128)]


@every_order
def test_an_empty_range_gives_an_empty_int64_array(order):
    for start in (0, 500, len(order)):
        ids = order.indices(1, start, start)
        assert ids.dtype == np.int64
        assert ids.shape == (0,)


@every_order
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epoch": -1}, r"epoch must be in \[0, 2\^64\), got epoch=-1"),
        ({"epoch": 2**64}, r"epoch must be in \[0, 2\^64\), got epoch=18446744073709551616"),
        ({"start": -1}, r"start must be in \[0, \d+\), got start=-1"),
        ({"start": 30_000}, r"start must be in \[0, \d+\), got start=30000"),
        ({"start": 5, "stop": 4}, r"stop must be in \[5, \d+\), got stop=4"),
        ({"stop": 30_000}, r"stop must be in \[0, \d+\), got stop=30000"),
        ({"step": 0}, r"step must be in \[1, 2\^63\), got step=0"),
        ({"step": -1}, r"step must be in \[1, 2\^63\), got step=-1"),
        ({"step": 2**63}, r"step must be in \[1, 2\^63\), got step=9223372036854775808"),
    ],
)
def test_a_range_error_names_the_argument_and_its_value(order, arguments, message):
    with pytest.raises(ValueError, match=message):
        order.indices(**{"epoch": 0, **arguments})


@every_order
@pytest.mark.parametrize("name", ["epoch", "start", "stop", "step"])
@pytest.mark.parametrize("value", [1.0, "1", True, [1]])
def test_a_type_error_names_the_argument_and_its_value(order, name, value):
    with pytest.raises(TypeError) as caught:
        order.indices(**{"epoch": 0, name: value})
    assert str(caught.value) == f"{name} must be an int, got {name}={value!r}"


@every_order
def test_numpy_integers_are_ints_too(order):
    expected = order.indices(3, 10, 100, 7).tolist()
    assert order.indices(np.uint64(3), np.int32(10), np.int64(100), np.uint8(7)).tolist() == expected


@every_order
@pytest.mark.parametrize("position", [-1, 20_000, 2**70])
def test_a_position_out_of_range_is_an_index_error(order, position):
    with pytest.raises(IndexError, match=rf"position must be in \[0, \d+\), got position={position}"):
        order.index(0, position)


@every_order
def test_index_checks_epoch_and_types_as_indices_does(order):
    with pytest.raises(ValueError, match="epoch=-1"):
        order.index(-1, 0)
    with pytest.raises(TypeError, match=r"position must be an int, got position=0\.0"):
        order.index(0, 0.0)


@every_maker
def test_n_is_checked_at_construction(make):
    for n in (0, -1, 2**63):
        with pytest.raises(ValueError, match=rf"n must be in \[1, 2\^63\), got n={n}"):
            make(n)
    for n in (10.0, "10", None, True):
        with pytest.raises(TypeError, match="n must be an int, got n="):
            make(n)


@pytest.mark.parametrize("make", [Shuffled, TorchShuffled])
def test_seed_is_checked_at_construction(make):
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=rf"seed must be in \[-2\^63, 2\^64\), got seed={seed}"):
            make(10, seed)
    for seed in (1.0, "1", None, False):
        with pytest.raises(TypeError, match="seed must be an int, got seed="):
            make(10, seed)


@every_order
def test_copies_and_pickles_are_equal_and_give_the_same_order(order):
    expected = order.indices(4).tolist()
    for other in (copy.copy(order), copy.deepcopy(order), *pickles(order)):
        assert type(other) is type(order)
        assert other == order
        assert hash(other) == hash(order)
        assert other.indices(4).tolist() == expected


def pickles(order):
    return [pickle.loads(pickle.dumps(order, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]


@every_order
def test_a_pickle_does_not_carry_the_permutation(order):
    order.indices(4)
    assert len(pickle.dumps(order)) < 200


def test_orders_are_equal_if_their_class_and_arguments_are():
    different = [Sequential(10), Sequential(11), Shuffled(10), Shuffled(11), Shuffled(10, 1), TorchShuffled(10)]
    assert len(set(different)) == len(different)
    assert Shuffled(10, 0) == Shuffled(n=10) == Shuffled(np.int64(10), np.int64(0))
    assert Shuffled(10) != TorchShuffled(10)
    assert Shuffled(10) != 10


def test_repr_builds_the_order_again():
    for order in (Sequential(10), Shuffled(10, -1), TorchShuffled(10, 2**64 - 1)):
        assert eval(repr(order), vars(orders)) == order


def test_orders_are_immutable():
    with pytest.raises(AttributeError):
        Shuffled(10).n = 11


@every_maker
def test_a_name_carries_a_version(make):
    assert make.name == {Sequential: "sequential/1", Shuffled: "shuffled/1", TorchShuffled: "torch/1"}[make]


def test_words_for_orders_build_them():
    assert orders.BY_NAME["shuffled"](10, 3) == Shuffled(10, 3)
    assert orders.BY_NAME["torch"](10, 3) == TorchShuffled(10, 3)


def test_an_array_beyond_the_address_space_is_a_memory_error_with_its_size():
    for order in (Sequential(MAX), Shuffled(MAX)):
        with pytest.raises(MemoryError, match=str(MAX)):
            order.indices(0)
