"""ShardedBatchSampler deals the batches of any batch sampler, and keeps its state the same on every rank."""

import copy
import inspect
import itertools
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DistributedSampler as TorchSampler

from fastshard import (
    DistributedBatchSampler,
    DistributedSampler,
    EmptyRankWarning,
    EpochChangedError,
    LengthBucketBatchSampler,
    RepeatedEpochError,
    RepeatedEpochWarning,
    ShardedBatchSampler,
)
from fastshard._reference import slice_positions

MODES = ["pad", "drop", "keep"]
few_samples = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")


class Batches:
    """Batch k of an epoch is [epoch, k, k, ...] of length k + 1; counts what was drawn. It has no len."""

    def __init__(self, count):
        self.count = count
        self.epoch = 0
        self.drawn = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for k in range(self.count):
            self.drawn += 1
            yield [self.epoch] + [k] * k


class SizedBatches(Batches):
    def __len__(self):
        return self.count


def shard(batch_sampler, num_replicas=2, rank=1, **options):
    return ShardedBatchSampler(batch_sampler, num_replicas, rank, **options)


@few_samples
@pytest.mark.parametrize("kind", [Batches, SizedBatches])
@given(count=st.integers(1, 30), num_replicas=st.integers(1, 9), uneven=st.sampled_from(MODES))
def test_batches_are_dealt_as_a_slice_deals_positions(kind, count, num_replicas, uneven):
    for rank in range(num_replicas):
        sampler = shard(kind(count), num_replicas, rank, uneven=uneven)
        drawn = list(sampler)
        assert drawn == [[0] + [k] * k for k in slice_positions(count, rank, num_replicas, uneven)]
        if kind is SizedBatches:
            assert len(sampler) == len(drawn)


@pytest.mark.parametrize("uneven", MODES)
@pytest.mark.parametrize("kind", [Batches, SizedBatches])
def test_every_rank_draws_a_global_step_at_a_time_and_no_more(kind, uneven):
    for rank in range(3):
        inner = kind(7)
        running = iter(shard(inner, 3, rank, uneven=uneven))
        assert inner.drawn == 0
        for step in range(2):
            next(running)
            says_what_is_dropped = kind is SizedBatches and uneven == "drop" and step == 1
            assert inner.drawn == 3 * (step + 1) + says_what_is_dropped
        assert len(list(running)) == {"pad": 1, "drop": 0, "keep": int(rank == 0)}[uneven]
        assert inner.drawn == 7


@pytest.mark.parametrize("uneven", MODES)
@pytest.mark.parametrize("stopped", [False, True], ids=["whole", "cut-short"])
@pytest.mark.parametrize("replacement", [False, True])
def test_a_generator_inside_stays_the_same_on_every_rank(replacement, stopped, uneven):
    """RandomSampler draws more at the end of a pass, and with replacement all along: ranks must not differ in it."""
    epochs = []
    for rank in range(2):
        generator = torch.Generator().manual_seed(3)
        inner = BatchSampler(RandomSampler(range(100), replacement, generator=generator), 10, False)
        sampler = shard(inner, 2, rank, uneven=uneven)
        passes = [list(itertools.islice(sampler, 2 if stopped else None)) for _ in range(3)]
        epochs.append((passes, generator.get_state().tolist()))
    (first, state), (second, other_state) = epochs
    assert state == other_state
    for mine, others in zip(first, second, strict=True):
        together = list(itertools.chain(*mine, *others))
        assert replacement or len(set(together)) == len(together) == (40 if stopped else 100)


def test_batches_are_handed_on_as_they_are():
    batches = [(0, 1), torch.tensor([2]), "ab", {3, 4}]
    drawn = [*shard(batches, rank=0), *shard(batches, rank=1)]
    assert {id(batch) for batch in drawn} == {id(batch) for batch in batches}


def test_a_padded_batch_is_a_copy():
    drawn = list(shard([[0], [1], [2]], 2, 1))
    assert drawn == [[1], [0]]
    drawn[1].append(5)
    batches = [[0]]
    padded = list(shard(batches, 2, 1))
    padded[0].append(1)
    assert batches == [[0]]


def test_set_epoch_reaches_the_batch_sampler_or_the_sampler_in_it():
    inner = Batches(4)
    sampler = shard(inner)
    sampler.set_epoch(3)
    assert (inner.epoch, sampler.epoch) == (3, 3)
    assert list(sampler) == [[3, 1], [3, 3, 3, 3]]
    sampler.epoch = 4
    assert inner.epoch == 4

    torchs = BatchSampler(TorchSampler(range(40), 1, 0, seed=2), 4, False)
    sampler = shard(torchs)
    sampler.set_epoch(5)
    assert torchs.sampler.epoch == 5
    expected = TorchSampler(range(40), 1, 0, seed=2)
    expected.set_epoch(5)
    assert list(sampler) == list(BatchSampler(expected, 4, False))[1::2]

    ours = DistributedBatchSampler(range(40), 4, 1, 0)
    shard(ours).set_epoch(6)
    assert ours.epoch == 6


def test_an_epoch_set_before_the_first_draw_is_obeyed_and_one_set_after_it_is_an_error():
    sampler = shard(Batches(6))
    running = iter(sampler)
    sampler.set_epoch(2)
    assert next(running) == [2, 1]
    sampler.set_epoch(3)
    with pytest.raises(EpochChangedError, match=r"set_epoch\(3\) was called while a pass over epoch 2 was running"):
        next(running)


def test_an_epoch_of_the_inner_one_that_was_set_elsewhere_is_left_alone():
    inner = Batches(2)
    sampler = shard(inner)
    inner.set_epoch(7)
    assert list(sampler) == [[7, 1]]


def test_a_repeated_epoch_is_noticed_where_there_are_epochs():
    sampler = shard(Batches(4))
    list(sampler)
    with pytest.warns(RepeatedEpochWarning, match="another pass over epoch 0"):
        list(sampler)
    sampler = shard(Batches(4), on_repeated_epoch="error")
    list(sampler)
    with pytest.raises(RepeatedEpochError):
        list(sampler)
    sampler = shard(Batches(2), on_repeated_epoch="advance")
    assert [list(sampler) for _ in range(3)] == [[[0, 1]], [[1, 1]], [[2, 1]]]
    for inner in (
        [[1], [2]],
        BatchSampler(SequentialSampler(range(4)), 2, False),
        BatchSampler(TorchSampler(range(4), 1, 0, shuffle=False), 2, False),
    ):
        sampler = shard(inner)
        assert list(sampler) == list(sampler)


def test_without_len_there_is_none_and_the_error_says_so():
    for inner in (Batches(4), BatchSampler(Batches(4), 2, False)):
        with pytest.raises(TypeError, match="batch_sampler has no len"):
            len(shard(inner))


def test_len_follows_the_batch_sampler():
    inner = SizedBatches(7)
    sampler = shard(inner, 2, 1, uneven="keep")
    assert len(sampler) == 3
    inner.count = 10
    assert len(sampler) == len(list(sampler)) == 5


@pytest.mark.parametrize("uneven", ["drop", "keep"])
def test_too_few_batches_are_warned_about(uneven):
    empty = {"drop": 4, "keep": 1}[uneven]
    with pytest.warns(EmptyRankWarning, match=f"{empty} of 4 ranks get no"):
        shard(SizedBatches(3), 4, 3, uneven=uneven)
    sampler = shard(Batches(3), 4, 3, uneven=uneven)
    with pytest.warns(EmptyRankWarning, match=f"{empty} of 4 ranks get no batch: batch_sampler gave 3"):
        assert list(sampler) == []


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: DistributedBatchSampler(range(20), 2, 2, 0), "DistributedBatchSampler|DistributedSampler"),
        (lambda: LengthBucketBatchSampler([3] * 20, 2, None, 2, 0), "LengthBucketBatchSampler"),
        (lambda: ShardedBatchSampler([[1], [2]], 2, 0), "ShardedBatchSampler"),
        (lambda: BatchSampler(DistributedSampler(range(20), 2, 0), 2, False), "DistributedSampler"),
        (lambda: BatchSampler(TorchSampler(range(20), 2, 0), 2, False), "DistributedSampler"),
        (
            lambda: ShardedBatchSampler(BatchSampler(TorchSampler(range(20), 2, 0), 2, False), 1, 0),
            "DistributedSampler",
        ),
    ],
)
def test_what_is_sharded_already_is_refused(make, what):
    with pytest.raises(
        ValueError, match=f"sharded already, by a ({what}) with num_replicas=2: .* num_replicas=1, rank=0"
    ):
        shard(make())


def test_what_is_inside_is_found_also_through_parts_that_have_no_length():
    inner = ShardedBatchSampler(BatchSampler(Batches(6), 2, False), 1, 0)
    sampler = shard(inner)
    sampler.set_epoch(2)
    assert inner.batch_sampler.sampler.epoch == 2


def test_a_sharder_of_one_rank_is_no_sharder():
    inner = DistributedBatchSampler(range(20), 2, 1, 0)
    assert list(shard(inner)) == list(DistributedBatchSampler(range(20), 2, 1, 0))[1::2]
    assert list(shard(DistributedBatchSampler(range(20), 2, 2, 1), 1, 0)) == list(
        DistributedBatchSampler(range(20), 2, 2, 1)
    )


@pytest.mark.parametrize(
    "sampler",
    [RandomSampler(range(9)), SubsetRandomSampler(range(9)), WeightedRandomSampler([1.0] * 9, 9)],
    ids=lambda sampler: type(sampler).__name__,
)
def test_draws_from_global_random_state_are_refused_with_what_to_do(sampler):
    batches = BatchSampler(sampler, 2, False)
    with pytest.raises(
        ValueError, match=f"a {type(sampler).__name__} without a generator.*the same seed on every rank"
    ):
        shard(batches)
    assert len(list(shard(batches, 1, 0))) == 5


@pytest.mark.parametrize(
    ("inner", "error", "message"),
    [
        (7, TypeError, "batch_sampler must be a batch sampler, .* got batch_sampler=7"),
        (iter([[1]]), TypeError, "iterated over once an epoch, got batch_sampler=<list_iterator"),
        ([], ValueError, r"batch_sampler must have at least one batch, got len\(batch_sampler\)=0"),
    ],
)
def test_what_is_no_batch_sampler_is_refused(inner, error, message):
    with pytest.raises(error, match=message):
        shard(inner)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_replicas": 0}, r"num_replicas must be in \[1, 2\^63\), got num_replicas=0"),
        ({"rank": 2}, r"rank must be in \[0, 2\), got rank=2"),
        ({"uneven": "x"}, "uneven must be one of 'pad', 'drop', 'keep', got uneven='x'"),
        ({"on_repeated_epoch": "x"}, "on_repeated_epoch must be one of"),
    ],
)
def test_a_wrong_argument_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        shard([[1], [2]], **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_takes_it_as_batch_sampler(workers):
    sampler = shard(SizedBatches(7))
    loader = DataLoader(range(10), batch_sampler=sampler, num_workers=workers, collate_fn=list)
    assert len(loader) == 4
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert list(loader) == [[epoch] + [k] * k for k in (1, 3, 5)] + [[epoch]]


def test_copies_have_an_epoch_of_their_own():
    sampler = shard(Batches(6))
    sampler.set_epoch(2)
    for copied in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert list(copied) == [[2] + [k] * k for k in (1, 3, 5)]
        copied.set_epoch(3)
    assert sampler.epoch == sampler.batch_sampler.epoch == 2


def test_its_arguments_are_named_as_the_neighbours_name_them():
    names = list(inspect.signature(ShardedBatchSampler).parameters)
    assert names == ["batch_sampler", "num_replicas", "rank", "uneven", "on_repeated_epoch"]
