"""Orders that users write: what `indices` holds them to, and how little they need."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from fastshard import DistributedBatchSampler, DistributedSampler
from fastshard.orders import Order


class Reversed(Order):
    """The least an order is: a name, a length, and ids by arithmetic."""

    name: ClassVar[str] = "reversed/1"

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def _fill(self, epoch, start, count, step):
        return (self.n - 1 - epoch - start - step * np.arange(count, dtype=np.int64)) % self.n


@dataclass
class Returns(Order):
    """An order of five ids that returns what it was made with."""

    name: ClassVar[str] = "wrong/1"
    ids: object

    def __len__(self):
        return 5

    def _fill(self, *_):
        return self.ids


def test_samplers_take_an_order_of_the_users_own():
    ranks = [list(DistributedSampler(range(10), 3, rank, order=Reversed(10))) for rank in range(3)]
    assert ranks == [[9, 6, 3, 0], [8, 5, 2, 9], [7, 4, 1, 8]]
    assert list(DistributedBatchSampler(range(5), 2, 1, 0, order=Reversed(5))) == [[4, 3], [2, 1], [0]]


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (np.arange(4), ValueError, r"an int64 array of 5 ids in \[0, 5\), got shape \(4,\)"),
        (np.arange(6), ValueError, r"got shape \(6,\)"),
        (np.zeros((5, 1), np.int64), ValueError, r"got shape \(5, 1\)"),
        (np.arange(5.0), TypeError, "got float64"),
        (np.arange(5, dtype=np.uint64), TypeError, "got uint64"),
        ([0, 1, 2, 3, 4], TypeError, "list"),
        (None, TypeError, "NoneType"),
        (np.array([0, 1, 2, 3, 5]), ValueError, "got ids from 0 to 5"),
        (np.array([-1, 1, 2, 3, 4]), ValueError, "got ids from -1 to 4"),
    ],
)
def test_what_a_users_order_returns_is_checked(ids, error, message):
    with pytest.raises(error, match=message):
        list(DistributedSampler(range(5), 1, 0, order=Returns(ids)))
    with pytest.raises(error, match=message):
        Returns(ids).indices(0)
