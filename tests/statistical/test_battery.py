"""`Shuffled` shuffles as far as the battery can tell, and so do the parts of `BlockShuffled`, and numpy's Fisher-Yates,
which shows the laws are right.

`--exhaustive` takes more samples and fresh seeds, and looks again before it fails: a score whose probability is below
1e-4 is measured once more at four times the sample, with another seed, and fails below 1e-6.
"""

import pytest
from block_battery import block_cases
from block_subjects import BLOCKS
from permutation_battery import LIMIT, cases, longer
from permutation_subjects import GOOD

pytestmark = pytest.mark.statistical

SUBJECTS = {**GOOD, **BLOCKS}

SUSPICIOUS, FAILED = 3.89, 4.89  # two-sided 1e-4 and 1e-6


def pytest_generate_tests(metafunc):
    exhaustive = metafunc.config.getoption("--exhaustive", default=False)
    runs = [(subject, case) for subject in GOOD for case in cases()] + block_cases()
    if exhaustive:  # numpy is slow, and needs no more proof
        runs = [(subject, case) for subject, case in longer(runs) if subject != "numpy"]
    if "case" in metafunc.fixturenames:
        metafunc.parametrize(("subject", "case"), runs, ids=[f"{subject}-{case}" for subject, case in runs])


def test_looks_uniformly_shuffled(subject, case, request):
    if request.config.getoption("--exhaustive", default=False):
        seed = request.getfixturevalue("battery_seed")
        score = case.score(SUBJECTS[subject], seed)
        if score > SUSPICIOUS:
            again = case.score(SUBJECTS[subject], seed + 2**32, times=4)
            assert again < FAILED, f"{case}: score {again:.2f} at four times the sample, after {score:.2f}"
    else:
        score = case.score(SUBJECTS[subject])
        assert score < LIMIT, f"{case}: score {score:.2f} with {case.size} samples"
