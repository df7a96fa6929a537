"""Starts real process groups for tests, and ends them: no test hangs, and a failure shows what every process said.

pytest puts this folder on sys.path (its tests have no __init__.py), so a test says `from launch import run_ranks`.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import signal
import subprocess
import tempfile
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# A rank shows its stacks and ends itself after the time-out. Only a rank that can't do even that waits for the parent.
GRACE_S = 15

# Ranks are forked from a server that has imported these, because their import takes 15 s of a core for each process.
# The server has no state but its imports, and no threads.
multiprocessing.set_forkserver_preload(
    ["torch._dynamo", "torch.nn.parallel", "sklearn.datasets", "webdataset", "PIL.PngImagePlugin", "fastshard"]
)


def run_ranks(job, world_size, folder, *args, timeout_s=60):
    """Runs `job(*args)` in `world_size` processes that form a gloo process group; returns their results by rank.

    Args:
        job: a function of a test module (its name travels, so no lambda); what it returns must be picklable.
        world_size: number of processes.
        folder: where the processes may leave files, such as tmp_path.
        timeout_s: seconds from a process's start to its end.

    Raises:
        AssertionError: a rank raised, died, or was not done in time; the message has what all of them wrote.
    """
    folder = Path(tempfile.mkdtemp(dir=folder))
    arguments = (job, world_size, folder, args, timeout_s)
    ranks = mp.start_processes(_run_rank, arguments, nprocs=world_size, join=False, start_method="forkserver")
    deadline = time.monotonic() + timeout_s + GRACE_S
    try:
        while not ranks.join(timeout=max(0, deadline - time.monotonic()), grace_period=GRACE_S):
            assert time.monotonic() < deadline, f"no end after {timeout_s + GRACE_S} s"
    except Exception as error:
        written = [f"--- rank {rank} wrote:\n{_output(folder, rank).read_text()}" for rank in range(world_size)]
        raise AssertionError("\n".join([str(error), *written])) from None
    finally:  # also when pytest itself is interrupted or out of time
        for process in ranks.processes:
            if process.exitcode != 0:
                _kill_group(process.pid)
    return [pickle.loads(_result(folder, rank).read_bytes()) for rank in range(world_size)]


def run_command(command, timeout_s=120, **variables):
    """Runs a command that may start processes of its own; returns it completed, with `stdout` and `stderr` as text.

    Args:
        command: the program and its arguments.
        timeout_s: seconds until it must have ended.
        variables: of its environment, beside this process's own.

    Raises:
        AssertionError: it was not done in time; the message has its output and the stacks of its processes.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **variables}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)  # which faulthandler answers with the stacks
        stdout, stderr = process.communicate(timeout=GRACE_S)
        raise AssertionError(f"{command} did not end in {timeout_s} s:\n{stdout}\n{stderr}") from None
    finally:
        if process.returncode is None:
            _kill_group(process.pid)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _run_rank(rank, job, world_size, folder, args, timeout_s):
    os.setsid()  # so that the parent can end this process together with its DataLoader workers
    output = _output(folder, rank).open("w")
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    faulthandler.dump_traceback_later(timeout_s, exit=True, file=output)
    warnings.simplefilter("error")  # as in pytest's own process
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)  # torch counts the cores
    # What Python 3.12 and newer think of DataLoader's workers, which are forked while gloo's threads run.
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(folder / "store"), world_size),  # a file, because a free port may be taken meanwhile
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s + GRACE_S),  # longer, so that a hang shows its stack first
    )
    # A rank that is done at once would end, and break the connection that a slower one is still making to it.
    dist.barrier()
    try:
        _result(folder, rank).write_bytes(pickle.dumps(job(*args)))
    except Exception:
        traceback.print_exc()  # start_processes shows that of one rank, and it may be the wrong one
        raise
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def _output(folder, rank):
    return folder / f"rank{rank}.txt"


def _result(folder, rank):
    return folder / f"rank{rank}.pickle"


def _kill_group(leader):
    with contextlib.suppress(ProcessLookupError):  # all of it has ended
        os.killpg(leader, signal.SIGKILL)
