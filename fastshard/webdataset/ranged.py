"""Ranged: bytes of shards, wherever these lie: pread of local files, and many range requests at once of remote ones."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from fastshard._warnings import ShardError
from fastshard.webdataset.sources import file_system, is_remote, stamp_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastshard.webdataset.index import TarIndex

MOST_OPEN = 64  # shards whose files are kept open

Range = tuple[int, int, int]
"""Number of a shard, and begin and end of bytes in it."""


class Ranged:
    """Reads byte ranges of the shards of an index. A copy, or a pickle, opens its files anew.

    A shard is held against its index when it is read first, by size and by what else tells one state from another.

    Args:
        index: which shards there are.
    """

    def __init__(self, index: TarIndex) -> None:
        self._index = index
        self._files: dict[int, int] = {}
        self._checked: set[int] = set()
        self._owner = os.getpid()

    def read(self, ranges: Sequence[Range]) -> list[bytes | ShardError]:
        """The bytes of each range, or why it can't be had. A disk, or a server, is told of all of them at once."""
        if self._owner != os.getpid():  # a forked worker leaves its parent's files alone
            self._files, self._checked, self._owner = {}, set(), os.getpid()
        if len(ranges) > 1:
            self._announce(ranges)
        found: list[bytes | ShardError] = [b""] * len(ranges)
        remote: dict[int, tuple[int, Any, str]] = {}
        for number, (shard, begin, end) in enumerate(ranges):
            url = self._index.urls[shard]
            try:
                if is_remote(url):
                    remote[number] = (shard, *self._system(shard, url))
                else:
                    found[number] = _whole(url, begin, end, self._pread(shard, url, begin, end))
            except Exception as error:  # each file system's library has errors of its own
                found[number] = _named(url, begin, error)
        for system in {id(system): system for _, system, _ in remote.values()}.values():
            numbers = [number for number, (_, one, _) in remote.items() if one is system]
            paths = [remote[number][2] for number in numbers]
            starts, ends = [ranges[number][1] for number in numbers], [ranges[number][2] for number in numbers]
            try:
                got = system.cat_ranges(paths, starts, ends, on_error="return")
            except Exception as error:
                got = [error] * len(numbers)
            for number, data in zip(numbers, got, strict=True):
                shard, begin, end = ranges[number]
                found[number] = _whole(self._index.urls[shard], begin, end, data)
        return found

    def _announce(self, ranges: Sequence[Range]) -> None:
        """Has the disk fetch local ranges side by side. In the page cache already, they cost some hundred ns each."""
        if not hasattr(os, "posix_fadvise"):  # macOS
            return
        for shard, begin, end in ranges:
            url = self._index.urls[shard]
            if not is_remote(url):
                # An error is found once more, and told, where the bytes are read.
                with contextlib.suppress(OSError, ValueError):
                    os.posix_fadvise(self._open(shard, url), begin, end - begin, os.POSIX_FADV_WILLNEED)

    def _open(self, shard: int, url: str) -> int:
        file = self._files.get(shard)
        if file is None:
            if len(self._files) >= MOST_OPEN:
                os.close(self._files.pop(next(iter(self._files))))
            self._check(shard, url)
            file = self._files[shard] = os.open(url, os.O_RDONLY | os.O_CLOEXEC)
        return file

    def _pread(self, shard: int, url: str, begin: int, end: int) -> bytes:
        file = self._open(shard, url)
        data = os.pread(file, end - begin, begin)
        while len(data) < end - begin:  # a read may give less than it was asked for: 2 GiB at most, to begin with
            more = os.pread(file, end - begin - len(data), begin + len(data))
            if not more:
                break
            data += more
        return data

    def _system(self, shard: int, url: str) -> tuple[Any, str]:
        if shard not in self._checked:
            self._check(shard, url)
            self._checked.add(shard)
        return file_system(url)

    def _check(self, shard: int, url: str) -> None:
        was, now = self._index.stamp(shard), stamp_of(url)
        if was.size != now.size or (was.tag and was.tag != now.tag):
            raise ValueError(f"it changed since it was indexed: {was} then, {now} now")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}, "_checked": set(), "_owner": -1}

    def __del__(self) -> None:
        if self._owner == os.getpid():
            for file in self._files.values():
                os.close(file)


def _whole(url: str, begin: int, end: int, data: Any) -> bytes | ShardError:
    """What was got, if it is what was asked for."""
    if isinstance(data, Exception):
        return _named(url, begin, data)
    if len(data) != end - begin:
        what = "it was cut off since it was indexed, or its server doesn't serve ranges"
        return ShardError(f"{url}: offset {begin}: {end - begin} bytes asked for and {len(data)} got; {what}")
    got: bytes = data
    return got


def _named(url: str, begin: int, error: Exception) -> ShardError:
    what = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    named = ShardError(f"{url}: offset {begin}: {what}")
    named.__cause__ = error
    return named
