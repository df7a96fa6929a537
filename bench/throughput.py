"""How many ids a second does an order give, and how far is that from the limit of the memory? About a minute, 1 GB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from bench import peers
from bench.runner import Cell, Group, Plan, Question
from bench.timing import items_per_second
from fastshard import _core, orders

MEMORY = 10_000_000  # ids a call: 80 MB, beyond every cache
CACHE = 4_096  # ids a call, as a sampler asks for them: 32 kB
QUICK_MEMORY = 1_000_000
CALLS = 500  # of the short kind in one measurement
BASELINE = "np.arange, the limit"


def plan(quick: bool) -> Plan:
    """Long stretches into memory, short ones that stay in the cache, and a rank's stride."""
    ids = QUICK_MEMORY if quick else MEMORY
    notes = [
        "np.arange fills the same array with 0, 1, 2, ..., which is as fast as any order could be.",
        f"Kernels: {_core.instruction_set}, of {', '.join(_core.instruction_sets)}.",
        *peers.notes(),
    ]
    return Plan([_into_memory(ids), _in_cache(), _strided(ids)], notes)


def _into_memory(ids: int) -> Group:
    rows: dict[str, Callable[[], object]] = {
        BASELINE: partial(np.arange, ids),
        "Shuffled, n = 1e9": partial(orders.Shuffled(10**9, 1).indices, 0, 0, ids),
        "Shuffled, n = 4e9": partial(orders.Shuffled(4 * 10**9, 1).indices, 0, 0, ids),
        "Shuffled, n = 1e12": partial(orders.Shuffled(10**12, 1).indices, 0, 0, ids),
        "Shuffled, n = 2^63 - 1": partial(orders.Shuffled(2**63 - 1, 1).indices, 0, 0, ids),
        "Sequential": partial(orders.Sequential(10**9).indices, 0, 0, ids),
        "numpy permutation": partial(np.random.default_rng(1).permutation, ids),
        "torch.randperm": partial(torch.randperm, ids),
    }
    for name in ("py1e", "py1br"):
        if peers.PEERS[name].installed:
            rows[f"streaming {name}"] = peers.StreamingOrder(name, ids).order
    return _group(f"{ids:,} ids into memory", ids, 1, rows)


def _in_cache() -> Group:
    rows: dict[str, Callable[[], object]] = {BASELINE: partial(np.arange, CACHE)}
    for n in (10_000, 16_385, 1_000_000, 10**9, 10**12):
        rows[f"Shuffled, n = {n:,}"] = partial(orders.Shuffled(n, 1).indices, 0, 0, CACHE)
    rows["numpy permutation"] = partial(np.random.default_rng(1).permutation, CACHE)
    group = _group(f"{CACHE:,} ids a call", CACHE, CALLS, rows)
    grain = peers.PEERS["grain"]
    if not grain.installed:
        return group
    ids = peers.GrainShuffle(10**9).ids
    cell = _cell(f"{grain.label}, n = {10**9:,}", CACHE, 1, lambda: list(ids(range(CACHE))))
    return replace(group, cells=[*group.cells, cell])


def _strided(ids: int) -> Group:
    order = orders.Shuffled(10**9, 1)
    rows: dict[str, Callable[[], object]] = {BASELINE: partial(np.arange, ids)}
    for step in (1, 8, 97):
        rows[f"Shuffled, every {step}."] = partial(order.indices, 0, 0, ids * step, step)
    mixed = orders.Mixed([order, orders.Shuffled(10**9, 2)], [0.7, 0.3])
    for step in (1, 8):
        rows[f"Mixed of two Shuffled, every {step}."] = partial(mixed.indices, 0, 0, ids * step, step)
    return _group(f"{ids:,} ids of a rank", ids, 1, rows)


def _group(case: str, ids: int, calls: int, rows: dict[str, Callable[[], object]]) -> Group:
    return Group(case, ids, [_cell(label, ids, calls, call) for label, call in rows.items()], BASELINE)


def _cell(label: str, ids: int, calls: int, call: Callable[[], object]) -> Cell:
    def repeat(call: Callable[[], object]) -> None:
        for _ in range(calls):
            call()

    return Cell(label, items_per_second(ids * calls, repeat, partial(_same, call)))


def _same(call: Callable[[], object]) -> Callable[[], object]:
    return call


QUESTION = Question(
    name="throughput",
    asks="How many ids a second does an order give, against the limit of the memory?",
    unit="ids/s",
    better="more",
    plan=plan,
)
