"""What does it cost to keep account of ids as they are handed out? About a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fastshard
from bench.runner import Cell, Group, Plan, Question
from bench.timing import items_per_second

SAMPLES = 100_000_000
IDS = 1 << 20
BATCHES = (1, 32, 256, 1024)
BASELINE = "Counter.update"


def plan(quick: bool) -> Plan:
    """Lists of ints in batches, as a DataLoader has them; and all ids in one array."""
    notes = [
        f"{IDS:,} of {SAMPLES:,} ids, shuffled, in lists of one batch each, or in one array. Made off the clock.",
        "A Counter holds each id; the ledger a fingerprint of all; the exact ledger also a bit for each.",
    ]
    ids = fastshard.orders.Shuffled(SAMPLES, 0).indices(0, 0, IDS)
    groups = [_group(f"lists of {size}", partial(_lists, ids, size)) for size in (BATCHES[1:2] if quick else BATCHES)]
    return Plan([*groups, _group("an array", lambda: [ids])], notes)


def _lists(ids: np.ndarray[Any, np.dtype[np.int64]], size: int) -> list[list[int]]:
    return [ids[start : start + size].tolist() for start in range(0, len(ids), size)]


def _group(case: str, prepare: Callable[[], list[Any]]) -> Group:
    cells = [
        Cell("Ledger", items_per_second(IDS, partial(_record, False), prepare)),
        Cell("Ledger, exact", items_per_second(IDS, partial(_record, True), prepare)),
        Cell(BASELINE, items_per_second(IDS, _count, prepare)),
    ]
    return Group(case, IDS, cells, BASELINE)


def _record(exact: bool, batches: list[Any]) -> fastshard.Ledger:
    ledger = fastshard.Ledger(exact=exact)
    ledger.begin(fastshard.RangeExpected(SAMPLES))
    for batch in batches:
        ledger.record(batch)
    return ledger


def _count(batches: list[Any]) -> Counter[int]:
    counter: Counter[int] = Counter()
    for batch in batches:
        counter.update(batch)
    return counter


QUESTION = Question(
    name="ledger",
    asks="What does it cost to keep account of ids as they are handed out?",
    unit="ids/s",
    better="more",
    plan=plan,
)
