"""fastshard.DataLoader without a sampler of ours: none at all, somebody else's, or a stream."""

import itertools
import json

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import (
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler as TorchSampler

from fastshard import DataLoader, DistributedSampler, StateMismatchError, orders


def saved(loader):
    return json.loads(json.dumps(loader.state_dict()))


def ids(batches):
    return [int(id_) for batch in batches for id_ in torch.as_tensor(batch).flatten()]


def test_without_a_sampler_each_pass_is_the_next_epoch_of_a_seed():
    loader = DataLoader(range(50), 8, shuffle=True, seed=3)
    assert [ids(loader) for _ in range(3)] == [orders.Shuffled(50, 3).indices(epoch).tolist() for epoch in range(3)]
    generator = torch.Generator().manual_seed(9)
    assert (
        ids(DataLoader(range(50), 8, shuffle=True, generator=generator)) == orders.Shuffled(50, 9).indices(0).tolist()
    )
    assert ids(DataLoader(range(50), 8, shuffle=True)) == orders.Shuffled(50).indices(0).tolist()
    assert ids(DataLoader(range(50), 8)) == list(range(50))


def test_frameworks_find_the_samplers_that_torch_would_have_put_there():
    assert isinstance(DataLoader(range(50), shuffle=True).sampler, RandomSampler)
    assert isinstance(DataLoader(range(50)).sampler, SequentialSampler)
    assert isinstance(DataLoader(range(50)), TorchLoader)


@pytest.mark.parametrize("shuffle", [False, True])
def test_without_a_sampler_a_resume_goes_on_and_the_next_pass_is_whole(shuffle):
    def fresh():
        return DataLoader(range(50), 8, shuffle=shuffle, seed=1 if shuffle else None)

    loader = fresh()
    whole = [ids(loader) for _ in range(3)]
    loader = fresh()
    list(loader)
    before = ids(itertools.islice(loader, 3))
    again = fresh()
    again.load_state_dict(saved(loader))
    assert before + ids(again) == whole[1]
    assert ids(again) == whole[2]


def test_an_empty_dataset_gives_no_batch_as_with_torch():
    assert list(DataLoader([], 4)) == []


def test_a_seed_that_nobody_takes_is_refused():
    for options in ({}, {"sampler": SequentialSampler(range(5)), "shuffle": None}):
        with pytest.raises(ValueError, match=r"seed is for shuffle=True without a sampler, got seed=1"):
            DataLoader(range(5), seed=1, **options)
    with pytest.raises(ValueError, match="accumulation must be in"):
        DataLoader(range(5), accumulation=0)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torchs_own_sampler_is_drawn_from_anew(num_workers):
    def fresh(seed=0):
        return DataLoader(range(100), 5, sampler=TorchSampler(range(100), 2, 1, seed=seed), num_workers=num_workers)

    loader = fresh()
    loader.sampler.set_epoch(3)
    whole = ids(loader)
    loader = fresh()
    loader.sampler.set_epoch(3)
    before = ids(itertools.islice(loader, 4))
    state = saved(loader)
    again = fresh()
    again.load_state_dict(state)
    assert again.sampler.epoch == 3
    again.sampler.set_epoch(3)
    assert before + ids(again) == whole
    again.sampler.set_epoch(4)
    assert len(ids(again)) == 50
    with pytest.raises(StateMismatchError, match="seed=0"):
        fresh(seed=1).load_state_dict(state)


def test_an_epoch_chosen_on_torchs_sampler_is_told_before_the_first_batch_too():
    loader = DataLoader(range(100), 5, sampler=TorchSampler(range(100), 2, 1))
    list(loader)
    loader.sampler.set_epoch(3)
    state = saved(loader)
    assert (state["epoch"], state["consumed"]) == (3, 0)


class Evens(Sampler):
    """A user's own, without epochs."""

    def __iter__(self):
        return iter(range(0, 100, 2))

    def __len__(self):
        return 50


def test_a_users_sampler_is_drawn_from_anew_and_the_next_pass_is_whole():
    loader = DataLoader(range(100), 7, sampler=Evens())
    before = ids(itertools.islice(loader, 3))
    again = DataLoader(range(100), 7, sampler=Evens())
    again.load_state_dict(saved(loader))
    assert before + ids(again) == list(range(0, 100, 2))
    assert ids(again) == list(range(0, 100, 2))
    list(itertools.islice(again, 8))  # all of it, and the loop did not come back to be told so
    assert ids(DataLoader(range(100), 7, sampler=Evens())) == ids(again)


@pytest.mark.parametrize("sampler", [RandomSampler(range(10)), WeightedRandomSampler([1.0] * 10, 10)])
def test_a_random_sampler_works_but_has_no_state(sampler):
    loader = DataLoader(range(10), 2, sampler=sampler)
    assert len(ids(loader)) == 10
    with pytest.raises(TypeError, match=f"a {type(sampler).__name__} would give other samples"):
        loader.state_dict()


class Stream(IterableDataset):
    """Numbers that tell the epoch, dealt to the workers."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter(range(100 * self.epoch + first, 100 * self.epoch + 20, step))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_with_epochs_is_told_them_and_resumed_in_them(num_workers):
    def fresh():
        return DataLoader(Stream(), 3, num_workers=num_workers)

    loader = fresh()
    loader.set_epoch(2)
    whole = ids(loader)
    assert sorted(whole) == list(range(200, 220))
    loader.set_epoch(2)
    before = ids(itertools.islice(loader, 2))
    again = fresh()
    again.load_state_dict(saved(loader))
    assert again.epoch == 2
    assert before + ids(again) == whole
    finished = saved(again)
    over = fresh()
    over.load_state_dict(finished)
    assert min(ids(over)) == 300, "without set_epoch the next one"
    over = fresh()
    over.load_state_dict(finished)
    over.set_epoch(2)
    assert ids(over) == []


def test_a_stream_refuses_another_number_of_workers():
    loader = DataLoader(Stream(), 3)
    next(iter(loader))
    with pytest.raises(StateMismatchError, match=r"num_workers=0.* this one .*num_workers=2"):
        DataLoader(Stream(), 3, num_workers=2).load_state_dict(saved(loader))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stream_that_goes_back_in_its_own_process_does_so(num_workers):
    loader = DataLoader(Numbers(), 4, num_workers=num_workers)
    batches = iter(loader)
    next(batches)
    state = saved(loader)
    next(batches)
    loader.load_state_dict(state)
    batches = iter(loader)
    assert ids(batches) == list(range(4, 20))


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(range(20))


def test_the_epoch_after_a_finished_one_comes_without_set_epoch_with_torchs_sampler_too():
    loader = DataLoader(range(8), 2, sampler=TorchSampler(range(8), 1, 0))
    list(loader)
    state = saved(loader)
    sampler = TorchSampler(range(8), 1, 0)
    loader = DataLoader(range(8), 2, sampler=sampler)
    loader.load_state_dict(state)
    drawn = ids(loader)
    sampler.set_epoch(1)
    assert drawn == list(sampler)


@pytest.mark.parametrize("changed", [{"shuffle": False}, {"drop_last": True}])
def test_a_state_of_torchs_sampler_with_other_arguments_is_refused(changed):
    loader = DataLoader(range(80), 2, sampler=TorchSampler(range(80), 1, 0))
    next(iter(loader))
    state = saved(loader)
    with pytest.raises(StateMismatchError):
        DataLoader(range(80), 2, sampler=TorchSampler(range(80), 1, 0, **changed)).load_state_dict(state)


def test_a_stream_in_persistent_workers_gets_the_epochs_that_its_state_tells():
    class Epochs(IterableDataset):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter(range(100 * self.epoch, 100 * self.epoch + 6))

    loader = DataLoader(Epochs(), 2, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        loader.set_epoch(epoch)
        assert ids(loader) == list(range(100 * epoch, 100 * epoch + 6))


def test_len_is_what_the_next_pass_gives_also_after_the_rest_of_a_loaded_epoch():
    loader = DataLoader(range(40), 4, shuffle=True)
    list(itertools.islice(loader, 7))
    state = saved(loader)
    loader = DataLoader(range(40), 4, shuffle=True)
    loader.load_state_dict(state)
    assert len(loader) == len(list(loader)) == 3
    assert len(loader) == 10
    assert len(list(loader)) == 10


class Broken(IterableDataset):
    """Its third sample can't be read; the ones after it can."""

    def __iter__(self):
        return self.Iterator()

    class Iterator:
        def __init__(self):
            self.at = -1

        def __next__(self):
            self.at += 1
            if self.at == 2:
                raise OSError("sample 2 is gone")
            if self.at == 8:
                raise StopIteration
            return self.at

        def __iter__(self):
            return self


def test_a_stream_that_raised_is_read_again_and_raises_again_and_loses_nothing_else():
    loader = DataLoader(Broken(), None)
    batches = iter(loader)
    got = [next(batches), next(batches)]
    with pytest.raises(OSError, match="sample 2"):
        next(batches)
    got.append(next(batches))
    again = DataLoader(Broken(), None)
    again.load_state_dict(saved(loader))
    rest = iter(again)
    with pytest.raises(OSError, match="sample 2"):
        next(rest)
    assert got + list(rest) == [0, 1, 3, 4, 5, 6, 7]


class Wrapper(Sampler):
    """Knows epochs, as its inner sampler does, and has no `epoch` of its own."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)

    def set_epoch(self, epoch):
        self.sampler.set_epoch(epoch)


@pytest.mark.parametrize("sampler", [DistributedSampler, TorchSampler])
def test_the_epoch_of_a_sampler_within_another_is_the_states(sampler):
    def start():
        return DataLoader(range(20), 5, sampler=Wrapper(sampler(range(20), 1, 0)))

    loader = start()
    loader.sampler.set_epoch(2)
    whole = [next(batches := iter(loader)).tolist()]
    state = loader.state_dict()
    whole += [batch.tolist() for batch in batches]
    again = start()
    again.load_state_dict(state)
    assert state["epoch"] == 2
    assert [batch.tolist() for batch in again] == whole[1:]
