"""Weights as whole numbers: how many of the positions of a period each source of a mix gets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

MAX_PERIOD = 2**20  # kMaxPeriod in csrc/order/interleave.h


def shares_of(weights: Any, count: int) -> tuple[tuple[int | float | Fraction | Decimal, ...], list[int]]:
    """Returns the weights as a tuple of Python numbers, and whole numbers in proportion to them.

    Exactly in proportion if these add up to at most MAX_PERIOD. Else they are rounded to add up to that, by largest
    remainder (of equal ones the first), but none that is above 0 to 0.

    Raises:
        TypeError, ValueError: not `count` numbers that are finite, not negative and not all 0.
    """
    if isinstance(weights, str | bytes) or not isinstance(weights, Iterable):
        raise TypeError(f"weights must be a sequence of numbers, got weights={weights!r}")
    given = list(weights)
    if len(given) != count:
        raise ValueError(f"weights must be one for each of {count} orders, got {len(given)}")
    numbers, exact = zip(*(_exact(i, weight) for i, weight in enumerate(given)), strict=True)
    if not any(exact):
        raise ValueError(f"weights must have at least one above 0, got weights={list(numbers)}")
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    divisor = math.gcd(*whole)
    shares = [weight // divisor for weight in whole]
    return numbers, shares if sum(shares) <= MAX_PERIOD else _rounded(shares)


def _rounded(shares: list[int]) -> list[int]:
    total = sum(shares)
    rounded = [share * MAX_PERIOD // total for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda s: (-(shares[s] * MAX_PERIOD % total), s))
    for s in by_remainder[: MAX_PERIOD - sum(rounded)]:
        rounded[s] += 1
    for s, share in enumerate(shares):
        if share and not rounded[s]:
            rounded[s] = 1
            rounded[rounded.index(max(rounded))] -= 1  # who has most, misses it least
    divisor = math.gcd(*rounded)
    return [share // divisor for share in rounded]


def _exact(i: int, weight: Any) -> tuple[int | float | Fraction | Decimal, Fraction]:
    number: int | float | Fraction | Decimal
    try:
        if isinstance(weight, bool | np.bool_ | str):
            raise TypeError  # noqa: TRY301 (what is no number is the same mistake)
        if isinstance(weight, Fraction | Decimal):
            number = weight
        elif isinstance(weight, int | np.integer):
            number = int(weight)
        elif isinstance(weight, np.floating):
            number = float(str(weight))  # a float32 is printed with fewer digits
        else:
            number = float(weight)
    except (TypeError, ValueError):
        raise TypeError(f"weights must be real numbers, got weights[{i}]={weight!r}") from None
    try:
        exact = Fraction(str(number)) if isinstance(number, float) else Fraction(number)
    except (ValueError, OverflowError):  # not a number, infinite
        exact = Fraction(-1)
    if exact < 0:
        raise ValueError(f"weights must be finite and not negative, got weights[{i}]={weight}")
    return number, exact
