"""Orders whose ids come from the compiled core."""

from __future__ import annotations

import abc
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from fastshard import _check
from fastshard._built import _core
from fastshard.orders.base import Order

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class CoreOrder(Order, abc.ABC):
    """An order of n samples, filled by `_core`. Immutable, hashable, and pickled by its arguments alone."""

    n: int
    _trusted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in _CHECKS:
                object.__setattr__(self, field.name, _CHECKS[field.name](getattr(self, field.name)))
        object.__setattr__(self, "_order", self._build())

    def __len__(self) -> int:
        return self.n

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled object is rebuilt on arrival: a permutation of gigabytes must not travel to a worker.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @abc.abstractmethod
    def _build(self) -> _core.Order: ...

    @property
    def _core(self) -> _core.Order:
        order: _core.Order = self.__dict__["_order"]  # not a field: it is neither compared nor shown
        return order

    def _fill(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        return self._core.indices(epoch, start, count, step)

    def _prepare(self, epoch: int) -> None:
        self._core.prepare(epoch)

    def _take(self, epoch: int, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        return self._core.take(epoch, positions)


class CoreBijection(CoreOrder, abc.ABC):
    """A CoreOrder that holds every id exactly once."""

    def _position(self, epoch: int, sample: int) -> int:
        order = self._core
        assert isinstance(order, _core.Bijection)
        return order.position(epoch, sample)


def _length(n: object) -> int:
    return _check.integer("n", n, 1, _check.MAX_LENGTH)


_CHECKS = {"n": _length, "seed": _check.seed}


@dataclass(frozen=True)
class Sequential(CoreBijection):
    """The identity: position p holds sample p, in every epoch.

    Args:
        n: number of samples, in [1, 2^63).
    """

    name: ClassVar[str] = "sequential/1"
    reshuffles: ClassVar[bool] = False

    def _build(self) -> _core.Bijection:
        return _core.Sequential()


@dataclass(frozen=True)
class Shuffled(CoreBijection):
    """A keyed pseudo-random permutation: any position of any epoch at once, in constant memory.

    Args:
        n: number of samples, in [1, 2^63).
        seed: any int in [-2^63, 2^64), taken modulo 2^64. No two pairs of (seed, epoch) share an order, other than
            by chance: (0, 1) is not (1, 0).

    Source: docs/design.md, "Shuffled".
    """

    seed: int = 0
    name: ClassVar[str] = "shuffled/1"

    def _build(self) -> _core.Bijection:
        return _core.Shuffled(self.n, self.seed % 2**64)


@dataclass(frozen=True)
class TorchShuffled(CoreBijection):
    """Exactly torch's order: `torch.randperm(n)` on the CPU after `manual_seed(seed + epoch)`.

    An epoch's permutation is computed at the first request and kept until another epoch's is asked for: 4 bytes a
    sample below 2^32 samples, 8 above, and as much again from `prepare` of the next epoch to its first request. From
    2^20 samples on, the processes of a user on one Linux machine share one copy: the first one makes it, the others
    wait for it, at most FASTSHARD_SHARE_TIMEOUT seconds (an environment variable; by default 300, and a microsecond
    for each sample), after which they make their own. 0 is never to share.

    By torch's rule (seed 0, epoch 1) and (seed 1, epoch 0) are one order.

    Args:
        n: number of samples, in [1, 2^63), as far as memory goes.
        seed: any int in [-2^63, 2^64). seed + epoch is taken modulo 2^64, of which torch uses the low 32 bits.

    Raises:
        MemoryError: at the first request, with the size that would be needed.
        ValueError: at the first request, FASTSHARD_SHARE_TIMEOUT is no number of seconds.

    Source: randperm_cpu in ATen/native/TensorFactories.cpp of torch 2.13, compared with torch's output by the tests.
    """

    seed: int = 0
    name: ClassVar[str] = "torch/1"

    def _build(self) -> _core.Bijection:
        return _core.TorchShuffled(self.n, self.seed % 2**64)
