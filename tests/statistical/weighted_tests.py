"""The tests of draws by weight. Each takes (subject, weights, size, seed) and returns the scores of its statistics.

`size` is in draws with replacement, and in epochs without. All laws are exact.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from permutation_statistics import goodness_z
from permutation_tests import EPOCHS, SEED, keys_of

STRIDES = (1, 2, 3, 4, 8, 64, 1000, 65536)  # four neighbours share a block of random words
CLASSES = 16  # that pairs are counted in

SKEWS = {
    "even": lambda n: np.ones(n),
    "ramp": lambda n: np.arange(1.0, n + 1),
    "zipf": lambda n: 1 / np.arange(1.0, n + 1),
    "steep": lambda n: np.exp2(np.linspace(0, -10, n)),
    "one heavy": lambda n: np.where(np.arange(n) == n // 2, n, 1.0),
    "gaps": lambda n: np.where(np.arange(n) % 3 == 1, 0.0, 1.0 + np.arange(n) % 7),
}


def classes(weights, size, most=1000):
    """Puts neighbouring ids together until each class of them has 20 draws or more to expect, of `most` classes."""
    share = np.cumsum(weights) / weights.sum()
    finest = max(2, min(most, size // 40))
    of_id = np.minimum((np.concatenate([[0], share[:-1]]) * finest).astype(np.int64), finest - 1)
    _, of_id = np.unique(of_id, return_inverse=True)
    return of_id, np.bincount(of_id, weights) / weights.sum()


def frequencies(subject, weights, size, seed=SEED):
    """Each id, or class of ids, as often as its weight says; at stride 1 and at every other one; over many epochs."""
    of_id, probability = classes(weights, size)
    scores = []
    for stride in (1, 8, 1000):
        drawn = np.concatenate(
            [subject.draws(weights, (seed + i // EPOCHS, i % EPOCHS), i * 7, size // 32, stride) for i in range(32)]
        )
        if (weights[drawn] == 0).any():
            return [math.inf]
        scores.append(_goodness(np.bincount(of_id[drawn], minlength=len(probability)), probability))
    return scores


def neighbours(subject, weights, size, seed=SEED):
    """Draws of one epoch at positions that are a stride apart are independent."""
    of_id, probability = classes(weights, size, CLASSES)
    scores = []
    for i, stride in enumerate(STRIDES):
        drawn = of_id[subject.draws(weights, (seed, i), 5, size + stride)]
        scores.append(_pairs(drawn[:size], drawn[stride:], probability))
    return scores


def across_keys(subject, weights, size, seed=SEED):
    """Draws at one position of neighbouring epochs and seeds are independent, also of (e+1, s) and (e, s+1)."""
    of_id, probability = classes(weights, size, CLASSES)
    scores = []
    for one, other in (((0, 0), (1, 0)), ((0, 0), (0, 1)), ((0, 1), (1, 0))):
        pair = [of_id[subject.draws(weights, (seed + s, e), 11, size)] for s, e in (one, other)]
        scores.append(_pairs(*pair, probability))
    return scores


def sequences(subject, weights, size, seed=SEED):
    """Without replacement: every sequence of draws is as likely as by drawing one after the other, for each count."""
    n, scores = len(weights), []
    for count in range(1, n + 1):
        rows = subject.subsets(weights, count, keys_of(seed, size))
        code = rows @ n ** np.arange(count)
        law = {
            sum(sample * n**i for i, sample in enumerate(drawn)): _successive(weights, drawn)
            for drawn in itertools.permutations(range(n), count)
        }
        counts = np.array([np.count_nonzero(code == key) for key in law])
        scores.append(_goodness(counts, np.array(list(law.values()))))
    return scores


def inclusions(subject, weights, size, seed=SEED):
    """Without replacement: every set of 3 samples comes as often as all its sequences together."""
    rows = np.sort(subject.subsets(weights, 3, keys_of(seed, size)), axis=1)
    sets = list(itertools.combinations(range(len(weights)), 3))
    law = [sum(_successive(weights, drawn) for drawn in itertools.permutations(chosen)) for chosen in sets]
    code = rows @ [10_000, 100, 1]
    counts = np.array([np.count_nonzero(code == chosen @ [10_000, 100, 1]) for chosen in np.array(sets)])
    return [_goodness(counts, np.array(law))]


def _successive(weights, drawn):
    left, probability = float(weights.sum()), 1.0
    for sample in drawn:
        probability *= weights[sample] / left
        left -= weights[sample]
    return probability


def _pairs(one, other, probability):
    k = len(probability)
    return _goodness(np.bincount(one * k + other, minlength=k * k), np.outer(probability, probability).ravel())


def _goodness(counts, probability):
    """Chi-square, with the rarest cells put together until some 20 are expected in each, for its law to hold."""
    order = np.argsort(probability)
    expected = probability[order] * counts.sum()
    _, group = np.unique((np.cumsum(expected) - expected) // 20, return_inverse=True)
    counts, expected = np.bincount(group, counts[order]), np.bincount(group, expected)
    return goodness_z(counts, expected / expected.sum())


TESTS = {
    function.__name__.replace("_", " "): function
    for function in (frequencies, neighbours, across_keys, sequences, inclusions)
}


def weighted_cases():
    """Returns (test, skew, n, size)."""
    found = [
        ("frequencies", skew, n, size) for skew in SKEWS for n, size in ((3, 2**16), (100, 2**18), (50_000, 2**20))
    ]
    for test in ("neighbours", "across keys"):
        found += [(test, skew, n, 2**18) for skew in SKEWS for n in (16, 5000)]
    few = [skew for skew in SKEWS if skew not in ("steep", "gaps")]
    found += [("sequences", skew, 5, 20_000) for skew in few]
    return found + [("inclusions", skew, n, 40_000) for skew in few for n in (6, 10)]
