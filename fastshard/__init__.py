"""fastshard: the order in which data-parallel training sees its samples: exact, instant, provable."""

from fastshard import ddp, orders
from fastshard._version import __version__
from fastshard._warnings import (
    EmptyRankWarning,
    EpochChangedError,
    EpochChangedWarning,
    GlobalBatchChangedWarning,
    LedgerError,
    RepeatedEpochError,
    RepeatedEpochWarning,
    StateMismatchError,
    UnshardedWarning,
)
from fastshard.cursor import Cursor
from fastshard.ledger import Ledger, LedgerReport, RangeExpected
from fastshard.loader import DataLoader
from fastshard.samplers import (
    DistributedBatchSampler,
    DistributedSampler,
    LengthBucketBatchSampler,
    ShardedBatchSampler,
    WeightedDistributedSampler,
    install,
    uninstall,
)
from fastshard.slicing import Slice
from fastshard.streaming.iterable import ShardedIterable

__all__ = [
    "Cursor",
    "DataLoader",
    "DistributedBatchSampler",
    "DistributedSampler",
    "EmptyRankWarning",
    "EpochChangedError",
    "EpochChangedWarning",
    "GlobalBatchChangedWarning",
    "Ledger",
    "LedgerError",
    "LedgerReport",
    "LengthBucketBatchSampler",
    "RangeExpected",
    "RepeatedEpochError",
    "RepeatedEpochWarning",
    "ShardedBatchSampler",
    "ShardedIterable",
    "Slice",
    "StateMismatchError",
    "UnshardedWarning",
    "WeightedDistributedSampler",
    "__version__",
    "ddp",
    "install",
    "orders",
    "uninstall",
]
