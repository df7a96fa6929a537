"""Orders are used from several threads at once (loaders that prefetch), and must let them run."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fastshard.orders import BlockShuffled, Sequential, Shuffled, TorchShuffled, Weighted

THREADS = 8


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Shuffled(3000, 1), id="shuffled-table"),
        pytest.param(lambda: Shuffled(20_000, 1), id="shuffled-network"),
        pytest.param(lambda: TorchShuffled(3000, 1), id="torch"),
    ],
)
def test_threads_on_different_epochs_of_one_order_do_not_disturb_each_other(make):
    shared = make()
    expected = [make().indices(epoch).tolist() for epoch in range(THREADS)]
    barrier = threading.Barrier(THREADS)

    def wrong_answers(epoch):
        barrier.wait()
        return sum(shared.indices(epoch).tolist() != expected[epoch] for _ in range(50))

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(wrong_answers, range(THREADS))) == [0] * THREADS


def test_threads_that_want_the_same_epoch_all_get_it():
    shared = TorchShuffled(200_000, 1)
    expected = TorchShuffled(200_000, 1).indices(3).tolist()
    barrier = threading.Barrier(THREADS)

    def answer(_):
        barrier.wait()
        return shared.indices(3).tolist() == expected

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(answer, range(THREADS)))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(Sequential(2**40), id="sequential"),
        pytest.param(Shuffled(2**40), id="shuffled"),
        pytest.param(TorchShuffled(2_000_000), id="torch"),
        pytest.param(BlockShuffled([10_000] * 200, 1, 20), id="blocks"),
        pytest.param(Weighted(np.ones(500_000), 2_000_000), id="weighted"),
        pytest.param(Weighted(np.ones(500_000), 500_000, 0, replacement=False), id="weighted-subset"),
    ],
)
def test_indices_releases_the_gil(order):
    # No thread is made to give up the GIL, so the counter moves during a call if and only if the call gives it up.
    # Whether the other thread then gets a core in time is up to the machine: hence several tries.
    ticks, done = 0, False

    def tick():
        nonlocal ticks
        while not done:
            ticks += 1
            time.sleep(0)  # gives it up

    former = sys.getswitchinterval()
    other = threading.Thread(target=tick)
    sys.setswitchinterval(1000)
    try:
        other.start()
        for epoch in range(50):
            before = ticks
            order.indices(epoch, 0, min(len(order), 2_000_000))
            moved = ticks - before
            if moved:
                break
    finally:
        done = True
        sys.setswitchinterval(former)
        other.join()
    assert moved > 0


def test_threads_that_wait_for_different_epochs_do_not_undo_each_others():
    # Long enough for each to look around for Ctrl-C while it waits.
    shared = TorchShuffled(8_000_000, 1)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda epoch: shared.index(epoch, 7), (0, 1), timeout=120))
    assert found == [TorchShuffled(8_000_000, 1).index(epoch, 7) for epoch in (0, 1)]
