"""WebDataset shards: `TarIndex` knows where each sample lies, and `ShardedWebDataset` deals them to ranks."""

from fastshard._warnings import ShardError, ShardWarning
from fastshard.webdataset.dataset import ShardedWebDataset
from fastshard.webdataset.formats import read_idx, read_wids, write_idx, write_wids
from fastshard.webdataset.ids import hashed_ids, sample_ids
from fastshard.webdataset.index import TarIndex
from fastshard.webdataset.shard import ShardIndex
from fastshard.webdataset.statistics import Statistics

__all__ = [
    "ShardError",
    "ShardIndex",
    "ShardWarning",
    "ShardedWebDataset",
    "Statistics",
    "TarIndex",
    "hashed_ids",
    "read_idx",
    "read_wids",
    "sample_ids",
    "write_idx",
    "write_wids",
]
