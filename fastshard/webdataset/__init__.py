"""WebDataset shards: `TarIndex` knows where samples lie, `ShardedWebDataset` deals samples, stages deal shards."""

from fastshard._warnings import ShardError, ShardWarning, UnevenShardsWarning
from fastshard.webdataset.dataset import ShardedWebDataset
from fastshard.webdataset.formats import read_idx, read_wids, write_idx, write_wids
from fastshard.webdataset.ids import hashed_ids, sample_ids
from fastshard.webdataset.index import TarIndex
from fastshard.webdataset.shard import ShardIndex
from fastshard.webdataset.stages import shards, split_by_rank, split_by_worker
from fastshard.webdataset.statistics import Statistics
from fastshard.webdataset.whole import WholeShards

__all__ = [
    "ShardError",
    "ShardIndex",
    "ShardWarning",
    "ShardedWebDataset",
    "Statistics",
    "TarIndex",
    "UnevenShardsWarning",
    "WholeShards",
    "hashed_ids",
    "read_idx",
    "read_wids",
    "sample_ids",
    "shards",
    "split_by_rank",
    "split_by_worker",
    "write_idx",
    "write_wids",
]
