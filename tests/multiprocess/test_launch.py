"""The launcher itself: what keeps the other tests of this folder from hanging in silence."""

import sys
import threading

import pytest
import torch.distributed as dist
from launch import run_command, run_ranks

pytestmark = pytest.mark.multiprocess


def rank_of_world(offset):
    return offset + dist.get_rank(), dist.get_world_size()


def wait_for_nobody():
    threading.Event().wait()  # not in a barrier, which raises as soon as another rank's time-out has ended it


def raise_on_rank_1():
    if dist.get_rank() == 1:
        raise KeyError("rank 1 gave up")
    dist.barrier()


def test_results_come_back_by_rank(tmp_path):
    assert run_ranks(rank_of_world, 2, tmp_path, 10) == [(10, 2), (11, 2)]


def test_a_hang_ends_at_the_time_out_and_shows_where_every_rank_stood(tmp_path):
    with pytest.raises(AssertionError, match=r"(?s)rank 0 wrote.*wait_for_nobody.*rank 1 wrote.*wait_for_nobody"):
        run_ranks(wait_for_nobody, 2, tmp_path, timeout_s=4)


def test_an_error_on_one_rank_ends_all_and_is_shown(tmp_path):
    with pytest.raises(AssertionError, match="rank 1 gave up"):
        run_ranks(raise_on_rank_1, 2, tmp_path)


def test_a_command_that_hangs_shows_where_it_stood():
    with pytest.raises(AssertionError, match=r'(?s)did not end.*said before.*File "<string>", line 1'):
        run_command(
            [sys.executable, "-c", "print('said before', flush=True); input_ = __import__('threading').Event().wait()"],
            timeout_s=2,
        )
