"""Any stretch of any order of any size, against plain Python ints: at the edges of words above all.

The suite takes 200 examples of each, always the same. For a long run with fresh ones:
`pytest tests/order/test_fuzz.py --hypothesis-profile=fuzz --timeout=0`.
"""

import itertools
import warnings

from hypothesis import given
from hypothesis import strategies as st

from fastshard import EmptyRankWarning, Slice, _reference, _reference_orders
from fastshard.orders import BlockShuffled, Sequential, Shuffled, TorchShuffled, Weighted

MAX = 2**63 - 1
EDGES = (4096, 16384, 2**16, 2**31, 65535 * 65534, 65535**2, 2**32, 65536**2 + 2**17, 2**62, MAX)

near_edges = st.builds(lambda edge, by: min(MAX, edge + by), st.sampled_from(EDGES), st.integers(-2, 2))
of_any_magnitude = st.builds(lambda bits, low: 1 << bits | low % (1 << bits), st.integers(0, 62), st.integers(0, MAX))
lengths = near_edges | of_any_magnitude | st.integers(1, 200)
words = st.sampled_from([0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
seeds = words | st.integers(-(2**63), -1)


@st.composite
def stretches(draw, length, most=40):
    """A range(start, stop, step) of at most so many positions, often one that ends where the order does."""
    start = draw(st.integers(0, length) | st.integers(max(0, length - 300), length) | st.integers(0, min(length, 3)))
    step = draw(st.integers(1, 70) | st.integers(1, max(1, length // 7)) | near_edges)
    return range(start, min(length, start + draw(st.integers(0, most)) * step), step)


def assert_stretch(order, epoch, positions, at, position_too=True):
    ids = order.indices(epoch, positions.start, positions.stop, positions.step).tolist()
    assert ids == [at(position) for position in positions]
    for position, sample in itertools.islice(zip(positions, ids, strict=True), 5 if position_too else 0):
        assert order.position(epoch, sample) == position
        assert order.index(epoch, position) == sample


@given(n=lengths, seed=seeds, epoch=words, data=st.data())
def test_any_stretch_of_shuffled_is_the_reference_s(n, seed, epoch, data):
    positions = data.draw(stretches(n))
    assert_stretch(Shuffled(n, seed), epoch, positions, _reference.shuffled(n, seed, epoch))


@given(n=lengths, epoch=words, data=st.data())
def test_any_stretch_of_sequential_is_itself(n, epoch, data):
    assert_stretch(Sequential(n), epoch, data.draw(stretches(n)), lambda position: position)


@given(n=st.integers(1, 300) | st.sampled_from([4096, 4097]), seed=seeds, epoch=words, data=st.data())
def test_any_stretch_of_torch_s_order_is_the_reference_s(n, seed, epoch, data):
    whole = _reference.torch_order(n, seed, epoch)
    assert_stretch(TorchShuffled(n, seed), epoch, data.draw(stretches(n)), whole.__getitem__)


block_sizes = st.lists(st.integers(0, 5) | near_edges | of_any_magnitude, min_size=1, max_size=12).filter(
    lambda sizes: 0 < sum(sizes) <= MAX
)


@given(sizes=block_sizes, seed=seeds, window=st.integers(1, 13) | near_edges, epoch=words, data=st.data())
def test_any_stretch_of_blocks_is_the_reference_s(sizes, seed, window, epoch, data):
    order = BlockShuffled(sizes, seed, window)
    at = _reference_orders.block_shuffled_at(sizes, seed, window, epoch)
    assert_stretch(order, epoch, data.draw(stretches(sum(sizes))), at)


weights_of_all_kinds = st.lists(
    st.just(0.0) | st.floats(0, 10) | st.floats(0, allow_infinity=False), min_size=1, max_size=30
).filter(any)


@given(weights=weights_of_all_kinds, seed=seeds, epoch=words, data=st.data())
def test_any_stretch_of_weighted_draws_is_the_reference_s(weights, seed, epoch, data):
    at = _reference_orders.weighted(weights, seed, epoch)
    assert_stretch(Weighted(weights, MAX, seed), epoch, data.draw(stretches(MAX)), at, position_too=False)
    count = data.draw(st.integers(1, sum(weight > 0 for weight in weights)))
    subset = Weighted(weights, count, seed, replacement=False)
    assert subset.indices(epoch).tolist() == _reference_orders.weighted_subset(weights, count, seed, epoch)


@given(
    length=lengths,
    num_replicas=st.integers(1, 70) | st.sampled_from([2**31, 2**32, MAX]) | of_any_magnitude,
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    data=st.data(),
)
def test_any_share_is_what_plain_ints_say(length, num_replicas, uneven, data):
    rank = data.draw(st.integers(0, num_replicas - 1) | st.just(num_replicas - 1) | st.just(0))
    start = data.draw(st.just(0) | st.integers(0, length) | st.integers(max(0, length - 5), length))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyRankWarning)
        share = Slice(length, rank, num_replicas, uneven, start)
    left = length - start
    rounded = {"pad": -(-left // num_replicas) * num_replicas, "drop": left // num_replicas * num_replicas}
    total = rounded.get(uneven, left)
    mine = max(0, -((rank - total) // num_replicas))
    assert (share.num_samples, share.total_size) == (mine, total)
    assert share.num_padding == int(mine > 0 and rank + (mine - 1) * num_replicas >= left)
    assert share.positions == (start + rank, start + rank + mine * num_replicas, num_replicas)
    if mine:
        last = start + rank + (mine - 1) * num_replicas
        assert share.indices(Sequential(length), 0, mine - 1).tolist() == [last % length]
        assert share.draw_of(last) == (rank, mine - 1)
