"""Samplers: an order, sliced for a rank, handed out epoch by epoch."""

from fastshard.samplers.batch import DistributedBatchSampler
from fastshard.samplers.distributed import DistributedSampler
from fastshard.samplers.installing import install, uninstall
from fastshard.samplers.lengths import LengthBucketBatchSampler
from fastshard.samplers.sharded import ShardedBatchSampler
from fastshard.samplers.weighted import WeightedDistributedSampler

__all__ = [
    "DistributedBatchSampler",
    "DistributedSampler",
    "LengthBucketBatchSampler",
    "ShardedBatchSampler",
    "WeightedDistributedSampler",
    "install",
    "uninstall",
]
