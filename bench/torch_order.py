"""How long does an epoch of torch's own order take, against torch.randperm? About two minutes and 2 GB."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from bench import peers
from bench.runner import Cell, Group, Plan, Question
from bench.timing import seconds_per_call
from fastshard import orders

SIZES = (1_000_000, 10_000_000, 100_000_000)
QUICK_SIZES = (1_000_000,)
BASELINE = "torch.randperm"


def plan(quick: bool) -> Plan:
    """Both on one core: a Fisher-Yates shuffle is a chain."""
    notes = [
        "Timed: the whole permutation, and the first id of it. Of these, torchdata's sampler alone makes a list of it.",
        "NumPy's is an order of its own.",
        f"torchdata: {peers.version('torchdata') or 'not installed, and not measured'}.",
    ]
    return Plan([_group(samples) for samples in (QUICK_SIZES if quick else SIZES)], notes)


def _group(samples: int) -> Group:
    cells = [
        Cell(BASELINE, seconds_per_call(partial(_randperm, samples))),
        Cell("TorchShuffled", seconds_per_call(partial(_torch_shuffled, samples))),
        Cell("numpy permutation", seconds_per_call(partial(_numpy_permutation, samples))),
    ]
    torchdata = peers.PEERS["torchdata"]
    if torchdata.installed:
        cells.append(Cell(torchdata.label, seconds_per_call(partial(peers.started, torchdata, samples))))
    needs = peers.TORCH_BYTES_PER_SAMPLE if torchdata.installed else 12
    return Group(f"N = {samples:,}", samples, cells, BASELINE, needs=needs * samples)


def _randperm(samples: int) -> int:
    return int(torch.randperm(samples, generator=torch.Generator().manual_seed(1))[0])


def _torch_shuffled(samples: int) -> int:
    return orders.TorchShuffled(samples, 0).index(1, 0)


def _numpy_permutation(samples: int) -> int:
    return int(np.random.default_rng(1).permutation(samples)[0])


QUESTION = Question(
    name="torch_order",
    asks="How long does an epoch of torch's own order take, to the first id?",
    unit="s",
    better="less",
    plan=plan,
)
