"""WebDataset shards by sample number: `TarIndex` knows where in which tar file each sample lies."""

from fastshard._warnings import ShardError, ShardWarning
from fastshard.webdataset.dataset import ShardedWebDataset
from fastshard.webdataset.formats import read_idx, read_wids, write_idx, write_wids
from fastshard.webdataset.index import TarIndex
from fastshard.webdataset.shard import ShardIndex

__all__ = [
    "ShardError",
    "ShardIndex",
    "ShardWarning",
    "ShardedWebDataset",
    "TarIndex",
    "read_idx",
    "read_wids",
    "write_idx",
    "write_wids",
]
