"""BlockShuffled is a bijection that stays within windows of blocks, equal to the reference, any position on its own."""

import copy
import itertools
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, _reference_orders
from fastshard.orders import BlockShuffled, Shuffled

MAX = 2**63 - 1

some_sizes = st.lists(st.integers(0, 4) | st.integers(0, 40), min_size=1, max_size=25).filter(any)
seeds = st.sampled_from([-(2**63), -1, 0, 1, 2**64 - 1]) | st.integers(-(2**63), 2**64 - 1)
epochs = st.sampled_from([0, 1, 2**32, 2**64 - 1]) | st.integers(0, 2**64 - 1)


def block_of(sizes, ids):
    return np.searchsorted(np.cumsum(sizes), ids, side="right")


@given(sizes=some_sizes, seed=seeds, window=st.integers(1, 30) | st.just(MAX), epoch=epochs)
def test_every_small_shape_is_a_bijection_equal_to_the_reference_with_its_inverse(sizes, seed, window, epoch):
    order = BlockShuffled(sizes, seed, window)
    n = sum(sizes)
    assert (len(order), order.num_ids) == (n, n)
    ids = order.indices(epoch)
    assert ids.dtype == np.int64
    assert sorted(ids.tolist()) == list(range(n))
    assert ids.tolist() == list(itertools.chain(*_reference_orders.block_shuffled(sizes, seed, window, epoch)))
    assert [order.position(epoch, sample) for sample in ids] == list(range(n))
    assert type(order.position(epoch, 0)) is int


@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_sizes_with_tables_and_networks_are_bijections_equal_to_the_reference(window):
    sizes = [16_384, 0, 16_385, 5, 40_000, 1, 0, 16_383, 3000]
    order = BlockShuffled(sizes, 3, window)
    ids = order.indices(2)
    assert (np.bincount(ids, minlength=len(order)) == 1).all()
    assert ids.tolist() == list(itertools.chain(*_reference_orders.block_shuffled(sizes, 3, window, 2)))
    for position in range(0, len(order), 997):
        assert order.position(2, ids[position]) == position


@pytest.mark.parametrize(
    "size", [4095, 4096, 4097, 4225, 65535 * 65534, 65535 * 65534 + 1, 65535**2, 65535**2 + 1, MAX - 9]
)
def test_windows_at_the_ends_of_tables_and_words_equal_the_reference(size):
    """From 65535 * 65534 + 1 on, both digits are odd and one more doesn't fit 16 bits."""
    order = BlockShuffled([4, size, 5], 3, 1)
    at = _reference_orders.block_shuffled_at([4, size, 5], 3, 1, 2)
    for start in (0, size // 2, size - 70):
        ids = order.indices(2, start, start + 79).tolist()
        assert ids == [at(position) for position in range(start, start + 79)]
        assert [order.position(2, sample) for sample in ids] == list(range(start, start + 79))


def test_many_blocks_are_a_bijection():
    sizes = np.random.default_rng(0).integers(0, 60, 30_000)  # more blocks than a table has room for
    order = BlockShuffled(sizes, 3, 50)
    ids = order.indices(2)
    assert (np.bincount(ids, minlength=len(order)) == 1).all()
    assert [order.position(2, sample) for sample in ids[::9999]] == list(range(0, len(order), 9999))


@given(sizes=some_sizes, window=st.integers(1, 30), data=st.data(), step=st.integers(1, 50) | st.just(MAX))
def test_any_start_stop_step_is_the_strided_slice_of_the_whole(sizes, window, data, step):
    order = BlockShuffled(sizes, 1, window)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(order))] * 2)))
    assert order.indices(7, start, stop, step).tolist() == order.indices(7)[start:stop:step].tolist()


@given(sizes=some_sizes, window=st.integers(1, 30), epoch=epochs)
def test_a_window_s_positions_hold_exactly_its_blocks_samples(sizes, window, epoch):
    order = BlockShuffled(sizes, 1, window)
    ids = order.indices(epoch)
    blocks = order.blocks_of(epoch).tolist()
    assert sorted(blocks) == [k for k, size in enumerate(sizes) if size]
    windows = _reference_orders.block_shuffled(sizes, 1, window, epoch)
    assert len(windows) == -(-len(sizes) // window)
    at = 0
    for inside in windows:
        ids_here = ids[at : at + len(inside)]
        of_window = sorted(set(block_of(sizes, ids_here).tolist()))
        assert len(of_window) <= window
        assert sorted(ids_here.tolist()) == [i for i in range(len(ids)) if block_of(sizes, i) in of_window]
        assert of_window == sorted(order.blocks_of(epoch, at, at + len(inside)).tolist())
        at += len(inside)


@given(sizes=some_sizes, window=st.integers(1, 30), data=st.data())
def test_blocks_of_names_the_blocks_of_the_ids_in_the_epoch_s_order_of_blocks(sizes, window, data):
    order = BlockShuffled(sizes, 1, window)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(order))] * 2)))
    whole = order.blocks_of(3)
    assert whole.dtype == np.int64
    touched = set(block_of(sizes, order.indices(3, start, stop)).tolist())
    assert order.blocks_of(3, start, stop).tolist() == [block for block in whole.tolist() if block in touched]


def test_blocks_of_long_windows_are_found_too():
    sizes = [5000] * 20
    order = BlockShuffled(sizes, 1, 5)
    for start, stop in ((0, 3), (100, 1500), (24_000, 76_000), (99_999, 100_000), (50_000, 50_000)):
        ids = order.indices(0, start, stop)
        assert set(order.blocks_of(0, start, stop).tolist()) == set((ids // 5000).tolist())
    assert order.blocks_of(0, 25_000, 50_000).tolist() == order.blocks_of(0).tolist()[5:10]


def test_the_blocks_of_each_epoch_and_seed_come_in_another_order():
    orders_of_blocks = {
        tuple(BlockShuffled([1, 2] * 20, seed, 4).blocks_of(epoch).tolist()) for seed in range(8) for epoch in range(8)
    }
    assert len(orders_of_blocks) == 64


@pytest.mark.parametrize("size", [1000, 20_000])  # a table and a network for each window
def test_windows_epochs_seeds_and_other_orders_are_unrelated(size):
    """Windows of one size must not be shuffled alike, or a model would see the same pattern in each."""
    parts = [Shuffled(size, 0).indices(0)]
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (2**64 - 1, 2**64 - 1)):
        order = BlockShuffled([size] * 6, seed, 1)
        ids = order.indices(epoch).reshape(6, size)
        assert (np.sort(ids // size, axis=1) == ids // size).all()  # one block each
        parts += list(ids % size)
    agreements = [int((parts[i] == parts[j]).sum()) for i in range(len(parts)) for j in range(i)]
    assert max(agreements) < 12  # of unrelated ones, Poisson(1)
    assert abs(sum(agreements) - len(agreements)) < 6 * len(agreements) ** 0.5


def test_the_order_of_blocks_is_unrelated_to_that_of_samples():
    sizes = [1] * 1000
    by_block = BlockShuffled(sizes, 0, 1).indices(0)  # nothing but the order of blocks
    at_once = BlockShuffled(sizes, 0, 1000).indices(0)
    plain = Shuffled(1000, 0).indices(0)
    for one, other in ((by_block, at_once), (by_block, plain), (at_once, plain)):
        assert (one == other).sum() < 12


@pytest.mark.parametrize("window", [3, 7, 100])
def test_a_window_of_all_blocks_is_a_full_shuffle_in_law(window):
    """All 24 orders of 4 samples in 3 blocks are equally likely."""
    order = BlockShuffled([1, 2, 1], 5, window)
    codes = np.array([order.indices(epoch) @ [64, 16, 4, 1] for epoch in range(24_000)])
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 5 * 31
    assert ((counts - 1000) ** 2 / 1000).sum() < 23 + 5 * 46**0.5


def test_a_narrow_window_is_far_from_a_full_shuffle():
    """What the law test above must be able to see: of the 24 orders, those that interleave blocks never come."""
    order = BlockShuffled([1, 2, 1], 5, 1)
    assert len({tuple(order.indices(epoch).tolist()) for epoch in range(2000)}) == 12


def test_huge_blocks_are_right_at_both_ends():
    sizes = [2**62, 0, 2**61, 2**61 - 1]
    order = BlockShuffled(sizes, 1, 2)
    assert len(order) == MAX
    for epoch in range(6):
        for start in (0, 2**61 - 3, 2**62 - 3, 3 * 2**61 - 3, MAX - 6):
            ids = order.indices(epoch, start, start + 6)
            assert [order.position(epoch, sample) for sample in ids.tolist()] == list(range(start, start + 6))
        strided = order.indices(epoch, 5, MAX, 2**60)
        assert [order.position(epoch, sample) for sample in strided.tolist()] == [5 + i * 2**60 for i in range(8)]


def test_windows_are_not_shuffled_again_for_every_id():
    """100,000 ids one by one, back and forth over the last windows: again and again, it would take minutes."""
    order = BlockShuffled([8000] * 8, 1, 2)
    whole = order.indices(0)
    for position in itertools.chain(range(0, 64_000, 8), range(63_999, 0, -8), [0, 16_000, 32_000, 48_000] * 2000):
        assert order.index(0, position) == whole[position]


def test_an_index_is_an_int_and_out_of_range_an_index_error():
    order = BlockShuffled([2, 3], 0, 1)
    assert type(order.index(0, 0)) is int
    with pytest.raises(IndexError, match=r"position must be in \[0, 5\), got position=5"):
        order.index(0, 5)
    with pytest.raises(ValueError, match=r"id must be in \[0, 5\), got id=5"):
        order.position(0, 5)
    assert order.indices(0, 5).shape == (0,)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([3, -1, -2], r"block_sizes must be in \[0, 2\^63\), got block_sizes\[1\]=-1"),
        (
            np.array([3, 2**63], np.uint64),
            r"block_sizes must be in \[0, 2\^63\), got block_sizes\[1\]=9223372036854775808",
        ),
        ([], "block_sizes must have at least one block, got none"),
        ([0, 0], r"block_sizes must add up to a number in \[1, 2\^63\), got 0"),
        ([2**62, 2**62], r"block_sizes must add up to a number in \[1, 2\^63\), got 9223372036854775808"),
        ([MAX] * 5, r"block_sizes must add up to a number in \[1, 2\^63\), got 46116860184273879035"),
        ([[1, 2]], r"block_sizes must have one dimension, got block_sizes of shape \(1, 2\)"),
        (3, r"block_sizes must have one dimension, got block_sizes of shape \(\)"),
    ],
)
def test_wrong_sizes_are_refused_with_the_first_wrong_one(sizes, message):
    with pytest.raises(ValueError, match=message):
        BlockShuffled(sizes, 0, 1)


@pytest.mark.parametrize("sizes", [[1.0, 2.0], "12", None, [True], [[1], [2, 3]], {1: 2}, ["1"]])
def test_sizes_that_are_no_ints_are_a_type_error(sizes):
    with pytest.raises(TypeError, match="block_sizes must be a 1-D array of ints, got block_sizes="):
        BlockShuffled(sizes, 0, 1)


def test_the_other_arguments_are_checked():
    for window in (0, -1, 2**63):
        with pytest.raises(ValueError, match=rf"window must be in \[1, 2\^63\), got window={window}"):
            BlockShuffled([1], 0, window)
    with pytest.raises(TypeError, match=r"window must be an int, got window=2\.0"):
        BlockShuffled([1], 0, 2.0)
    with pytest.raises(ValueError, match=r"seed must be in \[-2\^63, 2\^64\), got seed=18446744073709551616"):
        BlockShuffled([1], 2**64, 1)
    order = BlockShuffled([2, 3], 0, 1)
    for arguments, message in (
        ((-1,), r"epoch must be in \[0, 2\^64\), got epoch=-1"),
        ((0, 6), r"start must be in \[0, 6\), got start=6"),
        ((0, 2, 1), r"stop must be in \[2, 6\), got stop=1"),
    ):
        with pytest.raises(ValueError, match=message):
            order.blocks_of(*arguments)
    with pytest.raises(TypeError, match=r"start must be an int, got start=0\.0"):
        order.blocks_of(0, 0.0)


@pytest.mark.parametrize("sizes", [(3, 0, 2), np.array([3, 0, 2], np.uint8), torch.tensor([3, 0, 2]), range(3, 0, -1)])
def test_any_array_like_of_ints_is_copied(sizes):
    order = BlockShuffled(sizes, 1, 2)
    assert order == BlockShuffled([int(size) for size in sizes], 1, 2)
    expected = order.indices(0).tolist()
    if isinstance(sizes, np.ndarray | torch.Tensor):
        sizes[:] = 1
    assert pickle.loads(pickle.dumps(order)).indices(0).tolist() == expected
    with pytest.raises(ValueError, match="read-only"):
        order.block_sizes[0] = 1


def test_copies_and_pickles_are_equal_and_give_the_same_order():
    order = BlockShuffled(np.arange(100), np.int64(3), np.int64(8))
    expected = order.indices(4).tolist()
    pickles = [pickle.dumps(order, protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in (copy.copy(order), copy.deepcopy(order), *map(pickle.loads, pickles)):
        assert type(other) is BlockShuffled
        assert other == order
        assert hash(other) == hash(order)
        assert other.indices(4).tolist() == expected
    assert max(map(len, pickles[1:])) < 8 * 100 + 400
    assert repr(order) == "BlockShuffled(block_sizes=<100 of int64>, seed=3, window=8)"
    assert len({order, BlockShuffled(np.arange(100), 3, 9), BlockShuffled(np.arange(100)[::-1], 3, 8)}) == 3
    assert (order.name, order.reshuffles) == ("blocks/1", True)
    with pytest.raises(FrozenInstanceError):
        order.window = 4


@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("num_replicas", [1, 3, 8])
def test_the_ranks_together_draw_the_order_padded_as_any_other(num_replicas, uneven):
    order = BlockShuffled([5, 0, 17, 9, 30, 2, 11], 4, 2)
    n = len(order)
    ranks = [DistributedSampler(range(n), num_replicas, r, order=order, uneven=uneven) for r in range(num_replicas)]
    for sampler in ranks:
        sampler.set_epoch(1)
    shares = [list(sampler) for sampler in ranks]
    drawn = [share[i] for i in range(len(shares[0])) for share in shares if i < len(share)]
    whole = order.indices(1).tolist()
    assert drawn == (whole + whole)[: ranks[0].total_size]
    for rank, step, slot in {ranks[0].where(sample, 4) for sample in whole[: ranks[0].total_size]}:
        assert shares[rank][step * 4 + slot] in whole
    assert ranks[0].where(whole[num_replicas], 4) == (0, 0, 1)


def test_loaders_and_batches_take_it():
    order = BlockShuffled([5, 0, 17, 9, 30, 2, 11], 4, 2)
    batches = DistributedBatchSampler(range(len(order)), 4, 2, 1, order=order)
    assert [sample for batch in batches for sample in batch] == order.indices(0, 1, None, 2).tolist()
    assert batches.global_batch(3).tolist() == order.indices(0, 24, 32).tolist()
    loader = DataLoader(range(len(order)), batch_sampler=batches, num_workers=1)
    batches.set_epoch(1)
    assert torch.cat(list(loader)).tolist() == order.indices(1, 1, None, 2).tolist()


def test_threads_on_different_epochs_and_windows_do_not_disturb_each_other():
    shared = BlockShuffled([700] * 12, 1, 2)
    expected = [BlockShuffled([700] * 12, 1, 2).indices(epoch).tolist() for epoch in range(4)]
    barrier = threading.Barrier(8)

    def wrong_answers(number):
        barrier.wait()
        epoch, start = number % 4, number * 1000
        return sum(
            shared.indices(epoch, start).tolist() != expected[epoch][start:]
            or shared.position(epoch, expected[epoch][start]) != start
            for _ in range(30)
        )

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(wrong_answers, range(8))) == [0] * 8
