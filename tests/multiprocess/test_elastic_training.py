"""A job is killed with SIGKILL two dozen times, comes back, also at other world sizes, and sees every sample once."""

import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from elastic_training import POINTS
from launch import run_command
from small_training import IndexedDigits

from fastshard import orders

pytestmark = pytest.mark.multiprocess

SCRIPT = str(Path(__file__).parent / "elastic_training.py")
LENGTH, GLOBAL_BATCH, SAVE_EVERY = 163, 16, 3


def run_job(folder, launches, num_workers, context, epochs):
    """Runs `launches`, each a world size and how often it is killed, in turn; the last one to its end.

    Returns what each rank wrote: its lines, in their order.
    """
    rng = random.Random(f"{launches} {num_workers} {context}")
    digits = IndexedDigits(LENGTH, torch.float64)
    torch.save((digits.images, digits.labels), folder / "digits.pt")
    schedule = {
        f"{launch}.{restart}": [rng.randrange(world), rng.randint(1, 2 * SAVE_EVERY), rng.choice(POINTS)]
        for launch, (world, kills) in enumerate(launches)
        for restart in range(kills)
    }
    for rank_step_point in schedule.values():
        if rank_step_point[2] == "in the save":  # which rank 0 makes, in each third step
            rank_step_point[:2] = 0, SAVE_EVERY
    plan = {
        "length": LENGTH,
        "global_batch": GLOBAL_BATCH,
        "save_every": SAVE_EVERY,
        "epochs": epochs,
        "kills": schedule,
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    for launch, (world, kills) in enumerate(launches):
        last = launch == len(launches) - 1
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
        command += ["--max-restarts", str(kills if last else kills - 1), "--monitor-interval", "0.1", SCRIPT]
        command += [str(folder), str(launch), str(num_workers), context]
        # Without it torch 2.13 gives all restarts one store, in which gloo finds the addresses of those that are dead.
        ran = run_command(command, timeout_s=250, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        assert (ran.returncode == 0) == last, ran.stdout + ran.stderr
    ranks = [folder / f"rank{rank}.jsonl" for rank in range(max(launches)[0])]
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in ranks]


def runs_of(lines):
    """A rank's lines by the process that wrote them: between one beginning and the next."""
    runs = {}
    for line in lines:
        runs.setdefault(line["run"], []).append(line)
    return runs


def starts_of(ranks):
    """The place at which each run began, by its name, in the order of the runs; the same on every rank."""
    starts = {}
    for lines in ranks:
        for line in lines:
            if "begin" in line:
                assert starts.setdefault(line["run"], line["begin"]) == line["begin"]
    return dict(sorted(starts.items(), key=lambda item: [int(part) for part in item[0].split(".")]))


def check_history(ranks, epochs):
    """Holds what was written down against what must have happened; returns how many steps were made more than once."""
    starts = starts_of(ranks)
    names = list(starts)
    ends = {name: starts[after] for name, after in itertools.pairwise(names)} | {names[-1]: [epochs, 0]}
    saved = [line["saved"] for line in ranks[0] if "saved" in line]
    assert all(place in [[0, 0], *saved] for place in starts.values()), "a run begins where a checkpoint was written"

    kept = {epoch: Counter() for epoch in range(epochs)}  # draws of steps that a checkpoint holds
    places = {epoch: set() for epoch in range(epochs)}
    made, lost = {}, set()
    for rank, lines in enumerate(ranks):
        for name, run in runs_of(lines).items():
            before = starts[name]
            for line in run:
                if "ids" not in line:
                    continue
                epoch, consumed, replicas = line["epoch"], line["consumed"], line["replicas"]
                first = before[1] if before[0] == epoch else 0
                order = orders.Shuffled(LENGTH, 7).indices(epoch).tolist()
                each = GLOBAL_BATCH // replicas
                assert (
                    line["ids"]
                    == (order[first:] + order)[rank::replicas][: min(each, -(-(LENGTH - first) // replicas))]
                )
                before = [epoch, consumed]
                made.setdefault((epoch, consumed), set()).add(name)
                if [epoch, consumed] <= ends[name]:
                    kept[epoch].update(line["ids"])
                    places[epoch].add(consumed)
                else:
                    lost.add((epoch, consumed))
    for epoch in range(epochs):
        order = orders.Shuffled(LENGTH, 7).indices(epoch).tolist()
        padding = kept[epoch].total() - LENGTH
        assert 0 <= padding < max(line["replicas"] for line in ranks[0])
        assert kept[epoch] == Counter(order) + Counter(order[:padding]), f"epoch {epoch}: every sample once"
        assert sorted(places[epoch]) == [*range(GLOBAL_BATCH, LENGTH, GLOBAL_BATCH), LENGTH], "the global batches"
    repeated = {place for place, runs in made.items() if len(runs) > 1}
    assert repeated == lost, "what was repeated is what no checkpoint held"
    return len(repeated)


@pytest.mark.parametrize(
    ("launches", "num_workers", "context", "epochs"),
    [
        ([(2, 12), (4, 3), (2, 6)], 0, "none", 5),
        ([(2, 2), (4, 2)], 2, "fork", 2),
        ([(2, 2)], 2, "spawn", 1),
    ],
    ids=["no workers", "forked workers", "spawned workers"],
)
def test_a_job_that_is_killed_again_and_again_trains_on_every_sample_once_an_epoch(
    tmp_path, launches, num_workers, context, epochs
):
    ranks = run_job(tmp_path, launches, num_workers, context, epochs)
    assert sum("kill" in line for lines in ranks for line in lines) == sum(kills for _, kills in launches)
    check_history(ranks, epochs)
    reports = {line["verified"]: line["report"] for line in ranks[0] if "verified" in line}
    padding = {0: "0 padded draws", 1: "1 padded draw"}
    assert sorted(reports) == list(range(epochs))
    for report in reports.values():
        assert report in {f"every one of the {LENGTH} samples exactly once, {text}" for text in padding.values()}
    ended = [line["end"] for lines in ranks for line in lines if "end" in line]
    assert len(ended) == launches[-1][0]
    assert len(set(ended)) == 1
