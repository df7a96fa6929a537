"""fastshard's samplers in torchdata's StatefulDataLoader: what its state brings back, with nothing special done."""

import json
import pickle

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, RepeatedEpochWarning, orders

N, BATCH_SIZE = 44, 4  # on two ranks 22 samples each: 6 batches, the last one of 2

kinds = pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
workers = pytest.mark.parametrize("num_workers", [0, 2])


class Reads:
    """A dataset of its own indices that remembers what was read in this process."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return N

    def __getitem__(self, i):
        self.read.append(i)
        return i


def make(kind, num_workers=0, every=1, num_replicas=2, rank=1, on_repeated_epoch="warn", **options):
    """A fresh (sampler, loader), as a new process would build them."""
    arguments = {"on_repeated_epoch": on_repeated_epoch, "seed": 3}
    if kind == "sampler":
        sampler = DistributedSampler(range(N), num_replicas, rank, **arguments)
        options |= {"sampler": sampler, "batch_size": BATCH_SIZE}
    else:
        sampler = DistributedBatchSampler(range(N), BATCH_SIZE, num_replicas, rank, **arguments)
        options |= {"batch_sampler": sampler}
    return sampler, StatefulDataLoader(Reads(), num_workers=num_workers, snapshot_every_n_steps=every, **options)


def drawn(batches):
    return [batch.tolist() for batch in batches]


def epoch_of(epoch):
    """The batches of rank 1 of 2."""
    sampler = DistributedBatchSampler(range(N), BATCH_SIZE, 2, 1, seed=3)
    sampler.set_epoch(epoch)
    return list(sampler)


def states_of(loader):
    """The loader's states before and after each step of an epoch, and after its end, as files hold them."""
    states = []
    batches = iter(loader)
    while True:
        states.append(json.loads(json.dumps(loader.state_dict())))
        if next(batches, None) is None:
            return [*states, pickle.loads(pickle.dumps(loader.state_dict()))]


@kinds
@workers
@pytest.mark.parametrize("every", [1, 3])
def test_a_loader_that_is_stopped_after_any_step_goes_on_with_exactly_the_rest(kind, num_workers, every):
    sampler, loader = make(kind, num_workers, every)
    sampler.set_epoch(2)
    steps = len(epoch_of(2))
    for stop, state in enumerate(states_of(loader)):
        again, resumed = make(kind, num_workers, every)
        resumed.load_state_dict(state)
        if stop < steps:  # else see below
            assert drawn(resumed) == epoch_of(2)[stop:]
            assert again.epoch == 2
            assert again.state_dict()["consumed"] == N


@kinds
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str)
@pytest.mark.parametrize("after_the_loop", [False, True])
def test_after_a_finished_epoch_comes_the_next_one_and_comes_once(kind, options, after_the_loop):
    """Saved in the loop after the last step, and after the loop; resumed by a loop that begins with the epoch saved."""
    sampler, loader = make(kind, **options)
    sampler.set_epoch(0)
    state = states_of(loader)[-1 if after_the_loop else -2]
    sampler, loader = make(kind, **options)
    loader.load_state_dict(state)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(drawn(loader))
    assert epochs == [[], epoch_of(1)]
    # Without set_epoch, a loader whose epoch has ended goes on with the next one at once, as torchdata's do.
    sampler, loader = make(kind, on_repeated_epoch="advance", **options)
    loader.load_state_dict(state)
    ended = [] if after_the_loop else [[]]
    assert [drawn(loader) for _ in range(2)] == [*ended, epoch_of(1), epoch_of(2)][:2]


@kinds
@workers
def test_saves_in_one_epoch_add_up(kind, num_workers):
    """Also one that comes before the first snapshot of a loader that was itself loaded, after the end of an epoch."""
    _, loader = make(kind, num_workers, every=3)
    state = states_of(loader)[-1]
    taken = []
    for steps in (1, 2, 1, 3):
        _, loader = make(kind, num_workers, every=3)
        loader.load_state_dict(state)
        batches = iter(loader)
        taken += [next(batches, None) for _ in range(steps)]
        state = json.loads(json.dumps(loader.state_dict()))
    assert drawn(taken[:-1]) == epoch_of(1)
    assert taken[-1] is None


@kinds
@workers
def test_set_epoch_after_a_load_keeps_the_place_in_its_epoch(kind, num_workers):
    """The loader loads its sampler only when iteration begins: from set_epoch(0), which a fresh process calls, too."""
    sampler, loader = make(kind, num_workers)
    sampler.set_epoch(2)
    state = states_of(loader)[2]
    for epoch in (2, 0):
        sampler, loader = make(kind, num_workers)
        loader.load_state_dict(state)
        sampler.set_epoch(epoch)
        assert drawn(loader) == epoch_of(2)[2:]
        sampler.set_epoch(3)
        assert drawn(loader) == epoch_of(3)


@kinds
def test_a_loaders_second_pass_over_an_epoch_is_saved_as_such(kind):
    """Before its first step too, when the sampler's latest pass is still the first one."""
    _, loader = make(kind, num_workers=2, every=3)
    assert drawn(loader) == epoch_of(0)
    with pytest.warns(RepeatedEpochWarning):
        batches = iter(loader)
    assert next(batches).tolist() == epoch_of(0)[0]
    state = loader.state_dict()
    _, loader = make(kind, num_workers=2, every=3)
    loader.load_state_dict(state)
    assert drawn(loader) == epoch_of(0)[1:]


@kinds
@workers
@pytest.mark.parametrize("num_replicas", [1, 3])
@pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning")
def test_a_state_of_one_rank_serves_all_ranks_of_another_world(kind, num_workers, num_replicas):
    """Where each step has its snapshot: from an older one, the loader would step forward by steps of the new world."""
    sampler, loader = make(kind, num_workers)
    sampler.set_epoch(2)
    state = states_of(loader)[2]
    ranks = []
    for rank in range(num_replicas):
        _, loader = make(kind, num_workers, num_replicas=num_replicas, rank=rank)
        loader.load_state_dict(state)
        ranks.append([i for batch in drawn(loader) for i in batch])
    left = orders.Shuffled(N, 3).indices(2, 2 * 2 * BATCH_SIZE).tolist()
    assert [i for step in zip(*ranks, strict=True) for i in step] == left + orders.Shuffled(N, 3).indices(2).tolist()[
        : -len(left) % num_replicas
    ]


@kinds
def test_a_load_reads_nothing_below_the_place(kind):
    _, loader = make(kind)
    state = states_of(loader)[4]
    _, loader = make(kind)
    loader.load_state_dict(state)
    rest = drawn(loader)
    assert loader.dataset.read == [i for batch in rest for i in batch] == [i for b in epoch_of(0)[4:] for i in b]
