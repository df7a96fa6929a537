"""How fast do ids reach a Python loop? A whole pass with an empty body; about two minutes and 0.5 GB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import BatchSampler

import fastshard
from bench import peers
from bench.runner import Cell, Group, Plan, Question
from bench.timing import items_per_second

SAMPLES = 8_000_000
QUICK_SAMPLES = 400_000
BATCH_SIZE = 256

# Lists alone: what a DataLoader asks for, against the lists of an array that is there already.
LIST_SAMPLES = (1_000_000, 100_000_000)
LIST_SIZES = (1, 8, 32, 256, 1024)
LIST_IDS = 20 * 16_384  # at most in one measurement: short, so that what disturbs one peer disturbs the next one too


def plan(quick: bool) -> Plan:
    """Ids one at a time, ids in batches, and lists alone."""
    samples = QUICK_SAMPLES if quick else SAMPLES
    notes = [
        f"A pass of rank {peers.RANK} of {peers.NUM_REPLICAS}: {samples // peers.NUM_REPLICAS:,} ids of {samples:,}.",
        "A pass includes building, the construction of the sampler and all it does before its first id, "
        "where the table doesn't say otherwise.",
        *peers.notes(),
    ]
    lists = [_lists(samples, size) for samples in LIST_SAMPLES[: 1 if quick else None] for size in LIST_SIZES]
    return Plan([_one_at_a_time(samples), _batches(samples), *lists], notes)


def _one_at_a_time(samples: int) -> Group:
    ids = samples // peers.NUM_REPLICAS
    baseline = "for i in range(n)"
    rows: dict[str, Callable[[], float]] = {baseline: items_per_second(ids, drain, lambda: range(ids))}
    for name, peer in peers.installed().items():
        rows[peer.label] = _passes(ids, partial(peer.build, samples))
        if name == "torch":
            rows["torch, its list already built"] = items_per_second(ids, drain, partial(_torch_list, samples))
        if name == "fastshard-torch":
            ready = partial(_ready, peer, samples)
            rows[f"{peer.label}, its order already computed"] = items_per_second(ids, pass_over, ready)
    return _group("one at a time", samples, rows, baseline)


def _batches(samples: int) -> Group:
    ids = samples // peers.NUM_REPLICAS
    baseline = "torch BatchSampler over its DistributedSampler"
    shuffled = peers.PEERS["fastshard-shuffled"]
    rows = {
        baseline: _passes(ids, partial(_torch_batches, peers.PEERS["torch"], samples)),
        "torch BatchSampler, its list already built": items_per_second(ids, drain, partial(_listed_batches, samples)),
        f"torch BatchSampler over {shuffled.label}": _passes(ids, partial(_torch_batches, shuffled, samples)),
        "fastshard DistributedBatchSampler": _passes(ids, partial(_batch_sampler, samples)),
        "fastshard DistributedBatchSampler, as_array": _passes(ids, partial(_batch_sampler, samples, as_array=True)),
        'fastshard DistributedBatchSampler, order="torch"': _passes(
            ids, partial(_batch_sampler, samples, order="torch")
        ),
    }
    return _group(f"batches of {BATCH_SIZE}", samples, rows, baseline)


def _lists(samples: int, size: int) -> Group:
    ids = min(LIST_IDS, samples // peers.NUM_REPLICAS) // size * size
    baseline = "array[i : i + b].tolist()"
    build = partial(_batch_sampler, samples, size, on_repeated_epoch="ignore")
    rows: dict[str, Callable[[], float]] = {
        baseline: items_per_second(ids, partial(_slices, size), partial(_random_ids, ids, samples)),
        "next(iter of DistributedBatchSampler)": items_per_second(ids, partial(_nexts, ids // size), build),
    }
    return _group(f"lists of {size}, N = {peers.power(samples)}", samples, rows, baseline)


def _random_ids(ids: int, samples: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, samples, ids)


def _slices(size: int, array: npt.NDArray[np.int64]) -> None:
    for start in range(0, len(array), size):
        _batch = array[start : start + size].tolist()


def _nexts(count: int, batches: Iterable[object]) -> None:
    for _batch in islice(iter(batches), count):
        pass


def drain(items: Iterable[object]) -> None:
    """Goes through everything, doing nothing."""
    for _ in items:
        pass


def pass_over(sampler: peers.EpochSampler) -> None:
    """Goes through one epoch of a sampler."""
    sampler.set_epoch(peers.EPOCH)
    drain(sampler)


def _passes(ids: int, build: Callable[[], peers.EpochSampler]) -> Callable[[], float]:
    """A measurement of passes that each build their sampler."""
    return items_per_second(ids, lambda build: pass_over(build()), lambda: build)


def _group(case: str, samples: int, rows: dict[str, Callable[[], float]], baseline: str) -> Group:
    return Group(case, samples, [Cell(label, measure) for label, measure in rows.items()], baseline)


def _ready(peer: peers.Peer, samples: int) -> peers.EpochSampler:
    return peers.started(peer, samples)[0]


def _torch_list(samples: int) -> list[int]:
    return list(peers.PEERS["torch"].build(samples))


def _listed_batches(samples: int) -> Iterable[object]:
    return BatchSampler(_torch_list(samples), BATCH_SIZE, drop_last=False)


class _TorchBatches(BatchSampler):
    """What a DataLoader makes of `sampler=` and `batch_size=`; the epoch is the sampler's."""

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)  # type: ignore[union-attr]


def _torch_batches(peer: peers.Peer, samples: int) -> Any:
    return _TorchBatches(peer.build(samples), BATCH_SIZE, drop_last=False)


def _batch_sampler(samples: int, size: int = BATCH_SIZE, **options: Any) -> Any:
    return fastshard.DistributedBatchSampler(range(samples), size, peers.NUM_REPLICAS, peers.RANK, **options)


QUESTION = Question(
    name="iterate",
    asks="How many ids a second reach a Python loop over a whole pass?",
    unit="ids/s",
    better="more",
    plan=plan,
    repeats=15,  # a pass takes tens of milliseconds, which one interruption doubles
)
