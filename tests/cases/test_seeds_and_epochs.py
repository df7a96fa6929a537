"""The cases of CASES.md, "Seeds and epochs": each test is named after its case's word and quotes it.

persistent-workers is about iterable datasets and has its place with them.
"""

import hashlib
import itertools
import json
import pathlib
import warnings

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data import DistributedSampler as TorchSampler

import fastshard
from fastshard import (
    DistributedBatchSampler,
    DistributedSampler,
    EpochChangedError,
    EpochChangedWarning,
    RepeatedEpochError,
    RepeatedEpochWarning,
    orders,
)

GOLDEN = sorted((pathlib.Path(__file__).parent / "golden").glob("*.json"))
BIG_SEEDS = [-(2**63), -1, 0, 2**31, 2**32, 2**63, 2**64 - 1, 17982163893102248868]


def passes(count, set_epochs=(), **options):
    """What `count` passes of a loader over N=22 in batches of 5 give, and the warnings at each pass."""
    sampler = DistributedSampler(range(22), 1, 0, **options)
    loader = DataLoader(range(22), 5, sampler=sampler)
    drawn, warned = [], []
    for number in range(count):
        if number in set_epochs:
            sampler.set_epoch(number)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            drawn.append(torch.cat(list(loader)).tolist())
        warned.append([warning.category for warning in caught])
    return drawn, warned


@pytest.mark.parametrize("order", ["shuffled", "torch"])
def test_forgotten_set_epoch(order):
    """N=22, b=5, three passes without `set_epoch`: one `RepeatedEpochWarning` at the second pass; none with the calls.

    `on_repeated_epoch="error"` raises, `"advance"` gives a new order each pass.
    """
    by_epoch = orders.BY_NAME[order](22, 0)
    expected = [by_epoch.indices(epoch).tolist() for epoch in range(3)]

    assert passes(3, order=order) == ([expected[0]] * 3, [[], [RepeatedEpochWarning], []])
    assert passes(3, set_epochs=range(3), order=order) == (expected, [[], [], []])
    assert passes(3, order=order, on_repeated_epoch="ignore") == ([expected[0]] * 3, [[], [], []])
    assert passes(3, order=order, on_repeated_epoch="advance") == (expected, [[], [], []])
    assert passes(1, order=order, on_repeated_epoch="error") == (expected[:1], [[]])
    assert passes(3, set_epochs=range(3), order=order, on_repeated_epoch="error") == (expected, [[], [], []])
    with pytest.raises(
        RepeatedEpochError, match=r"another pass over epoch 0 would repeat its order; call set_epoch\(epoch\)"
    ):
        passes(2, order=order, on_repeated_epoch="error")


def test_aliasing():
    """Seeds 0..9 x epochs 0..9, N=50: 100 different orders (torch's rule gives 19)."""
    pairs = [(seed, epoch) for seed in range(10) for epoch in range(10)]
    assert len({tuple(orders.Shuffled(50, seed).indices(epoch)) for seed, epoch in pairs}) == 100
    assert len({tuple(orders.TorchShuffled(50, seed).indices(epoch)) for seed, epoch in pairs}) == 19
    through_samplers = set()
    for seed in range(10):
        sampler = DistributedSampler(range(50), 1, 0, seed=seed)
        for epoch in range(10):
            sampler.set_epoch(epoch)
            through_samplers.add(tuple(sampler))
    assert len(through_samplers) == 100


def installed_draws(seed, order):
    fastshard.install(order=order)
    try:
        return list(TorchSampler(range(50), 1, 0, seed=seed))
    finally:
        fastshard.uninstall()


@pytest.mark.parametrize("order", ["shuffled", "torch"])
def test_aliasing_at_every_entry_point(order):
    """Seeds 1 and 2 reach the order through every public entry point."""
    make = orders.BY_NAME[order]
    entry_points = {
        "order by name": lambda seed: make(50, seed).indices(0).tolist(),
        "index": lambda seed: [make(50, seed).index(0, position) for position in range(50)],
        "sampler": lambda seed: list(DistributedSampler(range(50), 1, 0, seed=seed, order=order)),
        "sampler, by position": lambda seed: list(DistributedSampler(range(50), 1, 0, True, seed, order=order)),
        "sampler.indices": lambda seed: DistributedSampler(range(50), 1, 0, seed=seed, order=order).indices().tolist(),
        "sampler with an order": lambda seed: list(DistributedSampler(range(50), 1, 0, order=make(50, seed))),
        "slice": lambda seed: fastshard.Slice(50, 0, 1).indices(make(50, seed), 0).tolist(),
        "batches": lambda seed: [
            *itertools.chain(*DistributedBatchSampler(range(50), 9, 1, 0, seed=seed, order=order))
        ],
        "install": lambda seed: installed_draws(seed, order),
    }
    expected = {seed: make(50, seed).indices(0).tolist() for seed in (1, 2)}
    assert expected[1] != expected[2]
    for name, entry_point in entry_points.items():
        assert {seed: entry_point(seed) for seed in (1, 2)} == expected, name


@pytest.mark.parametrize("make", [orders.Shuffled, orders.TorchShuffled])
@pytest.mark.parametrize("n", [50, 20_000])
def test_big_seeds(make, n):
    """-1, 0, 2^31, 2^32, 2^63, 2^64-1, 17982163893102248868 work; 2^64 and -2^63-1 raise; no epoch sum overflows."""
    for seed in BIG_SEEDS:
        for epoch in (0, 1, 2**63, 2**64 - 1):
            ids = make(n, seed).indices(epoch)
            assert sorted(ids.tolist()) == list(range(n))
            sampler = DistributedSampler(range(n), 1, 0, order=make(n, seed))
            sampler.set_epoch(epoch)
            assert list(sampler) == ids.tolist()
    for seed in (2**64, -(2**63) - 1):
        for build in (
            lambda seed: make(n, seed),
            lambda seed: DistributedSampler(range(n), 1, 0, seed=seed),
            lambda seed: DistributedBatchSampler(range(n), 2, 1, 0, seed=seed),
        ):
            with pytest.raises(ValueError, match=rf"seed must be in \[-2\^63, 2\^64\), got seed={seed}"):
                build(seed)


def test_big_seeds_and_epochs_stay_apart():
    """No epoch sum overflows: neighbouring seeds and epochs are different orders at the edges too. (-1 is 2^64-1.)"""
    drawn = {
        tuple(orders.Shuffled(50, seed).indices(epoch)) for seed in BIG_SEEDS for epoch in (0, 1, 2**63, 2**64 - 1)
    }
    assert len(drawn) == 4 * len({seed % 2**64 for seed in BIG_SEEDS})


def loader_of(n, num_workers, whole_batches):
    """A loader of N samples on one rank, in batches of 2 or of some hundreds, and the sampler whose epoch is set."""
    size = max(2, n // 40)
    if whole_batches:
        sampler = DistributedBatchSampler(range(n), size, 1, 0, seed=3)
        return sampler, DataLoader(range(n), batch_sampler=sampler, num_workers=num_workers)
    sampler = DistributedSampler(range(n), 1, 0, seed=3)
    return sampler, DataLoader(range(n), size, sampler=sampler, num_workers=num_workers)


@pytest.mark.parametrize("whole_batches", [False, True])
@pytest.mark.parametrize("n", [40, 20_000])
def test_late_set_epoch(n, whole_batches):
    """iter() first and `set_epoch(3)` after it, K=0: the epoch-3 order, as nothing is drawn yet.

    Once something is drawn: a clear error.
    """
    sampler, loader = loader_of(n, 0, whole_batches)
    batches = iter(loader)
    sampler.set_epoch(3)
    assert torch.cat(list(batches)).tolist() == orders.Shuffled(n, 3).indices(3).tolist()

    batches = iter(loader)
    sampler.set_epoch(4)
    first = next(batches).tolist()
    assert first == orders.Shuffled(n, 3).indices(4, 0, len(first)).tolist()
    sampler.set_epoch(5)
    with pytest.raises(EpochChangedError, match=r"set_epoch\(5\) was called while a pass over epoch 4 was running"):
        next(batches)


@pytest.mark.parametrize("whole_batches", [False, True])
@pytest.mark.parametrize("n", [8, 40, 20_000])
def test_late_set_epoch_with_workers(n, whole_batches):
    """iter() first and `set_epoch(3)` after it, K=2: torch has drawn already, so an error at the first batch."""
    sampler, loader = loader_of(n, 2, whole_batches)
    batches = iter(loader)
    sampler.set_epoch(3)
    with pytest.raises(EpochChangedError, match=r"set_epoch\(3\) was called while a pass over epoch 0 was running"):
        next(batches)
    assert torch.cat(list(loader)).tolist() == orders.Shuffled(n, 3).indices(3).tolist()


@pytest.mark.parametrize("whole_batches", [False, True])
def test_late_set_epoch_warns_of_an_epoch_that_torchs_workers_have_wholly_fetched(whole_batches):
    """The same where iter() has ended the pass (3 batches, and K=2 workers prefetch 2 each): it can't be recalled.

    The sampler is not asked again, so nothing can raise where the batches are taken; it is said in set_epoch.
    """
    sampler, loader = loader_of(6, 2, whole_batches)
    batches = iter(loader)
    with pytest.warns(EpochChangedWarning, match="holds 3 batches of epoch 0"):
        sampler.set_epoch(3)
    assert torch.cat(list(batches)).tolist() == orders.Shuffled(6, 3).indices(0).tolist()
    assert torch.cat(list(loader)).tolist() == orders.Shuffled(6, 3).indices(3).tolist()


def test_late_set_epoch_of_the_same_epoch_is_no_change():
    """set_epoch(0) in the middle of epoch 0 changes nothing, and a change that is taken back is none."""
    sampler = DistributedSampler(range(20_000), 1, 0)
    expected = sampler.indices().tolist()
    running = iter(sampler)
    first = [next(running) for _ in range(10)]
    sampler.set_epoch(0)
    assert first + list(running) == expected


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path):
    """Frozen orders for N in {1, 2, 7, 1000, 200000}: the same on every platform, instruction set and version."""
    golden = json.loads(path.read_text())
    classes = {make.name: make for make in (orders.Sequential, orders.Shuffled, orders.TorchShuffled)}
    assert golden["name"] in classes
    make = classes[golden["name"]]
    assert {entry["n"] for entry in golden["orders"] if "sha256" in entry} >= {1, 2, 7, 1000, 200_000}
    for entry in golden["orders"]:
        n, epoch = entry["n"], entry["epoch"]
        order = make(n) if make is orders.Sequential else make(n, entry["seed"])
        assert order.indices(epoch, 0, min(n, 20)).tolist() == entry["first"]
        assert order.indices(epoch, max(0, n - 20)).tolist() == entry["last"]
        if "sha256" in entry:  # orders too long to write down whole are held to their ends
            assert hashlib.sha256(order.indices(epoch).astype("<i8").tobytes()).hexdigest() == entry["sha256"]


def test_golden_files_exist_for_every_order():
    """No order without a frozen one: a new version needs a new file."""
    names = {json.loads(path.read_text())["name"] for path in GOLDEN}
    assert names == {"sequential/1", "shuffled/1", "torch/1"}
