"""Checks of arguments: each quotes the value it got and says what may be. Called once per public call."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_LENGTH = 2**63 - 1
MAX_EPOCH = 2**64 - 1

T = TypeVar("T")


def integer(name: str, value: object, low: int, high: int) -> int:
    """Returns `value` as an int in [low, high].

    Raises:
        TypeError: not an integer (a bool is none: True in the place of a count is a slipped argument).
        ValueError: outside [low, high].
    """
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {name}={value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an int, got {name}={value!r}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} must be in [{_power(low)}, {_power(high + 1)}), got {name}={number}")
    return number


def one_of(name: str, value: T, allowed: Iterable[T]) -> T:
    """Returns `value` if it is among `allowed`, else raises ValueError."""
    choices = list(allowed)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {name}={value!r}")
    return value


def boolean(name: str, value: object) -> bool:
    """Returns `value` as a bool: True, False, 1 or 0, numpy's too. Else raises TypeError: "no" is no False."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {name}={value!r}")


def positions(name: str, value: npt.ArrayLike, length: int) -> npt.NDArray[np.uint64]:
    """Returns `value` as a contiguous array of positions in [0, length), which is that array itself if it is one.

    Raises:
        TypeError: not of ints.
        ValueError: not of one dimension.
        IndexError: one of them is outside [0, length); the first is quoted.
    """
    try:
        given = np.asarray(value)
    except (ValueError, OverflowError):  # ragged
        given = np.array(None)
    if given.ndim == 1 and not given.size:
        return np.empty(0, np.uint64)  # an empty list has no type
    if given.dtype.kind not in "iu":
        raise TypeError(f"{name} must be a 1-D array of ints, got {name}={reprlib.repr(value)}")
    if given.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got {name} of shape {given.shape}")
    if given.min() < 0 or given.max() >= length:
        first = int(((given < 0) | (given >= length)).argmax())
        raise IndexError(f"{name} must be in [0, {_power(length)}), got {name}[{first}]={given[first]}")
    return np.ascontiguousarray(given, np.uint64)


def seed(value: object) -> int:
    """Returns a seed in [-2^63, 2^64), which is what torch's manual_seed takes too."""
    return integer("seed", value, -(2**63), 2**64 - 1)


def _power(bound: int) -> str:
    """2^63 reads better than 9223372036854775808."""
    exponent = abs(bound).bit_length() - 1
    if exponent < 32 or abs(bound) != 2**exponent:
        return str(bound)
    return f"{'-' if bound < 0 else ''}2^{exponent}"
