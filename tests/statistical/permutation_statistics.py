"""Statistics of permutations whose law under a uniform shuffle is known. Each gives z-scores.

An `orders` argument is an array (S, N) of S whole permutations. Sizes of cells are exact, so N need not be a multiple
of anything. Everything is counted by arrays; loops run over bits or positions, never over ids.
"""

from __future__ import annotations

import math

import numpy as np


def chi_square_z(chi_square, df):
    """Wilson and Hilferty's normal score of a chi-square value."""
    spread = 2 / (9 * df)
    return ((chi_square / df) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def poisson_z(total, mean):
    """Normal score of a Poisson count: P(X >= k) is a chi-square tail with 2k degrees of freedom."""
    return -chi_square_z(2 * mean, 2 * total + 1)


def mean_z(values, mean, variance):
    return (np.mean(values) - mean) / math.sqrt(variance / len(values))


def worst(scores):
    """The score as unlikely as seeing the largest |z| among so many: Bonferroni's correction, by the Gaussian tail."""
    scores = np.asarray(scores, dtype=float)
    largest = float(np.abs(scores).max())
    return math.sqrt(max(0.0, largest**2 - 2 * math.log(scores.size)))


# ---- cells: how ids are put into k classes, and how many ids each class holds

SCALINGS = ("scaled", "mod")  # by the high digits and by the low ones


def cells(ids, n, k, scaling):
    return ids * k // n if scaling == "scaled" else ids % k


def cell_sizes(n, k, scaling):
    if scaling == "scaled":
        bounds = np.array([-(-c * n // k) for c in range(k + 1)])
        return np.diff(bounds)
    return n // k + (np.arange(k) < n % k)


def goodness_z(counts, probabilities):
    """Chi-square of counts against probabilities that sum to one; the draws are independent, or nearly."""
    expected = counts.sum() * probabilities
    return chi_square_z(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


# ---- whole permutations


def relatives(orders):
    """Each order as seen from the next one's: position in the next order of what sits at a position in this one."""
    inverse = np.empty_like(orders)
    np.put_along_axis(inverse, orders, np.arange(orders.shape[1], dtype=orders.dtype)[None], axis=1)
    return np.take_along_axis(inverse[1:], orders[:-1], axis=1)


def permutation_index(orders):
    """Numbers each row from 0 to N! - 1 (Lehmer code)."""
    n = orders.shape[1]
    index = np.zeros(len(orders), dtype=np.int64)
    for i in range(n):
        index = index * (n - i) + (orders[:, i + 1 :] < orders[:, i, None]).sum(axis=1)
    return index


def count_cycles(orders):
    """The number of cycles of each row, by pointer doubling: everyone learns the least id of its cycle."""
    return _by_rows(_cycles, orders, 2**15)


def _cycles(orders):
    samples, n = orders.shape
    own = np.arange(samples * n)
    jump, least = (orders + own.reshape(samples, n)[:, :1]).ravel(), own
    for _ in range((n - 1).bit_length()):
        least = np.minimum(least, least.take(jump))
        jump = jump.take(jump)
    return (least == own).reshape(samples, n).sum(axis=1)


def count_inversions(orders):
    """Pairs out of order in each row, by a merge sort that sorts all pairs of runs of a length at once."""
    return _by_rows(_inversions, orders, 2**16)


def _inversions(orders):
    samples, n = orders.shape
    levels = max(0, n.bit_length() - 5)
    width = -(-n // (1 << levels))  # of the runs to begin with: 16 to 32 ids, or all
    runs = np.empty((samples, width << levels), dtype=np.int32)
    runs[:, :n] = orders
    runs[:, n:] = np.arange(n, width << levels)  # in order behind all others
    total = np.zeros(samples)
    runs = runs.reshape(samples, -1, width)
    for distance in range(1, width):
        total += np.count_nonzero(runs[:, :, distance:] < runs[:, :, :-distance], axis=(1, 2))
    while runs.shape[1] > 1:
        pairs = runs.reshape(samples, -1, 2 * width) * 2
        pairs[:, :, width:] += 1
        pairs.sort(axis=2)
        # Ranks of the right run among both, less its ranks in itself, count the left ids below: the rest lie above.
        ranks = (pairs & 1).astype(np.float64) @ np.arange(2.0 * width)
        total += (width * width + width * (width - 1) // 2 - ranks).sum(axis=1)
        runs = pairs >> 1
        width *= 2
    return total


def _by_rows(function, orders, ids):
    """Applies `function` to as many rows at a time as fit into the cache."""
    rows = max(1, ids // orders.shape[1])
    return np.concatenate([function(orders[i : i + rows]) for i in range(0, len(orders), rows)])


def longest_increasing(orders):
    """The length of the longest increasing subsequence of each row, by patience sorting over all rows at once."""
    samples, n = orders.shape
    bits = (int(3 * math.sqrt(n)) + 8).bit_length()  # longer ones are cut off here, far outside of the law
    slots = 1 << bits
    tails = np.full(samples * slots, n, dtype=orders.dtype)
    rows = np.arange(samples) * slots
    for column in np.ascontiguousarray(orders.T):
        at = rows.copy()
        for bit in reversed(range(bits)):
            at += (tails[at + ((1 << bit) - 1)] < column) << bit
        tails[at] = column
    return (tails.reshape(samples, slots) < n).sum(axis=1)


def longest_increasing_law(n):
    """Mean and variance of the longest increasing subsequence, exactly: by Robinson, Schensted and the hook lengths.

    Walks all partitions of n, so only for n below 30 or so.
    """
    mean = square = 0.0
    log_factorial = math.lgamma(n + 1)
    for shape in _partitions(n, n):
        columns = [sum(row > j for row in shape) for j in range(shape[0])]
        log_hooks = sum(math.log(row - j + columns[j] - i - 1) for i, row in enumerate(shape) for j in range(row))
        share = math.exp(log_factorial - 2 * log_hooks)
        mean += share * shape[0]
        square += share * shape[0] ** 2
    return mean, square - mean**2


def _partitions(n, largest):
    if n == 0:
        yield ()
    for first in range(min(n, largest), 0, -1):
        for rest in _partitions(n - first, first):
            yield (first, *rest)


def mallows_z(inversions, n):
    """Mean of the Mallows kernel exp(-5 d / C(n, 2)), whose law is that of the generating function of inversions."""
    rate = 5 / math.comb(n, 2)

    def expectation(rate):
        j = np.arange(1, n + 1)
        return math.exp(np.log(np.expm1(-rate * j) / (j * math.expm1(-rate))).sum())

    mean = expectation(rate)
    return mean_z(np.exp(-rate * inversions), mean, expectation(2 * rate) - mean**2)


def difference_counts(orders):
    """How often each value of (next id - id) mod N occurs in the rows, for 0 to N - 1."""
    n = orders.shape[1]
    steps = (np.diff(orders, axis=1) + n).ravel()
    return np.bincount(steps, minlength=2 * n).reshape(2, n).sum(axis=0)


def difference_z(counts):
    """`difference_counts` of S whole permutations: N - 1 cells, each with mean and variance S."""
    cells_ = len(counts) - 1
    samples = counts.sum() / cells_
    return chi_square_z(((counts[1:] - samples) ** 2).sum() / samples * (cells_ - 1) / cells_, cells_ - 1)


def table_z(table, rows, columns, n):
    """A contingency table of whole permutations: classes of positions against classes of ids, of the given sizes."""
    samples = table.sum() / n
    expected = samples * np.outer(rows, columns) / n
    chi_square = ((table - expected) ** 2 / expected).sum() * (n - 1) / n
    return chi_square_z(chi_square, (len(rows) - 1) * (len(columns) - 1))


# ---- windows of large permutations


def pair_z(counts, sizes, n):
    """Counts (k, k) of the classes of two distinct ids, where class c holds sizes[c] of the n ids."""
    pairs = sizes[:, None] * (sizes[None] - np.eye(len(sizes)))
    return goodness_z(counts.ravel(), pairs.ravel() / n / (n - 1))


def composition_z(counts, sizes, n):
    """Classes (batches, k) of batches drawn without replacement from n ids: dispersion, too large or too small."""
    batch = counts[0].sum()
    expected = batch * sizes / n
    chi_squares = ((counts - expected) ** 2 / expected).sum(axis=1) * (n - 1) / (n - batch)
    df = len(sizes) - 1
    return mean_z(chi_squares, df, 2 * df * (1 - 1 / batch))


def flip_scores(one, other, bits, probability=0.5):
    """Whether each bit of the ids flips with `probability`: one z per bit."""
    flips = (one ^ other)[:, None] >> np.arange(bits) & 1
    return (flips.sum(axis=0) - len(one) * probability) / math.sqrt(len(one) / 4)
