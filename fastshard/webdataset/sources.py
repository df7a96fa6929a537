"""Where shards lie: on a file system here, or behind an fsspec url. Of them only headers are read."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastshard._built import _core
from fastshard.webdataset.shard import SUFFIX, Stamp

READ_AHEAD = 256 * 1024
"""Bytes of a request: where members are smaller than that, one serves many of them."""

_VERSION_KEYS = ("ETag", "etag", "checksum", "md5Hash", "mtime", "LastModified", "last_modified", "updated")

Urls = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def expand(urls: Urls) -> list[str]:
    """The shards that `urls` names: itself, those of its braces, or each of a list as it is.

    Raises:
        TypeError: neither a str, nor a path, nor an iterable of these.
        ValueError: an empty list, or a pipe.
        ImportError: braces, and no braceexpand to expand them.
    """
    if isinstance(urls, str) and "{" in urls:
        try:
            from braceexpand import braceexpand
        except ImportError as error:
            raise ImportError("urls with braces need braceexpand: pip install 'fastshard[webdataset]'") from error
        urls = list(braceexpand(urls))
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls) if isinstance(urls, Iterable) else [urls]
    if not given:
        raise ValueError("urls must name at least one shard, got urls=[]")
    for i, url in enumerate(given):
        if not isinstance(url, str | os.PathLike):
            raise TypeError(f"urls must be a url or a list of urls, got urls[{i}]={url!r}")
    names = [os.fspath(url).removeprefix("file://") for url in given]
    for name in names:
        if name.startswith("pipe:"):
            raise ValueError(f"a shard must be a file that can be read from any place of it, got {name!r}")
    return names


def is_remote(url: str) -> bool:
    """Whether fsspec is asked for it."""
    return "://" in url


def places_of_index(url: str, cache: str | os.PathLike[str] | None) -> list[Path]:
    """Where the saved index of a shard may be, best first."""
    if cache is not None:
        return [Path(cache, _name(url))]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "fastshard", "shards", _name(url))
    return [folder] if is_remote(url) else [Path(url + SUFFIX), folder]


def _name(url: str) -> str:
    """Shards of many folders may have one name, so theirs goes into the name of the index."""
    full = url if is_remote(url) else str(Path(url).absolute())
    return f"{Path(url.partition('?')[0]).name}-{hashlib.sha256(os.fsencode(full)).hexdigest()[:16]}{SUFFIX}"


def stamp_of(url: str) -> Stamp:
    """Size and version of a shard now.

    Raises:
        OSError, ValueError: it can't be had, or has no size. Remote ones may raise what their library does.
    """
    if not is_remote(url):
        return _stamp(Path(url).stat())
    system, path = file_system(url)
    info: dict[str, Any] = system.info(path)
    if not isinstance(info.get("size"), int):
        raise ValueError("its server tells no size")  # noqa: TRY004
    tag = next((f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key)), "")
    return Stamp(info["size"], tag)


def read_headers(url: str) -> tuple[_core.TarIndexer, Stamp]:
    """Reads all headers of a shard; gives what they say, and of which state of it.

    Raises:
        ValueError: the shard is no tar archive as it should be; the message has offset and key. Or it changed
            meanwhile.
        OSError: it can't be read. Remote ones may raise what their library does.
    """
    return _read_remote(url) if is_remote(url) else _read_local(url)


def _read_local(url: str) -> tuple[_core.TarIndexer, Stamp]:
    stamp_of(url)  # to open a named pipe could take for ever
    with Path(url).open("rb", buffering=0) as file:
        stamp = _stamp(os.fstat(file.fileno()))
        indexer = _core.TarIndexer(stamp.size)
        indexer.read(file.fileno())
        _check_same(stamp, _stamp(os.fstat(file.fileno())))
    return indexer, stamp


def _read_remote(url: str) -> tuple[_core.TarIndexer, Stamp]:
    stamp = stamp_of(url)
    system, path = file_system(url)
    indexer = _core.TarIndexer(stamp.size)
    while (wanted := indexer.wants()) is not None:
        start, length = wanted
        stop = min(start + max(length, READ_AHEAD), stamp.size)
        data: bytes = system.cat_file(path, start=start, end=stop)
        if len(data) != stop - start:
            raise ValueError(
                f"offset {start}: {stop - start} bytes asked for and {len(data)} got; "
                "it changed meanwhile, or its server doesn't serve ranges"
            )
        indexer.feed(start, data)
    _check_same(stamp, stamp_of(url))
    return indexer, stamp


def _stamp(status: os.stat_result) -> Stamp:
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file")
    return Stamp(status.st_size, f"mtime_ns={status.st_mtime_ns}")


def _check_same(before: Stamp, after: Stamp) -> None:
    if before != after:
        raise ValueError(f"it changed while it was read: {before} before, {after} after")


def file_system(url: str) -> tuple[Any, str]:
    """Whose listings are not kept: a shard that changes must be seen to."""
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f"{url!r} needs fsspec: pip install 'fastshard[webdataset]'") from error
    system, path = url_to_fs(url, use_listings_cache=False)
    return system, path
