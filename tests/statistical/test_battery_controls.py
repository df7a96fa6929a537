"""A battery that cannot fail proves nothing: weak permutations fail it, every one of them, and in every test."""

from statistics import NormalDist

import pytest
from block_battery import block_cases
from block_subjects import BLOCKS, WEAK_BLOCKS
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


# What BlockShuffled would be if its streams, its digits or its windows were not what they are.
CAUGHT_BLOCKS = [
    ("one order", Case("fixed points", 4097, 100)),
    ("one order", Case("across keys", 16384, 2**15)),
    ("shifted", Case("descents", 1024, 1000)),  # blocks shifted cyclically each epoch
    ("shifted", Case("inversions", 4097, 100)),
    ("twice", Case("parity", 16, 1000)),
    ("twice", Case("cycles", 257, 2000)),
    ("last round", Case("across keys", 16384, 2**17)),
    ("odd digits", Case("parity", 4225, 250)),
    ("6 rounds", Case("columns", 4097, 2**19)),
    ("narrow window", Case("differences", 257, 5000)),
    ("narrow window", Case("serial pairs", 16641, 2**17)),
    ("narrow window", Case("batches", 16641, 2**17)),
]


@pytest.mark.parametrize(
    ("subject", "case"), CAUGHT_BLOCKS, ids=[f"{subject}-{case}" for subject, case in CAUGHT_BLOCKS]
)
def test_weak_part_of_a_block_shuffle_is_caught(subject, case):
    assert case.score({**WEAK, **WEAK_BLOCKS}[subject]) > LIMIT


def test_every_weak_part_is_caught_and_every_part_is_tested():
    assert {subject for subject, _ in CAUGHT_BLOCKS} >= set(WEAK_BLOCKS)
    assert {subject for subject, _ in block_cases()} == set(BLOCKS)


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
    assert (len(GOOD) * len(cases()) + len(block_cases())) * by_chance < 1e-7
