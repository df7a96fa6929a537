"""fastshard.DataLoader: what its state says is what was handed out, whatever its workers and its user do."""

import copy
import gc
import itertools
import json
import warnings
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, Dataset

from fastshard import (
    DataLoader,
    DistributedBatchSampler,
    DistributedSampler,
    EpochChangedError,
    GlobalBatchChangedWarning,
    RepeatedEpochWarning,
    StateMismatchError,
    orders,
)


def make(n=100, batch_size=5, num_replicas=1, rank=0, *, sampler_drop_last=False, **options):
    sampler = DistributedSampler(range(n), num_replicas, rank, drop_last=sampler_drop_last)
    return DataLoader(range(n), batch_size, sampler=sampler, **options)


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


def lists(batches):
    return [np.asarray(batch).tolist() for batch in batches]


def order(n=100, epoch=0):
    return orders.Shuffled(n).indices(epoch).tolist()


@pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning", "ignore::fastshard.GlobalBatchChangedWarning")
@given(
    n=st.integers(1, 200),
    batch_size=st.integers(1, 9),
    worlds=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=4),
    drop_last=st.tuples(st.booleans(), st.booleans()),
    epoch=st.integers(0, 2),
)
def test_an_epoch_in_pieces_at_any_world_sizes_is_the_epoch(n, batch_size, worlds, drop_last, epoch):
    drawn, state = [], None
    for i, (num_replicas, steps) in enumerate(worlds):
        loaders = [
            make(n, batch_size, num_replicas, rank, sampler_drop_last=drop_last[0], drop_last=drop_last[1])
            for rank in range(num_replicas)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
            loader.set_epoch(epoch)
        steps = None if i == len(worlds) - 1 else steps
        ranks = [lists(itertools.islice(loader, steps)) for loader in loaders]
        assert len(set(map(len, ranks))) == 1
        drawn += [id_ for step in zip(*ranks, strict=True) for slot in zip(*step, strict=True) for id_ in slot]
        states = [saved(loader) for loader in loaders]
        assert all(other == states[0] for other in states)
        state = states[0]
    assert state["consumed"] == n
    expected = order(n, epoch)
    if any(drop_last):
        assert drawn[:n] == expected[: len(drawn)]
        assert n - len(drawn) < max(num_replicas for num_replicas, _ in worlds) * (batch_size if drop_last[1] else 1)
    else:
        assert drawn[:n] == expected


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"prefetch_factor": 50}])
def test_each_place_of_a_second_epoch_with_workers_is_told(options):
    loader = make(num_workers=2, **options)
    list(loader)
    loader.sampler.set_epoch(1)
    for step, batch in enumerate(loader):
        state = saved(loader)
        assert (state["epoch"], state["consumed"]) == (1, 5 * (step + 1))
        assert batch.tolist() == order(epoch=1)[5 * step : 5 * step + 5]


def test_persistent_workers_live_on_and_the_iterator_that_lost_them_says_so():
    loader = make(num_workers=2, persistent_workers=True)
    first = iter(loader)
    next(first)
    pids = [worker.pid for worker in first._workers]
    loader.sampler.set_epoch(1)
    second = iter(loader)
    assert next(second).tolist() == order(epoch=1)[:5]
    assert [worker.pid for worker in second._workers] == pids
    with pytest.raises(RuntimeError, match="persistent workers"):
        next(first)
    assert saved(loader)["consumed"] == 5


def test_workers_end_with_their_iterator_and_wait_for_no_garbage_collection():
    batches = iter(make(num_workers=2))
    next(batches)
    inner = weakref.ref(batches._batches)
    gc.disable()
    try:
        del batches
        assert inner() is None
    finally:
        gc.enable()


def test_two_iterators_by_turns_each_give_the_whole_order():
    loader = make()
    loader.sampler.on_repeated_epoch = "ignore"
    one, other = iter(loader), iter(loader)
    by_turns = [(next(one).tolist(), next(other).tolist()) for _ in range(20)]
    whole = [order()[i : i + 5] for i in range(0, 100, 5)]
    assert by_turns == [(batch, batch) for batch in whole]


class Unreadable(Dataset):
    """One sample that can't be read."""

    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index == self.bad:
            raise OSError(f"sample {index} can't be read")
        return index


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_that_could_not_be_read_is_passed_over_by_the_loop_and_by_a_resume(num_workers):
    dataset = Unreadable(order()[12])
    loader = DataLoader(dataset, 5, sampler=DistributedSampler(dataset, 1, 0), num_workers=num_workers)
    batches = iter(loader)
    list(itertools.islice(batches, 2))
    with pytest.raises(OSError, match="can't be read"):
        next(batches)
    assert saved(loader)["consumed"] == 15
    assert next(batches).tolist() == order()[15:20]
    assert saved(loader)["consumed"] == 20


@pytest.mark.parametrize(
    "build",
    [
        lambda: make(batch_size=None),
        lambda: DataLoader(range(100), batch_sampler=DistributedBatchSampler(range(100), 1, 1, 0)),
        lambda: DataLoader(
            np.arange(100), batch_size=None, sampler=DistributedBatchSampler(range(100), 1, 1, 0, as_array=True)
        ),
        lambda: DataLoader(range(100), batch_sampler=BatchSampler(DistributedSampler(range(100), 1, 0), 1, False)),
    ],
    ids=["no batches", "batch sampler", "batch sampler in a sampler's place", "torch's batch sampler"],
)
def test_every_way_to_give_a_sampler_can_be_resumed(build):
    loader = build()
    first = [int(np.asarray(item).item()) for item in itertools.islice(loader, 37)]
    state = saved(loader)
    assert (state["consumed"], state["batch_size"]) == (37, 1)
    again = build()
    again.load_state_dict(state)
    assert first + [int(np.asarray(item).item()) for item in again] == order()


def test_states_go_from_a_sampler_to_a_loader_and_back():
    sampler = DistributedSampler(range(100), 1, 0)
    loader = make()
    loader.load_state_dict(sampler.state_at(3, 5))
    assert next(iter(loader)).tolist() == order()[15:20]
    sampler.load_state_dict(saved(loader))
    assert list(sampler) == order()[20:]


def test_load_after_iter_raises_in_the_running_iterator_and_the_state_is_the_loaded_one():
    for num_workers, n in [(0, 100), (2, 100), (2, 20)]:
        loader = make(n, num_workers=num_workers)
        state = make(n).sampler.state_at(1, 5)
        batches = iter(loader)
        next(batches)
        with pytest.raises(EpochChangedError, match="load_state_dict"):  # at once where the workers have fetched all
            load_and_go_on(loader, state, batches)
        del batches


def load_and_go_on(loader, state, batches):
    loader.load_state_dict(state)
    next(batches)


def test_a_late_set_epoch_that_is_taken_back_changes_nothing():
    loader = make(20, num_workers=2, prefetch_factor=10)
    batches = iter(loader)
    first = next(batches).tolist()
    loader.sampler.set_epoch(1)
    loader.sampler.set_epoch(0)
    assert [first, *lists(batches)] == [order(20)[i : i + 5] for i in range(0, 20, 5)]


@pytest.mark.parametrize(("n", "num_workers"), [(100, 0), (100, 2), (15, 2)])  # of 15, workers have fetched all
def test_an_iterator_that_raised_for_its_epoch_raises_again_and_does_not_end(n, num_workers):
    loader = make(n, num_workers=num_workers)
    batches = iter(loader)
    next(batches)
    loader.sampler.set_epoch(1)
    for _ in range(2):
        with pytest.raises(EpochChangedError, match=r"set_epoch\(1\)"):
            next(batches)
    loader.sampler.set_epoch(0)
    with pytest.raises(EpochChangedError, match=r"set_epoch\(1\)"):
        next(batches)
    assert saved(loader)["consumed"] in (5, 10)


def test_accumulation_counts_in_the_global_batch():
    before = make(1000, 4, 8, accumulation=2)
    next(iter(before))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(1000, 4, 4, accumulation=4).load_state_dict(saved(before))
        make(1000, 2, 8, accumulation=4).load_state_dict(saved(before))
    with pytest.warns(
        GlobalBatchChangedWarning, match=r"4 \* 8 \* 2 = 64 and is 4 \* 4 \* 2 = 32; accumulation=4 would"
    ):
        make(1000, 4, 4, accumulation=2).load_state_dict(saved(before))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_look_at_the_first_batch_keeps_the_resumed_place_and_a_pass_to_the_end_gives_it_up(num_workers):
    loader = make(num_workers=num_workers, prefetch_factor=50 if num_workers else None)
    loader.sampler.on_repeated_epoch = "ignore"
    loader.load_state_dict({**saved(loader), "consumed": 90})
    for _ in range(2):
        assert next(iter(loader)).tolist() == order()[90:95]
    assert len(lists(loader)) == 2
    assert len(lists(loader)) == 20
    loader.load_state_dict({**saved(loader), "epoch": 3, "consumed": 90})
    batches = iter(loader)
    assert [next(batches).tolist() for _ in range(len(loader))][-1] == order(epoch=3)[95:]  # StopIteration never came
    assert len(lists(loader)) == 20


def test_copies_know_the_place():
    loader = make()
    batches = iter(loader)
    list(itertools.islice(batches, 3))
    other = copy.deepcopy(loader)
    next(batches)
    assert (saved(loader)["consumed"], saved(other)["consumed"]) == (20, 15)


def test_spawned_workers_resume_too():
    loader = make(num_workers=1, multiprocessing_context="spawn")
    batches = iter(loader)
    list(itertools.islice(batches, 4))
    state = saved(loader)
    del batches
    again = make()
    again.load_state_dict(state)
    assert next(iter(again)).tolist() == order()[20:25]


def test_what_has_no_state_says_why():
    with pytest.raises(TypeError, match="in_order=False"):
        make(num_workers=2, in_order=False).state_dict()
    with pytest.raises(StateMismatchError, match="order='shuffled/1'"):
        DataLoader(range(100), 5).load_state_dict(saved(make()))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_a_load_in_the_same_process_goes_on_with_the_epoch_where_passes_advance(options):
    loader = DataLoader(range(400), 4, shuffle=True, **options)
    batches = iter(loader)
    next(batches)
    state = saved(loader)
    next(batches)
    loader.load_state_dict(state)
    batches = iter(loader)
    assert list(itertools.chain.from_iterable(lists(batches))) == order(400)[4:]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_look_at_the_first_batch_keeps_the_resumed_place_also_where_passes_advance(num_workers):
    def fresh():
        return DataLoader(range(40), 4, shuffle=True, num_workers=num_workers)

    loader = fresh()
    list(itertools.islice(loader, 5))
    state = saved(loader)
    loader = fresh()
    loader.load_state_dict(state)
    next(iter(loader))
    assert list(itertools.chain.from_iterable(lists(loader))) == order(40)[20:]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_who_looks_at_the_sampler_in_a_pass_does_not_change_what_the_loader_handed_out(num_workers):
    batches = DistributedBatchSampler(range(40), 4, 1, 0, on_repeated_epoch="ignore")
    loader = DataLoader(range(40), batch_sampler=batches, num_workers=num_workers)
    handed_out = iter(loader)
    list(itertools.islice(handed_out, 3))
    next(iter(batches))
    assert saved(loader)["consumed"] == 12
    next(handed_out)
    assert saved(loader)["consumed"] == 16


def test_a_batch_size_that_is_changed_after_the_loader_was_built_counts():
    batches = DistributedBatchSampler(range(40), 4, 1, 0)
    loader = DataLoader(range(40), batch_sampler=batches)
    batches.batch_size = 8
    assert [len(batch) for batch in itertools.islice(loader, 2)] == [8, 8]
    assert saved(loader)["consumed"] == saved(batches)["consumed"] == 16


def test_persistent_workers_do_not_stand_against_a_load():
    loader = make(12, 4, num_workers=2, persistent_workers=True)
    for _ in loader:
        state = saved(loader)
        break
    loader.load_state_dict(state)  # the loop is left, nobody can take what the workers have fetched
    assert list(itertools.chain.from_iterable(lists(loader))) == order(12)[4:]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_pass_that_a_warning_as_error_prevented_leaves_the_state_as_it_was(num_workers):
    loader = make(12, 4, num_workers=num_workers)
    assert len(list(loader)) == 3
    with pytest.raises(RepeatedEpochWarning):
        list(loader)
    assert saved(loader)["consumed"] == 12


def test_an_interrupted_batch_is_passed_over_by_the_loop_and_by_a_resume():
    class Interrupted(Dataset):
        armed = True

        def __len__(self):
            return 24

        def __getitem__(self, id_):
            if self.armed and id_ == order(24)[9]:
                self.armed = False
                raise KeyboardInterrupt
            return id_

    loader = DataLoader(Interrupted(), 4, sampler=DistributedSampler(range(24), 1, 0))
    batches = iter(loader)
    list(itertools.islice(batches, 2))
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert next(batches).tolist() == order(24)[12:16]
    assert saved(loader)["consumed"] == 16


def test_a_rank_with_no_batch_left_tells_the_place_of_rank_0_until_it_is_told_the_end():
    samplers = [DistributedSampler(range(5), 2, rank, uneven="keep") for rank in range(2)]
    loaders = [DataLoader(range(5), 1, sampler=sampler) for sampler in samplers]
    passes = [iter(loader) for loader in loaders]
    for consumed in (2, 4, 5):
        for batches in passes:
            next(batches, None)
        assert [saved(loader)["consumed"] for loader in loaders] == [consumed] * 2


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore::fastshard.RepeatedEpochWarning")
def test_after_a_look_at_a_batch_in_mid_epoch_the_state_is_that_of_the_loop_that_goes_on(num_workers):
    loader = make(num_workers=num_workers)
    for steps, _ in enumerate(loader, 1):
        if steps == 3:
            next(iter(loader))  # to log it, say
        elif steps > 3:
            assert saved(loader)["consumed"] == 5 * steps
