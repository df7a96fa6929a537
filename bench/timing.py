"""Timing: turns a callable into a cell's measurement. The garbage collector waits meanwhile, as in timeit."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# A measurement shorter than this is repeated until it is not: the clock's own call takes about 50 ns.
SHORTEST = 0.005
MOST_CALLS = 10_000


def seconds_per_call(run: Callable[[], object]) -> Callable[[], float]:
    """Returns a measurement of `run` in seconds a call.

    What `run` returns is kept until the clock has stopped, so taking it apart is not measured. The first measurement
    is of one call, and finds out how many the later ones need to be long enough.
    """
    calls = 1

    def measure() -> float:
        nonlocal calls
        seconds = _elapsed(run, calls) / calls
        calls = min(MOST_CALLS, max(1, round(SHORTEST / max(seconds, 1e-9))))
        return seconds

    return measure


def items_per_second(items: int, run: Callable[[T], object], prepare: Callable[[], T]) -> Callable[[], float]:
    """Returns a measurement of `run(prepared)` in items a second.

    Args:
        items: how many items one call goes through.
        run: called once a measurement.
        prepare: called once, before the first measurement and off the clock; gives what `run` takes each time.
    """
    prepared: list[T] = []

    def measure() -> float:
        if not prepared:
            prepared.append(prepare())
        return items / _elapsed(lambda: run(prepared[0]), 1)

    return measure


def _elapsed(run: Callable[[], object], calls: int) -> float:
    """Seconds of `calls` calls of `run`."""
    kept: list[object] = [None] * calls
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        begin = time.perf_counter()
        for call in range(calls):
            kept[call] = run()
        return time.perf_counter() - begin
    finally:
        if was_enabled:
            gc.enable()
