"""examples/digits_ddp.py as a user starts it, read off its output."""

import re
import sys
from pathlib import Path

import pytest
from launch import run_command

pytestmark = pytest.mark.multiprocess

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "digits_ddp.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def run_example(*command):
    """Returns what it printed: the lines of stdout, the rows of its table, and right / total of its accuracy."""
    ran = run_command(command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "warn" not in ran.stderr.lower(), ran.stderr
    lines = ran.stdout.splitlines()
    rows = [[int(cell.replace(",", "")) for cell in line.split()] for line in lines if re.match(r"^ *\d+  ", line)]
    accuracy = re.search(r"^test accuracy: (\d+)/(\d+) = (\d+\.\d\d)%$", ran.stdout, re.MULTILINE)
    assert accuracy, ran.stdout
    right, total = int(accuracy[1]), int(accuracy[2])
    assert accuracy[3] == f"{100 * right / total:.2f}"
    return lines, rows, right, total, ran.stderr


def test_two_processes_learn_the_digits_and_show_that_each_epoch_was_every_sample_once():
    lines, rows, right, total, progress = run_example(*TORCHRUN, "--nproc-per-node", "2", EXAMPLE)
    losses = [float(loss) for line in lines for loss in re.findall(r"^epoch \d: loss (\d+\.\d+)$", line)]
    assert len(losses) == 3
    assert losses[0] > losses[1] > losses[2] > 0
    verified = [line for line in lines if line.endswith("exactly once, 1 padded draw")]
    assert verified == [
        f"epoch {epoch}: every one of the 1,437 samples exactly once, 1 padded draw" for epoch in range(3)
    ]
    assert total == 360
    assert right > 0.9 * total
    #               epoch, draws, distinct, padded, missing, seen by two ranks, orders repeated
    assert rows == [[epoch, 1438, 1437, 1, 0, 0, 0] for epoch in range(3)]
    assert lines[-1] == (
        "every one of the 1,437 samples exactly once, 1 padded draw, in each of 3 epochs; no order repeated"
    )
    for epoch in range(3):  # a bar shows its end once or twice, by the clock, and its start always once
        starts = re.findall(rf"epoch {epoch}: +0%\S* +\| 0/45 ", progress)
        assert len(starts) == 1, f"rank 0 alone has a progress bar: {progress}"


def test_one_process_without_torchrun_runs_it_too():
    lines, rows, _, total, _ = run_example(sys.executable, EXAMPLE, "--epochs", "1")
    assert rows == [[0, 1437, 1437, 0, 0, 0, 0]]
    assert "epoch 0: every one of the 1,437 samples exactly once, 0 padded draws" in lines
    assert total == 360
    assert lines[-1] == "every one of the 1,437 samples exactly once, 0 padded draws"
