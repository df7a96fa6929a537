"""Lockstep with one rank, where nobody has to be asked: the loop is the loader's own, and so is its state."""

import itertools

import pytest
import torch.utils.data

from fastshard import DataLoader, DistributedSampler
from fastshard.ddp import lockstep

ends = pytest.mark.parametrize("end", ["shortest", "longest"])


def loader_of(n=10):
    return DataLoader(range(n), 3, sampler=DistributedSampler(range(n), 1, 0, seed=4))


def given(batches):
    return [batch.tolist() for batch in batches]


@ends
def test_one_rank_gets_its_loaders_batches_in_each_pass(end):
    steps, plain = lockstep(loader_of(), end=end), loader_of()
    for epoch in range(2):
        steps.set_epoch(epoch)
        plain.set_epoch(epoch)
        assert given(steps) == given(plain)
        assert (len(steps), steps.dropped, steps.padded) == (4, 0, 0)
    assert list(lockstep([], end=end)) == []


@ends
@pytest.mark.parametrize("num_batches", range(5))
def test_its_state_is_the_one_the_loader_would_have_without_it(end, num_batches):
    steps, plain, again = lockstep(loader_of(), end=end), loader_of(), lockstep(loader_of(), end=end)
    begun, due = given(itertools.islice(steps, num_batches)), given(itertools.islice(plain, num_batches))
    assert begun == due
    assert steps.state_dict() == plain.state_dict()
    again.load_state_dict(steps.state_dict())
    assert again.state_dict() == plain.state_dict()
    if num_batches < 4:
        assert begun + given(again) == given(loader_of())


def test_the_epoch_reaches_a_torch_loader_s_sampler_and_nobody_is_told_in_vain():
    sampler = DistributedSampler(range(10), 1, 0)
    steps = lockstep(torch.utils.data.DataLoader(range(10), 3, sampler=sampler))
    steps.set_epoch(7)
    assert sampler.epoch == 7
    with pytest.raises(AttributeError, match="nothing in list has a set_epoch"):
        lockstep([1]).set_epoch(1)


def test_what_the_loader_raises_comes_after_the_batches_before_it():
    def batches():
        yield from "ab"
        raise OSError("no such shard")

    steps = iter(lockstep(batches()))
    assert [next(steps), next(steps)] == ["a", "b"]
    with pytest.raises(OSError, match="no such shard"):
        next(steps)


def test_a_batch_that_could_not_be_read_is_passed_over_by_the_state_as_without_lockstep():
    class Broken(torch.utils.data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, i):
            if i == 4:
                raise OSError("no such sample")
            return i

    def broken():
        return DataLoader(Broken(), 2, sampler=DistributedSampler(Broken(), 1, 0, shuffle=False))

    states = []
    for loader in (broken(), lockstep(broken())):
        with pytest.raises(OSError, match="no such sample"):
            list(loader)
        states.append(loader.state_dict())
    assert states[0] == states[1]
    assert states[0]["consumed"] == 6


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"end must be one of.*'last'"):
        lockstep([1], end="last")
    with pytest.raises(TypeError, match="loader must be an iterable of batches, got loader=3"):
        lockstep(3)
    with pytest.raises(TypeError, match="the loader must have a state_dict"):
        lockstep([1]).state_dict()
