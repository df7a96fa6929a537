"""`take` gives the ids at any positions: those of `indices`, from every order and every inner one, checked the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastshard.orders import BlockShuffled, Mixed, Order, Repeated, Sequential, Shuffled, TorchShuffled, Weighted
from fastshard.orders.base import _runs

MAX = 2**63 - 1


class Squares(Order):
    """A user's order, which counts how often it is asked and for how much."""

    name = "squares/1"

    def __init__(self, n):
        self.n = n
        self.asked = []

    def __len__(self):
        return self.n

    def _fill(self, epoch, start, count, step):
        self.asked.append((start, count, step))
        return (start + epoch % 1000 + step * np.arange(count)) ** 2 % self.n


EXAMPLES = [
    Sequential(1000),
    Shuffled(1, 3),
    Shuffled(1000, 3),
    Shuffled(20_000, 3),
    Shuffled(5 * 10**9, 3),
    Shuffled(MAX, 3),
    TorchShuffled(1000, 3),
    BlockShuffled([700, 0, 16_385, 3, 40] * 3, 3, 2),
    BlockShuffled([2**61, 1, 2**62], 3, 1),
    Weighted([1.0, 0.0, 2.0, 5.0], 1000, 3),
    Weighted([1.0, 0.0, 2.0, 5.0] * 100, 250, 3, replacement=False),
    Repeated(Shuffled(1000, 3), 7),
    Repeated(Squares(50), 3),
    Mixed([Shuffled(1000, 3), Shuffled(100, 3)], [2, 1], 3),
    Mixed([Mixed([Shuffled(30, 3), Squares(9)], [1, 3]), Weighted([1.0, 2.0], 500)], [0.3, 0.7], 3, 5000),
    Squares(1000),
]
every_order = pytest.mark.parametrize("order", EXAMPLES, ids=lambda order: f"{type(order).__name__}-{len(order)}")


@every_order
def test_take_gives_what_index_gives_at_each_of_the_positions(order):
    n = len(order)
    near = st.integers(0, min(n, 300) - 1)
    somewhere = near | st.integers(0, n - 1) | near.map(lambda position: n - 1 - position)

    @settings(max_examples=60)
    @given(positions=st.lists(somewhere, max_size=40), epoch=st.sampled_from([0, 1, 5, 2**64 - 1]))
    def check(positions, epoch):
        ids = order.take(epoch, positions)
        assert ids.dtype == np.int64
        assert ids.tolist() == [int(order.indices(epoch, p, p + 1)[0]) for p in positions]

    check()


@every_order
@pytest.mark.parametrize("step", [1, 2, 7, 64, 100])
def test_take_of_a_stride_is_indices(order, step):
    stop = min(len(order), 5000)
    positions = np.arange(0, stop, step)
    expected = order.indices(3, 0, stop, step).tolist()
    assert order.take(3, positions).tolist() == expected
    assert order.take(3, positions[::-1].astype(np.uint64)).tolist() == expected[::-1]
    assert positions.tolist() == list(range(0, stop, step))


@every_order
def test_no_positions_give_an_empty_int64_array(order):
    for none in ([], np.empty(0, np.int32), np.empty(0)):
        assert order.take(0, none).dtype == np.int64
        assert order.take(0, none).shape == (0,)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_any_type_of_ints_will_do(dtype):
    assert Shuffled(1000, 3).take(2, np.array([5, 100, 7], dtype)).tolist() == [
        Shuffled(1000, 3).index(2, position) for position in (5, 100, 7)
    ]


def test_a_wrong_position_is_an_index_error_with_the_first_one():
    for positions, which, value in (([3, -1, 12], 1, -1), ([3, 4, 10], 2, 10), ([2**64 - 1], 0, 2**64 - 1)):
        with pytest.raises(IndexError, match=rf"positions must be in \[0, 10\), got positions\[{which}\]={value}$"):
            Shuffled(10, 3).take(0, positions)


def test_other_wrong_arguments_are_named_with_their_values():
    order = Shuffled(10, 3)
    for positions in ([1.0], ["1"], [True], None, [2**70], [[1], [1, 2]]):
        with pytest.raises(TypeError, match="positions must be a 1-D array of ints, got positions="):
            order.take(0, positions)
    for positions in (3, [[1, 2]]):
        with pytest.raises(ValueError, match="positions must have one dimension, got positions of shape"):
            order.take(0, positions)
    with pytest.raises(ValueError, match=r"epoch must be in \[0, 2\^64\), got epoch=-1"):
        order.take(-1, [0])
    with pytest.raises(TypeError, match=r"epoch must be an int, got epoch=0\.5"):
        order.take(0.5, [0])


def test_a_user_s_order_is_asked_once_where_the_positions_are_dense_and_once_a_run_where_not():
    order = Squares(10**9)
    order.take(0, np.random.default_rng(1).integers(5000, 9000, 1000))
    assert len(order.asked) == 1
    order.asked.clear()
    order.take(0, [*range(0, 10**6, 1000), 7, 10**8, 10**9 - 1, *range(5, 500_000, 500)])
    assert order.asked[:2] == [(0, 1000, 1000), (7, 2, 10**8 - 7)]
    assert len(order.asked) < 6


@given(positions=st.lists(st.integers(0, 12) | st.integers(0, MAX), min_size=1, max_size=40))
def test_runs_together_are_the_positions(positions):
    runs = list(_runs(np.array(positions)))
    assert [start + i * step for start, count, step in runs for i in range(count)] == positions
    assert all(count >= 1 and step >= 1 for _, count, step in runs)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (np.arange(2), ValueError, r"Wrong\._take must return an int64 array of 3 ids in \[0, 5\), got shape \(2,\)"),
        (np.arange(3.0), TypeError, "got float64"),
        (np.array([0, 1, 5]), ValueError, "got ids from 0 to 5"),
    ],
)
def test_what_a_user_s_take_returns_is_checked(ids, error, message):
    class Wrong(Squares):
        def _take(self, epoch, positions):  # noqa: ARG002
            return ids

    with pytest.raises(error, match=message):
        Wrong(5).take(0, [0, 1, 2])


def test_what_a_user_s_fill_returns_for_take_is_checked():
    class Short(Squares):
        def _fill(self, epoch, start, count, step):
            return super()._fill(epoch, start, count, step)[1:]

    with pytest.raises(ValueError, match=r"Short\._fill must return an int64 array of 5 ids"):
        Short(5).take(0, [0, 2, 4])
