"""Runs: each position of an epoch is some rank's, once, over any chain of worlds, and runs are long."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastshard.streaming.runs import Cut, Runs, parse_former

WORLDS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), max_size=5)


MODES = st.sampled_from(["pad", "drop", "keep"])


@given(length=st.integers(0, 200), worlds=WORLDS, last=st.integers(1, 9), uneven=MODES)
def test_each_position_comes_once_over_any_chain_of_worlds(length, worlds, last, uneven):
    worlds = [*worlds, (last, 0)]
    runs, seen = Runs(length, worlds[0][0], uneven), []
    for (num_replicas, draws), after in itertools.pairwise(worlds):
        cut = runs.today
        assert cut.num_replicas == num_replicas
        draws = min(draws, cut.draws(num_replicas - 1))  # stop before anyone pads or runs out
        draws = min(draws, cut.run(num_replicas - 1))
        for rank in range(num_replicas):
            seen += runs.positions(rank, 0, draws).tolist()
        assert runs.consumed(draws) == len(seen)
        runs = Runs(length, after[0], uneven, runs.after(draws))
    cut = runs.today
    for rank in range(last):
        real = cut.draws(rank) - cut.padding(rank)
        assert cut.padding(rank) in (0, 1)
        seen += runs.positions(rank, 0, cut.draws(rank)).tolist()[:real]
    count = Counter(seen)
    assert not count or max(count.values()) == 1
    assert length - len(seen) == (cut.length % last if uneven == "drop" else 0)
    lengths = {cut.draws(rank) for rank in range(last)}
    assert len(lengths) <= (2 if uneven == "keep" else 1)
    assert max(lengths) == cut.most_draws


@pytest.mark.parametrize(("uneven", "draws"), [("pad", [17, 17]), ("drop", [16, 16]), ("keep", [17, 16])])
def test_a_stream_of_33_samples_on_two_ranks(uneven, draws):
    cut = Cut(33, 2, uneven)
    assert [cut.draws(rank) for rank in range(2)] == draws
    assert sum(cut.padding(rank) for rank in range(2)) == (uneven == "pad")


def test_padding_is_the_neighbour_or_where_there_are_fewer_than_ranks_the_first_ones():
    cut = Cut(7, 3)
    assert [cut.positions(rank, 0, 3).tolist() for rank in range(3)] == [[0, 1, 2], [3, 4, 5], [5, 6, 0]]
    assert [Cut(2, 5).positions(rank, 0, 1).tolist() for rank in range(5)] == [[0], [1], [0], [1], [0]]


def test_a_world_that_goes_on_with_its_size_goes_on_with_its_runs():
    runs = Runs(100, 4)
    again = Runs(100, 4, former=runs.after(7))
    for rank in range(4):
        assert again.positions(rank, 0, 18).tolist() == runs.positions(rank, 7, 25).tolist()
    assert again.after(3) == ((4, 10),)


def test_runs_stay_long_after_many_worlds():
    runs = Runs(100_000, 8)
    for num_replicas in (6, 5, 7, 3, 8):
        runs = Runs(100_000, num_replicas, former=runs.after(1_000))
    positions = runs.positions(2, 0, 5_000)
    assert np.count_nonzero(np.diff(positions) != 1) < 40


def test_a_trillion_positions_cost_nothing():
    runs = Runs(10**12, 1000, former=((512, 10**6), (700, 10**5)))
    assert runs.positions(999, runs.today.draws(999) - 1, runs.today.draws(999)).tolist() == [10**12 - 1]


@pytest.mark.parametrize("former", [None, 3, "ab", [1], [[1]], [[0, 1]], [[1, 0]], [[1, True]], [["a", 1]]])
def test_what_is_no_chain_of_worlds_is_refused(former):
    with pytest.raises((TypeError, ValueError), match=r"former|num_replicas|draws"):
        parse_former(former)
