"""Lockstep in real process groups: unlike numbers of batches, the same number of steps, and nobody waits for ever."""

import itertools

import lockstep_jobs as jobs
import pytest
from launch import run_ranks

from fastshard import DistributedSampler

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_all_ranks_make_as_many_steps_as_the_one_with_fewest_or_with_most_batches(num_replicas, tmp_path):
    counts = jobs.COUNTS[:num_replicas]
    for rank, found in enumerate(run_ranks(jobs.to_both_ends, num_replicas, tmp_path)):
        own = [(rank, number) for number in range(counts[rank])]
        assert found["shortest"] == (own[: min(counts)], int(counts[rank] > min(counts)), 0)
        more = max(counts) - counts[rank]
        assert found["longest"] == (own + more * own[:1], 0, more)


def test_ranks_that_leave_the_loop_together_leave_no_collective_behind(tmp_path):
    for rank, (seen, whole, own) in enumerate(run_ranks(jobs.leave_and_come_again, 2, tmp_path)):
        assert seen == 3 * [(rank, 0), (rank, 1)]
        assert whole == [(rank, 0), (rank, 1), (rank, 2)]
        assert own == 2**9


def test_a_rank_in_its_next_step_has_not_waited_for_others_to_end_theirs(tmp_path):
    assert run_ranks(jobs.a_step_ahead, 2, tmp_path) == [[(rank, number) for number in range(3)] for rank in range(2)]


def test_only_the_ranks_of_a_group_step_together(tmp_path):
    steps = run_ranks(jobs.in_groups, 3, tmp_path)
    assert [len(batches) for batches in steps] == [3, 3, 4]


@pytest.mark.parametrize(("num_replicas", "num_workers"), [(2, 0), (2, 2), (3, 0), (3, 2)])
def test_the_modes_hold_after_a_filter_before_the_split_and_lockstep_evens_one_behind_it(
    num_replicas, num_workers, tmp_path
):
    ranks = run_ranks(jobs.filtered, num_replicas, tmp_path, num_workers)
    kept = [number for number in range(61) if jobs.is_kept(number)]
    for uneven in ("pad", "drop", "keep"):
        lengths = {"pad": -(-31 // num_replicas), "drop": 31 // num_replicas}
        for rank, found in enumerate(ranks):
            due = kept[rank::num_replicas][: lengths.get(uneven)]
            due += [kept[len(due) * num_replicas + rank - 31]] * (lengths.get(uneven, len(due)) - len(due))
            assert found[uneven] == [due[at : at + 3] for at in range(0, len(due), 3)]

    counts = [len(found["all"]) for found in ranks]
    assert min(counts) < max(counts)
    assert sorted(number for found in ranks for batch in found["all"] for number in batch) == kept
    for found in ranks:
        batches = [[1000 + number for number in batch] for batch in found["all"]]
        assert found["shortest"] == (batches[: min(counts)], 0)
        more = max(counts) - len(batches)
        assert found["longest"] == (batches + more * batches[:1], more)


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_what_goes_wrong_on_one_rank_ends_the_loop_on_all_and_names_it(num_replicas, tmp_path):
    where = {end: f"step 0 of pass 1 with end={end!r}" for end in ("shortest", "longest")}
    others = "".join(f", rank {rank}: {where['longest']}" for rank in range(1, num_replicas))
    steps = "".join(f", rank {rank}: step 3 of pass 1 with end='shortest'" for rank in range(1, num_replicas))
    for rank, (found, own) in enumerate(run_ranks(jobs.go_wrong, num_replicas, tmp_path)):

        def failed(what, told, rank=rank):
            others = f"the loader of another rank raised, so all ranks stop; rank 1: {what}: {told}"
            return (what, told) if rank == 1 else ("RuntimeError", others)

        assert found["at batch 2"] == (2, failed("KeyError", "'no such sample'"))
        assert found["at once"] == (0, failed("KeyError", "'no such sample'"))
        assert found["at iter()"] == (0, failed("OSError", "no such shard"))
        empty = 'end="longest" gives batches again where there is one on every rank; rank 1: no batch'
        assert found["no batch"] == (0, ("RuntimeError", empty))
        assert found["no batch, shortest"] == (0, None)
        told = f"ranks are not at the same step; rank 0: {where['shortest']}{others}"
        assert found["other ends"] == (0, ("RuntimeError", told))
        told = f"ranks are not at the same step; rank 0: step 0 of pass 2 with end='shortest'{steps}"
        assert found["other steps"] == ("RuntimeError", told)
        assert own == num_replicas


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("end", ["shortest", "longest"])
def test_a_state_is_of_what_was_given_and_not_of_what_was_fetched(end, num_workers, tmp_path):
    for stop in (1, 3):
        for whole, _, seen, rest, epoch in run_ranks(jobs.stopped_after, 2, tmp_path, end, stop, num_workers, 61):
            assert len(whole) > 4
            assert seen == whole[:stop]
            assert [batch for batch in rest if batch != rest[0]] == [b for b in whole[stop:] if b not in (rest[0], whole[0])]
            assert len(rest) == len(whole) - stop
            assert rest[0] == whole[stop]
            assert epoch == 3
