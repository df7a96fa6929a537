"""Lockstep in real process groups: unlike numbers of batches, the same number of steps, and nobody waits for ever."""

import lockstep_jobs as jobs
import pytest
from launch import run_ranks

from fastshard import DistributedSampler

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_all_ranks_make_as_many_steps_as_the_one_with_fewest_or_with_most_batches(num_replicas, tmp_path):
    counts = jobs.COUNTS[:num_replicas]
    for rank, (found, groups) in enumerate(run_ranks(jobs.to_both_ends, num_replicas, tmp_path)):
        assert groups == 2  # the default one, and one of lockstep's for all its loops
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


def test_ddp_trains_in_lockstep_and_evaluates_within(tmp_path):
    ranks = run_ranks(jobs.train, 3, tmp_path)
    assert ranks[0] == ranks[1] == ranks[2]
    assert ranks[0][0] == [(3, 9), (5, 25)]


def test_only_the_ranks_of_a_group_step_together(tmp_path):
    steps = run_ranks(jobs.in_groups, 3, tmp_path)
    assert [len(batches) for batches in steps] == [3, 3, 4]


@pytest.mark.parametrize(("num_replicas", "num_workers"), [(2, 0), (2, 2), (3, 0), (3, 2)])
def test_the_modes_hold_after_a_filter_before_the_split_and_lockstep_evens_one_behind_it(
    num_replicas, num_workers, tmp_path
):
    ranks = run_ranks(jobs.filtered, num_replicas, tmp_path, num_workers)
    kept = [number for number in range(61) if jobs.is_kept(number)]
    n = len(kept)
    assert n % 2 > 0
    assert n % 3 > 0
    for uneven in ("pad", "drop", "keep"):
        total = {"pad": n + -n % num_replicas, "drop": n - n % num_replicas, "keep": n}[uneven]
        for rank, found in enumerate(ranks):
            due = [kept[position % n] for position in range(rank, total, num_replicas)]
            assert found[uneven] == [due[at : at + 3] for at in range(0, len(due), 3)]

    counts = [len(found["all"]) for found in ranks]
    assert min(counts) < max(counts)
    assert sorted(number for found in ranks for batch in found["all"] for number in batch) == kept
    for found in ranks:
        batches = [[1000 + number for number in batch] for batch in found["all"]]
        assert found["shortest"] == (batches[: min(counts)], 0)
        more = max(counts) - len(batches)
        assert found["longest"] == (batches + more * batches[:1], more)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_ranks_that_read_their_own_shards_of_a_hugging_face_dataset_make_as_many_steps(num_workers, tmp_path):
    for rank, (shortest, longest) in enumerate(run_ranks(jobs.shards_of_hugging_face, 2, tmp_path, num_workers)):
        ids = [row["id"] for row in jobs.rows_of(range(rank, 6, 2))]
        batches = [ids[at : at + 2] for at in range(0, len(ids), 2)]
        assert len(batches) == 8 + rank
        assert shortest == (batches[:8], rank, 0)
        assert longest == (batches + (1 - rank) * batches[:1], 0, 1 - rank)


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_what_goes_wrong_on_one_rank_ends_the_loop_on_all_and_names_it(num_replicas, tmp_path):
    where = {end: f"step 0 of pass 6 with end={end!r}" for end in ("shortest", "longest")}
    others = "".join(f", rank {rank}: {where['longest']}" for rank in range(1, num_replicas))
    steps = "".join(f", rank {rank}: step 3 of pass 7 with end='shortest'" for rank in range(1, num_replicas))
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
        told = f"ranks are not at the same step; rank 0: step 0 of pass 8 with end='shortest'{steps}"
        assert found["other steps"] == ("RuntimeError", told)
        assert own == num_replicas


@pytest.mark.parametrize(("end", "num_workers"), [("shortest", 0), ("longest", 0), ("longest", 2)])
def test_a_state_is_of_what_was_given_and_not_of_what_was_fetched(end, num_workers, tmp_path):
    stops = {"shortest": [1, 3, 4], "longest": [2, 6, 10]}[end]
    ranks = run_ranks(jobs.stopped_after, 2, tmp_path, stops, end, num_workers)
    assert [len(own) for own, _ in ranks] == [4, 10]
    for own, found in ranks:
        steps = stops[-1]
        for stop, (seen, rest, epoch) in zip(stops, found, strict=True):
            assert seen == (own + steps * own[:1])[:stop]
            if stop == steps:  # the epoch is over, and it goes on with the next
                assert (len(rest), epoch) == (steps, 4)
                assert rest[: len(own)] == [[1000 + number for number in batch] for batch in own[:steps]]
                continue
            left = own[stop:] or own[-1:]  # a rank that has run out begins with its last batch again
            assert rest == (left + steps * left[:1])[: steps - stop]
            assert epoch == 3


def test_a_ledger_counts_what_was_given_and_says_what_was_fetched_for_nobody(tmp_path):
    first = "every one of the 2 samples up to position 2 exactly once, 0 padded draws"
    second = "every one of the 4 samples up to position 4 exactly once, 0 padded draws"
    short, whole = (
        "4 of the 5 samples exactly once, 0 padded draws, 1 dropped",
        "every one of the 5 samples exactly once, 0 padded draws",
    )
    for rank, reports in enumerate(run_ranks(jobs.with_a_ledger, 2, tmp_path, "shortest")):
        assert reports == 2 * [first, short, (short, 1 - rank, 0)]
    for rank, reports in enumerate(run_ranks(jobs.with_a_ledger, 2, tmp_path, "longest")):
        assert reports == 2 * [first, second, whole, (whole, 0, rank)]


def test_the_state_of_a_loader_of_others_is_also_of_what_was_given(tmp_path):
    for rank, (batches, left) in enumerate(run_ranks(jobs.others_loaders, 2, tmp_path)):
        sampler = DistributedSampler(range(13), 2, rank, uneven="keep")
        sampler.set_epoch(2)
        ids = list(sampler)  # 7 on rank 0, and 6 on rank 1
        assert batches == [ids[at : at + 2] for at in (0, 2, 4)]
        assert left[:2] == [batches[1:], batches[2:]]
