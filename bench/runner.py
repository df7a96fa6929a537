"""The runner: measures a question's cells, peers in turn within each repeat, and sets each against the baseline.

Taking turns makes a machine that speeds up or slows down while it is measured do so to all peers alike. A cell that is
slow is measured less often, within a budget of seconds, and its row says how often.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import psutil  # type: ignore[import-untyped]
from tqdm import tqdm  # type: ignore[import-untyped]

from bench import machine

Clock = Callable[[], float]


@dataclass(frozen=True)
class Cell:
    """One peer in one case.

    Args:
        peer: what is measured, as the table names it.
        measure: takes one measurement and returns it, in the question's unit.
    """

    peer: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class Group:
    """The cells of one case, which are compared with each other.

    Args:
        case: what the cells have in common, as the table names it.
        samples: size of the dataset, in samples.
        cells: one for each peer.
        baseline: the peer that the others are set against.
        needs: bytes of memory without which the case is left out.
    """

    case: str
    samples: int
    cells: Sequence[Cell]
    baseline: str
    needs: int = 0


@dataclass(frozen=True)
class Plan:
    """What a question measures on this machine, and what a reader of its table must know."""

    groups: Sequence[Group]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Question:
    """A question that a table of measurements answers.

    Args:
        name: as on the command line.
        asks: the question, as a sentence.
        unit: of the measurements: "s", "ids/s", "batches/s", "B", or "times" for a ratio.
        better: whether less or more of the unit is better.
        plan: called with `quick`, gives what to measure.
        repeats: measurements of each cell, at most; a quick run makes 3.
        warm_up: whether a cell is run once before it is measured.
        per_sample: whether the table also divides by the samples of the dataset.
    """

    name: str
    asks: str
    unit: Literal["s", "ids/s", "batches/s", "B", "times"]
    better: Literal["less", "more"]
    plan: Callable[[bool], Plan]
    repeats: int = 7
    warm_up: bool = True
    per_sample: bool = False


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Args:
        repeats: measurements of each cell, at most.
        seconds: wall time of a cell, after which it is measured no more; the first measurement is always made.
        warm_up: whether to run each cell once before. A run of over a quarter of `seconds` is kept as a measurement:
            there is no second one to spare, and what is cold at the start of so long a run hardly counts.
    """

    repeats: int
    seconds: float
    warm_up: bool = True


@dataclass(frozen=True)
class Row:
    """What was measured of one cell: `median`, `low` and `high` are in the question's unit.

    `ratio` is how many times better than the baseline's median this one is: below 1 it is worse.
    """

    case: str
    peer: str
    baseline: str
    samples: int
    values: tuple[float, ...]
    median: float
    low: float
    high: float
    ratio: float


@dataclass(frozen=True)
class Result:
    """The answer to a question: its rows, and all that is needed to judge or repeat them. `seconds` is wall time."""

    question: Question
    quick: bool
    rows: Sequence[Row]
    notes: Sequence[str]
    machine: dict[str, str]
    seconds: float


def answer(question: Question, *, quick: bool) -> Result:
    """Measures a question with a progress bar on stderr, if that is a terminal.

    Args:
        question: what to measure.
        quick: small sizes, at most 3 repeats and 2 seconds a cell, not 30.
    """
    begin = time.perf_counter()
    described = machine.describe()
    plan = question.plan(quick)
    effort = Effort(min(question.repeats, 3) if quick else question.repeats, 2.0 if quick else 30.0, question.warm_up)
    rows: list[Row] = []
    notes = [*plan.notes, _effort_note(effort)]
    steps = sum(len(group.cells) for group in plan.groups) * (effort.repeats + effort.warm_up)
    with tqdm(total=steps, desc=question.name, disable=None, leave=False) as bar:
        for group in plan.groups:
            available = psutil.virtual_memory().available
            if group.needs > available:
                notes.append(f"{group.case} left out: it needs {group.needs:,} bytes of memory, of {available:,}.")
                continue
            bar.set_postfix_str(group.case)
            rows += measure(group, effort, question.better, on_step=bar.update)
    described["load after"] = machine.load()
    return Result(question, quick, rows, notes, described, time.perf_counter() - begin)


def measure(
    group: Group,
    effort: Effort,
    better: Literal["less", "more"],
    *,
    clock: Clock = time.perf_counter,
    on_step: Callable[[], object] = lambda: None,
) -> list[Row]:
    """Measures the cells of a group in turn, another one first in each repeat.

    Args:
        group: the cells and their baseline.
        effort: how often and how long.
        better: whether less or more is better.
        clock: gives seconds, from anywhere; what the budget is read off.
        on_step: called once for each cell and repeat, and each warm-up, also where the budget leaves it out.

    Returns:
        One row a cell, in the group's order.

    Raises:
        ValueError: the baseline is not among the cells.
    """
    if group.baseline not in [cell.peer for cell in group.cells]:
        raise ValueError(f"baseline must be among the cells of {group.case!r}, got baseline={group.baseline!r}")
    tallies = [_Tally(cell, clock) for cell in group.cells]
    if effort.warm_up:
        for tally in tallies:
            tally.warm_up(effort)
            on_step()
    for repeat in range(effort.repeats):
        for tally in _rotated(tallies, repeat):
            if tally.wants_more(effort):
                tally.measure()
            on_step()
    medians = {tally.cell.peer: statistics.median(tally.values) for tally in tallies}
    return [_row(group, tally, medians, better) for tally in tallies]


@dataclass
class _Tally:
    """What one cell has given and taken so far."""

    cell: Cell
    clock: Clock
    values: list[float] = field(default_factory=list)
    spent: float = 0.0
    last: float = 0.0

    def measure(self) -> None:
        begin = self.clock()
        self.values.append(self.cell.measure())
        self.last = self.clock() - begin
        self.spent += self.last

    def warm_up(self, effort: Effort) -> None:
        self.measure()
        if self.last <= effort.seconds / 4:
            self.values.clear()
            self.spent = 0.0

    def wants_more(self, effort: Effort) -> bool:
        return not self.values or (len(self.values) < effort.repeats and self.spent + self.last <= effort.seconds)


def _rotated(tallies: Sequence[_Tally], by: int) -> Iterator[_Tally]:
    return (tallies[(by + place) % len(tallies)] for place in range(len(tallies)))


def _row(group: Group, tally: _Tally, medians: dict[str, float], better: Literal["less", "more"]) -> Row:
    peer, values = tally.cell.peer, tuple(tally.values)
    mine, baseline = medians[peer], medians[group.baseline]
    ratio = baseline / mine if better == "less" else mine / baseline
    return Row(group.case, peer, group.baseline, group.samples, values, mine, min(values), max(values), ratio)


def _effort_note(effort: Effort) -> str:
    warm_up = "One warm-up, then at most" if effort.warm_up else "At most"
    return (
        f"{warm_up} {effort.repeats} runs a cell, within about {effort.seconds:g} s; a slower cell is run less often, "
        "and at least once. Peers take turns within each repeat."
    )
