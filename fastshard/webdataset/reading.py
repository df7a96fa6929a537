"""Reading: byte ranges of many samples, with few requests, and never more than was asked for but the gaps between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard._warnings import ShardError
from fastshard.webdataset.sources import file_system, is_remote

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.webdataset.index import TarIndex

MOST_OPEN = 64  # shards whose files are kept open
GAP = 4096  # bytes between two samples that are read along with them: a header and what fills up a block
MOST_TOGETHER = 64 << 20  # bytes of samples that are read before the first of them is given
MOST_AT_ONCE = 8 << 20  # bytes of one request


class Reader:
    """Reads samples of the shards of an index. A copy, or a pickle, opens its files anew.

    Args:
        index: where samples lie.
    """

    def __init__(self, index: TarIndex) -> None:
        self._index = index
        self._files: dict[int, int] = {}
        self._owner = os.getpid()

    def read(self, samples: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """Gives samples as webdataset does: "__key__", "__url__", and each field's bytes; and "__index__".

        Raises:
            ShardError: a shard is gone, or shorter than when it was indexed.
        """
        shards, begins, ends = self._index.ranges(samples)
        together = np.cumsum(ends - begins) // MOST_TOGETHER
        for part in np.split(np.arange(len(samples)), np.flatnonzero(np.diff(together)) + 1):
            data: dict[int, memoryview] = {}
            for shard in np.unique(shards[part]).tolist():
                here = part[shards[part] == shard]
                self._read_shard(shard, here, begins, ends, data)
            for at in part.tolist():
                yield self._sample(int(samples[at]), int(shards[at]), int(begins[at]), data.pop(at))

    def _read_shard(
        self,
        shard: int,
        which: npt.NDArray[np.int64],
        begins: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        into: dict[int, memoryview],
    ) -> None:
        """Reads those samples in the order in which they lie, neighbours together."""
        in_order = which[np.argsort(begins[which], kind="stable")].tolist()
        at = 0
        while at < len(in_order):
            begin, end, after = int(begins[in_order[at]]), int(ends[in_order[at]]), at + 1
            while after < len(in_order) and begins[in_order[after]] <= end + GAP and end - begin < MOST_AT_ONCE:
                end = max(end, int(ends[in_order[after]]))
                after += 1
            block = memoryview(self._bytes(shard, begin, end))
            for number in in_order[at:after]:
                into[number] = block[int(begins[number]) - begin : int(ends[number]) - begin]
            at = after

    def _bytes(self, shard: int, begin: int, end: int) -> bytes:
        url = self._index.urls[shard]
        try:
            if is_remote(url):
                system, path = file_system(url)
                data: bytes = system.cat_file(path, start=begin, end=end)
            else:
                data = self._pread(shard, url, begin, end)
        except OSError as error:
            raise ShardError(f"{url}: offset {begin}: {error}") from error
        if len(data) != end - begin:
            raise ShardError(
                f"{url}: offset {begin}: {end - begin} bytes asked for and {len(data)} got; it changed since it was "
                "indexed"
            )
        return data

    def _pread(self, shard: int, url: str, begin: int, end: int) -> bytes:
        if self._owner != os.getpid():  # a forked worker leaves its parent's files alone
            self._files, self._owner = {}, os.getpid()
        file = self._files.get(shard)
        if file is None:
            if len(self._files) >= MOST_OPEN:
                os.close(self._files.pop(next(iter(self._files))))
            file = self._files[shard] = os.open(url, os.O_RDONLY | os.O_CLOEXEC)
        data = b""
        while len(data) < end - begin:  # a read may give less than it was asked for
            more = os.pread(file, end - begin - len(data), begin + len(data))
            if not more:
                break
            data = data + more if data else more
        return data

    def _sample(self, sample: int, shard: int, begin: int, data: memoryview) -> dict[str, Any]:
        inner = self._index.locate(sample)[1]
        of_shard = self._index.shard(shard)
        found: dict[str, Any] = {
            "__key__": of_shard.key(inner),
            "__url__": self._index.urls[shard],
            "__index__": sample,
        }
        for name, (offset, size) in of_shard.fields(inner).items():
            found[name] = bytes(data[offset - begin : offset - begin + size])
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}, "_owner": -1}

    def __del__(self) -> None:
        if self._owner == os.getpid():
            for file in self._files.values():
                os.close(file)
