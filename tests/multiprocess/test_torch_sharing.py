"""The processes of a machine share one copy of an epoch of torch's order, whoever is killed, stopped or forked."""

import functools
import multiprocessing
import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import launch  # noqa: F401 (tells the fork server what to import)
import pytest
import torch
from torch.utils.data import DataLoader

from fastshard import DistributedSampler
from fastshard.orders import TorchShuffled

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(sys.platform != "linux", reason="each process makes its own"),
    pytest.mark.timeout(120),
]

N = 2**20 + 7  # the smallest that are shared take some milliseconds
LONG = 20_000_000  # takes some tenths of a second
ANSWER_S = 60  # for a process to answer; a hang, not a slow machine


def copies(pid="self"):
    """The inodes of the shared copies that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sorted({line.split()[4] for line in lines if "memfd:fastshard" in line})


def names(n):
    """The copies of n samples that some process here offers."""
    return [line for line in Path("/proc/net/unix").read_text().splitlines() if f"torch1-{n}-" in line]


@functools.cache
def expected(n, epoch, start, stop):
    return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))[start:stop].tolist()


def wait_until(condition):
    end = time.monotonic() + ANSWER_S
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


class Rank:
    """A process with an order of n samples of its own, which does what it is told."""

    def __init__(self, n, environment):
        context = multiprocessing.get_context("forkserver")
        self._here, there = context.Pipe()
        self.process = context.Process(target=_obey, args=(there, n, environment))
        self.process.start()
        there.close()

    def ask(self, *what):
        self._here.send(what)

    def answer(self):
        assert self._here.poll(ANSWER_S), "no answer"
        return self._here.recv()

    def ids(self, *which):
        self.ask("ids", *which)
        return self.answer()

    def end(self):
        if self.process.exitcode is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.kill()
        self.process.join()


def _obey(pipe, n, environment):
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite that a script runs in the background ignores it
    order = TorchShuffled(n)
    while True:
        what, *arguments = pipe.recv()
        try:
            if what == "ids":
                pipe.send(order.indices(*arguments).tolist())
            elif what == "prepare":
                pipe.send(order.prepare(*arguments))
        except (KeyboardInterrupt, ValueError) as error:
            pipe.send(repr(error))


@contextmanager
def ranks(count, n=N, environments=None, check=True):
    started = [Rank(n, environment) for environment in environments or [{}] * count]
    try:
        yield started
    finally:
        for rank in started:
            rank.end()
        assert not check or not names(n)


def test_all_processes_map_one_copy_and_have_none_of_their_own():
    with ranks(3) as started:
        for rank in started:
            rank.ask("ids", 2, N - 5, N)
        assert [rank.answer() for rank in started] == [expected(N, 2, N - 5, N)] * 3
        mapped = [copies(rank.process.pid) for rank in started]
        assert len(mapped[0]) == 1
        assert mapped == [mapped[0]] * 3
        assert len(names(N)) == 1


def test_another_epoch_replaces_the_copy_and_a_prepared_one_becomes_it():
    with ranks(2) as started:
        pid = started[1].process.pid

        def everyone(*what):
            for rank in started:
                rank.ask(*what)
            return [rank.answer() for rank in started]

        assert everyone("ids", 0, 0, 3) == [expected(N, 0, 0, 3)] * 2
        (first,) = names(N)
        everyone("prepare", 1)
        wait_until(lambda: len(names(N)) == 2)
        (prepared,) = set(names(N)) - {first}
        assert everyone("ids", 1, 0, 3) == [expected(N, 1, 0, 3)] * 2
        assert names(N) == [prepared]
        (copy,) = copies(pid)
        assert everyone("ids", 5, 0, 3) == [expected(N, 5, 0, 3)] * 2
        assert len(copies(pid)) == 1
        assert copies(pid) != [copy]


def test_who_is_alone_has_its_own_until_another_asks():
    with ranks(1) as (first,):
        first.ids(0, 0, 1)
        assert copies(first.process.pid) == []
        with ranks(1, check=False) as (second,):
            assert second.ids(0, 5, 9) == expected(N, 0, 5, 9)
            assert first.ids(0, 5, 9) == expected(N, 0, 5, 9)
            assert len(copies(first.process.pid)) == 1
            assert copies(first.process.pid) == copies(second.process.pid)


def test_who_waits_for_a_maker_that_is_killed_makes_the_copy():
    with ranks(3, LONG) as (maker, *waiting):
        maker.ask("ids", 0, 0, 1)
        wait_until(lambda: names(LONG))
        for rank in waiting:
            rank.ask("ids", 0, LONG - 3, LONG)
        time.sleep(0.05)
        maker.process.kill()
        maker.process.join()
        assert not copies(os.getpid())
        assert [rank.answer() for rank in waiting] == [expected(LONG, 0, LONG - 3, LONG)] * 2
        first, second = (copies(rank.process.pid) for rank in waiting)
        assert first == second
        assert len(first) == 1


def test_a_copy_outlives_its_maker_with_those_who_have_it():
    with ranks(3) as (maker, reader, late):
        for rank in (maker, reader):
            rank.ids(1, 0, 1)
        kept = copies(reader.process.pid)
        assert kept == copies(maker.process.pid)
        maker.process.kill()
        maker.process.join()
        assert reader.ids(1, 5, 9) == expected(N, 1, 5, 9)
        assert copies(reader.process.pid) == kept
        assert late.ids(1, 5, 9) == expected(N, 1, 5, 9)  # makes one anew


def test_a_stopped_maker_is_not_awaited_longer_than_the_timeout():
    with ranks(2, LONG, [{}, {"FASTSHARD_SHARE_TIMEOUT": "0.3"}]) as (maker, other):
        maker.ask("ids", 0, 0, 3)
        wait_until(lambda: names(LONG))
        os.kill(maker.process.pid, signal.SIGSTOP)
        assert other.ids(0, 0, 3) == expected(LONG, 0, 0, 3)
        assert not copies(other.process.pid)
        os.kill(maker.process.pid, signal.SIGCONT)
        assert maker.answer() == expected(LONG, 0, 0, 3)


def test_ctrl_c_ends_the_wait_for_another_process_at_once():
    with ranks(2, LONG) as (maker, waiting):
        maker.ask("ids", 0, 0, 3)
        wait_until(lambda: names(LONG))
        os.kill(maker.process.pid, signal.SIGSTOP)  # only the interrupt can end the wait now
        alone = len(names(LONG))
        waiting.ask("ids", 0, 0, 3)
        wait_until(lambda: len(names(LONG)) > alone)  # it has connected
        os.kill(waiting.process.pid, signal.SIGINT)
        assert waiting.answer() == "KeyboardInterrupt()"
        os.kill(maker.process.pid, signal.SIGCONT)
        assert waiting.ids(0, 0, 3) == maker.answer() == expected(LONG, 0, 0, 3)


def test_without_sharing_each_process_has_its_own():
    with ranks(2, environments=[{"FASTSHARD_SHARE_TIMEOUT": "0"}] * 2) as started:
        assert [rank.ids(0, 7, 9) for rank in started] == [expected(N, 0, 7, 9)] * 2
        assert [copies(rank.process.pid) for rank in started] == [[], []]


def test_a_timeout_that_is_no_number_is_an_error_that_quotes_it():
    with ranks(1, environments=[{"FASTSHARD_SHARE_TIMEOUT": "soon"}]) as (rank,):
        error = rank.ids(0, 0, 1)
    assert error.startswith("ValueError")
    assert 'FASTSHARD_SHARE_TIMEOUT must be a number of seconds in [0, 1000000], got "soon"' in error


def test_a_process_that_prepares_an_epoch_ends_without_waiting_for_it():
    rank = Rank(LONG, {})
    rank.ask("prepare", 1)
    assert rank.answer() is None
    rank._here.close()  # EOFError in the process: an ordinary end
    rank.process.join(ANSWER_S)
    assert rank.process.exitcode == 1
    assert not names(LONG)


class Looks:
    """A dataset whose items say what the worker has mapped, and what it finds when it asks the order."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return N

    def __getitem__(self, index):
        before = copies()
        return index, before, self.sampler.indices(0, 3).tolist(), copies()


def test_forked_workers_inherit_no_copy_and_get_the_shared_one_if_they_ask():
    sampler = DistributedSampler(range(N), 2, 0, order="torch")
    loader = DataLoader(
        Looks(sampler),
        sampler=sampler,
        num_workers=1,
        multiprocessing_context="fork",
        collate_fn=list.pop,
    )
    items = iter(loader)
    index, before, asked, after = next(items)
    assert (index, asked) == (expected(N, 0, 0, 1)[0], expected(N, 0, 0, 6)[::2])
    assert before == []
    assert after == copies()
    assert len(after) == 1
    del items


def test_a_pass_prepares_the_next_epoch_from_its_middle_on():
    sampler = DistributedSampler(range(N), 2, 0, order="torch")
    ids = iter(sampler)
    next(ids)
    (current,) = names(N)
    for _ in range(N // 4 - 5000):
        next(ids)
    assert names(N) == [current]
    for _ in range(10_000):
        next(ids)
    wait_until(lambda: len(names(N)) == 2)
    (prepared,) = set(names(N)) - {current}
    assert [*ids][-1] == expected(N, 0, N - 1, N)[0]
    sampler.set_epoch(1)
    assert next(iter(sampler)) == expected(N, 1, 0, 1)[0]
    assert names(N) == [prepared]
