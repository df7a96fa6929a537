"""Cases of the section "Resume" that the loader answers for, each named after its word in the list of cases."""

import itertools
import json
import subprocess
import sys

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from fastshard import (
    DataLoader,
    DistributedBatchSampler,
    DistributedSampler,
    EpochChangedError,
    StateMismatchError,
    orders,
)

quiet = pytest.mark.filterwarnings("ignore::fastshard.GlobalBatchChangedWarning", "ignore::fastshard.EmptyRankWarning")


def make(n, batch_size, num_workers=0, num_replicas=1, rank=0, drop_last=False, **options):
    sampler = DistributedSampler(range(n), num_replicas, rank, drop_last=drop_last)
    return DataLoader(range(n), batch_size, sampler=sampler, num_workers=num_workers, **options)


def saved(loader):
    """A state as it comes back from a file."""
    return json.loads(json.dumps(loader.state_dict()))


def lists(batches):
    return [batch.tolist() for batch in batches]


EPOCHS = """
import json, sys
from fastshard import DataLoader, DistributedSampler
sampler = DistributedSampler(range(100), 1, 0)
loader = DataLoader(range(100), 1, sampler=sampler, num_workers=int(sys.argv[1]))
loader.load_state_dict(json.loads(sys.argv[2]))
got = []
for epoch in (2, 3):
    sampler.set_epoch(epoch)
    got.append([int(batch) for batch in loader])
print(json.dumps(got))
"""


@pytest.mark.parametrize("num_workers", [0, 1])
def test_end_of_epoch(num_workers):
    """Two epochs, save, new process, two more: each epoch equals an uninterrupted run's; none is empty."""
    loader = make(100, 1, num_workers)
    expected = [orders.Shuffled(100).indices(epoch).tolist() for epoch in range(4)]
    got = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        got.append([int(batch) for batch in loader])
    command = [sys.executable, "-c", EPOCHS, str(num_workers), json.dumps(loader.state_dict())]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert got + json.loads(ran.stdout) == expected


@quiet
@pytest.mark.parametrize(("num_workers", "resumed_workers"), [(2, 8), (2, 0), (0, 2)])
@pytest.mark.parametrize(
    ("num_replicas", "drop_last", "each"), [(2, False, 30), (2, True, 30), (8, False, 8), (8, True, 7)]
)
def test_elastic_any(num_workers, resumed_workers, num_replicas, drop_last, each):
    """N=100, P=4, b=5, stop after 2 steps (40 used): P=2 gets 30 each, P=8 gets 8 (pad) or 7 (drop)."""
    before = make(100, 5, num_workers, 4, 1, drop_last)
    list(itertools.islice(before, 2))
    state = saved(before)
    assert state["consumed"] == 40
    order = orders.Shuffled(100).indices(0).tolist()
    rank = num_replicas - 1
    after = make(100, 5, resumed_workers, num_replicas, rank, drop_last)
    after.load_state_dict(state)
    drawn = list(itertools.chain(*lists(after)))
    assert drawn == (order[40:] + order)[rank::num_replicas][:each]
    assert len(drawn) == each


@pytest.mark.parametrize(("num_workers", "resumed_workers"), [(0, 0), (0, 4), (4, 0), (4, 4)])
def test_prefetch(num_workers, resumed_workers):
    """Stop after step 75: resume gives step 76's batch, not one ahead by K * prefetch."""
    loader = make(1000, 4, num_workers, **({"prefetch_factor": 3} if num_workers else {}))
    for step, _ in enumerate(loader):
        if step == 75:
            break
    again = make(1000, 4, resumed_workers)
    again.load_state_dict(saved(loader))
    order = orders.Shuffled(1000).indices(0).tolist()
    assert next(iter(again)).tolist() == order[76 * 4 : 77 * 4]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_state_no_side_effect(num_workers):
    """`state_dict()` before iterating and while, K >= 1: the streams are the same with and without it."""
    loader, other = make(50, 3, num_workers), make(50, 3, num_workers)
    loader.state_dict()
    drawn = []
    for batch in loader:
        loader.state_dict()
        drawn.append(batch.tolist())
    assert drawn == lists(other)


class Shards(IterableDataset):
    """24 samples in 4 shards, of which each rank reads one, its workers by turns."""

    def __init__(self, rank):
        self.samples = range(6 * rank, 6 * rank + 6)

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter(self.samples[first::step])


@pytest.mark.parametrize("num_workers", [0, 4])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_many_workers_iterable(num_workers, batch_size):
    """N=24, S=4, P=4, rank 0: stop at each of 0..6 samples: the rest follows, once each."""

    def fresh():
        return DataLoader(Shards(0), batch_size, num_workers=num_workers)

    def samples(batches):
        return [int(sample) for batch in batches for sample in torch.as_tensor(batch).flatten()]

    whole = samples(fresh())
    assert sorted(whole) == list(range(6))
    for stop in range(7 if batch_size is None else 4):
        loader = fresh()
        batches = iter(loader)
        before = samples(itertools.islice(batches, stop))
        again = fresh()
        again.load_state_dict(saved(loader))
        assert before + samples(again) == whole
        assert samples(again) == whole, "the pass after it is a whole one"
        assert saved(again)["epoch"] == 1


class CountedReads(Dataset):
    """Writes down what is read, also in workers."""

    def __init__(self, n, path):
        self.n, self.path = n, path

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        with self.path.open("a") as file:
            file.write(f"{index}\n")
        return index


@pytest.mark.parametrize("num_workers", [0, 2])
def test_no_replay(num_workers, tmp_path):
    """Nothing below the offset is read on resume."""
    dataset = CountedReads(1000, tmp_path / "reads")
    loader = DataLoader(dataset, 10, sampler=DistributedSampler(dataset, 1, 0), num_workers=num_workers)
    list(itertools.islice(loader, 90))
    state = saved(loader)
    dataset.path.unlink()
    again = DataLoader(dataset, 10, sampler=DistributedSampler(dataset, 1, 0), num_workers=num_workers)
    again.load_state_dict(state)
    assert sum(len(batch) for batch in again) == 100
    reads = [int(line) for line in dataset.path.read_text().split()]
    assert sorted(reads) == sorted(orders.Shuffled(1000).indices(0, 900).tolist())


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("n", [8, 400])
def test_late_set_epoch(num_workers, n):
    """iter() first and `set_epoch(3)` after it: either the epoch-3 order or a clear error, never epoch 0's."""
    loader = make(n, 2, num_workers)
    batches = iter(loader)
    loader.sampler.set_epoch(3)
    if num_workers:  # the workers have begun to fetch epoch 0, or have all of it
        with pytest.raises(EpochChangedError, match=r"set_epoch\(3\) .* epoch 0"):
            next(batches)
    else:
        assert list(itertools.chain(*lists(batches))) == orders.Shuffled(n).indices(3).tolist()


@pytest.mark.parametrize(
    ("other", "field", "was", "now"),
    [
        ({"n": 101}, "length", 100, 101),
        ({"batch_size": 7}, "batch_size", 5, 7),
        ({"accumulation": 2}, "accumulation", 1, 2),
    ],
)
@pytest.mark.parametrize("batches", [False, True])
def test_wrong_run(other, field, was, now, batches):
    """A state of another N or batch size raises and lists each field with both values."""

    def fresh(n=100, batch_size=5, accumulation=1):
        if batches:
            return DataLoader(
                range(n), batch_sampler=DistributedBatchSampler(range(n), batch_size, 4, 0), accumulation=accumulation
            )
        return make(n, batch_size, 0, 4, accumulation=accumulation)

    loader = fresh()
    next(iter(loader))
    wrong = fresh(**other)
    with pytest.raises(StateMismatchError) as caught:
        wrong.load_state_dict(saved(loader))
    assert f"{field}={was}" in str(caught.value)
    assert f"{field}={now}" in str(caught.value)
    assert saved(wrong)["consumed"] == 0
