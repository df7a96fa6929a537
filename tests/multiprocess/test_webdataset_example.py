"""examples/webdataset_ddp.py as a user starts it, stopped on two ranks and gone on with in one process."""

import re
import sys
from pathlib import Path

import pytest
from launch import run_command

pytestmark = pytest.mark.multiprocess

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "webdataset_ddp.py")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def run_example(*arguments):
    """Returns the lines that it printed."""
    ran = run_command([sys.executable, *arguments])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "warn" not in ran.stderr.lower(), ran.stderr
    return ran.stdout.splitlines()


def test_a_job_that_reads_shards_goes_on_in_one_process_and_every_epoch_is_every_sample_once(tmp_path):
    folder = ["--folder", str(tmp_path)]
    # 45 steps an epoch: saved after step 15 of epoch 1, and stopped four steps later.
    stopped = ["--num-workers", "1", "--stop-after-steps", "64"]
    assert run_example(*TORCHRUN, "2", EXAMPLE, *stopped, *folder) == [
        "epoch 0: every one of the 1,437 samples exactly once, 1 padded draw"
    ]
    *lines, accuracy = run_example(EXAMPLE, *folder)
    assert lines == [
        "goes on in epoch 1 after 480 samples",
        "epoch 1: every one of the 1,437 samples exactly once, 0 padded draws",
        "epoch 2: every one of the 1,437 samples exactly once, 0 padded draws",
    ]
    right = re.fullmatch(r"test accuracy: (\d+)/360 = \d+\.\d\d%", accuracy)
    assert right
    assert int(right[1]) > 0.9 * 360
    assert len(list(tmp_path.glob("digits-*.tar"))) == 15
