"""The battery: which test runs at which size with how many samples, and what counts as failing.

A case is one test at one n. It looks at many statistics and gives one score: the largest |z|, corrected for their
number (`permutation_statistics.worst`). A score above LIMIT fails.

False alarms: a score is above 6.5 by chance with probability 8.0e-11 (two-sided, Gaussian). A run judges 214 cases
on `shuffled` and on `numpy`, and 228 on the parts of `BlockShuffled`: 5.3e-8 in all. `test_battery_controls.py`
holds the product below 1e-7; the 1e-6 allowed leaves room for statistics that are not quite Gaussian. Seeds are fixed,
so that a run never flickers: the chance is taken once, when an algorithm or a seed changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from permutation_statistics import worst
from permutation_tests import SEED, TESTS

LIMIT = 6.5


@dataclass(frozen=True)
class Case:
    """A test at a size. `size` is in what the test counts: permutations, or ids for tests on stretches."""

    test: str
    n: int
    size: int

    def __str__(self):
        return f"{self.test.replace(' ', '-')}-{self.n}"

    def score(self, subject, seed=SEED, times=1):
        return worst(TESTS[self.test](subject, self.n, self.size * times, seed))


WHOLE = ("parity", "fixed points", "cycles", "adjacent ids", "descents", "inversions", "Mallows kernel")


SMALL = (16, 17, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 16384)  # whole permutations in a table
MIDDLE = (16385, 32768, 65536, 65537)
LARGE = (2**20 + 1, 2**24, 2**24 + 1, 10**9 + 7, 65535 * 65534, 65535 * 65534 + 1, 2**32, 2**36 + 1, 2**40)


def cases():
    """All cases, in an order in which those on the same permutations follow each other."""
    found = [Case("all permutations", n, size) for n, size in zip(range(2, 8), ALL_PERMUTATIONS, strict=True)]
    found += [Case("item by position", n, 50_000) for n in (16, 17, 64, 100)]
    found += [Case("item by position", n, 2**23 // n) for n in (1024, 4097, 16384, *MIDDLE)]
    for n in (*SMALL, 16385, 65536, 65537):
        found += [Case(name, n, 10_000 if n in (16, 17, 256, 1024) else 2**21 // n) for name in WHOLE]
    found += [Case("parity", n, 250) for n in (16641, 25281)]  # squares of odd numbers, where parity takes care
    found += [Case("longest increase", n, size) for n, size in ((16, 2000), (17, 2000), (1024, 2000), (16385, 200))]
    found += [Case("differences", 256, 200_000), Case("differences", 4096, 20_000)]
    found += [Case("differences", n, 2**24 // n) for n in (16384, *MIDDLE)]
    found += [Case("wide differences", n, 2**21) for n in LARGE]
    for name in ("serial pairs", "displacements", "batches", "across keys"):
        found += [Case(name, n, 2**18) for n in (16384, *MIDDLE, 2**20, *LARGE)]
    found += [Case("shares", n, 2**18) for n in (16384, *MIDDLE, 2**20 + 1, 2**24 + 1)]
    found += [
        Case("columns", n, size) for n, size in ((16385, 2**22), (65536, 2**22), (2**20, 2**22), (65535 * 65534, 2**24))
    ]
    return found + [Case("avalanche", 2**k, 4096) for k in (14, 15, 16, 20, 24, 32, 33, 40)]


ALL_PERMUTATIONS = (30_000, 30_000, 300_000, 300_000, 300_000, 1_000_000)  # at n = 2 to 7


def longer(runs):
    """The same runs, pairs of a subject's name and a case, with the samples of a long one."""
    times = dict.fromkeys(("serial pairs", "displacements", "batches"), 64)
    times |= {"wide differences": 32, "across keys": 16, "shares": 16}
    found = [(name, Case(case.test, case.n, case.size * times.get(case.test, 4))) for name, case in runs]
    return found + [("shuffled", Case("differences", n, 400_000_000 // n)) for n in MIDDLE]
