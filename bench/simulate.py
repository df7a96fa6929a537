"""Plays a job of a billion samples on thousands of ranks through stops and resizes: `python -m bench.simulate`.

Every id that any rank draws goes through a ledger, so that the account at the epoch's end covers all of them; of a few
ranks in each stretch the whole way is gone, as a real process would: a sampler is built, the state is loaded from JSON,
and it must draw the same ids and give the same state. Of a job too large for that, the ids at random positions, and all
around each stop, are asked for on every side. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from tqdm import tqdm

import fastshard
from bench import machine
from fastshard import orders
from fastshard.ledger import RangeExpected
from fastshard.slicing import Slice

SEED = 5
CHUNK = 1 << 20
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
WALKED = 3  # ranks of a stretch whose whole way is gone


@dataclass(frozen=True)
class Stretch:
    """What a job does between two stops.

    Args:
        start: position at which it begins.
        num_replicas: ranks.
        batch_size: samples per batch on each rank.
        steps: steps until the stop; None goes on to the epoch's end.
    """

    start: int
    num_replicas: int
    batch_size: int
    steps: int | None

    def share(self, samples: int, rank: int) -> Slice:
        """What a rank would draw if there were no stop."""
        return Slice(samples, rank, self.num_replicas, start=self.start)

    def draws(self, share: Slice) -> int:
        """How many of these it draws."""
        return share.num_samples if self.steps is None else min(share.num_samples, self.steps * self.batch_size)

    def stop(self, samples: int) -> int:
        """Position at which it ends."""
        if self.steps is None:
            return samples
        return min(samples, self.start + self.steps * self.batch_size * self.num_replicas)


@dataclass
class Costs:
    """What one rank of the real thing takes, in seconds or bytes, as it was measured on the way."""

    resume: list[float] = field(default_factory=list)
    save: list[float] = field(default_factory=list)
    state: list[int] = field(default_factory=list)


def plan(samples: int, most_ranks: int, stops: int) -> Iterator[Stretch]:
    """An epoch in `stops` + 1 stretches, of random world sizes, batch sizes and lengths; in fewer if steps are long."""
    rng = random.Random(SEED)
    cuts = sorted(rng.sample(range(1, samples), stops))
    start = 0
    for cut in [*cuts, None]:
        # All of them first, then as often a few as many.
        num_replicas = (
            most_ranks if not start else rng.choice([round(most_ranks ** rng.random()), rng.randint(1, most_ranks)])
        )
        batch_size = rng.choice(BATCH_SIZES)
        steps = None if cut is None else max(1, (cut - start) // (num_replicas * batch_size))
        stretch = Stretch(start, num_replicas, batch_size, steps)
        yield stretch
        start = stretch.stop(samples)
        if start >= samples:
            return


def sampler_at(samples: int, stretch: Stretch, rank: int, costs: Costs) -> fastshard.DistributedSampler[int]:
    """A rank's sampler as a process that starts there would have it, its state read from JSON."""
    saved = json.dumps(_state(samples, stretch.start))
    begin = time.perf_counter()
    sampler = fastshard.DistributedSampler(range(samples), stretch.num_replicas, rank, seed=SEED)
    sampler.load_state_dict(json.loads(saved))
    sampler.indices(0, min(stretch.batch_size, len(sampler)))
    costs.resume.append(time.perf_counter() - begin)
    return sampler


def _state(samples: int, consumed: int) -> dict[str, Any]:
    sampler = fastshard.DistributedSampler(range(samples), 1, 0, seed=SEED)
    return {**sampler.state_dict(), "consumed": consumed}


def play(samples: int, stretches: list[Stretch], costs: Costs) -> fastshard.LedgerReport:
    """Draws every id of an epoch on every rank, and returns what the ledger says of them.

    Raises:
        LedgerError: an id is missing or double.
        RuntimeError: a rank that went the whole way drew something else.
    """
    order = orders.Shuffled(samples, SEED)
    ledger = fastshard.Ledger()
    expected = RangeExpected(samples)
    ledger.begin(expected)
    rng = random.Random(SEED)
    for stretch in tqdm(stretches, desc=f"{samples:,} samples", disable=None, leave=False):
        walked = rng.sample(range(stretch.num_replicas), min(WALKED, stretch.num_replicas))
        for rank in range(stretch.num_replicas):
            share = stretch.share(samples, rank)
            draws = stretch.draws(share)
            for at in range(0, draws, CHUNK):
                ids = share.indices(order, 0, at, min(at + CHUNK, draws))
                padding = max(0, at + len(ids) - (share.num_samples - share.num_padding))
                ledger.record(ids, padding)
            if rank in walked:
                _walk(samples, stretch, rank, draws, costs)
    expected.consumed = samples
    return ledger.verify()


def _walk(samples: int, stretch: Stretch, rank: int, draws: int, costs: Costs) -> None:
    """Goes a rank's whole way, and compares: its first and last draws, and the state it would leave."""
    sampler = sampler_at(samples, stretch, rank, costs)
    share = stretch.share(samples, rank)
    order = orders.Shuffled(samples, SEED)
    for first, stop in ((0, min(draws, 1000)), (max(0, draws - 1000), draws)):
        if not np.array_equal(sampler.indices(first, stop), share.indices(order, 0, first, stop)):
            raise RuntimeError(f"rank {rank} of {stretch} draws other ids after a resume")
    steps = -(-draws // stretch.batch_size)
    begin = time.perf_counter()
    state = json.dumps(sampler.state_at(steps, stretch.batch_size))
    costs.save.append(time.perf_counter() - begin)
    costs.state.append(len(state))
    if json.loads(state)["consumed"] != stretch.stop(samples):
        raise RuntimeError(f"rank {rank} of {stretch} leaves another place: {state}")


def probe(samples: int, stretches: list[Stretch], positions: int, costs: Costs) -> int:
    """Asks, of random positions and all around each stop, who draws them; returns how many were asked.

    Raises:
        RuntimeError: nobody draws one, or more than one rank, or another id.
    """
    rng = np.random.default_rng(SEED)
    order = orders.Shuffled(samples, SEED)
    around = [np.arange(max(0, s.start - 500), min(samples, s.start + 500)) for s in stretches]
    asked = np.unique(np.concatenate([rng.integers(0, samples, positions), *around]))
    ids = order.take(0, asked)
    found = np.zeros(len(asked), np.int64)
    for stretch in tqdm(stretches, desc=f"{samples:,} samples", disable=None, leave=False):
        inside = np.flatnonzero((asked >= stretch.start) & (asked < stretch.stop(samples)))
        offsets = asked[inside] - stretch.start
        ranks, draws = offsets % stretch.num_replicas, offsets // stretch.num_replicas
        for rank in np.unique(ranks):
            share = stretch.share(samples, int(rank))
            mine = ranks == rank
            first, _, step = share.positions
            drawn = order.take(0, first + draws[mine] * step)
            if not np.array_equal(drawn, ids[inside[mine]]) or draws[mine].max() >= stretch.draws(share):
                raise RuntimeError(f"rank {rank} of {stretch} does not draw what is at its positions")
        found[inside] += 1
        _walk(samples, stretch, 0, stretch.draws(stretch.share(samples, 0)), costs)
    if not np.array_equal(found, np.ones(len(asked), np.int64)):
        raise RuntimeError(f"{np.count_nonzero(found != 1)} of {len(asked)} positions are drawn by none, or by several")
    return len(asked)


def step_seconds(samples: int, num_replicas: int, batch_size: int) -> tuple[float, float]:
    """What a rank takes for its ids in one step, and what for the ledger's account of them, in a loop of batches."""
    drawing, recording = [], []
    for _ in range(5):
        batches = fastshard.DistributedBatchSampler(range(samples), batch_size, num_replicas, 1, seed=SEED)
        steps = min(len(batches), 1000)
        begin = time.perf_counter()
        drawn = list(itertools.islice(batches, steps))
        drawing.append((time.perf_counter() - begin) / steps)
        ledger = fastshard.Ledger()
        ledger.begin(RangeExpected(samples))
        begin = time.perf_counter()
        for batch in drawn:
            ledger.record(batch)
        recording.append((time.perf_counter() - begin) / steps)
    return median(drawing), median(recording)


def main(arguments: list[str] | None = None) -> int:
    """Plays both jobs and prints what they came to; returns the exit status."""
    parser = argparse.ArgumentParser("python -m bench.simulate", description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=10**9, help="of the job that is played whole")
    parser.add_argument("--probed-samples", type=int, default=10**12, help="of the job that is asked at positions")
    parser.add_argument("--positions", type=int, default=10**6, help="how many positions are asked")
    parser.add_argument("--ranks", type=int, default=16_384, help="at most")
    parser.add_argument("--stops", type=int, default=50, help="stops, each with another world and batch size")
    given = parser.parse_args(arguments)
    for name, value in machine.describe().items():
        print(f"{name}: {value}")
    for samples, whole in ((given.samples, True), (given.probed_samples, False)):
        costs = Costs()
        stretches = list(plan(samples, given.ranks, given.stops))
        ranks = sorted(stretch.num_replicas for stretch in stretches)
        print(f"\n{samples:,} samples, {len(stretches) - 1} stops, {ranks[0]:,} to {ranks[-1]:,} ranks", flush=True)
        begin = time.perf_counter()
        if whole:
            print(play(samples, stretches, costs))
        else:
            print(f"{probe(samples, stretches, given.positions, costs):,} positions: each drawn by one rank, once")
        drawing, recording = step_seconds(samples, ranks[-1], 32)
        print(
            f"took {time.perf_counter() - begin:.1f} s on one core\n"
            f"of one rank: resume to the first batch {1e6 * median(costs.resume):.0f} us, "
            f"save {1e6 * median(costs.save):.0f} us and {max(costs.state)} bytes, "
            f"step of 32: ids {1e6 * drawing:.2f} us, ledger {1e6 * recording:.2f} us"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
