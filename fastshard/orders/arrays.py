"""Orders that are made from an array, such as one weight per sample."""

from __future__ import annotations

import abc
import hashlib
import reprlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from fastshard import _check
from fastshard.orders.base import Order

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard._built import _core


@dataclass(frozen=True, eq=False, repr=False)
class ArrayOrder(Order, abc.ABC):
    """An order filled by `_core`, whose first field is an array. Immutable, and pickled by its arguments alone.

    Subclasses check their fields in `__post_init__`, make the array one of their own that nobody can write to, and call
    `_keep` with the compiled order.
    """

    _trusted: ClassVar[bool] = True

    def _keep(self, order: _core.Order) -> None:
        object.__setattr__(self, "_order", order)  # not a field: it is neither compared nor shown

    @property
    def _core(self) -> _core.Order:
        order: _core.Order = self.__dict__["_order"]
        return order

    def _arguments(self) -> tuple[npt.NDArray[Any], tuple[Any, ...]]:
        array, *others = (getattr(self, field.name) for field in fields(self) if field.init)
        return array, tuple(others)

    def digest(self) -> str:
        """Of all arguments, the array's numbers among them."""
        if "_digest" not in self.__dict__:
            array, others = self._arguments()
            found = hashlib.blake2b(repr((array.dtype.str, array.shape, others)).encode(), digest_size=8)
            found.update(np.ascontiguousarray(array).data)
            object.__setattr__(self, "_digest", found.hexdigest())
        digest: str = self.__dict__["_digest"]
        return digest

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        (mine, others), (its, its_others) = self._arguments(), other._arguments()
        return others == its_others and np.array_equal(mine, its)

    def __hash__(self) -> int:
        array, others = self._arguments()
        return hash((type(self), len(array), others))  # equal orders agree; a hash of all of the array would cost O(n)

    def __repr__(self) -> str:
        # An error message that quotes an order must not print a million numbers.
        array, others = self._arguments()
        names = [field.name for field in fields(self) if field.init]
        shown = [f"{names[0]}=<{len(array)} of {array.dtype}>"]
        shown += [f"{name}={value!r}" for name, value in zip(names[1:], others, strict=True)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        array, others = self._arguments()
        return type(self), (array, *others)

    def __deepcopy__(self, memo: dict[int, Any]) -> ArrayOrder:
        return self  # immutable

    def _fill(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        return self._core.indices(epoch, start, count, step)

    def _take(self, epoch: int, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        return self._core.take(epoch, positions)


def whole_numbers(name: str, noun: str, values: Any) -> npt.NDArray[np.integer[Any]]:
    """Returns `values`, an argument of that name, as an array of one int in [0, 2^63) for each `noun`.

    Raises:
        TypeError, ValueError: `values` is no 1-D array-like of such ints, or empty.
    """
    given = values.detach().cpu() if isinstance(values, torch.Tensor) else values
    try:
        given = np.asarray(given)
    except (TypeError, ValueError):  # ragged, or a tensor of a type that numpy has not
        given = np.array(None)
    if given.ndim == 1 and not given.size:
        raise ValueError(f"{name} must have at least one {noun}, got none")
    if given.dtype.kind not in "iu":
        raise TypeError(f"{name} must be a 1-D array of ints, got {name}={reprlib.repr(values)}")
    if given.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got {name} of shape {given.shape}")
    wrong = (given < 0) | (given > _check.MAX_LENGTH)
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"{name} must be in [0, 2^63), got {name}[{first}]={given[first]}")
    array: npt.NDArray[np.integer[Any]] = given
    return array
