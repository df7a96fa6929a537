"""Reading: samples from byte ranges, with few requests, and never more bytes than asked for but the gaps between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fastshard import _check
from fastshard._warnings import ShardError, ShardWarning, warn
from fastshard.webdataset.ranged import Range, Ranged
from fastshard.webdataset.sources import is_remote
from fastshard.webdataset.statistics import Counters

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.webdataset.index import TarIndex

GAP = 4096  # bytes between two samples that are read along with them: a header and what fills up a block
MOST_AT_ONCE = 8 << 20  # bytes of one request
# Bytes of samples that are read before the first of them is given. What is local should not be long out of the CPU's
# caches when it is cut into fields; what is remote comes the faster the more is asked for at once.
MOST_TOGETHER_LOCAL = 8 << 20
MOST_TOGETHER_REMOTE = 64 << 20

OnError = Literal["raise", "skip"]


class Reader:
    """Reads samples of the shards of an index.

    Args:
        index: where samples lie.
        on_error: what to do with a sample that can't be read. "raise"; or "skip": warn once for its shard, and give
            another one in its place, so that ranks and batches stay as even as they are.
    """

    def __init__(self, index: TarIndex, on_error: OnError = "raise") -> None:
        self._index = index
        self._on_error = _check.one_of("on_error", on_error, get_args(OnError))
        self._files = Ranged(index)
        self._counters = Counters()
        self._warned: set[int] = set()
        self._good: int | None = None  # the sample that was read last
        self._together = MOST_TOGETHER_REMOTE if any(map(is_remote, index.urls)) else MOST_TOGETHER_LOCAL

    @property
    def counters(self) -> Counters:
        """What was read."""
        return self._counters

    def read(self, samples: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """Gives samples as webdataset does: "__key__", "__url__", and each field's bytes; and "__index__".

        Raises:
            ShardError: a shard is gone, or another one than when it was indexed; with on_error="skip" only where no
                shard can be read any more.
        """
        shards, begins, ends = self._index.ranges(samples)
        together = np.cumsum(ends - begins) // self._together
        for part in np.split(np.arange(len(samples)), np.flatnonzero(np.diff(together)) + 1):
            for at, data in self._data(part, shards, begins, ends):
                sample, shard = int(samples[at]), int(shards[at])
                if isinstance(data, ShardError):
                    yield self._instead(shard, data)
                else:
                    self._good = sample
                    yield self._sample(sample, shard, int(begins[at]), data)

    def _instead(self, shard: int, error: ShardError) -> dict[str, Any]:
        """Another sample: the last one that could be read, or the first one of any shard."""
        if self._on_error == "raise":
            raise error
        if shard not in self._warned:
            self._warned.add(shard)
            warn(f"other samples are given in the place of what can't be read: {error}", ShardWarning)
        firsts = (self._index.samples_per_shard[:number].sum() for number in range(len(self._index.urls)))
        for sample in map(int, firsts if self._good is None else chain([self._good], firsts)):
            of, begins, ends = self._index.ranges([sample])
            data = self._files.read([(int(of[0]), int(begins[0]), int(ends[0]))])[0]
            if not isinstance(data, ShardError):
                self._good = sample
                return self._sample(sample, int(of[0]), int(begins[0]), memoryview(data))
        raise ShardError(f"no shard can be read any more; the last error: {error}") from error

    def _data(
        self,
        part: npt.NDArray[np.intp],
        shards: npt.NDArray[np.int64],
        begins: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
    ) -> Iterator[tuple[int, memoryview | ShardError]]:
        """The bytes of each sample of a part, in its order."""
        in_order = part[np.lexsort((begins[part], shards[part]))]  # as they lie on the disk
        ranges = list(zip(shards[in_order].tolist(), begins[in_order].tolist(), ends[in_order].tolist(), strict=True))
        firsts, merged = _merge(ranges)
        read = self._files.read(merged)
        if self._on_error == "skip":
            self._again(ranges, firsts, merged, read)
        found: dict[int, memoryview | ShardError] = {}
        places = in_order.tolist()
        for first, stop, (_, begin, _), data in zip(firsts, [*firsts[1:], len(ranges)], merged, read, strict=True):
            block = data if isinstance(data, ShardError) else memoryview(data)
            for number in range(first, stop):
                one = block
                if not isinstance(one, ShardError):
                    one = one[ranges[number][1] - begin : ranges[number][2] - begin]
                found[places[number]] = one
        lost = sum(isinstance(data, ShardError) for data in found.values())
        self._counters.add(len(found) - lost, sum(map(_size, read)), len(merged), lost)
        for at in part.tolist():
            yield at, found.pop(at)

    def _again(
        self,
        ranges: list[Range],
        firsts: list[int],
        merged: list[Range],
        read: list[bytes | ShardError],
    ) -> None:
        """Reads the samples of blocks that could not be read one by one, so that only the bad ones are lost."""
        for block in reversed(range(len(merged))):
            first, stop = firsts[block], firsts[block + 1] if block + 1 < len(firsts) else len(ranges)
            if isinstance(read[block], ShardError) and stop - first > 1:
                firsts[block : block + 1] = range(first, stop)
                merged[block : block + 1] = ranges[first:stop]
                read[block : block + 1] = self._files.read(ranges[first:stop])

    def _sample(self, sample: int, shard: int, begin: int, data: memoryview) -> dict[str, Any]:
        inner = self._index.inner(sample, shard)
        of_shard = self._index.shard(shard)
        found: dict[str, Any] = {
            "__key__": of_shard.key(inner),
            "__url__": self._index.urls[shard],
            "__index__": sample,
        }
        for name, (offset, size) in of_shard.fields(inner).items():
            found[name] = bytes(data[offset - begin : offset - begin + size])
        return found


def _merge(ranges: Sequence[Range]) -> tuple[list[int], list[Range]]:
    """Makes one request of neighbours: of each the first of its ranges, and what to read."""
    firsts: list[int] = []
    merged: list[Range] = []
    for number, (shard, begin, end) in enumerate(ranges):
        if merged:
            of, start, stop = merged[-1]
            if of == shard and begin <= stop + GAP and max(stop, end) - start <= MOST_AT_ONCE:
                merged[-1] = (shard, start, max(stop, end))
                continue
        firsts.append(number)
        merged.append((shard, begin, end))
    return firsts, merged


def _size(data: bytes | ShardError) -> int:
    return 0 if isinstance(data, ShardError) else len(data)
