"""`Weighted` draws by weight as far as these tests can tell, and so does numpy; what is wrong on purpose fails."""

from statistics import NormalDist

import numpy as np
import pytest
import weighted_subjects
from permutation_battery import LIMIT, WHOLE, Case
from permutation_statistics import worst
from permutation_subjects import Subject
from permutation_tests import SEED
from test_battery import FAILED, SUSPICIOUS
from weighted_subjects import GOOD, WEAK
from weighted_tests import SKEWS, TESTS, weighted_cases

pytestmark = pytest.mark.statistical


def score(subject, test, skew, n, size, seed=SEED):
    return worst(TESTS[test](subject, SKEWS[skew](n), size, seed))


@pytest.mark.parametrize("case", weighted_cases(), ids=lambda case: "-".join(map(str, case[:3])))
@pytest.mark.parametrize("subject", GOOD)
def test_looks_drawn_by_weight(subject, case, request):
    if not request.config.getoption("--exhaustive", default=False):
        assert score(GOOD[subject], *case) < LIMIT
    elif subject == "weighted":
        seed, (*what, size) = request.getfixturevalue("battery_seed"), case
        if score(GOOD[subject], *what, size * 4, seed) > SUSPICIOUS:
            assert score(GOOD[subject], *what, size * 16, seed + 2**32) < FAILED


class EvenSubset(Subject):
    """Without replacement and with even weights, an epoch is a permutation like any other."""

    def orders(self, n, keys):
        return weighted_subjects.Core().subsets(np.ones(n), n, keys).astype(np.int32)

    def run(self, *_):
        raise NotImplementedError


UNIFORM = [Case("all permutations", n, 50_000) for n in (3, 4, 5)]
UNIFORM += [Case(name, n, 5_000 if n == 16 else 2**19 // n) for n in (16, 257, 4097) for name in WHOLE]
UNIFORM += [Case("item by position", 16, 10_000), Case("differences", 257, 5_000)]


@pytest.mark.parametrize("case", UNIFORM, ids=str)
def test_without_replacement_even_weights_give_a_uniform_shuffle(case):
    assert case.score(EvenSubset()) < LIMIT


CAUGHT = [
    ("coarse", ("frequencies", "one heavy", 50_000, 2**18)),
    ("coarse", ("frequencies", "zipf", 50_000, 2**18)),
    ("shared words", ("neighbours", "even", 16, 2**16)),
    ("shared words", ("neighbours", "zipf", 5000, 2**16)),
    ("added keys", ("across keys", "ramp", 16, 2**16)),
    ("wrong race", ("sequences", "ramp", 5, 20_000)),
    ("wrong race", ("inclusions", "zipf", 6, 40_000)),
    ("wrong race", ("inclusions", "zipf", 10, 40_000)),
    ("likeliest first", ("sequences", "one heavy", 5, 20_000)),
]


@pytest.mark.parametrize(("subject", "case"), CAUGHT, ids=[f"{name}-{case[0]}-{case[1]}" for name, case in CAUGHT])
def test_wrong_draws_are_caught(subject, case):
    assert score(WEAK[subject], *case) > LIMIT


def test_every_test_and_every_kind_of_wrong_draw_has_its_case():
    assert {case[0] for _, case in CAUGHT} == {case[0] for case in weighted_cases()} == set(TESTS)
    assert {subject for subject, _ in CAUGHT} == set(WEAK)


def test_a_run_raises_a_false_alarm_less_than_once_in_ten_million():
    assert (len(GOOD) * len(weighted_cases()) + len(UNIFORM)) * 2 * NormalDist().cdf(-LIMIT) < 3e-8
