"""The cases of CASES.md, "Order and partition": each test is named after its case's word and quotes it."""

import copy
import itertools
import multiprocessing
import pickle
import random
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastshard import DistributedBatchSampler, DistributedSampler, EmptyRankWarning, Slice, orders

MODES = ["pad", "drop", "keep"]
few_samples = pytest.mark.filterwarnings("ignore::fastshard.EmptyRankWarning")


def ranks(n, num_replicas, **options):
    return [DistributedSampler(range(n), num_replicas, rank, **options) for rank in range(num_replicas)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_uneven_eval(shuffle):
    """N=10, P=3: pad draws 12 and scores two ids twice. keep gives 4/3/3, exact accuracy on known labels."""
    correct = np.array([1, 1, 0, 1, 0, 0, 0, 1, 0, 0], bool)  # accuracy 4/10
    padded, kept = (ranks(10, 3, shuffle=shuffle, uneven=uneven) for uneven in ("pad", "keep"))
    drawn = list(itertools.chain(*padded))
    assert len(drawn) == 12
    assert sorted(drawn.count(sample) for sample in range(10)) == [1] * 8 + [2] * 2
    assert [sampler.num_padding for sampler in padded] == [0, 1, 1]

    ids = [list(sampler) for sampler in kept]
    assert [len(share) for share in ids] == [4, 3, 3]
    assert [sampler.num_padding for sampler in kept] == [0, 0, 0]
    counts = [(int(correct[share].sum()), len(share)) for share in ids]
    assert (sum(hits for hits, _ in counts), sum(total for _, total in counts)) == (4, 10)
    assert [len(list(sampler)) for sampler in ranks(21, 2, shuffle=shuffle, uneven="keep")] == [11, 10]


@pytest.mark.parametrize(("n", "num_replicas"), [(4, 9), (3, 7)])
def test_tiny(n, num_replicas):
    """N=4, P=9 and N=3, P=7: pad gives 1 each by cycling; drop gives 0 each: that warns, keep warns too."""
    order = orders.Shuffled(n).indices(0).tolist()
    assert [list(sampler) for sampler in ranks(n, num_replicas)] == [[order[i % n]] for i in range(num_replicas)]
    for uneven, expected in (
        ("drop", [[]] * num_replicas),
        ("keep", [[sample] for sample in order] + [[]] * (num_replicas - n)),
    ):
        for rank in range(num_replicas):
            with pytest.warns(EmptyRankWarning, match=rf"of {num_replicas} ranks get no sample: {n} are left"):
                sampler = DistributedSampler(range(n), num_replicas, rank, uneven=uneven)
            assert list(sampler) == expected[rank]
            assert sampler.indices().tolist() == expected[rank]


@pytest.mark.parametrize("uneven", MODES)
def test_tiny_nothing_at_all(uneven):
    """N=0 raises."""
    with pytest.raises(ValueError, match=r"len\(dataset\)=0"):
        DistributedSampler([], 2, 0, uneven=uneven)
    with pytest.raises(ValueError, match=r"len\(dataset\)=0"):
        DistributedBatchSampler([], 1, 2, 0, uneven=uneven)
    with pytest.raises(ValueError, match="length=0"):
        Slice(0, 0, 2, uneven)


@pytest.mark.parametrize(
    ("sampler_drops", "loader_drops", "expected"),
    [(False, False, 5), (False, True, 5), (True, False, 5), (True, True, 4)],
)
def test_two_drop_lasts(sampler_drops, loader_drops, expected):
    """N=100, P=7, b=3. (F,F), (F,T), (T,F): 5 batches on every rank; (T,T): 4."""
    for sampler in ranks(100, 7, drop_last=sampler_drops):
        loader = DataLoader(range(100), 3, sampler=sampler, drop_last=loader_drops)
        assert len(loader) == expected
        assert len(list(loader)) == expected


@few_samples
@pytest.mark.parametrize("uneven", MODES)
def test_len(uneven):
    """N in 0..40, P in 1..9, all modes: `len(sampler)` equals what iterating gives, on every rank. (N=0 raises.)"""
    for n, num_replicas in itertools.product(range(1, 41), range(1, 10)):
        samplers = ranks(n, num_replicas, uneven=uneven)
        drawn = [list(sampler) for sampler in samplers]
        assert [len(sampler) for sampler in samplers] == [len(ids) for ids in drawn]
        assert {sampler.total_size for sampler in samplers} == {sum(map(len, drawn))}
        for rank, drop_last in itertools.product(range(num_replicas), (False, True)):
            batches = DistributedBatchSampler(range(n), 3, num_replicas, rank, uneven=uneven, drop_last=drop_last)
            assert len(batches) == len(list(batches))


@pytest.mark.parametrize("uneven", ["drop", "keep"])
def test_whole_global_batches(uneven):
    """N=10, b=2, P=3, dropping partial global batches: 1 batch on every rank and 6 samples consumed; never 2/1/1."""
    samplers = [DistributedBatchSampler(range(10), 2, 3, rank, drop_last=True, uneven=uneven) for rank in range(3)]
    drawn = [list(batches) for batches in samplers]
    assert [len(batches) for batches in drawn] == [len(batches) for batches in samplers] == [1, 1, 1]
    consumed = list(itertools.chain(*itertools.chain(*drawn)))
    assert sorted(consumed) == sorted(orders.Shuffled(10).indices(0, 0, 6).tolist())


@pytest.mark.parametrize("make", [DistributedSampler, DistributedBatchSampler, Slice])
@pytest.mark.parametrize(("name", "value"), [("num_replicas", 0), ("num_replicas", -1), ("rank", -1), ("rank", 4)])
def test_bad_arguments(make, name, value):
    """num_replicas 0 or -1, rank -1 or P: ValueError that names the bad argument, not its neighbour."""
    sizes = {DistributedSampler: [range(10)], DistributedBatchSampler: [range(10), 2], Slice: [10]}[make]
    with pytest.raises(ValueError, match=rf"^{name} must be in \[.*\), got {name}={value}$"):
        make(*sizes, **{"rank": 0, "num_replicas": 4, name: value})


@pytest.mark.parametrize("batch_size", [0, -1])
def test_bad_arguments_of_batches(batch_size):
    """The same for batch_size."""
    with pytest.raises(ValueError, match=rf"^batch_size must be in \[1, 2\^63\), got batch_size={batch_size}$"):
        DistributedBatchSampler(range(10), batch_size, 4, 0)


@pytest.mark.parametrize(
    "options", [{}, {"order": "torch"}, {"shuffle": False}], ids=["shuffled", "torch", "sequential"]
)
def test_int_type(options):
    """Every id out of a sampler is exactly `int`; deepcopy, pickle and spawn keep the order."""
    numpys = {"num_replicas": np.int64(2), "rank": np.int64(1), "seed": np.int64(3)}
    sampler = DistributedSampler(np.arange(10_001), **numpys, **options, on_repeated_epoch="ignore")
    sampler.set_epoch(np.int64(2))
    expected = sampler.indices().tolist()
    drawn = list(sampler)
    assert {type(sample) for sample in drawn} == {int}
    assert drawn == expected
    assert list(copy.deepcopy(sampler)) == expected
    assert list(pickle.loads(pickle.dumps(sampler))) == expected
    batches = DistributedBatchSampler(np.arange(10_001), np.int64(7), **numpys, **options)
    assert {type(sample) for batch in batches for sample in batch} == {int}


def test_int_type_spawned():
    """deepcopy, pickle and spawn keep the order."""
    samplers = [DistributedSampler(range(1001), 2, 1, seed=3, order=order) for order in ("shuffled", "torch")]
    samplers.append(DistributedBatchSampler(range(1001), 8, 2, 1, seed=3))
    for sampler in samplers:
        sampler.set_epoch(2)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        there = list(pool.map(list, samplers))
    assert there == [list(sampler) for sampler in samplers]


@pytest.mark.parametrize("n", [10, 20_000])
def test_two_iterators(n):
    """next() alternately on two iterators of one sampler: each gives the full order."""
    sampler = DistributedSampler(range(n), 2, 1, seed=3)
    expected = sampler.indices().tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = list(zip(iter(sampler), iter(sampler), strict=True))
    assert pairs == [(sample, sample) for sample in expected]


@pytest.mark.parametrize("order", ["shuffled", "torch"])
def test_global_rng(order):
    """The order depends on nothing global: torch's, numpy's and random's seeds, default device and dtype, threads."""

    def drawn():
        sampler = DistributedSampler(range(1000), 2, 1, seed=3, order=order)
        sampler.set_epoch(2)
        return list(sampler)

    states = (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    expected = drawn()
    # Nor does it change what is global.
    assert (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()) == states  # noqa: NPY002
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        for seed in (0, 1):
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            assert drawn() == expected
        torch.set_default_dtype(torch.float16)
        torch.set_num_threads(1)
        with torch.device("meta"):
            assert drawn() == expected
        torch.set_default_device("meta")
        assert drawn() == expected
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
