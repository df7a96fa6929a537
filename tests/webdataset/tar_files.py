"""Shards for the tests, and what webdataset itself and an index of ours say is in them."""

import io
import tarfile

from webdataset.tariterators import group_by_keys, tar_file_expander

from fastshard import _core
from fastshard.webdataset import shard


def tar_of(names, tar_format=tarfile.GNU_FORMAT, size=5):
    """A tar of files with these names, each of `size` bytes of its own."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
        for i, name in enumerate(names):
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(bytes([i % 256]) * size))
    return buffer.getvalue()


def samples_of_webdataset(data):
    """Keys and fields with their bytes, in order, as webdataset's own reader yields them."""
    sources = [{"url": "shard", "stream": io.BytesIO(data)}]
    samples = list(group_by_keys(tar_file_expander(sources)))
    return [{name: value for name, value in sample.items() if name != "__url__"} for sample in samples]


def samples_by_range(index, data):
    """The same, from the byte ranges of a ShardIndex."""
    return [
        {"__key__": index.key(i)}
        | {name: data[offset : offset + size] for name, (offset, size) in index.fields(i).items()}
        for i in range(len(index))
    ]


def index_of(data, ahead=1 << 30):
    """A ShardIndex of a tar in memory, fed in pieces of at least `ahead` bytes."""
    indexer = _core.TarIndexer(len(data))
    while (wanted := indexer.wants()) is not None:
        start, length = wanted
        indexer.feed(start, data[start : start + max(length, ahead)])
    return shard.from_core(indexer)
