"""The orders that are made from others or from arrays, once more: slow, short, plain ints. See _reference.py."""

from __future__ import annotations

from collections.abc import Sequence


def repeated(ids: Sequence[int], repeats: int) -> list[int]:
    """Returns the ids of `Repeated(order, repeats)` in an epoch in which `order` has these ids."""
    return [sample for sample in ids for _ in range(repeats)]
