"""TarIndex: which shard, and which bytes of it, hold sample i: 18 bytes a file, 16 and its key a sample."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from fastshard import _check
from fastshard._warnings import ShardError, ShardWarning, warn
from fastshard.webdataset import shard as saved
from fastshard.webdataset import sources
from fastshard.webdataset.shard import DamagedIndexError, ShardIndex, Stamp

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")

MAX_OPEN = 128
"""Saved indexes that one process keeps open: each holds a file descriptor."""


@dataclass(frozen=True)
class Place:
    """One shard: where it is, and where its own index is."""

    url: str
    num_samples: int
    size: int  # of the shard, in bytes
    path: str = ""  # of the saved index
    checksum: int = 0
    held: ShardIndex | None = None  # where it isn't saved
    unsaved: str = ""  # and why, if it should be
    tag: str = ""  # as in Stamp; "" where nobody knows it


@dataclass
class _Outcome:
    """What became of one shard."""

    place: Place | None = None
    error: ShardError | None = None
    notes: list[str] = field(default_factory=list)


class TarIndex:
    """Where the samples of tar shards lie: sample i of all is some sample of some shard, and a byte range of it.

    Samples are numbered through, in the order of the urls and of each shard. A sample is what WebDataset makes one:
    neighbouring files with the same path up to the first dot of its last component. Made by `build` or `load`. To send
    one to another process costs some hundred bytes a shard: the saved indexes are opened there when they are needed.

    Attributes:
        urls: the shards that are in it.
        samples_per_shard: int64, one for each of `urls`.
        paths: of the saved indexes, one for each of `urls`; "" where it is in memory alone.
        skipped: url and reason of each shard that was left out, with on_error="skip".
        unsaved: url and reason of each shard whose index could not be saved anywhere.

    Example:
        >>> import io, tarfile, tempfile, fastshard.webdataset
        >>> folder = tempfile.mkdtemp()
        >>> with tarfile.open(f"{folder}/shard-0.tar", "w") as tar:
        ...     for name in ("a.png", "a.cls", "b.png", "b.cls"):
        ...         member = tarfile.TarInfo(name)
        ...         member.size = 3
        ...         tar.addfile(member, io.BytesIO(b"123"))
        >>> index = fastshard.webdataset.TarIndex.build(f"{folder}/shard-{{0..0}}.tar")
        >>> len(index), index.locate(1), index.key(1), index.fields(1)
        (2, (0, 1), 'b', {'png': (2560, 3), 'cls': (3584, 3)})
    """

    def __init__(self, places: Sequence[Place], skipped: dict[str, str] | None = None) -> None:
        self._places = tuple(places)
        self.skipped = dict(skipped or {})
        self._open: dict[int, ShardIndex] = {}
        self.urls = [place.url for place in self._places]
        self.paths = [place.path for place in self._places]
        self.unsaved = {place.url: place.unsaved for place in self._places if place.unsaved}
        self.samples_per_shard = np.array([place.num_samples for place in self._places], np.int64)
        self._ends = np.cumsum(self.samples_per_shard)
        self._starts: list[int] = (self._ends - self.samples_per_shard).tolist()

    @classmethod
    def build(
        cls,
        urls: sources.Urls,
        *,
        cache: str | os.PathLike[str] | None = None,
        progress: bool = True,
        threads: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> TarIndex:
        """Loads the saved index of each shard, and makes it where there is none, or the shard has changed since.

        Only the headers of a shard are read. Where its index can't be saved, it is kept in memory.

        Args:
            urls: paths or fsspec urls of tar files; or one, where braces are expanded: "shard-{000..099}.tar".
            cache: folder of the saved indexes. None: beside each shard; of a remote shard, and where that can't be
                written, $XDG_CACHE_HOME/fastshard/shards (~/.cache without that variable).
            progress: show a bar on stderr, if that is a terminal and tqdm is installed.
            threads: shards that are read at once; None is 16 for remote ones, else one a core.
            on_error: what to do with a shard that can't be read, is broken, or has no samples. "raise", or "skip":
                warn once for it and leave out the whole of it.

        Raises:
            ShardError: with on_error="raise" for such a shard, else if no shard is left.
            TypeError, ValueError: an argument is none of these.
            ImportError: a package is missing that these urls need.
        """
        names = sources.expand(urls)
        _check.one_of("on_error", on_error, ("raise", "skip"))
        workers = 16 if any(map(sources.is_remote, names)) else os.cpu_count() or 1
        workers = workers if threads is None else _check.integer("threads", threads, 1, 1024)
        outcomes = []
        with in_threads(functools.partial(_load_or_make, cache=cache), names, workers) as coming:
            for outcome in _with_bar(coming, len(names), _check.boolean("progress", progress)):
                for note in outcome.notes:
                    warn(note, ShardWarning)
                if outcome.error and on_error == "raise":
                    raise outcome.error
                if outcome.error:
                    warn(f"left out: {outcome.error}", ShardWarning)
                outcomes.append(outcome)
        return cls._of(names, outcomes)

    @classmethod
    def load(cls, urls: sources.Urls, *, cache: str | os.PathLike[str] | None = None) -> TarIndex:
        """Loads saved indexes alone; reads no shard.

        Args:
            urls: as for build.
            cache: as for build.

        Raises:
            ShardError: a shard has no saved index, or it is damaged, or the shard has changed since.
        """
        names = sources.expand(urls)
        workers = 16 if any(map(sources.is_remote, names)) else 1
        outcomes = []
        with in_threads(functools.partial(_load, cache=cache), names, workers) as coming:
            for outcome in coming:
                if outcome.error:
                    raise outcome.error
                outcomes.append(outcome)
        return cls._of(names, outcomes)

    @classmethod
    def _of(cls, names: list[str], outcomes: list[_Outcome]) -> TarIndex:
        skipped = {name: str(one.error) for name, one in zip(names, outcomes, strict=True) if one.error}
        places = [outcome.place for outcome in outcomes if outcome.place]
        if not places:
            raise ShardError(f"all {len(names)} shards had to be left out; the first: {next(iter(skipped.values()))}")
        return cls(places, skipped)

    def __len__(self) -> int:
        """Samples of all shards."""
        return int(self._ends[-1])

    def locate(self, sample: int) -> tuple[int, int]:
        """Which shard sample `sample` is in, and which sample of that shard it is.

        Raises:
            IndexError: sample is not in [0, len).
        """
        if not 0 <= sample < len(self):
            raise IndexError(f"sample must be in [0, {len(self)}), got sample={sample}")
        shard = int(np.searchsorted(self._ends, sample, side="right"))
        return shard, self.inner(sample, shard)

    def inner(self, sample: int, shard: int) -> int:
        """Which sample of shard `shard` sample `sample` is; the shard must be that of the sample."""
        return sample - self._starts[shard]

    def key(self, sample: int) -> str:
        """Key of a sample, as WebDataset's `__key__`."""
        shard, i = self.locate(sample)
        return self.shard(shard).key(i)

    def fields(self, sample: int) -> dict[str, tuple[int, int]]:
        """Fields of a sample: of each, offset and size in bytes in the sample's shard."""
        shard, i = self.locate(sample)
        return self.shard(shard).fields(i)

    def ranges(
        self, samples: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Of each of many samples the shard, and begin and end of the bytes there that hold all its fields.

        Args:
            samples: 1-D, sample numbers in [0, len).

        Returns:
            Three int64 arrays as long as samples.

        Raises:
            TypeError, ValueError, IndexError: samples are no such numbers.
        """
        numbers = _check.positions("samples", samples, len(self)).astype(np.int64)
        shards = np.searchsorted(self._ends, numbers, side="right")
        inner = numbers - (self._ends - self.samples_per_shard)[shards]
        begins, ends = np.empty_like(numbers), np.empty_like(numbers)
        by_shard = np.argsort(shards, kind="stable")
        touched, firsts = np.unique(shards[by_shard], return_index=True)
        for shard, chosen in zip(touched.tolist(), np.split(by_shard, firsts[1:]), strict=False):
            begins[chosen], ends[chosen] = self.shard(shard).ranges(inner[chosen])
        return shards, begins, ends

    def require(self, *fields: str) -> None:
        """Checks that every sample has these fields.

        Raises:
            ShardError: for the first sample that lacks one.
        """
        for number, url in enumerate(self.urls):
            shard = self.shard(number)
            for name in fields:
                wanted = shard.field_names.index(name) if name in shard.field_names else -1
                have = np.logical_or.reduceat(shard.field_ids == wanted, shard.sample_starts[:-1])
                if not have.all():
                    i = int(have.argmin())
                    offset, has = shard.offsets[shard.sample_starts[i]], ", ".join(shard.fields(i))
                    raise ShardError(f"{url}: offset {offset}, key {shard.key(i)!r}: no field {name!r}; it has {has}")

    def shard(self, number: int) -> ShardIndex:
        """The arrays of one shard: views of its saved index, which is opened at the first use.

        Raises:
            ShardError: the saved index is gone, or another one than when this TarIndex was made.
        """
        place = self._places[number]
        if place.held is not None:
            return place.held
        known = self._open.get(number)
        if known is None:
            try:
                data = saved.map_file(place.path)
                if saved.checksum_of(data) != place.checksum:
                    raise DamagedIndexError("another one than when this TarIndex was made")  # noqa: TRY301
                known = saved.from_bytes(data, verify=False)[0]
            except (OSError, DamagedIndexError) as error:
                raise ShardError(f"{place.url}: its saved index {place.path} can't be used: {error}") from error
            if len(self._open) >= MAX_OPEN:
                self._open.clear()
            self._open[number] = known
        return known

    def sizes_of_shards(self) -> list[int]:
        """Bytes of each shard, when it was indexed."""
        return [place.size for place in self._places]

    def stamp(self, number: int) -> Stamp:
        """Size of one shard, and what else tells its state, when it was indexed."""
        return Stamp(self._places[number].size, self._places[number].tag)

    def __repr__(self) -> str:
        return f"TarIndex({len(self.urls)} shards, {len(self)} samples, {len(self.skipped)} skipped)"

    def __reduce__(self) -> tuple[type[TarIndex], tuple[Any, ...]]:
        return TarIndex, (self._places, self.skipped)


def _load_or_make(url: str, cache: str | os.PathLike[str] | None) -> _Outcome:
    outcome = _load(url, cache)
    if outcome.place:
        return outcome
    notes = outcome.notes
    try:
        indexer, stamp = sources.read_headers(url)
        index = saved.from_core(indexer)
        if not len(index):
            raise ShardError("no sample in it")  # noqa: TRY301
    except ImportError:
        raise
    except Exception as error:  # each file system's library has errors of its own
        return _Outcome(error=_named(url, error), notes=notes)
    if not indexer.has_end:
        notes.append(
            f"{url}: no end of archive at offset {stamp.size}, after key {index.key(len(index) - 1)!r}; "
            "it may be cut off between two files"
        )
    return _Outcome(_keep(url, index, stamp, cache), notes=notes)


def _keep(url: str, index: ShardIndex, stamp: Stamp, cache: str | os.PathLike[str] | None) -> Place:
    """Saves an index at the best place that can be written, if there is one."""
    data, reasons = saved.to_bytes(index, stamp), []
    for path in sources.places_of_index(url, cache):
        try:
            saved.save(data, path)
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            continue
        return Place(url, len(index), stamp.size, str(path.absolute()), saved.checksum_of(data), tag=stamp.tag)
    return Place(url, len(index), stamp.size, held=index, unsaved="; ".join(reasons), tag=stamp.tag)


def _load(url: str, cache: str | os.PathLike[str] | None) -> _Outcome:
    """Looks for a saved index of the shard as it is now. Notes tell of damaged ones."""
    try:
        stamp = sources.stamp_of(url)
    except ImportError:
        raise
    except Exception as error:
        return _Outcome(error=_named(url, error))
    notes, why = [], "no saved index; TarIndex.build makes one"
    for path in sources.places_of_index(url, cache):
        try:
            data = saved.map_file(path)
            index, was = saved.from_bytes(data)
        except FileNotFoundError:
            continue
        except (OSError, DamagedIndexError) as error:
            why = f"its saved index {path} can't be used: {error}"
            notes.append(f"{url}: {why}; it is made anew")
            continue
        if was == stamp:
            where, checksum = str(path.absolute()), saved.checksum_of(data)
            return _Outcome(Place(url, len(index), stamp.size, where, checksum, tag=stamp.tag))
        why = f"it has changed since it was indexed: {was} then, {stamp} now; TarIndex.build makes its index anew"
    return _Outcome(error=ShardError(f"{url}: {why}"), notes=notes)


def _named(url: str, error: Exception) -> ShardError:
    what = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    named = ShardError(f"{url}: {what}")
    named.__cause__ = error
    return named


@contextmanager
def in_threads(work: Callable[[str], T], names: list[str], threads: int) -> Iterator[Iterator[T]]:
    """What `work` makes of each name, in their order. After an error none is begun any more."""
    pool, wait = ThreadPoolExecutor(min(threads, len(names)), "fastshard-tar"), True
    try:
        yield pool.map(work, names)
    except KeyboardInterrupt:
        wait = False  # for a read of a dead server or mount, which may never end
        raise
    finally:
        pool.shutdown(wait, cancel_futures=True)


def _with_bar(coming: Iterator[_Outcome], total: int, progress: bool) -> Iterator[_Outcome]:
    if not progress:
        return coming
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return coming
    # disable=None: unless stderr is a terminal.
    return iter(tqdm(coming, "reading tar headers", total, unit=" shards", leave=False, disable=None))
