"""The orders that samplers know by a word: `order="torch"` is `BY_NAME["torch"](n, seed)`."""

from __future__ import annotations

from collections.abc import Callable

from fastshard.orders.base import Order
from fastshard.orders.core import Shuffled, TorchShuffled

BY_NAME: dict[str, Callable[[int, int], Order]] = {
    "shuffled": Shuffled,
    "torch": TorchShuffled,
}
