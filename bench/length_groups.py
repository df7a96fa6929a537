"""What do batches of about the same length save, and what do they cost? Two questions, a few minutes each.

`length_groups` counts tokens and needs no quiet machine; `length_groups_time` measures an epoch's batches on one rank.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler

import fastshard
from bench import peers
from bench.iterate import drain
from bench.runner import Cell, Group, Plan, Question
from bench.timing import seconds_per_call

SAMPLES = 100_000
QUICK_SAMPLES = 10_000
TIMED_SAMPLES = 1_000_000
SIZES = ((8, 1), (32, 1), (8, 8), (32, 8), (32, 64))  # batch size, ranks
MOST_RANKS = max(num_replicas for _, num_replicas in SIZES)
MOST_REBALANCED = 16  # beyond, an epoch of transformers' BatchRebalanceSampler on all ranks takes too long to wait for
LONGEST = 4096
TRANSFORMERS = "transformers.trainer_pt_utils"

Batches = Iterable[Sequence[int]]


@dataclass(frozen=True)
class Grouping:
    """A way to make batches.

    Args:
        label: as the tables name it.
        build: makes one rank's batches of an epoch, from lengths, batch size, ranks, rank and epoch.
        package: what must be installed for it, if that is not always there.
        ranks: how many it is measured for.
    """

    label: str
    build: Callable[[npt.NDArray[np.int64], int, int, int, int], Batches]
    package: str = ""
    ranks: range = range(1, MOST_RANKS + 1)


def _shuffled(lengths: npt.NDArray[np.int64], batch_size: int, num_replicas: int, rank: int, epoch: int) -> Batches:
    sampler = fastshard.DistributedBatchSampler(range(len(lengths)), batch_size, num_replicas, rank)
    sampler.set_epoch(epoch)
    return sampler


def _transformers(
    lengths: npt.NDArray[np.int64], batch_size: int, num_replicas: int, rank: int, epoch: int, whole: bool = False
) -> Batches:
    """Its samplers: told of the batch of a rank, as its Trainer told them, or of the whole global batch."""
    if num_replicas == 1:
        return _length_grouped(lengths, batch_size, epoch)
    sampler = importlib.import_module(TRANSFORMERS).DistributedLengthGroupedSampler(
        batch_size * (num_replicas if whole else 1),
        num_replicas=num_replicas,
        rank=rank,
        lengths=_as_list(len(lengths)),
    )
    sampler.set_epoch(epoch)
    return BatchSampler(sampler, batch_size, drop_last=False)


def _dealt(lengths: npt.NDArray[np.int64], batch_size: int, num_replicas: int, rank: int, epoch: int) -> Batches:
    """The batches of its sampler for one rank, dealt to all, as its Trainer has them dealt today."""
    return fastshard.ShardedBatchSampler(_length_grouped(lengths, batch_size, epoch), num_replicas, rank)


def _rebalanced(lengths: npt.NDArray[np.int64], batch_size: int, num_replicas: int, rank: int, epoch: int) -> Batches:
    """Its other way: any global batch, taken apart so that ranks have about the same to do."""
    sampler = importlib.import_module(TRANSFORMERS).BatchRebalanceSampler(
        _as_list(len(lengths)), batch_size * num_replicas, num_replicas, grad_accum=1, rank=rank, drop_last=False
    )
    sampler.set_epoch(epoch)
    return sampler


def _length_grouped(lengths: npt.NDArray[np.int64], batch_size: int, epoch: int) -> BatchSampler:
    sampler = importlib.import_module(TRANSFORMERS).LengthGroupedSampler(
        batch_size, lengths=_as_list(len(lengths)), generator=torch.Generator().manual_seed(epoch)
    )
    return BatchSampler(sampler, batch_size, drop_last=False)


def _ours(
    lengths: npt.NDArray[np.int64], batch_size: int, num_replicas: int, rank: int, epoch: int, **options: Any
) -> Batches:
    sampler = _built(len(lengths), batch_size, num_replicas, rank, **options)
    sampler.set_epoch(epoch)
    return sampler


GROUPINGS = (
    Grouping("shuffled, not grouped", _shuffled),
    Grouping("transformers", _transformers, "transformers"),
    Grouping(
        "transformers, batch_size=b*P", partial(_transformers, whole=True), "transformers", range(2, MOST_RANKS + 1)
    ),
    Grouping("transformers, batches dealt", _dealt, "transformers", range(2, MOST_RANKS + 1)),
    Grouping("transformers, batch rebalance", _rebalanced, "transformers", range(2, MOST_REBALANCED + 1)),
    Grouping("fastshard, spread=0.2", partial(_ours, spread=0.2)),
    Grouping("fastshard", _ours),
    Grouping("fastshard, min_steps=8", partial(_ours, min_steps=8)),
    Grouping("fastshard, max_tokens", partial(_ours, tokens=True)),
)
BASELINE = GROUPINGS[0].label
TIMED = (BASELINE, "transformers", "transformers, batch rebalance", "fastshard")


@functools.cache
def make_lengths(samples: int) -> npt.NDArray[np.int64]:
    """Lengths in tokens as those of texts: log-normal, with a median of 148 and a long tail."""
    return np.clip(np.random.default_rng(0).lognormal(5, 0.8, samples), 1, LONGEST).astype(np.int64)


@functools.cache
def _as_list(samples: int) -> list[int]:
    return make_lengths(samples).tolist()


@functools.lru_cache(maxsize=MOST_RANKS)
def _built(
    samples: int, batch_size: int, num_replicas: int, rank: int, tokens: bool = False, **options: Any
) -> fastshard.LengthBucketBatchSampler:
    lengths = make_lengths(samples)
    # As many tokens as a batch of batch_size has on average, if the longest sample fits into that.
    size = (None, max(LONGEST, int(batch_size * lengths.mean()))) if tokens else (batch_size, None)
    return fastshard.LengthBucketBatchSampler(lengths, *size, num_replicas, rank, **options)


def tokens(lengths: npt.NDArray[np.int64], ranks: Sequence[Batches]) -> tuple[int, int, int]:
    """Counts an epoch's tokens: those of the samples, those of padded batches, and those that are waited for.

    A step takes as long as its dearest batch, on every rank.
    """
    real = padded = waited = 0
    for batches in zip(*ranks, strict=False):
        costs = [len(batch) * int(lengths[batch].max()) for batch in batches]
        real += sum(int(lengths[batch].sum()) for batch in batches)
        padded += sum(costs)
        waited += max(costs) * len(ranks)
    return real, padded, waited


@functools.cache
def _counts(grouping: Grouping, samples: int, batch_size: int, num_replicas: int, epoch: int) -> tuple[int, int, int]:
    """The tokens of one epoch, which two cells ask for."""
    lengths = make_lengths(samples)
    ranks = [list(grouping.build(lengths, batch_size, num_replicas, rank, epoch)) for rank in range(num_replicas)]
    return tokens(lengths, ranks)


def plan(quick: bool) -> Plan:
    """Every way at several batch sizes and numbers of ranks: what is padded, and what is waited for."""
    samples = QUICK_SAMPLES if quick else SAMPLES
    groups = []
    for batch_size, num_replicas in SIZES:
        size = f"b = {batch_size}, P = {num_replicas}"
        groups.append(_counted(f"padded / real, {size}", samples, batch_size, num_replicas, _padding))
        if num_replicas > 1:
            groups.append(_counted(f"waited for / padded, {size}", samples, batch_size, num_replicas, _waiting))
    notes = [
        f"{samples:,} lengths, log-normal (5, 0.8), clipped to [1, {LONGEST:,}]. Each run is another epoch.",
        "Padded / real: tokens of the padded batches of all ranks, over those of their samples. Waited for / padded: "
        "the dearest rank's padded tokens in each step, times P, over those of all ranks.",
        "transformers: its LengthGroupedSampler, from two ranks on its DistributedLengthGroupedSampler, with torch's "
        "BatchSampler. Batches dealt: the batches of the former, dealt to the ranks. Batch rebalance: its "
        f"BatchRebalanceSampler, whose global batches are any samples, for up to {MOST_REBALANCED} ranks.",
        f"fastshard, max_tokens: batches of at most {LONGEST:,} tokens, or of b times the mean length if that is more.",
        *_missing_notes(),
    ]
    return Plan(groups, notes)


def _padding(real: int, padded: int, waited: int) -> float:  # noqa: ARG001
    return padded / real


def _waiting(real: int, padded: int, waited: int) -> float:  # noqa: ARG001
    return waited / padded


def _counted(
    case: str, samples: int, batch_size: int, num_replicas: int, ratio: Callable[[int, int, int], float]
) -> Group:
    def cell(grouping: Grouping) -> Cell:
        epoch = 0

        def measure() -> float:
            nonlocal epoch
            epoch += 1
            return ratio(*_counts(grouping, samples, batch_size, num_replicas, epoch))

        return Cell(grouping.label, measure)

    groupings = [grouping for grouping in _installed() if num_replicas in grouping.ranks]
    return Group(case, samples, [cell(grouping) for grouping in groupings], BASELINE)


def plan_time(quick: bool) -> Plan:
    """An epoch's batches on one rank of 8."""
    samples = SAMPLES if quick else TIMED_SAMPLES
    groups = [_timed(samples, batch_size) for batch_size in (8, 32, 256)]
    notes = [
        f"{samples:,} samples; a whole pass over the batches of rank {peers.RANK} of {peers.NUM_REPLICAS}, as lists.",
        "fastshard's sampler sorts the lengths when it is built, once for all epochs; transformers' in each epoch. "
        "Each pass is over another epoch.",
        *_missing_notes(),
    ]
    return Plan(groups, notes)


def _timed(samples: int, batch_size: int) -> Group:
    def cell(grouping: Grouping, *, build: bool = False) -> Cell:
        epoch = 0

        def run() -> None:
            nonlocal epoch
            epoch += 1  # another one each time: an order keeps what it derived for the last one
            if build:
                _built.cache_clear()
            drain(grouping.build(make_lengths(samples), batch_size, peers.NUM_REPLICAS, peers.RANK, epoch))

        return Cell(grouping.label + (", built anew" if build else ""), seconds_per_call(run))

    named = {grouping.label: grouping for grouping in _installed()}
    cells = [cell(grouping) for label, grouping in named.items() if label in TIMED]
    cells.append(cell(named["fastshard"], build=True))
    return Group(f"b = {batch_size}", samples, cells, BASELINE)


def _installed() -> list[Grouping]:
    return [grouping for grouping in GROUPINGS if not grouping.package or peers.version(grouping.package)]


def _missing_notes() -> list[str]:
    return [
        f"{grouping.label} is not installed, and not measured."
        for grouping in GROUPINGS
        if grouping not in _installed()
    ]


QUESTION = Question(
    name="length_groups",
    asks="How much of what ranks compute is padding, and how long do they wait for each other?",
    unit="times",
    better="less",
    plan=plan,
    repeats=2,  # of counts, which hardly differ from epoch to epoch
    warm_up=False,
)

TIME = Question(
    name="length_groups_time",
    asks="How long does an epoch of batches of about the same length take on one rank?",
    unit="s",
    better="less",
    plan=plan_time,
)
