"""Stream: disjoint, complete and even over ranks, the same for any number of workers, and resumable anywhere."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader

from fastshard import (
    DataLoader,
    EpochChangedError,
    GlobalBatchChangedWarning,
    Ledger,
    RepeatedEpochWarning,
    StateMismatchError,
    orders,
)
from fastshard.streaming.stream import Stream

quiet = pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning", "ignore::fastshard.EmptyRankWarning")


class Numbers(Stream):
    """Samples that are their own ids, in blocks of 7."""

    def __init__(self, n, batch_size=None, rank=0, num_replicas=1, uneven="pad", seed=0, on_repeated_epoch="warn"):
        sizes = [7] * (n // 7) + [n % 7] * (n % 7 > 0)
        order = orders.BlockShuffled(sizes, seed, window=2)
        super().__init__(order, batch_size, uneven, rank, num_replicas, on_repeated_epoch)

    def _read(self, ids):
        return iter(ids.tolist())


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


def numbers(batches):
    return [int(id_) for batch in batches for id_ in np.atleast_1d(np.asarray(batch))]


def order(n, epoch=0, seed=0):
    return Numbers(n, seed=seed).order.indices(epoch).tolist()


@pytest.mark.parametrize(("n", "batch_size", "num_workers", "batches"), [(46, 8, 3, 6), (200, 8, 8, 25), (46, 8, 0, 6)])
@pytest.mark.parametrize("loader_class", [DataLoader, TorchLoader])
def test_workers_invariant(loader_class, n, batch_size, num_workers, batches):
    loader = loader_class(Numbers(n, batch_size), batch_size, num_workers=num_workers)
    got = [batch.tolist() for batch in loader]
    assert got == [order(n)[i : i + batch_size] for i in range(0, n, batch_size)]
    assert len(got) == len(loader) == batches


@quiet
@given(
    n=st.integers(1, 150),
    worlds=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(0, 8)), min_size=1, max_size=4),
    uneven=st.sampled_from(["pad", "drop", "keep"]),
    epoch=st.integers(0, 2),
)
def test_an_epoch_in_pieces_at_any_world_sizes_is_the_epoch(n, worlds, uneven, epoch):
    sizes = {num_replicas: batch_size for num_replicas, batch_size, _ in worlds}
    seen, state = Counter(), None
    for i, (num_replicas, _, steps) in enumerate(worlds):
        batch_size, last = sizes[num_replicas], i == len(worlds) - 1
        loaders = []
        for rank in range(num_replicas):
            loader = DataLoader(Numbers(n, batch_size, rank, num_replicas, uneven), batch_size)
            if state is not None:
                loader.load_state_dict(state)
            loader.set_epoch(epoch)
            loaders.append(loader)
        expected = [len(loader) for loader in loaders]
        ranks = [list(itertools.islice(loader, None if last else steps)) for loader in loaders]
        assert [len(batches) for batches in ranks] == [min(e, e if last else steps) for e in expected]
        for batches in ranks:
            seen.update(numbers(batches))
        states = [saved(loader) for loader in loaders]
        assert all(other == states[0] for other in states)
        state = states[0]
    assert state["consumed"] == n
    if uneven == "keep":
        assert seen == Counter(range(n))
    elif uneven == "drop":
        assert max(seen.values(), default=1) == 1
        assert n - len(seen) < max(num_replicas for num_replicas, _, _ in worlds)
    else:
        assert set(seen) == set(range(n))
        assert seen.total() - n < max(num_replicas for num_replicas, _, _ in worlds)


@pytest.mark.parametrize(("num_workers", "resumed_workers"), [(0, 2), (2, 0), (2, 3)])
def test_a_resume_may_change_the_number_of_workers(num_workers, resumed_workers):
    loader = DataLoader(Numbers(100, 8), 8, num_workers=num_workers)
    before = numbers(itertools.islice(loader, 5))
    again = DataLoader(Numbers(100, 8), 8, num_workers=resumed_workers)
    again.load_state_dict(saved(loader))
    assert before + numbers(again) == order(100)
    again.set_epoch(1)
    assert numbers(again) == order(100, 1)


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("loader_class", [DataLoader, TorchLoader])
def test_persistent_workers_get_a_new_order_each_epoch_and_live_on(loader_class, context):
    dataset = Numbers(40, 4)
    loader = loader_class(
        dataset, 4, num_workers=2, persistent_workers=True, multiprocessing_context=context, prefetch_factor=2
    )
    pids = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        batches = iter(loader)
        pids.append([worker.pid for worker in batches._workers])
        assert numbers(batches) == order(40, epoch)
    assert pids[0] == pids[1] == pids[2]


def test_persistent_workers_go_on_from_a_loaded_place():
    donor = DataLoader(Numbers(100, 8), 8)
    list(itertools.islice(donor, 5))
    loader = DataLoader(Numbers(100, 8), 8, num_workers=2, persistent_workers=True)
    assert numbers(loader) == order(100)
    loader.load_state_dict(saved(donor))
    assert numbers(loader) == order(100)[40:]
    loader.set_epoch(1)
    assert numbers(loader) == order(100, 1)


def test_a_loop_over_the_dataset_itself_counts_too_and_knows_repetitions():
    dataset = Numbers(100, 1, 1, 2)
    samples = iter(dataset)
    before = [next(samples) for _ in range(30)]
    again = Numbers(100, 1, 1, 2)
    again.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
    assert len(again) == 20
    assert before + list(again) == order(100)[50:]
    with pytest.warns(RepeatedEpochWarning):
        assert list(again) == order(100)[50:]
    assert Numbers(100, 5, 0, 2).state_at(4)["consumed"] == 40


def test_set_epoch_in_a_running_pass_raises():
    loader = DataLoader(Numbers(400, 4), 4, num_workers=2)
    batches = iter(loader)
    next(batches)
    loader.set_epoch(1)
    with pytest.raises(EpochChangedError):
        list(batches)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("exact", [False, True])
def test_a_ledger_takes_the_ids_out_of_the_batches_and_spans_restarts(num_workers, exact):
    def fresh(uneven="pad"):
        return DataLoader(
            Numbers(50, 4, uneven=uneven), 4, num_workers=num_workers, ledger=Ledger(exact=exact), ids=lambda b: b
        )

    loader = fresh()
    for step, _ in enumerate(loader, 1):
        assert loader.ledger.verify().draws == min(4 * step, 50)
        if step == 5:
            break
    again = fresh()
    again.load_state_dict(saved(loader))
    list(again)
    assert str(again.ledger.verify()) == "every one of the 50 samples exactly once, 0 padded draws"
    with pytest.raises(TypeError, match="give ids"):
        DataLoader(Numbers(50, 4), 4, ledger=Ledger())


def test_a_loader_with_batches_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"batch_size=8 must be that of the dataset.*batch_size=4"):
        DataLoader(Numbers(50, 4), 8)


def test_states_of_another_run_are_refused_and_a_changed_world_warns():
    loader = DataLoader(Numbers(50, 4), 4)
    next(iter(loader))
    state = saved(loader)
    with pytest.raises(StateMismatchError, match="seed=0"):
        Numbers(50, 4, seed=1).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="contradicts itself"):
        Numbers(50, 4).load_state_dict({**state, "consumed": 5})
    with pytest.raises(TypeError, match="former"):
        Numbers(50, 4).load_state_dict({**state, "former_runs": None})
    with pytest.warns(GlobalBatchChangedWarning):
        Numbers(50, 4, 0, 2).load_state_dict(state)


def test_a_dataset_built_before_the_process_group_asks_when_it_is_read(monkeypatch):
    dataset = Numbers(20, 2, rank=None, num_replicas=None)
    assert (dataset.rank, dataset.num_replicas) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="both be set"):
        len(dataset)
    monkeypatch.setenv("RANK", "3")
    assert list(dataset) == order(20)[15:]
    for wrong in ({"rank": 4, "num_replicas": 4}, {"rank": -1, "num_replicas": 2}, {"rank": 0, "num_replicas": 0}):
        with pytest.raises(ValueError, match=r"rank=|num_replicas="):
            Numbers(20, 2, **wrong)
