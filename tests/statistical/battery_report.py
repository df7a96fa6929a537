"""Prints what docs/randomness.md tabulates: `python tests/statistical/battery_report.py scores|blocks|weak|control`.

scores: the highest score of each test on each good subject. blocks: on the parts of BlockShuffled. weak: on the weak
ones, at few sizes. control: mean and variance of the longest increasing subsequence over numpy's permutations. Minutes
each.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from block_battery import block_cases
from block_subjects import BLOCKS
from permutation_battery import cases
from permutation_statistics import longest_increasing
from permutation_subjects import GOOD, WEAK, Affine, Numpy
from permutation_tests import SEED, TESTS

FEW = (4, 5, 6, 16, 256, 1024, 16385, 65537, 2**16, 2**24, 2**32, 2**40)


def highest(subject, chosen):
    """Returns test -> (score, n) of the highest score."""
    found = {}
    for case in chosen:
        if isinstance(subject, Affine) and case.n > 2**31:
            continue
        found[case.test] = max(found.get(case.test, (-1.0, 0)), (case.score(subject), case.n))
    return found


def table(columns):
    print("| test |", " | ".join(columns), "|\n| --- |", " | ".join("---" for _ in columns), "|")
    for test in TESTS:
        entries = [column.get(test) for column in columns.values()]
        print(f"| {test} |", " | ".join(f"{e[0]:.1f} at {e[1]}" if e else "" for e in entries), "|")


def control():
    for n, samples in ((1024, 50_000), (16385, 5_000)):
        keys = np.array([[SEED, n]] * samples)
        lengths = longest_increasing(Numpy().orders(n, keys))
        print(f"{n}: ({lengths.mean():.4f}, {lengths.var():.4f}, {samples:_}),")


if __name__ == "__main__":
    started = time.process_time()
    {
        "scores": lambda: table({name: highest(subject, cases()) for name, subject in GOOD.items()}),
        "blocks": lambda: table(
            {name: highest(part, [case for of, case in block_cases() if of == name]) for name, part in BLOCKS.items()}
        ),
        "weak": lambda: table({name: highest(weak, [c for c in cases() if c.n in FEW]) for name, weak in WEAK.items()}),
        "control": control,
    }[sys.argv[1]]()
    print(f"{time.process_time() - started:.0f} seconds of CPU")
