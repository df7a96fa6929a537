"""A battery that cannot fail proves nothing: weak permutations fail it, every one of them, and in every test."""

from statistics import NormalDist

import pytest
from permutation_battery import LIMIT, Case, cases
from permutation_subjects import GOOD, WEAK
from permutation_tests import TESTS

pytestmark = pytest.mark.statistical

# (subject, case): what this subject must fail. Smaller samples than the battery's own.
CAUGHT = [
    ("affine", Case("all permutations", 5, 50_000)),
    ("shifted", Case("all permutations", 6, 50_000)),
    ("windowed", Case("all permutations", 4, 50_000)),
    ("windowed", Case("item by position", 16, 20_000)),
    ("windowed", Case("item by position", 16385, 100)),
    ("even", Case("parity", 16, 2000)),
    ("even", Case("parity", 1024, 1000)),
    ("windowed", Case("fixed points", 256, 2000)),
    ("shifted", Case("cycles", 16, 10_000)),
    ("windowed", Case("cycles", 256, 2000)),
    ("shifted", Case("adjacent ids", 1024, 1000)),
    ("shifted", Case("descents", 16385, 50)),
    ("windowed", Case("descents", 256, 2000)),
    ("shifted", Case("inversions", 256, 2000)),
    ("windowed", Case("inversions", 16385, 50)),
    ("shifted", Case("Mallows kernel", 16385, 50)),
    ("windowed", Case("Mallows kernel", 256, 2000)),
    ("windowed", Case("longest increase", 16, 2000)),
    ("shifted", Case("longest increase", 1024, 500)),
    ("4 rounds", Case("adjacent ids", 256, 2000)),
    ("4 rounds of 32 bits", Case("adjacent ids", 256, 2000)),
    ("4 rounds", Case("differences", 256, 20_000)),
    ("4 rounds of 32 bits", Case("differences", 256, 20_000)),
    ("affine", Case("differences", 16385, 500)),
    ("2 rounds", Case("differences", 65537, 100)),
    ("2 rounds of 32 bits", Case("differences", 65537, 100)),
    ("affine", Case("wide differences", 2**24, 2**16)),
    ("2 rounds", Case("wide differences", 2**24 + 1, 2**16)),
    ("affine", Case("serial pairs", 65537, 2**16)),
    ("2 rounds", Case("serial pairs", 2**32, 2**16)),
    ("windowed", Case("serial pairs", 2**40, 2**16)),
    ("2 rounds", Case("displacements", 2**16, 2**16)),
    ("4 rounds", Case("displacements", 2**24 + 1, 2**16)),
    ("4 rounds of 32 bits", Case("displacements", 2**32, 2**18)),
    ("affine", Case("columns", 65536, 2**16)),
    ("4 rounds", Case("columns", 16385, 2**17)),
    ("6 rounds", Case("columns", 16385, 2**22)),
    ("4 rounds of 32 bits", Case("columns", 2**20, 2**17)),
    ("affine", Case("batches", 65537, 2**16)),
    ("2 rounds", Case("batches", 2**40, 2**16)),
    ("windowed", Case("batches", 2**24, 2**16)),
    ("2 rounds", Case("shares", 16385, 2**16)),
    ("windowed", Case("shares", 65537, 2**16)),
    ("affine", Case("across keys", 16385, 2**16)),
    ("2 rounds", Case("across keys", 2**32, 2**16)),
    ("windowed", Case("across keys", 2**24, 2**16)),
    ("affine", Case("avalanche", 2**16, 1024)),
    ("2 rounds", Case("avalanche", 2**32, 1024)),
]


@pytest.mark.parametrize(("subject", "case"), CAUGHT, ids=[f"{subject}-{case}" for subject, case in CAUGHT])
def test_weak_permutation_is_caught(subject, case):
    assert case.score(WEAK[subject]) > LIMIT


def test_every_test_catches_a_weak_permutation():
    assert {case.test for _, case in CAUGHT} == set(TESTS)
    assert {case.test for case in cases()} == set(TESTS)


def test_every_weak_permutation_is_caught_somewhere():
    assert {subject for subject, _ in CAUGHT} == set(WEAK)


def test_a_run_raises_a_false_alarm_less_than_once_in_a_million():
    by_chance = 2 * NormalDist().cdf(-LIMIT)
    assert len(GOOD) * len(cases()) * by_chance < 1e-7
