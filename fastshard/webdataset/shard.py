"""ShardIndex: where the samples of one shard lie, and its file. docs/tar_index.md describes the format."""

from __future__ import annotations

import mmap
import os
import struct
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard._core import TarIndexer

MAGIC = b"\x89FSI\r\n\x1a\n"
VERSION = 1
SUFFIX = ".fsi"
_HEADER = struct.Struct("<8sIIqqqqqq")  # magic, version, checksum, size of the shard, then five counts
_CHECKED_FROM = 16  # the checksum is of all that comes after it


class DamagedIndexError(ValueError):
    """A file is no saved index, or not the one that was written."""


@dataclass(frozen=True)
class Stamp:
    """What tells one state of a shard from another.

    Args:
        size: bytes of the shard.
        tag: when it was changed, or which version it is, in the words of where it lies.
    """

    size: int
    tag: str


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """Where the samples of one shard lie: flat arrays, in the order of the shard.

    File f of the shard has its data at offsets[f], sizes[f] bytes of it, and is field field_names[field_ids[f]].
    Sample i has files [sample_starts[i], sample_starts[i + 1]), and key keys[key_starts[i]:key_starts[i + 1]].

    Args:
        offsets: int64, by file, in bytes from the beginning of the shard.
        sizes: int64, by file, in bytes.
        sample_starts: int64, by sample, and the number of files at its end.
        key_starts: int64, by sample, and the length of `keys` at its end.
        field_ids: uint16, by file.
        keys: all keys one after the other, as bytes of the archive.
        field_names: in lower case, as WebDataset has them.
    """

    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    sample_starts: npt.NDArray[np.int64]
    key_starts: npt.NDArray[np.int64]
    field_ids: npt.NDArray[np.uint16]
    keys: npt.NDArray[np.uint8]
    field_names: tuple[str, ...]

    def __len__(self) -> int:
        """Samples of the shard."""
        return len(self.sample_starts) - 1

    def key(self, i: int) -> str:
        """Key of sample i of the shard, as WebDataset's `__key__`."""
        start, stop = self.key_starts[i : i + 2].tolist()
        return decode(self.keys[start:stop].tobytes())

    def fields(self, i: int) -> dict[str, tuple[int, int]]:
        """Offset and size in bytes of each field of sample i of the shard."""
        start, stop = self.sample_starts[i : i + 2].tolist()
        columns = (self.field_ids[start:stop], self.offsets[start:stop], self.sizes[start:stop])
        return {
            self.field_names[field]: (offset, size)
            for field, offset, size in zip(*(column.tolist() for column in columns), strict=True)
        }

    def ranges(self, samples: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Byte range [begin, end) of the shard that covers all fields of each of `samples`, and little else."""
        last = self.sample_starts[samples + 1] - 1
        return self.offsets[self.sample_starts[samples]], self.offsets[last] + self.sizes[last]


def decode(name: bytes) -> str:
    """Names as Python's tarfile, and so WebDataset, has them: bytes that are no UTF-8 come through too."""
    return name.decode("utf-8", "surrogateescape")


def from_core(indexer: TarIndexer) -> ShardIndex:
    """The arrays of a core's indexer that is done.

    Raises:
        ValueError: two fields are one in lower case. (The core knows that of ASCII letters alone.)
    """
    offsets, sizes, sample_starts, key_starts, field_ids, keys, fields = indexer.arrays()
    names = tuple(decode(field).lower() for field in fields)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"fields that differ only in the case of non-ASCII letters: {twice!r}")
    return ShardIndex(offsets, sizes, sample_starts, key_starts, field_ids, np.frombuffer(keys, np.uint8), names)


def to_bytes(index: ShardIndex, stamp: Stamp) -> bytes:
    """What `save` writes."""
    tag = stamp.tag.encode()
    names = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in index.field_names)
    arrays = (index.offsets, index.sizes, index.sample_starts, index.key_starts)
    body = [array.astype("<i8").tobytes() for array in arrays]
    body += [index.field_ids.astype("<u2").tobytes(), index.keys.tobytes(), names, tag]
    counts = (len(index), len(index.offsets), len(index.keys), len(names), len(tag))
    header = _HEADER.pack(MAGIC, VERSION, 0, stamp.size, *counts)
    checksum = zlib.crc32(b"".join([header[_CHECKED_FROM:], *body]))
    return b"".join([_HEADER.pack(MAGIC, VERSION, checksum, stamp.size, *counts), *body])


def checksum_of(data: bytes | mmap.mmap) -> int:
    """The checksum that the header of a saved index tells."""
    return int(_HEADER.unpack_from(data)[2])


def from_bytes(data: bytes | mmap.mmap, *, verify: bool = True) -> tuple[ShardIndex, Stamp]:
    """The index in `data`, whose arrays are views of it, and of which shard it is.

    Args:
        data: what `to_bytes` gave.
        verify: whether to compare the checksum, which reads all of it.

    Raises:
        DamagedIndexError: it is no such index, or is damaged.
    """
    if len(data) < _HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise DamagedIndexError("not a saved index")
    _, version, checksum, size, samples, files, key_bytes, name_bytes, tag_bytes = _HEADER.unpack_from(data)
    if version != VERSION:
        raise DamagedIndexError(f"of version {version}, and this is {VERSION}")
    types = [("<i8", files)] * 2 + [("<i8", samples + 1)] * 2 + [("<u2", files)]
    types += [("u1", key_bytes), ("u1", name_bytes), ("u1", tag_bytes)]
    counts = [count for _, count in types]
    if min(counts) < 0 or _HEADER.size + sum(int(kind[-1]) * count for kind, count in types) != len(data):
        raise DamagedIndexError(f"{len(data)} bytes, which is not what its header tells")
    if verify and zlib.crc32(memoryview(data)[_CHECKED_FROM:]) != checksum:
        raise DamagedIndexError("its checksum is wrong")
    arrays: list[npt.NDArray[Any]] = []
    at = _HEADER.size
    for kind, count in types:
        arrays.append(np.frombuffer(data, kind, count, at))
        at += arrays[-1].nbytes
    offsets, sizes, sample_starts, key_starts, field_ids, keys, names, tag = arrays
    fields = tuple(decode(name) for name in names.tobytes().split(b"\0")[:-1])
    index = ShardIndex(offsets, sizes, sample_starts, key_starts, field_ids, keys, fields)
    return index, Stamp(size, tag.tobytes().decode())


def save(data: bytes, path: Path) -> None:
    """Writes a saved index so that whoever reads meanwhile sees the old one or the new one.

    Not forced to the disk: what a crash of the machine leaves is found damaged, and made anew.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex}")
    try:
        written.write_bytes(data)
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def map_file(path: Path | str) -> mmap.mmap:
    """The bytes of a file, which take no memory of this process's own.

    Raises:
        DamagedIndexError: it is empty.
        OSError: it can't be opened.
    """
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise DamagedIndexError("an empty file")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
