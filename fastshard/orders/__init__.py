"""Orders: which sample id sits at a position of an epoch. One class each, all with the contract of `Order`."""

from fastshard.orders.base import Order
from fastshard.orders.blocks import BlockShuffled
from fastshard.orders.core import Sequential, Shuffled, TorchShuffled
from fastshard.orders.lengths import LengthGrouped
from fastshard.orders.mixed import Mixed
from fastshard.orders.repeated import Repeated
from fastshard.orders.table import BY_NAME
from fastshard.orders.weighted import Weighted

__all__ = [
    "BY_NAME",
    "BlockShuffled",
    "LengthGrouped",
    "Mixed",
    "Order",
    "Repeated",
    "Sequential",
    "Shuffled",
    "TorchShuffled",
    "Weighted",
]
