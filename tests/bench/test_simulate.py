"""The simulation: it runs to its end, and a job that goes wrong does not."""

from dataclasses import replace

import pytest

from bench import simulate
from fastshard import LedgerError

SAMPLES = 20_000


def stretches(stops=8):
    return list(simulate.plan(SAMPLES, 64, stops))


def test_stretches_follow_each_other_from_the_first_sample_to_the_last():
    plan = stretches()
    assert [stretch.stop(SAMPLES) for stretch in plan] == [*(stretch.start for stretch in plan[1:]), SAMPLES]
    assert plan[0].num_replicas == 64
    assert len({(stretch.num_replicas, stretch.batch_size) for stretch in plan}) == len(plan) == 9


def test_both_jobs_come_to_their_end_and_print_what_they_came_to(capsys):
    arguments = ["--samples", "20000", "--probed-samples", "100000", "--positions", "500", "--ranks", "64"]
    assert simulate.main([*arguments, "--stops", "8"]) == 0
    printed = capsys.readouterr().out
    assert "every one of the 20,000 samples exactly once" in printed
    assert "positions: each drawn by one rank, once" in printed
    assert "resume to the first batch" in printed


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_job_that_goes_on_one_position_off_is_found_out(shift):
    wrong = [*stretches()]
    wrong[4] = replace(wrong[4], start=wrong[4].start + shift)
    with pytest.raises((LedgerError, RuntimeError)):
        simulate.play(SAMPLES, wrong, simulate.Costs())
    with pytest.raises(RuntimeError):
        simulate.probe(SAMPLES, wrong, 500, simulate.Costs())


def test_a_stretch_that_is_left_out_is_found_out_by_the_ledger():
    wrong = stretches()
    left_out = wrong.pop(3)
    with pytest.raises(LedgerError, match=rf"{left_out.stop(SAMPLES) - left_out.start:,} draws too few"):
        simulate.play(SAMPLES, wrong, simulate.Costs())
