"""state_dict and load_state_dict of samplers: exact at any place, at any world size, in any order of calls."""

import copy
import itertools
import json
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastshard import (
    DistributedBatchSampler,
    DistributedSampler,
    EpochChangedError,
    GlobalBatchChangedWarning,
    RepeatedEpochWarning,
    StateMismatchError,
    orders,
)


def saved(sampler):
    return json.loads(json.dumps(sampler.state_dict()))


@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning", "ignore::fastshard.GlobalBatchChangedWarning")
@given(
    n=st.integers(1, 300),
    worlds=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(0, 12)), min_size=1, max_size=5),
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    epoch=st.integers(0, 3),
)
def test_an_epoch_in_pieces_at_any_world_sizes_is_the_epoch(n, worlds, uneven, epoch):
    """Each world takes some steps and stops; the last one goes to the end."""
    order = orders.Shuffled(n, 3).indices(epoch).tolist()
    consumed, state = [], None
    batch_sizes = {
        num_replicas: batch_size for num_replicas, batch_size, _ in worlds
    }  # one for each size, or it raises
    for i, (num_replicas, _, steps) in enumerate(worlds):
        batch_size = batch_sizes[num_replicas]
        ranks = [
            DistributedBatchSampler(range(n), batch_size, num_replicas, rank, seed=3, uneven=uneven)
            for rank in range(num_replicas)
        ]
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(state)
            rank.set_epoch(epoch)
        last = i == len(worlds) - 1
        drawn = [list(rank if last else itertools.islice(rank, steps)) for rank in ranks]
        for step in itertools.zip_longest(*drawn, fillvalue=[]):
            consumed += [sample for slot in itertools.zip_longest(*step) for sample in slot if sample is not None]
        states = [saved(rank) for rank in ranks]
        assert all(other == states[0] for other in states)
        state = states[0]
    if uneven == "keep":
        assert consumed == order
    elif uneven == "drop":
        assert consumed == order[: len(consumed)]
        assert len(order) - len(consumed) < sum(num_replicas for num_replicas, _, _ in worlds)
    else:
        assert consumed == (order * (1 + len(consumed) // n))[: len(consumed)]
        assert len(consumed) >= n
    assert state["consumed"] == n


def test_two_saves_in_one_epoch_add_up():
    sampler = DistributedSampler(range(100), 2, 0)
    list(itertools.islice(sampler, 10))
    again = DistributedSampler(range(100), 4, 1)
    again.load_state_dict(saved(sampler))
    list(itertools.islice(again, 5))
    assert saved(again)["consumed"] == 2 * 10 + 4 * 5


def test_the_place_is_kept_by_set_epoch_of_its_epoch_and_never_leaks_into_another():
    sampler = DistributedSampler(range(40), 2, 0)
    sampler.set_epoch(2)
    list(itertools.islice(sampler, 5))
    state = saved(sampler)
    again = DistributedSampler(range(40), 2, 0)
    again.load_state_dict(state)
    assert (again.epoch, len(again)) == (2, 15)
    again.set_epoch(2)
    assert list(again) == orders.Shuffled(40).indices(2, 10, step=2).tolist()
    again.set_epoch(3)
    assert len(again) == 20
    assert list(again) == orders.Shuffled(40).indices(3, step=2).tolist()
    advancing = DistributedSampler(range(40), 2, 0, on_repeated_epoch="advance")
    advancing.load_state_dict(state)
    assert [len(list(advancing)) for _ in range(3)] == [15, 20, 20]


def test_consumed_beyond_the_end_counts_as_finished():
    sampler = DistributedSampler(range(10), 1, 0)
    sampler.load_state_dict(sampler.state_dict() | {"epoch": 4, "consumed": 11})
    assert list(sampler) == orders.Shuffled(10).indices(5).tolist()
    assert saved(sampler)["epoch"] == 5


def test_a_dropped_rest_is_finished_too():
    sampler = DistributedSampler(range(10), 3, 0, drop_last=True)
    assert len(list(sampler)) == 3
    assert saved(sampler)["consumed"] == 10
    batches = DistributedBatchSampler(range(10), 2, 2, 0, drop_last=True)
    assert len(list(batches)) == 2
    assert saved(batches)["consumed"] == 10


def test_an_iterator_that_has_not_begun_obeys_a_load_and_one_that_has_raises():
    donor = DistributedSampler(range(40), 1, 0)
    list(itertools.islice(donor, 7))
    sampler = DistributedSampler(range(40), 1, 0)
    fresh = iter(sampler)
    sampler.load_state_dict(saved(donor))
    assert list(fresh) == orders.Shuffled(40).indices(0, 7).tolist()
    sampler.set_epoch(0)
    begun = iter(DistributedSampler(range(40), 1, 0))
    next(begun)
    sampler = DistributedSampler(range(40), 1, 0)
    begun = iter(sampler)
    next(begun)
    sampler.load_state_dict(saved(donor))
    assert saved(sampler)["consumed"] == 7
    with pytest.raises(EpochChangedError, match="load_state_dict"):
        next(begun)
    assert saved(sampler)["consumed"] == 7


def test_a_load_under_a_loader_whose_workers_have_fetched_all_raises():
    sampler = DistributedSampler(range(8), 1, 0)
    state = saved(sampler)
    loader = DataLoader(range(8), sampler=sampler, num_workers=1, prefetch_factor=20)
    batches = iter(loader)
    next(batches)
    with pytest.raises(EpochChangedError, match="7 batches of epoch 0"):
        sampler.load_state_dict(state)
    assert len(list(batches)) == 7


def test_the_place_survives_set_epoch_back_and_forth_in_a_running_pass():
    sampler = DistributedSampler(range(20_000), 1, 0)
    ids = iter(sampler)
    list(itertools.islice(ids, 6000))
    sampler.set_epoch(1)
    sampler.set_epoch(0)
    list(itertools.islice(ids, 10))
    assert sampler.state_dict()["consumed"] == 6010


def test_copies_and_pickles_know_the_place_and_go_on_from_their_own():
    sampler = DistributedSampler(range(100), 1, 0)
    ids = iter(sampler)
    list(itertools.islice(ids, 7))
    copies = [copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler)), copy.copy(sampler)]
    list(itertools.islice(ids, 5))
    assert [other.state_dict()["consumed"] for other in (sampler, *copies)] == [12, 7, 7, 7]


def test_a_resumed_place_is_kept_until_what_was_left_has_been_seen():
    sampler = DistributedSampler(range(40), 1, 0)
    sampler.load_state_dict(sampler.state_dict() | {"consumed": 30})
    order = orders.Shuffled(40).indices(0).tolist()
    assert next(iter(sampler)) == order[30]
    with pytest.warns(RepeatedEpochWarning):
        assert list(sampler) == order[30:]
    assert list(sampler) == order


def test_where_and_global_batch_count_from_the_resumed_place():
    sampler = DistributedSampler(range(40), 4, 1)
    sampler.load_state_dict(sampler.state_dict() | {"consumed": 10})
    order = orders.Shuffled(40).indices(0).tolist()
    assert sampler.global_batch(1, 2).tolist() == order[18:26]
    assert sampler.where(order[19], 2) == (1, 1, 0)
    assert sampler.where(order[9], 2) is None
    assert sampler.indices(0, 2).tolist() == [order[11], order[15]]


def test_a_changed_global_batch_warns_with_both_products_and_the_cure():
    before = DistributedBatchSampler(range(1000), 4, 8, 0)
    next(iter(before))
    after = DistributedBatchSampler(range(1000), 4, 2, 0)
    with pytest.warns(GlobalBatchChangedWarning) as caught:
        after.load_state_dict(saved(before))
    assert [str(warning.message) for warning in caught] == [
        "the global batch (batch_size * num_replicas * accumulation) was 4 * 8 * 1 = 32 and is 4 * 2 * 1 = 8; "
        "accumulation=4 would restore it"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DistributedBatchSampler(range(1000), 16, 2, 0).load_state_dict(saved(before))
    with pytest.warns(GlobalBatchChangedWarning, match="no accumulation restores it"):
        DistributedBatchSampler(range(1000), 4, 3, 0).load_state_dict(saved(before))


@pytest.mark.parametrize("state", [None, 3, {}, {"version": 1, "epoch": 0}])
def test_what_is_no_state_is_a_type_error(state):
    with pytest.raises(TypeError, match=r"state must be a dict from state_dict\(\)"):
        DistributedSampler(range(10), 1, 0).load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "value"), [("num_replicas", None), ("num_replicas", 0), ("batch_size", "4"), ("accumulation", -1)]
)
def test_a_number_of_the_job_that_is_none_is_refused(name, value):
    sampler = DistributedSampler(range(10), 1, 0)
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        sampler.load_state_dict(sampler.state_dict() | {name: value})


def test_a_state_of_another_version_is_refused():
    sampler = DistributedSampler(range(10), 1, 0)
    with pytest.raises(StateMismatchError, match="version 1, got version=2"):
        sampler.load_state_dict(sampler.state_dict() | {"version": 2})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (orders.BlockShuffled([3, 4, 3], 1, 2), orders.BlockShuffled([4, 3, 3], 1, 2)),
        (orders.BlockShuffled([3, 4, 3], 1, 2), orders.BlockShuffled([3, 4, 3], 1, 1)),
        (orders.Weighted(np.ones(10), 10), orders.Weighted(np.arange(10.0), 10)),
        (
            orders.Mixed([orders.Shuffled(5), orders.Shuffled(5)], [1, 1], num_samples=10),
            orders.Mixed([orders.Shuffled(5), orders.Shuffled(5, 1)], [1, 1], num_samples=10),
        ),
        (
            orders.Repeated(orders.Weighted(np.ones(10), 5), 2),
            orders.Repeated(orders.Weighted(np.arange(10.0), 5), 2),
        ),
    ],
    ids=lambda order: order.name,
)
def test_orders_that_differ_in_their_arguments_alone_are_told_apart(one, other):
    state = saved(DistributedSampler(range(10), 1, 0, order=one))
    DistributedSampler(range(10), 1, 0, order=pickle.loads(pickle.dumps(one))).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="order_digest="):
        DistributedSampler(range(10), 1, 0, order=other).load_state_dict(state)


@pytest.mark.parametrize("make", [DistributedSampler, lambda data, *at: DistributedBatchSampler(data, 5, *at)])
def test_an_iterator_has_the_state_of_its_own_pass(make):
    sampler = make(range(40), 2, 0)
    begun, fresh = iter(sampler), iter(sampler)
    drawn = list(itertools.islice(begun, 3))
    assert begun.state_dict() == sampler.state_dict()
    assert begun.state_dict()["consumed"] == 2 * sum(np.size(item) for item in drawn)
    assert fresh.state_dict() == make(range(40), 2, 0).state_dict()
    again = make(range(40), 2, 0)
    rest = iter(again)
    rest.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert rest.state_dict() == begun.state_dict()
    assert drawn + list(rest) == list(make(range(40), 2, 0))


def test_an_iterator_loaded_with_a_finished_epoch_ends_and_the_next_pass_is_over_the_next_epoch():
    sampler = DistributedSampler(range(40), 2, 0, on_repeated_epoch="error")
    sampler.set_epoch(3)
    list(sampler)
    again = DistributedSampler(range(40), 2, 0, on_repeated_epoch="error")
    ended = iter(again)
    ended.load_state_dict(saved(sampler))
    assert list(ended) == []
    assert list(again) == orders.Shuffled(40).indices(4, step=2).tolist()
    ended = iter(again)
    ended.load_state_dict(saved(sampler))
    again.set_epoch(5)
    assert list(ended) == orders.Shuffled(40).indices(5, step=2).tolist()


def test_set_epoch_just_before_a_load_of_that_epochs_end_asks_for_it():
    finished = DistributedSampler(range(40), 2, 0).state_dict() | {"epoch": 3, "consumed": 40}
    for epoch, begins in [(3, 3), (2, 4), (4, 4)]:
        sampler = DistributedSampler(range(40), 2, 0)
        sampler.set_epoch(epoch)
        sampler.load_state_dict(finished)
        sampler.load_state_dict(finished)
        assert len(sampler) == (0 if begins == 3 else 20)
        assert list(sampler) == ([] if begins == 3 else orders.Shuffled(40).indices(4, step=2).tolist())
    sampler.load_state_dict(finished)  # after a pass, so nobody asks for epoch 3
    assert list(sampler) == orders.Shuffled(40).indices(4, step=2).tolist()
    never_asked = DistributedSampler(range(40), 2, 0)
    never_asked.load_state_dict(finished | {"epoch": 0})
    assert list(never_asked) == orders.Shuffled(40).indices(1, step=2).tolist()


@pytest.mark.parametrize("on_repeated_epoch", ["advance", "error", "warn"])
def test_a_load_is_obeyed_while_the_iterator_before_it_is_still_alive(on_repeated_epoch):
    sampler = DistributedSampler(range(40), 1, 0, on_repeated_epoch=on_repeated_epoch)
    draws = iter(sampler)
    list(itertools.islice(draws, 7))
    sampler.load_state_dict(saved(sampler))
    draws = iter(sampler)  # the old one is let go here
    assert list(draws) == orders.Shuffled(40).indices(0, 7).tolist()
    assert sampler.epoch == 0


def test_a_pass_is_finished_also_where_set_epoch_went_away_and_came_back():
    sampler = DistributedSampler(range(40), 1, 0)
    draws = iter(sampler)
    list(itertools.islice(draws, 7))
    sampler.set_epoch(1)
    sampler.set_epoch(0)
    assert len(list(draws)) == 33
    assert saved(sampler)["consumed"] == 40
