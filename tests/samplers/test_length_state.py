"""LengthBucketBatchSampler stops after any step and goes on at any number of ranks: each sample of an epoch once."""

import copy
import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastshard import (
    DistributedBatchSampler,
    EpochChangedError,
    GlobalBatchChangedWarning,
    LengthBucketBatchSampler,
    RepeatedEpochWarning,
    StateMismatchError,
    orders,
)
from fastshard.cursor import Cursor

LENGTHS = np.clip(np.random.default_rng(1).lognormal(4, 1, 500).astype(int), 1, 900)
quiet = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning", "ignore::fastshard.GlobalBatchChangedWarning")


def saved(sampler):
    return json.loads(json.dumps(sampler.state_dict()))


def make(num_replicas=2, rank=0, state=None, lengths=LENGTHS, batch_size=8, max_tokens=None, **options):
    sampler = LengthBucketBatchSampler(
        lengths, None if max_tokens else batch_size, max_tokens, num_replicas, rank, **options
    )
    if state is not None:
        sampler.load_state_dict(state)
    return sampler


def make_all(num_replicas, state=None, **options):
    return [make(num_replicas, rank, state, **options) for rank in range(num_replicas)]


def in_turn(drawn):
    """What all ranks drew in each step, in the order of global_batch."""
    for batches in itertools.zip_longest(*drawn, fillvalue=[]):
        yield [sample for slot in itertools.zip_longest(*batches) for sample in slot if sample is not None]


@quiet
@given(
    lengths=st.builds(
        lambda n, most, seed: np.random.default_rng(seed).integers(0, most + 1, n).tolist(),
        st.integers(1, 150),
        st.integers(0, 60),
        st.integers(0, 99),
    ),
    worlds=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=5),
    tokens=st.booleans(),
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    options=st.fixed_dictionaries(
        {"shuffle": st.booleans(), "spread": st.sampled_from([0.0, 0.05, 0.3]), "min_steps": st.integers(1, 3)}
    ),
    epoch=st.integers(0, 3),
)
def test_an_epoch_in_pieces_at_any_world_sizes_has_each_sample_once(lengths, worlds, tokens, uneven, options, epoch):
    """Each world takes some steps and stops; the last one goes to the end."""
    batch_sizes = {num_replicas: size for num_replicas, size, _ in worlds}  # one for each size, or it raises
    consumed, padding, state = [], 0, None
    for i, (num_replicas, _, steps) in enumerate(worlds):
        size = batch_sizes[num_replicas]
        size = {"max_tokens": 60 + 20 * size} if tokens else {"batch_size": size}
        ranks = make_all(num_replicas, state, lengths=lengths, uneven=uneven, **size, **options)
        for rank in ranks:
            rank.set_epoch(epoch)
        last = i == len(worlds) - 1
        expected = [rank.batches_from(rank.progress()[0]) for rank in ranks]
        assert [len(rank) for rank in ranks] == expected
        took = [expected[0] if last else min(steps, expected[0])] * num_replicas
        asked = [ranks[-1].global_batch(step).tolist() for step in range(took[0])]
        drawn = [list(rank if last else itertools.islice(rank, took[0])) for rank in ranks]
        assert list(in_turn(drawn)) == asked
        assert [len(batches) for batches in drawn] == [min(took[0], count) for count in expected]
        for rank, batches in zip(ranks, drawn, strict=True):
            for number, batch in enumerate(batches):
                padded = rank.padding_in(rank.progress()[0], number)
                consumed += batch[: len(batch) - padded]
                padding += padded
        state = saved(ranks[0])
        assert uneven == "keep" or all(saved(rank) == state for rank in ranks)
    assert len(set(consumed)) == len(consumed)
    if uneven == "drop":
        assert len(lengths) - len(consumed) < sum(num_replicas for num_replicas, _, _ in worlds)
    else:
        assert len(consumed) == len(lengths)
    assert padding == 0 or uneven == "pad"
    assert state["consumed"] == len(lengths)


@pytest.mark.parametrize("size", [{"batch_size": 8}, {"max_tokens": 2000}])
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
def test_at_the_same_world_size_the_rest_is_the_rest_of_the_same_plan(size, uneven):
    whole = list(make(4, 1, uneven=uneven, **size, on_repeated_epoch="advance"))
    stopped = make(4, 1, uneven=uneven, **size)
    for stop in range(len(whole) + 1):
        state = json.loads(json.dumps(stopped.state_at(stop)))
        again = make(4, 1, state, uneven=uneven, **size)
        again.set_epoch(0)
        assert len(again) == len(whole) - stop
        assert list(again) == whole[stop:]
        assert again._rest is None  # nothing was planned afresh
        again.set_epoch(1)
        assert len(again) == len(whole)
    assert state["consumed"] == 500
    assert next(iter(make(4, 1, state, uneven=uneven, **size))) == make_at(1, 4, 1, uneven=uneven, **size)


def make_at(epoch, num_replicas, rank, **options):
    sampler = make(num_replicas, rank, **options)
    sampler.set_epoch(epoch)
    return next(iter(sampler))


@quiet
def test_a_resized_run_saves_again_and_goes_on_at_its_own_size_and_others():
    first = make(4, batch_size=4)
    first.set_epoch(2)
    list(itertools.islice(first, 5))
    state = saved(first)
    assert (state["consumed"], state["former_plans"]) == (80, [])
    ranks = make_all(2, state, batch_size=8)
    drawn = [list(itertools.islice(rank, 3)) for rank in ranks]
    again = saved(ranks[1])
    assert again["former_plans"] == [{"num_replicas": 4, "batch_size": 4, "consumed": 80}]
    assert (again["consumed"], again["num_replicas"]) == (80 + 48, 2)
    # The same size goes on in the plan of the rest; nothing drawn at a size leaves no trace.
    rests = [list(make(2, rank, again, batch_size=8)) for rank in range(2)]
    fresh = [list(make(2, rank, state, batch_size=8)) for rank in range(2)]
    assert [batches[3:] for batches in fresh] == rests
    assert [batches[:3] for batches in fresh] == drawn
    through = saved(make(3, 0, saved(make(5, 0, again))))
    assert through["former_plans"][1:] == [{"num_replicas": 2, "batch_size": 8, "consumed": 48}]
    assert saved(make(2, 1, through, batch_size=8)) == again
    # The epochs after it have the plan of all samples.
    ranks[0].set_epoch(3)
    assert ranks[0].state_at(1)["former_plans"] == ranks[0].state_after(Cursor(1, 160), 1)["former_plans"] == []
    plain = make(2, batch_size=8)
    plain.set_epoch(3)
    assert list(ranks[0]) == list(plain)


def test_a_rest_is_bucketed_as_well_as_the_whole():
    state = make(4, batch_size=4).state_at(10)
    ranks = make_all(2, state, batch_size=8)
    left = set(range(500)) - {i for step in range(10) for i in make(4, batch_size=4).global_batch(step).tolist()}
    widest = max(bucket.longest - bucket.shortest for bucket in ranks[0]._rest[1].order.buckets)
    drawn = list(in_turn([list(rank) for rank in ranks]))
    assert set(itertools.chain(*drawn)) == left
    assert max(np.ptp(LENGTHS[batch]) for batch in drawn) <= widest
    plain = list(in_turn([list(rank) for rank in make_all(2)]))
    medians = [np.median([np.ptp(LENGTHS[batch]) for batch in batches]) for batches in (drawn, plain)]
    assert medians[0] <= 1.5 * medians[1]


@quiet
@pytest.mark.parametrize(("num_replicas", "batch_size"), [(2, 8), (4, 4)])
def test_where_and_global_batch_count_from_the_resumed_place(num_replicas, batch_size):
    first = make(4, batch_size=4)
    gone = [first.global_batch(step).tolist() for step in range(7)]
    ranks = make_all(num_replicas, first.state_at(7), batch_size=batch_size)
    asked = ranks[0]
    drawn = [list(rank) for rank in ranks]
    assert [asked.global_batch(step).tolist() for step in range(len(drawn[0]))] == list(in_turn(drawn))
    for sample in range(500):
        where = asked.where(sample)
        assert (where is None) == (sample in itertools.chain(*gone))
        if where:
            rank, step, slot = where
            assert drawn[rank][step][slot] == sample


@pytest.mark.parametrize("workers", [0, 2])
def test_who_counts_steps_under_a_loader_goes_on_with_the_next_one(workers):
    def load(sampler):
        return DataLoader(range(500), batch_sampler=sampler, num_workers=workers, collate_fn=list)

    sampler = make(2)
    batches = iter(load(sampler))
    took = [next(batches) for _ in range(3)]
    again = make(2, state=sampler.state_at(3))
    assert len(load(again)) == len(make(2)) - 3
    assert took + list(load(again)) == list(make(2))


def test_two_saves_in_one_epoch_add_up():
    sampler = make(2)
    list(itertools.islice(sampler, 3))
    again = make(2, 1, saved(sampler))
    list(itertools.islice(again, 4))
    assert saved(again)["consumed"] == 7 * 16
    assert saved(again) == json.loads(json.dumps(make(2).state_at(7)))


@quiet
def test_a_rank_without_a_batch_has_not_finished_before_others_began():
    states = [saved(rank) for rank in make_all(7, lengths=[3, 4, 5], uneven="keep")]
    assert [state["consumed"] for state in states] == [0] * 7


def test_the_count_is_right_after_every_batch_and_across_chunks():
    lengths = np.random.default_rng(2).integers(1, 50, 2500)
    sampler = make(1, lengths=lengths, batch_size=1, min_steps=3)
    for number, _ in enumerate(sampler, 1):
        assert sampler.progress() == (Cursor(0, 0), number)
    assert number == 2500


def test_consumed_beyond_the_end_counts_as_finished_and_a_dropped_rest_too():
    state = make(2).state_dict() | {"epoch": 4, "consumed": 501}
    again = make(2, 0, state)
    assert next(iter(again)) == make_at(5, 2, 0)
    finished = make(2, 0, state)
    finished.set_epoch(4)
    assert (len(finished), list(finished), finished.global_batch(0).tolist()) == (0, [], [])
    dropping = make(2, drop_last=True)
    assert len(list(dropping)) == 31
    assert saved(dropping)["consumed"] == 500


def test_an_iterator_that_has_not_begun_obeys_a_load_and_one_that_has_raises():
    state = make(4).state_at(3)
    expected = list(make(2, 0, state, batch_size=16))
    sampler = make(2, batch_size=16)
    fresh = iter(sampler)
    sampler.load_state_dict(state)
    assert list(fresh) == expected
    sampler = make(2, batch_size=16)
    begun = iter(sampler)
    next(begun)
    sampler.load_state_dict(state)
    assert saved(sampler)["consumed"] == 96
    with pytest.raises(EpochChangedError, match="load_state_dict"):
        next(begun)


def test_copies_and_pickles_know_the_place_and_a_rest():
    sampler = make(2, 0, make(4, batch_size=4).state_at(3))
    batches = iter(sampler)
    list(itertools.islice(batches, 2))
    copies = [copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler)), copy.copy(sampler)]
    left = list(batches)
    for other in copies:
        state = saved(other)
        assert state["consumed"] == 48 + 2 * 16
        assert list(make(2, 0, state)) == left


def test_a_resumed_place_is_kept_until_what_was_left_has_been_seen():
    sampler = make(2, 0, make(4, batch_size=4).state_at(3))
    first = next(iter(sampler))
    sampler.set_epoch(7)
    sampler.set_epoch(0)
    rest = list(sampler)
    assert rest[0] == first
    with pytest.warns(RepeatedEpochWarning):
        assert list(sampler) == list(make(2, 0))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"lengths": LENGTHS[::-1].copy()}, "order_digest="),
        ({"lengths": LENGTHS[:-1]}, "length=500.*length=499"),
        ({"spread": 0.06}, "order_digest="),
        ({"min_steps": 3}, "order_digest="),
        ({"shuffle": False}, "order_digest="),
        ({"seed": 1}, "seed=0.*seed=1"),
        ({"uneven": "keep"}, "uneven='pad'.*uneven='keep'"),
        ({"batch_size": 7}, "batch_size=8.*batch_size=7"),
        ({"max_tokens": 2000}, "max_tokens=None.*max_tokens=2000"),
    ],
)
def test_another_run_is_refused_and_the_place_stays(other, message):
    wrong = make(2, **other)
    list(itertools.islice(wrong, 2))
    before = saved(wrong)
    with pytest.raises(StateMismatchError, match=message):
        wrong.load_state_dict(make(2).state_at(3))
    assert saved(wrong) == before


def test_a_plain_sampler_over_the_order_is_another_run():
    batches = DistributedBatchSampler(range(500), 8, 2, 0, order=orders.LengthGrouped(LENGTHS, 8, num_replicas=2))
    with pytest.raises(StateMismatchError, match="order_digest="):
        make(2).load_state_dict(batches.state_dict())


def test_a_changed_number_of_tokens_in_a_step_warns_and_an_accumulation_restores_it():
    state = make(4, max_tokens=2000).state_after(Cursor(1, 0), 2)
    with pytest.warns(GlobalBatchChangedWarning) as caught:
        make(2, 0, state, max_tokens=1000)
    assert [str(warning.message) for warning in caught] == [
        "the global batch (max_tokens * num_replicas * accumulation) was 2000 * 4 * 1 = 8000 and is "
        "1000 * 2 * 1 = 2000; accumulation=4 would restore it"
    ]
    sampler = make(2, max_tokens=1000)
    sampler.load_from(state, 4)
    assert (sampler.epoch, sampler.state_after(Cursor(1, 0), 1, 4)["accumulation"]) == (1, 4)
    with pytest.raises(StateMismatchError, match=r"max_tokens=2000.*max_tokens=1000"):
        make(4, max_tokens=1000).load_state_dict(state)
    with pytest.raises(StateMismatchError, match=r"accumulation=None.*accumulation=2"):
        make(4, max_tokens=2000).load_from(state, 2)


def test_a_place_within_a_step_is_planned_afresh():
    state = make(2).state_at(3) | {"consumed": 53}
    ranks = make_all(2, state)
    done = orders.LengthGrouped(LENGTHS, 8, num_replicas=2).indices(0, 0, 53).tolist()
    drawn = [sample for rank in ranks for batch in rank for sample in batch]
    assert sorted(set(drawn + done)) == list(range(500))
    assert set(drawn).isdisjoint(done)


def test_the_state_has_the_same_size_for_any_number_of_samples():
    states = [json.dumps(make(lengths=[5] * n).state_at(2)) for n in (100, 100_000)]
    assert len(states[1]) - len(states[0]) == len("100000") - len("100")
