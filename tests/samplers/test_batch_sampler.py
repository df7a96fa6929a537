"""DistributedBatchSampler gives whole batches: those of torch's BatchSampler over the same draws."""

import inspect
import itertools
import operator
import pickle

import numpy as np
import pytest
from torch.utils.data import BatchSampler
from torch.utils.data import DistributedSampler as TorchSampler

from fastshard import DistributedBatchSampler, DistributedSampler, EmptyRankWarning, EpochChangedError, Slice, orders
from fastshard._built import _core
from fastshard.samplers.batch import LIST_CHUNK

few_samples = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")


def make(n=23, batch_size=2, num_replicas=4, rank=1, **options):
    return DistributedBatchSampler(range(n), batch_size, num_replicas, rank, **options)


@few_samples
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("n", [1, 5, 23, 64, 1000])
def test_order_torch_gives_the_batches_of_torch(n, drop_last):
    for num_replicas, batch_size, shuffle in itertools.product((1, 3, 8), (1, 2, 7, 100), (True, False)):
        for rank in range(num_replicas):
            inner = TorchSampler(range(n), num_replicas, rank, shuffle, 42, drop_last)
            inner.set_epoch(3)
            torchs = BatchSampler(inner, batch_size, drop_last)
            ours = make(n, batch_size, num_replicas, rank, shuffle=shuffle, seed=42, drop_last=drop_last, order="torch")
            ours.set_epoch(3)
            assert list(ours) == list(torchs)
            assert len(ours) == len(torchs)


@few_samples
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
def test_length_is_the_number_of_batches(uneven, drop_last):
    for n, num_replicas, batch_size in itertools.product((*range(1, 20), 40), (1, 2, 5), (1, 2, 3, 8)):
        for rank in range(num_replicas):
            batches = make(n, batch_size, num_replicas, rank, uneven=uneven, drop_last=drop_last)
            assert len(list(batches)) == len(batches)


@few_samples
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
def test_drop_last_leaves_whole_batches_and_the_same_number_on_every_rank(uneven):
    for n, num_replicas, batch_size in itertools.product((*range(1, 20), 40), (1, 2, 5), (1, 2, 3, 8)):
        ranks = [list(make(n, batch_size, num_replicas, r, uneven=uneven, drop_last=True)) for r in range(num_replicas)]
        assert len({len(batches) for batches in ranks}) == 1
        assert {len(batch) for batches in ranks for batch in batches} <= {batch_size}


def test_batches_are_the_draws_in_order_as_lists_of_int():
    batches = make(seed=3)
    batches.set_epoch(2)
    drawn = Slice(23, 1, 4).indices(orders.Shuffled(23, 3), 2).tolist()
    found = list(batches)
    assert found == [drawn[0:2], drawn[2:4], drawn[4:6]]
    assert {type(batch) for batch in found} == {list}
    assert {type(sample) for batch in found for sample in batch} == {int}


@pytest.mark.parametrize("batch_size", [1, 7, 4096, 5000, 100_000])
def test_as_array_gives_the_same_batches_as_int64_arrays(batch_size):
    lists = make(50_001, batch_size, 3, 2)
    arrays = make(50_001, batch_size, 3, 2, as_array=True)
    found = list(arrays)
    assert [batch.tolist() for batch in found] == list(lists)
    assert len(found) == len(arrays)
    assert {(type(batch), batch.dtype, batch.ndim) for batch in found} == {(np.ndarray, np.dtype(np.int64), 1)}


@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 1000, 4095, 4096, 4097, 5000, 16_383, 16_385, 2**62, 2**63 - 1])
def test_chunks_join_without_a_seam(batch_size, as_array):
    length = 3 * (2 * LIST_CHUNK + 17)
    drawn = DistributedSampler(range(length), 3, 2).indices().tolist()
    found = list(make(length, batch_size, 3, 2, as_array=as_array))
    assert list(itertools.chain(*found)) == drawn
    assert {len(batch) for batch in found[:-1]} <= {batch_size}


@pytest.mark.parametrize("size", [1, 2, 3, 10, 11, 2**63 - 1])
def test_the_cores_batches_are_the_lists_of_an_array_and_say_how_many_are_left(size):
    ids = [0, -1, 2**62, -(2**63), 5, 2**30, 2**30 - 1, -(2**30), 256, 257, 2**63 - 1]
    batches = _core.Batches(np.array(ids), size)
    expected = [ids[start : start + size] for start in range(0, len(ids), size)]
    for left, batch in zip(range(len(expected), 0, -1), expected, strict=True):
        assert operator.length_hint(batches) == left
        assert next(batches) == batch
    assert operator.length_hint(batches) == 0
    assert list(batches) == []
    assert list(_core.Ids(np.array(ids))) == ids


def test_the_cores_batches_refuse_what_is_no_array_of_ids_and_sizes_below_one():
    assert list(_core.Batches(np.empty(0, np.int64), 3)) == []
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"size must be at least 1, got size={size}"):
            _core.Batches(np.arange(3), size)
    with pytest.raises(TypeError, match="array must be of integers that fit int64, got 'ids'"):
        _core.Batches("ids", 2)


def test_a_global_batch_does_not_depend_on_the_number_of_ranks():
    for num_replicas, batch_size in ((1, 12), (2, 6), (3, 4), (6, 2)):
        ranks = [list(make(120, batch_size, num_replicas, rank)) for rank in range(num_replicas)]
        order = orders.Shuffled(120).indices(0).tolist()
        for step in range(10):
            drawn = sorted(itertools.chain(*(batches[step] for batches in ranks)))
            assert drawn == sorted(order[step * 12 : (step + 1) * 12])


def test_it_is_a_torch_batch_sampler_over_a_distributed_sampler():
    batches = make(drop_last=True)
    assert isinstance(batches, BatchSampler)
    assert isinstance(batches.sampler, DistributedSampler)
    assert (batches.batch_size, batches.drop_last, batches.sampler.uneven) == (2, True, "drop")
    assert list(inspect.signature(DistributedBatchSampler).parameters)[:7] == [
        "dataset", "batch_size", "num_replicas", "rank", "shuffle", "seed", "drop_last",
    ]  # fmt: skip


def test_epochs_are_those_of_its_sampler():
    batches = make()
    batches.set_epoch(3)
    assert (batches.epoch, batches.sampler.epoch) == (3, 3)
    batches.sampler.set_epoch(4)
    assert batches.epoch == 4
    batches.epoch = 5
    assert batches.sampler.epoch == 5
    assert list(batches) != list(make())


def test_a_pass_over_batches_is_a_pass_over_the_sampler():
    batches = make(on_repeated_epoch="error")
    assert len(list(batches)) == 3
    with pytest.raises(RuntimeError, match="another pass over epoch 0"):
        list(batches)
    batches.set_epoch(1)
    running = iter(batches)
    next(running)
    batches.set_epoch(2)
    with pytest.raises(EpochChangedError, match=r"set_epoch\(2\) was called while a pass over epoch 1 was running"):
        next(running)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, r"batch_size must be in \[1, 2\^63\), got batch_size=0"),
        ({"batch_size": -1}, ValueError, r"batch_size must be in \[1, 2\^63\), got batch_size=-1"),
        ({"batch_size": 2.0}, TypeError, r"batch_size must be an int, got batch_size=2\.0"),
        ({"batch_size": True}, TypeError, "batch_size must be an int, got batch_size=True"),
        ({"rank": 4}, ValueError, r"rank must be in \[0, 4\), got rank=4"),
        ({"num_replicas": 0}, ValueError, r"num_replicas must be in \[1, 2\^63\), got num_replicas=0"),
        ({"uneven": "padd"}, ValueError, "uneven must be one of 'pad', 'drop', 'keep', got uneven='padd'"),
        ({"uneven": ""}, ValueError, "uneven must be one of 'pad', 'drop', 'keep', got uneven=''"),
        ({"seed": 2**64}, ValueError, "seed=18446744073709551616"),
        ({"order": "random"}, ValueError, "order must be one of 'shuffled', 'torch', got order='random'"),
    ],
)
def test_a_wrong_argument_is_named(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_no_batch_on_any_rank_is_warned_about():
    with pytest.warns(
        EmptyRankWarning, match="no rank gets a batch: 23 samples are fewer than batch_size=6 on each of 4"
    ):
        batches = make(batch_size=6, drop_last=True)
    assert (len(batches), list(batches)) == (0, [])


def test_pickles_continue_at_the_same_epoch():
    batches = make(seed=6, drop_last=True)
    batches.set_epoch(5)
    other = pickle.loads(pickle.dumps(batches))
    assert other.epoch == 5
    assert list(other) == list(batches)


def test_a_changed_batch_size_or_drop_last_takes_effect_on_length_and_batches_alike():
    batches = DistributedBatchSampler(range(100), 8, 3, 0)
    batches.batch_size = 5
    assert [len(batch) for batch in batches] == [5] * 6 + [4]
    assert len(batches) == 7
    batches.drop_last = True
    batches.set_epoch(1)
    assert [len(batch) for batch in batches] == [5] * len(batches) == [5] * 6
