"""The contract of every order: which sample id sits at a position of an epoch."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fastshard import _check

if TYPE_CHECKING:
    import numpy.typing as npt

_DENSE = 16  # ids in a stretch for each that is wanted, up to which `take` asks for all of them


class Order(abc.ABC):
    """One global order of sample ids per epoch, the same on every rank.

    An order is stateless: what sits at a position depends on (epoch, position) and the order's own arguments alone,
    never on global random state, on what was asked before, or on the world size. Subclasses give `name`, `__len__`
    and `_fill`, and must be picklable and cheap to build, because a sampler carries its order into worker processes.
    """

    name: ClassVar[str]
    """Name and version, such as "torch/1". A version never changes meaning: resuming a run depends on it."""

    reshuffles: ClassVar[bool] = True
    """Whether epochs differ. Two passes over one epoch are suspicious only if they do."""

    _trusted: ClassVar[bool] = False  # our own orders' arrays are right by construction, others are checked

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of positions in an epoch."""

    @property
    def num_ids(self) -> int:
        """Ids are in [0, num_ids): the length of the dataset that this order is for."""
        return len(self)

    def indices(self, epoch: int, start: int = 0, stop: int | None = None, step: int = 1) -> npt.NDArray[np.int64]:
        """Returns the ids at positions start, start + step, ... below stop.

        Costs the same wherever the positions lie, and touches no others.

        Args:
            epoch: any int in [0, 2^64).
            start: first position, in [0, len(self)].
            stop: end of the positions, in [start, len(self)]; None is len(self).
            step: distance of two positions, at least 1.

        Returns:
            An int64 array of ceil((stop - start) / step) ids.

        Raises:
            TypeError: an argument is not an int.
            ValueError: an argument is out of its range.
            MemoryError: the array, or what the order keeps for an epoch, does not fit.

        Example:
            >>> orders.Sequential(10).indices(epoch=0, start=1, step=4).tolist()
            [1, 5, 9]
        """
        length = len(self)
        epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        start = _check.integer("start", start, 0, length)
        stop = length if stop is None else _check.integer("stop", stop, start, length)
        step = _check.integer("step", step, 1, _check.MAX_LENGTH)
        count = -((start - stop) // step)
        if count > _check.MAX_LENGTH // 8:
            raise MemoryError(f"an array of {count} int64 ids is larger than the address space")
        return self._filled(epoch, start, count, step)

    def take(self, epoch: int, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Returns the ids at the given positions, as numpy.take: in any order, and any number of times each.

        For positions that are evenly spaced, `indices` is faster. A user's order that gives no `_take` of its own is
        asked for the whole stretch if at least one position in sixteen is wanted, else for one evenly spaced run after
        the other.

        Args:
            epoch: any int in [0, 2^64).
            positions: positions in [0, len(self)): a 1-D array-like of ints.

        Returns:
            An int64 array of len(positions) ids.

        Raises:
            TypeError: an argument is not an int, or not of ints.
            ValueError: epoch is out of its range, or positions has not one dimension.
            IndexError: a position is out of its range; the message has the first one.

        Example:
            >>> orders.Sequential(10).take(epoch=0, positions=[7, 1, 7]).tolist()
            [7, 1, 7]
        """
        epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        wanted = _check.positions("positions", positions, len(self))
        ids = self._take(epoch, wanted)
        if not self._trusted:
            self._check_filled(ids, len(wanted), "_take")
        return ids

    def index(self, epoch: int, position: int) -> int:
        """Returns the id at one position. For many, ask `indices` once instead of this often.

        Raises:
            IndexError: position is not in [0, len(self)).
        """
        try:
            position = _check.integer("position", position, 0, len(self) - 1)
        except ValueError as error:
            raise IndexError(str(error)) from None
        return int(self.indices(epoch, position, position + 1)[0])

    def position(self, epoch: int, id: int) -> int:  # noqa: A002 (the field's word)
        """Returns the position that holds `id`: the inverse of `index`.

        Args:
            epoch: any int in [0, 2^64).
            id: a sample id, in [0, num_ids).

        Raises:
            TypeError: an argument is not an int, or this order may hold an id several times or not at all.
            ValueError: an argument is out of its range.

        Example:
            >>> order = orders.Shuffled(10**12, seed=1)
            >>> order.index(0, order.position(0, 123))
            123
        """
        epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        return self._position(epoch, _check.integer("id", id, 0, self.num_ids - 1))

    def digest(self) -> str:
        """Says by a few letters what the order's ids depend on besides name, seed and length: "" if nothing.

        A resume compares it, so that it never goes on in another order. For orders with more arguments to override.
        """
        return ""

    def prepare(self, epoch: int) -> None:
        """Begins, in the background, whatever `epoch` will need, and returns at once.

        A hint, which changes no id: samplers give it for the next epoch when half of one is drawn. Most orders need
        nothing.

        Args:
            epoch: any int in [0, 2^64).

        Raises:
            TypeError, ValueError: epoch is not such an int.
        """
        self._prepare(_check.integer("epoch", epoch, 0, _check.MAX_EPOCH))

    def _prepare(self, epoch: int) -> None:  # noqa: B027 (most orders need nothing)
        """Does the work of `prepare`. For orders that compute a whole epoch to override."""

    def _position(self, epoch: int, sample: int) -> int:  # noqa: ARG002
        """Does the work of `position`. For bijections to override."""
        raise TypeError(f"{self!r} may hold an id several times or not at all, so an id has no position")

    @abc.abstractmethod
    def _fill(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        """Does the work of `indices`, whose checks have passed: every position asked for exists.

        Returns:
            An int64 array of `count` ids in [0, num_ids), which `indices` checks.
        """

    def _filled(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        ids = self._fill(epoch, start, count, step)
        if not self._trusted:
            self._check_filled(ids, count, "_fill")
        return ids

    def _take(self, epoch: int, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Does the work of `take`, whose checks have passed. To be overridden where `_fill` is not the fastest way.

        Returns:
            An int64 array of len(positions) ids in [0, num_ids), which `take` checks.
        """
        if not len(positions):
            return np.empty(0, np.int64)
        low, high = int(positions.min()), int(positions.max())
        if high - low < _DENSE * len(positions):
            return self._filled(epoch, low, high - low + 1, 1)[(positions - np.uint64(low)).astype(np.int64)]
        runs = [self._filled(epoch, *run) for run in _runs(positions.astype(np.int64))]
        return np.concatenate(runs)

    def _check_filled(self, ids: npt.NDArray[np.int64], count: int, method: str) -> None:
        """One rank with an id more, or an id out of range, is a hang or a wrong sample somewhere else."""
        what = f"{type(self).__name__}.{method} must return an int64 array of {count} ids in [0, {self.num_ids})"
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64:
            raise TypeError(f"{what}, got {getattr(ids, 'dtype', type(ids))}")
        if ids.shape != (count,):
            raise ValueError(f"{what}, got shape {ids.shape}")
        if count and not (ids.min() >= 0 and ids.max() < self.num_ids):
            raise ValueError(f"{what}, got ids from {ids.min()} to {ids.max()}")


def _runs(positions: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yields (start, count, step) of evenly spaced runs, each as long as it goes on, that together are `positions`."""
    steps = np.diff(positions)
    # Where run i of equal steps ends: the position after it has another step, or there is none.
    ends = np.append(np.flatnonzero(steps[1:] != steps[:-1]) + 1, len(steps))
    at = 0
    while at < len(positions):
        last = int(ends[np.searchsorted(ends, at, side="right")]) if at < len(steps) else at
        step = int(steps[at]) if at < len(steps) else 1
        if step < 1:
            last, step = at, 1
        yield int(positions[at]), last - at + 1, step
        at = last + 1
