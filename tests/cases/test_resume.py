"""Cases of the section "Resume" that samplers alone answer for, each named after its word in the list of cases."""

import itertools
import json

import pytest

from fastshard import DistributedBatchSampler, DistributedSampler, StateMismatchError, orders

quiet = pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning", "ignore::fastshard.EmptyRankWarning")


def saved(sampler):
    """A state as it comes back from a file."""
    return json.loads(json.dumps(sampler.state_dict()))


def resumed(state, n, num_replicas, rank=0, **kwargs):
    sampler = DistributedSampler(range(n), num_replicas, rank, **kwargs)
    sampler.load_state_dict(state)
    return sampler


def test_end_of_epoch():
    """Two epochs, save, new process, two more: each epoch equals an uninterrupted run's; none is empty."""
    whole = DistributedSampler(range(100), 1, 0)
    expected = []
    for epoch in range(4):
        whole.set_epoch(epoch)
        expected.append(list(whole))
    first = DistributedSampler(range(100), 1, 0)
    got = []
    for epoch in range(2):
        first.set_epoch(epoch)
        got.append(list(first))
    again = resumed(saved(first), 100, 1)
    for epoch in range(2, 4):
        again.set_epoch(epoch)
        got.append(list(again))
    assert got == expected
    # Without set_epoch the finished epoch is over, and with it there is nothing left of it.
    assert list(resumed(saved(first), 100, 1)) == expected[2]
    over = resumed(saved(first), 100, 1)
    over.set_epoch(1)
    assert (list(over), len(over)) == ([], 0)


@quiet
def test_elastic_continues():
    """N=10, P=1, epoch 3, 4 consumed: what follows is positions 4..9 of epoch 3's order."""
    sampler = DistributedSampler(range(10), 1, 0, seed=5)
    sampler.set_epoch(3)
    list(itertools.islice(sampler, 4))
    order = orders.Shuffled(10, 5).indices(3).tolist()
    assert list(resumed(saved(sampler), 10, 1, seed=5)) == order[4:]
    shares = [list(resumed(saved(sampler), 10, 2, rank, seed=5)) for rank in range(2)]
    assert shares == [order[4::2], order[5::2]]


@quiet
@pytest.mark.parametrize(
    ("num_replicas", "drop_last", "each"), [(2, False, 30), (2, True, 30), (8, False, 8), (8, True, 7)]
)
def test_elastic_any(num_replicas, drop_last, each):
    """N=100, P=4, b=5, stop after 2 steps (40 used): P=2 gets 30 each, P=8 gets 8 (pad) or 7 (drop)."""
    state = None
    for rank in range(4):
        sampler = DistributedSampler(range(100), 4, rank, drop_last=drop_last)
        sampler.set_epoch(1)
        list(itertools.islice(sampler, 2 * 5))
        state = saved(sampler) if state is None else state
        assert saved(sampler) == state == json.loads(json.dumps(sampler.state_at(2, 5))) | {"batch_size": None}
    assert state["consumed"] == 40
    left = orders.Shuffled(100).indices(1, 40).tolist()
    ranks = [resumed(state, 100, num_replicas, rank, drop_last=drop_last) for rank in range(num_replicas)]
    assert [len(rank) for rank in ranks] == [each] * num_replicas
    drawn = [sample for step in zip(*ranks, strict=True) for sample in step]
    padded = left + orders.Shuffled(100).indices(1).tolist()
    assert drawn == padded[: each * num_replicas]


def test_state_no_side_effect():
    """`state_dict()` before and while iterating: the streams are the same with and without it."""
    sampler, other = DistributedSampler(range(50), 2, 1), DistributedSampler(range(50), 2, 1)
    sampler.state_dict()
    drawn = []
    for sample in sampler:
        drawn.append(sample)
        sampler.state_dict()
    assert drawn == list(other)


def test_epoch_in_state():
    """N=10, P=2, seed 42, epoch 1: take 1, save, load without calling `set_epoch`: the same 4 remain."""
    sampler = DistributedSampler(range(10), 2, 1, seed=42)
    sampler.set_epoch(1)
    first = next(iter(sampler))
    rest = list(resumed(saved(sampler), 10, 2, 1, seed=42))
    sampler.set_epoch(1)
    assert [first, *rest] == orders.Shuffled(10, 42).indices(1, 1, step=2).tolist()


def test_membership():
    """P=2, b=2, unshuffled: 0..15 consumed, then restart: the next global batch is {16,17,18,19}."""
    states = []
    for n in (40, 4_000_000):
        batches = DistributedBatchSampler(range(n), 2, 2, 0, shuffle=False)
        list(itertools.islice(batches, 4))
        states.append(saved(batches))
        ranks = [DistributedBatchSampler(range(n), 2, 2, rank, shuffle=False) for rank in range(2)]
        for rank in ranks:
            rank.load_state_dict(states[-1])
        assert {sample for rank in ranks for sample in next(iter(rank))} == {16, 17, 18, 19}
    assert len(json.dumps(states[1])) - len(json.dumps(states[0])) == len("4000000") - len("40")


@pytest.mark.parametrize(
    ("other", "field", "was", "now"),
    [
        ({"n": 101}, "length", 100, 101),
        ({"seed": 1}, "seed", 0, 1),
        ({"order": "torch"}, "order", "'shuffled/1'", "'torch/1'"),
        ({"uneven": "keep"}, "uneven", "'pad'", "'keep'"),
        ({"batch_size": 7}, "batch_size", 5, 7),
    ],
)
def test_wrong_run(other, field, was, now):
    """A state of another N, seed, order or batch size raises and lists each field with both values."""
    batches = DistributedBatchSampler(range(100), 5, 4, 0)
    next(iter(batches))
    arguments = {"n": 100, "batch_size": 5} | other
    wrong = DistributedBatchSampler(range(arguments.pop("n")), arguments.pop("batch_size"), 4, 0, **arguments)
    with pytest.raises(StateMismatchError) as caught:
        wrong.load_state_dict(saved(batches))
    assert f"{field}={was}" in str(caught.value)
    assert f"{field}={now}" in str(caught.value)
    assert wrong.sampler.progress()[1] == 0
