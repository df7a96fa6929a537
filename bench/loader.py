"""What does a loader cost that knows its place? Batches of a few bytes, the worst case; about two minutes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.utils.data

import fastshard
from bench.iterate import drain
from bench.runner import Cell, Group, Plan, Question
from bench.timing import items_per_second

BATCHES = 20_000
WORKER_BATCHES = 4_000
QUICK_BATCHES = 500
SIZES = (None, 1, 32)
WORKERS = 2

Loader = Callable[..., "torch.utils.data.DataLoader[Any]"]


def _with_ledger(*arguments: Any, **options: Any) -> fastshard.DataLoader[Any]:
    return fastshard.DataLoader(*arguments, **options, ledger=fastshard.Ledger())


LOADERS: dict[str, Loader] = {
    "torch DataLoader": torch.utils.data.DataLoader,
    "fastshard DataLoader": fastshard.DataLoader,
    "fastshard DataLoader, ledger=Ledger()": _with_ledger,
}


def plan(quick: bool) -> Plan:
    """Batch sizes without workers, and one with."""
    batches = QUICK_BATCHES if quick else BATCHES
    cases = [(size, 0, batches) for size in SIZES]
    cases.append((32, WORKERS, min(batches, WORKER_BATCHES)))
    notes = [
        "The dataset is a range; every loader draws from fastshard's DistributedSampler, one rank of one.",
        "A pass includes the making of the iterator and, with workers, their start.",
    ]
    return Plan([_group(*case) for case in cases], notes)


def _group(size: int | None, num_workers: int, batches: int) -> Group:
    samples = batches * (size or 1)
    cells = [
        Cell(label, items_per_second(batches, drain, partial(_build, loader, samples, size, num_workers)))
        for label, loader in LOADERS.items()
    ]
    case = f"batches of {size}" if size else "single samples, batch_size=None"
    return Group(f"{case}, {num_workers} workers", samples, cells, "torch DataLoader")


def _build(loader: Loader, samples: int, size: int | None, num_workers: int) -> torch.utils.data.DataLoader[Any]:
    data = range(samples)
    sampler: Any = fastshard.DistributedSampler(data, 1, 0, on_repeated_epoch="ignore")
    return loader(data, size, sampler=sampler, num_workers=num_workers)


QUESTION = Question(
    name="loader",
    asks="How many batches a second does a loader hand out whose samples cost nothing?",
    unit="batches/s",
    better="more",
    plan=plan,
    repeats=15,
)
