"""Fingerprint and Coverage as Python sees them: frozen sums, what may be recorded, and counts."""

import array
import threading

import numpy as np
import pytest

from fastshard import _core

MASK = 2**64 - 1


def hashes(sample):
    """Both hashes of one id in plain ints."""
    spread = sample * 0x9E3779B97F4A7C15 & MASK

    def finalise(x, shifts, by):
        for shift, factor in zip(shifts, by, strict=False):
            x = (x ^ x >> shift) * factor & MASK
        return x ^ x >> shifts[-1]

    return (
        finalise(spread + 0x243F6A8885A308D3 & MASK, (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)),
        finalise(spread + 0x13198A2E03707344 & MASK, (33, 33, 33), (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)),
    )


def fingerprint_of(ids):
    fingerprint = _core.Fingerprint()
    fingerprint.add(ids)
    return fingerprint


def sums(fingerprint):
    return fingerprint.count, fingerprint.first, fingerprint.second


@pytest.mark.parametrize(
    ("ids", "frozen"),
    [
        ([0], (1, 0xE9E0033E3BADAF36, 0x72DEE428A469F6FD)),
        (list(range(10)), (10, 0xFDDE63C64C226D93, 0x9F200CC70BD484E2)),
        ([2**63 - 1, 7, 7], (3, 0x4228F029FC47B8C4, 0x87EB8260C5A48ED8)),
    ],
)
def test_fingerprints_are_frozen_because_states_hold_them(ids, frozen):
    by_hand = [sum(column) & MASK for column in zip(*map(hashes, ids), strict=True)]
    assert sums(fingerprint_of(ids)) == (len(ids), *by_hand) == frozen


@pytest.mark.parametrize("n", [0, 1, 31, 1025, 40_000])
def test_a_list_an_array_and_a_buffer_of_the_same_ids_are_the_same(n):
    ids = np.random.default_rng(n).integers(0, 2**63 - 1, n)
    wanted = sums(fingerprint_of(ids))
    given = [ids.tolist(), list(ids), array.array("q", ids.tolist()), memoryview(ids)]
    assert [sums(fingerprint_of(each)) for each in given] == [wanted] * 4


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([3, -1], ValueError, r"ids must be in \[0, 100\), got ids\[1\]=-1"),
        ([100], ValueError, r"ids must be in \[0, 100\), got ids\[0\]=100"),
        ([2**63], ValueError, r"ids must be in \[0, 100\), got ids\[0\]=9223372036854775808"),
        (np.array([5, 6, -(2**63)]), ValueError, r"got ids\[2\]=-9223372036854775808"),
        (np.arange(101), ValueError, r"got ids\[100\]=100"),
        (np.arange(40_000), ValueError, r"got ids\[100\]=100"),
        ([1, "a"], TypeError, r"ids must be ints, got ids\[1\]='a'"),
        ([1.0], TypeError, r"ids must be ints, got ids\[0\]=1\.0"),
        ([True], TypeError, r"ids must be ints, got ids\[0\]=True"),
        (np.array([1.0]), TypeError, r"ids must be a list of ints or a contiguous 1-D int64 array, got ids=array"),
        (np.arange(10)[::2], TypeError, r"contiguous"),
        (np.zeros((2, 2), np.int64), TypeError, r"1-D"),
        (7, TypeError, r"got ids=7"),
    ],
)
def test_what_is_no_list_of_ids_raises_and_adds_nothing(ids, error, message):
    fingerprint, coverage = fingerprint_of([1]), _core.Coverage(100)
    with pytest.raises(error, match=message):
        fingerprint.add(ids, 100)
    with pytest.raises(error, match=message):
        coverage.add(ids)
    assert sums(fingerprint) == sums(fingerprint_of([1]))
    assert not coverage.counts(0, 100).any()


def test_an_id_that_shortens_its_list_is_noticed():
    class Shortening:
        def __index__(self):
            ids.clear()
            return 1

    ids = [Shortening(), 2, 3]
    with pytest.raises(ValueError, match="must not change"):
        _core.Fingerprint().add(ids)


def test_fingerprints_add_and_take_away():
    left, right = fingerprint_of([1, 2]), fingerprint_of([2, 5])
    assert sums(left + right) == sums(fingerprint_of([1, 2, 2, 5]))
    assert left - fingerprint_of([2]) == fingerprint_of([1])
    assert (fingerprint_of([]) - left).count == -2
    assert left != right


def test_a_range_is_its_ids():
    fingerprint = _core.Fingerprint()
    fingerprint.add_range(5, 1000)
    assert fingerprint == fingerprint_of(np.arange(5, 1000))


def test_coverage_counts_and_goes_through_bytes():
    ids = np.random.default_rng(1).integers(0, 1000, 3000)
    coverage = _core.Coverage(1000)
    for part in np.array_split(ids, 7):
        coverage.add(part)
    wanted = np.bincount(ids, minlength=1000)
    assert coverage.counts(0, 1000).tolist() == wanted.tolist()
    other = _core.Coverage.from_bytes(1000, coverage.to_bytes())
    other.add_counts(10, np.array([0, 5, 2**31 - 1], np.int32))
    assert other.counts(8, 14).tolist() == [*wanted[8:11], wanted[11] + 5, 2**31 - 1, wanted[13]]


def test_coverage_refuses_what_is_not_its_own():
    coverage = _core.Coverage(70)
    with pytest.raises(ValueError, match=r"\[start, stop\) must be within \[0, 70\), got \[3, 71\)"):
        coverage.counts(3, 71)
    with pytest.raises(ValueError, match=r"counts must not be negative, got -1"):
        coverage.add_counts(0, np.array([1, -1], np.int32))
    with pytest.raises(ValueError, match="these 8 bytes are no coverage of 70 ids"):
        _core.Coverage.from_bytes(70, bytes(8))
    with pytest.raises(ValueError, match="these 16 bytes are no coverage of 70 ids"):
        _core.Coverage.from_bytes(70, b"\xff" * 16)


def test_threads_that_add_at_once_lose_nothing():
    ids = np.arange(50_000)
    coverage, fingerprint = _core.Coverage(50_000), _core.Fingerprint()

    def add():
        for _ in range(20):
            coverage.add(ids)
            fingerprint.add(ids)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (coverage.counts(0, 50_000) == 80).all()
    assert fingerprint.count == 80 * 50_000


@pytest.mark.parametrize("shifts", [(0, 0), (60, 60), (30, 0)])
def test_sums_of_wrong_epochs_spread_as_if_at_random(shifts):
    """Four bits of each sum, over epochs in which neighbours came in each other's place: 256 cells, filled alike."""
    cells = np.zeros((16, 16))
    for i in range(20_000):
        missing, twice = [3 * i, 3 * i + 1, 7 * i], [3 * i + 1, 3 * i + 2, 7 * i + 64]
        off = fingerprint_of(twice) - fingerprint_of(missing)
        cells[off.first >> shifts[0] & 15, off.second >> shifts[1] & 15] += 1
    mean = 20_000 / 256
    # Chi-square with 255 degrees of freedom: 255 +- 22.6.
    assert 255 - 5 * 22.6 < ((cells - mean) ** 2 / mean).sum() < 255 + 5 * 22.6
