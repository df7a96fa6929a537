"""A job is killed with SIGKILL two dozen times, comes back, also at other world sizes, and sees every sample once."""

import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from digit_shards import write_digit_shards
from elastic_training import POINTS
from launch import run_command
from small_training import IndexedDigits

from fastshard import orders
from fastshard.webdataset import TarIndex

pytestmark = pytest.mark.multiprocess

SCRIPT = str(Path(__file__).parent / "elastic_training.py")
LENGTH, GLOBAL_BATCH, SAVE_EVERY = 163, 16, 3


def kills_at_random(launches, context):
    """By run the rank that is killed, in which of its steps, and where in it."""
    rng = random.Random(f"{launches} {context}")
    schedule = {
        f"{launch}.{restart}": [rng.randrange(world), rng.randint(1, 2 * SAVE_EVERY), rng.choice(POINTS)]
        for launch, (world, kills, _) in enumerate(launches)
        for restart in range(kills)
    }
    for rank_step_point in schedule.values():
        if rank_step_point[2] == "in the save":  # which rank 0 makes, in each third step
            rank_step_point[:2] = 0, SAVE_EVERY
    return schedule


def run_job(folder, launches, schedule, context, epochs, source="sampler", shards=()):
    """Runs `launches`, each a world size, how often it is killed, and its workers, in turn; the last one to its end.

    Returns what each rank wrote: its lines, in their order.
    """
    digits = IndexedDigits(LENGTH, torch.float64)
    torch.save((digits.images, digits.labels), folder / "digits.pt")
    plan = {
        "length": LENGTH,
        "source": source,
        "shards": shards,
        "global_batch": GLOBAL_BATCH,
        "save_every": SAVE_EVERY,
        "epochs": epochs,
        "kills": schedule,
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    for launch, (world, kills, num_workers) in enumerate(launches):
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


def deal_by_stride(left, order, rank, replicas):
    """A rank's draws of what is left of an epoch, as a sampler's: every P-th, and the epoch's first ones as padding."""
    return (left + order)[rank::replicas][: -(-len(left) // replicas)]


def deal_in_runs(left, order, rank, replicas):  # noqa: ARG001
    """A rank's draws of what is left of an epoch, as a stream's: a run of it, and what follows as padding."""
    least, longer = divmod(len(left), replicas)
    start = rank * least + min(rank, longer)
    stop = start + least + (rank < longer)
    padding = [] if longer == 0 or rank < longer else [left[(stop if least else rank) % len(left)]]
    return left[start:stop] + padding


def check_history(ranks, epochs, order_of, deal):
    """Holds what was written down against what must have happened; returns how many steps were made more than once."""
    starts = starts_of(ranks)
    names = list(starts)
    ends = {name: starts[after] for name, after in itertools.pairwise(names)} | {names[-1]: [epochs, 0]}
    saved = [line["saved"] for line in ranks[0] if "saved" in line]
    assert all(place in [[0, 0], *saved] for place in starts.values()), "a run begins where a checkpoint was written"

    kept = {epoch: Counter() for epoch in range(epochs)}  # draws of steps that a checkpoint holds
    places = {epoch: set() for epoch in range(epochs)}
    made, lost = {}, set()
    for name in names:
        left = {epoch: [id_ for id_ in order_of(epoch) if id_ not in kept[epoch]] for epoch in range(epochs)}
        for rank, lines in enumerate(ranks):
            drawn = Counter()
            for line in runs_of(lines).get(name, ()):
                if "ids" not in line:
                    continue
                epoch, consumed, replicas = line["epoch"], line["consumed"], line["replicas"]
                mine = deal(left[epoch], order_of(epoch), rank, replicas)
                assert line["ids"] == mine[drawn[epoch] :][: GLOBAL_BATCH // replicas]
                drawn[epoch] += len(line["ids"])
                made.setdefault((epoch, consumed), set()).add(name)
                if [epoch, consumed] <= ends[name]:
                    kept[epoch].update(line["ids"])
                    places[epoch].add(consumed)
                else:
                    lost.add((epoch, consumed))
    for epoch in range(epochs):
        assert kept[epoch].keys() == set(range(LENGTH)), f"epoch {epoch}: every sample"
        padding = kept[epoch].total() - LENGTH  # these are the right ones, for each draw is one that was dealt
        assert 0 <= padding < max(line["replicas"] for line in ranks[0])
        assert sorted(places[epoch]) == [*range(GLOBAL_BATCH, LENGTH, GLOBAL_BATCH), LENGTH], "the global batches"
    repeated = {place for place, runs in made.items() if len(runs) > 1}
    assert repeated == lost, "what was repeated is what no checkpoint held"
    return len(repeated)


def check_job(ranks, launches, epochs, order, deal):
    """Holds a job's history, and how it ended, against what must have been."""
    assert sum("kill" in line for lines in ranks for line in lines) == sum(kills for _, kills, _ in launches)
    check_history(ranks, epochs, lambda epoch: order.indices(epoch).tolist(), deal)
    ended = [line["end"] for lines in ranks for line in lines if "end" in line]
    assert len(ended) == launches[-1][0]
    assert len(set(ended)) == 1


def check_reports(ranks, epochs):
    """Holds what the ledger said against what must have been."""
    reports = {line["verified"]: line["report"] for line in ranks[0] if "verified" in line}
    padding = {0: "0 padded draws", 1: "1 padded draw"}
    assert sorted(reports) == list(range(epochs))
    for report in reports.values():
        assert report in {f"every one of the {LENGTH} samples exactly once, {text}" for text in padding.values()}


@pytest.mark.parametrize(
    ("launches", "context", "epochs"),
    [
        ([(2, 12, 0), (4, 3, 0), (2, 6, 0)], "none", 5),
        ([(2, 2, 2), (4, 2, 2)], "fork", 2),
        ([(2, 2, 2)], "spawn", 1),
    ],
    ids=["no workers", "forked workers", "spawned workers"],
)
def test_a_job_that_is_killed_again_and_again_trains_on_every_sample_once_an_epoch(tmp_path, launches, context, epochs):
    ranks = run_job(tmp_path, launches, kills_at_random(launches, context), context, epochs)
    check_job(ranks, launches, epochs, orders.Shuffled(LENGTH, 7), deal_by_stride)
    check_reports(ranks, epochs)


@pytest.mark.parametrize("source", ["shards", "iterable"])
def test_a_job_that_reads_a_stream_is_killed_in_mid_epoch_and_goes_on_with_other_ranks_and_workers(tmp_path, source):
    shards = write_digit_shards(tmp_path / "shards", LENGTH, 7)
    launches = [(2, 1, 2), (4, 1, 0), (1, 2, 3), (2, 1, 1)]
    schedule = {
        "0.0": [1, 4, "before the step"],
        "1.0": [2, 5, "before the save"],
        "2.0": [0, 3, "in the save"],
        "2.1": [0, 4, "after the save"],
        "3.0": [1, 6, "before the step"],
    }
    ranks = run_job(tmp_path, launches, schedule, "fork", 2, source, shards)
    assert starts_of(ranks) == {
        "0.0": [0, 0], "1.0": [0, 48], "2.0": [0, 96], "2.1": [0, 96], "3.0": [0, 144], "3.1": [1, 16]
    }  # fmt: skip
    if source == "iterable":
        check_job(ranks, launches, 2, orders.Shuffled(LENGTH, 7), deal_by_stride)
        return
    order = orders.BlockShuffled(TarIndex.build(shards, progress=False).samples_per_shard, 7, 8)
    check_job(ranks, launches, 2, order, deal_in_runs)
    check_reports(ranks, 2)
