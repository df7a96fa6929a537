"""The cases of CASES.md, "Scale": each test is named after its case's word and quotes it.

Times are the least of many, of this thread's processor time, and the bounds are far from what is measured: what they
tell apart is constant from linear. Memory is what Python allocates (tracemalloc) and what the process grows by.
"""

import gc
import itertools
import time
import tracemalloc

import numpy as np
import psutil
import pytest

from fastshard import DistributedBatchSampler, DistributedSampler, orders

BILLION = 10**9
MEGABYTE = 2**20


def least_seconds(work, times=20):
    """The least processor time of this thread that `work()` takes."""
    least = float("inf")
    for _ in range(times):
        start = time.thread_time()
        work()
        least = min(least, time.thread_time() - start)
    return least


def peak_bytes(work):
    """The most that Python allocates during `work()`."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def least_growth(work, times=5):
    """The least of several growths of the process while what `work()` returns is held: other things grow it too."""
    process, held, growth = psutil.Process(), [], []
    for _ in range(times):
        before = process.memory_info().rss
        held.append(work())
        growth.append(process.memory_info().rss - before)
    return min(growth)


def first_index():
    sampler = DistributedSampler(range(BILLION), 8, 3, seed=1)
    return sampler, next(iter(sampler))


def first_batch():
    sampler = DistributedBatchSampler(range(BILLION), 32, 8, 3, seed=1, drop_last=True)
    return sampler, next(iter(sampler))


def position_900_million():
    sampler = DistributedSampler(range(BILLION), 8, 0, seed=1)
    return sampler, sampler.indices(112_500_000, 112_500_001)


@pytest.mark.parametrize("work", [first_index, first_batch, position_900_million])
def test_billion(work):
    """N=1e9, P=8: building the sampler and the first index take under 10 ms and under 1 MB; so does position 9e8."""
    assert least_seconds(work) < 0.010
    assert peak_bytes(work) < MEGABYTE
    assert least_growth(work) < MEGABYTE


def test_billion_has_the_right_ids():
    """The first index and position 9e8 are those of the order."""
    order = orders.Shuffled(BILLION, 1)
    assert first_index()[1] == order.index(0, 3)
    assert first_batch()[1] == order.indices(0, 3, 3 + 8 * 32, 8).tolist()
    assert position_900_million()[1].tolist() == [order.index(0, 900_000_000)]


def test_billion_does_not_slow_down_garbage_collection():
    """`gc.collect()` does not slow down: it looks at every object that holds others, and there are no more of them."""
    gc.collect()
    before, seconds_before = len(gc.get_objects()), least_seconds(gc.collect, times=5)
    held = [first_index(), first_batch(), position_900_million()]
    gc.collect()
    assert len(gc.get_objects()) - before < 500
    assert least_seconds(gc.collect, times=5) < 2 * seconds_before + 0.010
    assert len(held) == 3


@pytest.mark.parametrize("n", [10**12, 2**62])
def test_trillion(n):
    """N=10^12 and 2^62: first, last and 1e6 random positions in range, distinct for distinct positions."""
    order = orders.Shuffled(n, seed=4)
    generator = np.random.default_rng(n)
    # Runs of ten, because a call of Python's per position would take most of the time.
    starts = generator.integers(0, n // 2, 100_000).tolist()
    steps = generator.integers(1, n // 20, 100_000).tolist()
    runs = [(start, start + 10 * step, step) for start, step in zip(starts, steps, strict=True)]
    positions = np.concatenate([[0, n - 1], *(np.arange(*run) for run in runs)])
    ends = [order.index(7, 0), order.index(7, n - 1)]
    ids = np.concatenate([ends, *(order.indices(7, *run) for run in runs)])
    assert len(ids) == len(positions) > 10**6
    assert positions.max() == n - 1
    assert ids.min() >= 0
    assert ids.max() < n
    assert count_distinct(ids) == count_distinct(positions)


def count_distinct(values):
    return 1 + np.count_nonzero(np.diff(np.sort(values)))


@pytest.mark.parametrize("n", [10**12, 2**62])
def test_trillion_through_a_sampler(n):
    """First and last draws of every rank are the order's."""
    order = orders.Shuffled(n, seed=4)
    for rank in (0, 1023):
        sampler = DistributedSampler(range(n), 1024, rank, seed=4)
        assert next(iter(sampler)) == order.index(0, rank)
        last = len(sampler) - 1
        assert sampler.indices(last).tolist() == [order.index(0, (rank + last * 1024) % n)]


def test_step_cost():
    """The cost of a draw does not depend on P: 1e5 draws at P=1 and P=1024, ratio under 2."""
    draws, n = 100_000, 1024 * 100_000

    def draw(num_replicas):
        sampler = DistributedSampler(range(n), num_replicas, num_replicas - 1, seed=1, on_repeated_epoch="ignore")
        return lambda: sum(itertools.islice(iter(sampler), draws))

    alone, among_many = draw(1), draw(1024)
    # In turns, so that a busy machine is busy for both.
    pairs = [(least_seconds(alone, 1), least_seconds(among_many, 1)) for _ in range(25)]
    one, many = (min(seconds) for seconds in zip(*pairs, strict=True))
    assert many < 2 * one
    assert one < 2 * many
