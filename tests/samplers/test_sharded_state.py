"""ShardedBatchSampler stops after any step and goes on at any number of ranks, drawing its batches again."""

import copy
import itertools
import json
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data import DistributedSampler as TorchSampler

from fastshard import (
    DistributedBatchSampler,
    DistributedSampler,
    EpochChangedError,
    GlobalBatchChangedWarning,
    LengthBucketBatchSampler,
    RepeatedEpochWarning,
    ShardedBatchSampler,
    StateMismatchError,
)
from fastshard.cursor import Cursor

quiet = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning", "ignore::fastshard.GlobalBatchChangedWarning")


class Batches:
    """Batch k of an epoch is [epoch, k], and every third one longer; counts what was drawn. It has no len."""

    def __init__(self, count):
        self.count = count
        self.epoch = 0
        self.drawn = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for k in range(self.count):
            self.drawn += 1
            yield [self.epoch, k] + [0] * (k % 3 == 0)


class SizedBatches(Batches):
    def __len__(self):
        return self.count


class GrowingBatches(Batches):
    """Each epoch has a batch more."""

    def __len__(self):
        return self.count + self.epoch

    def __iter__(self):
        return iter([self.epoch, k] for k in range(len(self)))


def saved(sampler):
    return json.loads(json.dumps(sampler.state_dict()))


def shard(batch_sampler, num_replicas=2, rank=1, state=None, **options):
    sampler = ShardedBatchSampler(batch_sampler, num_replicas, rank, **options)
    if state is not None:
        sampler.load_state_dict(state)
    return sampler


def numbers(batches):
    return [batch[1] for batch in batches]


@quiet
@pytest.mark.parametrize("kind", [Batches, SizedBatches])
@given(
    count=st.integers(1, 40),
    worlds=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 6)), min_size=1, max_size=5),
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    epoch=st.integers(0, 2),
)
def test_an_epoch_in_pieces_at_any_world_sizes_is_the_epoch(kind, count, worlds, uneven, epoch):
    """Each world takes some steps and stops; the last one goes to the end."""
    consumed, padded, state = [], 0, None
    for i, (num_replicas, steps) in enumerate(worlds):
        ranks = [shard(kind(count), num_replicas, rank, state, uneven=uneven) for rank in range(num_replicas)]
        for rank in ranks:
            rank.set_epoch(epoch)
        last = i == len(worlds) - 1
        drawn = [list(rank if last else itertools.islice(rank, steps)) for rank in ranks]
        for rank, batches in zip(ranks, drawn, strict=True):
            began = rank.progress()[0]
            padding = [rank.padding_in(began, number) for number in range(len(batches))]
            assert all(some in (0, len(batch)) for some, batch in zip(padding, batches, strict=True))
            padded += sum(map(bool, padding))
            if kind is SizedBatches or last:
                assert rank.batches_from(began) == len(batches) or (not last and len(batches) == steps)
        for step in itertools.zip_longest(*drawn):
            assert all(batch is None or batch[0] == epoch for batch in step)
            consumed += [batch[1] for batch in step if batch is not None]
        state = saved(ranks[0])
        assert uneven == "keep" or kind is Batches or all(saved(rank) == state for rank in ranks)
    order = list(range(count))
    if uneven == "drop":
        assert consumed == order[: len(consumed)]
        assert count - len(consumed) < sum(num_replicas for num_replicas, _ in worlds)
    elif uneven == "keep":
        assert consumed == order
    else:
        assert consumed == (order * (1 + len(consumed) // count))[: len(consumed)]
        assert padded == len(consumed) - count
    assert (state["consumed"], state["length"]) == (count, count)


@quiet
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
def test_every_stop_goes_on_with_the_rest_and_nothing_leaks_into_the_next_epoch(uneven):
    whole = list(shard(SizedBatches(11), 3, 0, uneven=uneven))
    for stop in range(len(whole) + 1):
        state = shard(SizedBatches(11), 3, 0, uneven=uneven).state_at(stop)
        again = shard(SizedBatches(11), 3, 0, state, uneven=uneven)
        again.set_epoch(0)
        assert len(again) == len(whole) - stop
        assert list(again) == whole[stop:]
        again.set_epoch(1)
        assert len(again) == len(whole)
        assert numbers(again) == numbers(whole)
    assert state["consumed"] == 11
    assert next(iter(shard(SizedBatches(11), 3, 0, state, uneven=uneven))) == [1, 0, 0]


def test_a_finished_epoch_stays_finished_also_without_len():
    for kind in (Batches, SizedBatches):
        sampler = shard(kind(5), 2, 0)
        sampler.set_epoch(3)
        assert numbers(sampler) == [0, 2, 4]
        state = saved(sampler)
        assert (state["epoch"], state["consumed"], state["length"]) == (3, 5, 5)
        over = shard(kind(5), 2, 0, state)
        assert saved(over) == state
        over.set_epoch(3)
        assert over.batches_from(over.progress()[0]) == 0
        assert list(over) == []
        going_on = shard(kind(5), 2, 0, state)
        assert next(iter(going_on)) == [4, 0, 0]
        assert saved(going_on)["epoch"] == 4


def test_without_len_an_end_that_has_not_come_is_not_known():
    sampler = shard(Batches(6), 2, 0)
    batches = iter(sampler)
    list(itertools.islice(batches, 3))
    state = saved(sampler)
    assert (state["consumed"], state["length"], sampler.batches_from(Cursor())) == (6, None, None)
    assert list(shard(Batches(6), 2, 0, state)) == []
    assert list(batches) == []
    assert (saved(sampler)["length"], sampler.batches_from(Cursor())) == (6, 3)
    sampler.set_epoch(1)
    assert (saved(sampler)["length"], sampler.batches_from(Cursor(1))) == (None, None)


@quiet
def test_a_rank_without_a_batch_has_not_finished_before_others_began():
    states = [saved(shard(SizedBatches(5), 7, rank, uneven="keep")) for rank in range(7)]
    assert [state["consumed"] for state in states] == [0] * 7
    # Nobody gets anything; but another world may.
    empty = shard(SizedBatches(5), 7, 0, uneven="drop")
    assert saved(empty)["consumed"] == 0
    assert list(empty) == []
    assert saved(empty)["consumed"] == 5


def test_a_resume_draws_the_consumed_batches_once_and_at_the_first_draw():
    inner = SizedBatches(20)
    sampler = shard(inner, 3, 1, shard(SizedBatches(20), 4, 0).state_at(2))
    batches = iter(sampler)
    assert inner.drawn == 0
    assert next(batches)[1] == 9
    assert inner.drawn == 8 + 3
    assert numbers(batches) == [12, 15, 18]
    assert inner.drawn == 20


def test_two_saves_in_one_epoch_add_up():
    sampler = shard(Batches(30), 2)
    list(itertools.islice(sampler, 3))
    again = shard(Batches(30), 4, 3, saved(sampler))
    list(itertools.islice(again, 2))
    assert saved(again)["consumed"] == 2 * 3 + 4 * 2


def test_the_number_of_batches_is_compared_for_the_epoch_of_the_state():
    sampler = shard(GrowingBatches(7), 2, 0)
    sampler.set_epoch(4)
    next(iter(sampler))
    state = saved(sampler)
    assert state["length"] == 11
    again = shard(GrowingBatches(7), 2, 0, state)
    assert (len(again), again.batch_sampler.epoch) == (5, 4)
    wrong = shard(GrowingBatches(8), 2, 0)
    with pytest.raises(StateMismatchError, match=r"length=11, and this one length=12"):
        wrong.load_state_dict(state)
    assert (wrong.epoch, wrong.batch_sampler.epoch, len(wrong)) == (0, 0, 4)


def test_an_iterator_that_has_not_begun_obeys_a_load_and_one_that_has_raises():
    state = shard(Batches(20)).state_at(3)
    sampler = shard(Batches(20))
    fresh = iter(sampler)
    sampler.load_state_dict(state)
    assert numbers(fresh) == list(range(7, 20, 2))
    sampler = shard(Batches(20))
    begun = iter(sampler)
    next(begun)
    sampler.load_state_dict(state)
    with pytest.raises(EpochChangedError, match="load_state_dict"):
        next(begun)
    assert saved(sampler)["consumed"] == 6


def test_copies_and_pickles_know_the_place():
    sampler = shard(Batches(20), state=shard(Batches(20)).state_at(3))
    batches = iter(sampler)
    next(batches)
    copies = [copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))]
    next(batches)
    assert [other.state_dict()["consumed"] for other in (sampler, *copies)] == [10, 8, 8]


def test_a_resumed_place_is_kept_until_what_was_left_has_been_seen():
    sampler = shard(SizedBatches(20), state=shard(SizedBatches(20)).state_at(3))
    next(iter(sampler))
    with pytest.warns(RepeatedEpochWarning):
        assert numbers(list(sampler)) == list(range(7, 20, 2))
    assert numbers(list(sampler)) == list(range(1, 20, 2))


def test_samplers_within_go_on_in_the_epoch_of_the_state_and_at_another_world_size():
    def over_torchs():
        return BatchSampler(TorchSampler(range(60), 1, 0, seed=2), 4, False)

    def over_ours():
        return DistributedBatchSampler(range(60), 4, 1, 0, seed=2)

    def by_length():
        return LengthBucketBatchSampler(list(range(1, 61)), 4, None, 1, 0, seed=2)

    for make in (over_torchs, over_ours, by_length):
        whole = make()
        (getattr(whole, "sampler", None) or whole).set_epoch(5)
        expected = list(whole)
        sampler = shard(make(), 5, 0)
        sampler.set_epoch(5)
        next(iter(sampler))
        with pytest.warns(GlobalBatchChangedWarning, match=r"4 \* 5 \* 1 = 20 and is 4 \* 2 \* 1 = 8; no accumulation"):
            again = shard(make(), 2, 1, saved(sampler))
        assert list(again) == expected[6::2]
        again = shard(make(), 2, 0)
        again.load_from(sampler.state_after(Cursor(5), 1, 2), 5)
        assert list(again) == expected[5::2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: DistributedBatchSampler(range(60), 4, 1, 0),
        lambda: BatchSampler(DistributedSampler(range(60), 1, 0), 4, False),
        lambda: LengthBucketBatchSampler(list(range(1, 61)), 4, None, 1, 0),
        lambda: ShardedBatchSampler(SizedBatches(15), 1, 0),
    ],
)
def test_a_place_that_was_loaded_within_is_not_skipped_twice(make):
    state, inner = shard(make()).state_at(2), make()
    sampler = shard(inner, 2, 0, state)
    stateful = inner if hasattr(inner, "state_dict") else inner.sampler
    inner_state = stateful.state_dict()
    stateful.load_state_dict(inner_state | {"consumed": 4})
    for ask in (lambda: next(iter(sampler)), lambda: sampler.load_state_dict(state), lambda: len(sampler)):
        with pytest.raises(StateMismatchError, match="consumed=4: load the state of the ShardedBatchSampler alone"):
            ask()
    stateful.load_state_dict(inner_state)  # as it was
    sampler.load_state_dict(state)
    assert list(sampler) == list(make())[4::2]


class Chance(Batches):
    set_epoch = None

    def __init__(self, generator):
        super().__init__(4)
        self.generator = generator


@pytest.mark.parametrize(
    "inner",
    [
        BatchSampler(RandomSampler(range(9), generator=torch.Generator()), 2, False),
        BatchSampler(SubsetRandomSampler(range(9), generator=torch.Generator()), 2, False),
        Chance(torch.Generator()),
        Chance(np.random.default_rng(0)),
        Chance(random.Random(0)),
    ],
)
def test_chance_that_nobody_can_repeat_has_no_state(inner):
    sampler = shard(inner)
    for ask in (sampler.state_dict, lambda: sampler.state_at(1), lambda: sampler.load_state_dict({})):
        with pytest.raises(
            TypeError,
            match=r"draws from a random generator.*set_epoch.* Use DistributedSampler, .* num_replicas=1, rank=0",
        ):
            ask()
    assert len(list(sampler)) >= 2


def sequential(batch_size=4, length=40, drop_last=False):
    return BatchSampler(SequentialSampler(range(length)), batch_size, drop_last)


@pytest.mark.parametrize(
    ("inner", "options", "message"),
    [
        (lambda: sequential(length=44), {}, "length=10.*length=11"),
        (lambda: sequential(length=38), {}, None),
        (lambda: sequential(drop_last=True), {}, "order_digest="),
        (lambda: sequential(8, 80), {}, "order_digest=.*batch_size=4.*batch_size=8"),
        (lambda: list(sequential()), {}, "order='batches/BatchSampler'.*order='batches/list'"),
        (sequential, {"uneven": "keep"}, "uneven='pad'.*uneven='keep'"),
        (lambda: DistributedBatchSampler(range(40), 4, 1, 0, seed=3), {}, "seed=0.*seed=3"),
    ],
)
def test_another_run_is_refused(inner, options, message):
    state = shard(sequential()).state_at(2)
    sampler = shard(inner(), **options)
    if message is None:
        sampler.load_state_dict(state)
        assert len(sampler) == 3
        return
    with pytest.raises(StateMismatchError, match=message):
        sampler.load_state_dict(state)
    assert sampler.state_dict()["consumed"] == 0


@pytest.mark.parametrize("state", [None, 3, {}, {"version": 1, "epoch": 0}])
def test_what_is_no_state_is_a_type_error(state):
    with pytest.raises(TypeError, match=r"state must be a dict from state_dict\(\)"):
        shard(SizedBatches(4)).load_state_dict(state)


def test_padding_is_told_for_what_was_drawn():
    sampler = shard(SizedBatches(5), 2, 1)
    with pytest.raises(ValueError, match=r"must be one that this sampler has drawn from Cursor\(.*\), got batch=2"):
        sampler.padding_in(Cursor(), 2)
    batches = list(sampler)
    assert [sampler.padding_in(Cursor(), number) for number in range(3)] == [0, 0, 3]
    assert batches[2] == [0, 0, 0]
    with pytest.raises(ValueError, match="got batch=1"):
        sampler.padding_in(Cursor(0, 2), 1)
