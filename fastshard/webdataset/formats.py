"""Indexes of others: NVIDIA DALI's wds2idx, which has offsets, and wids' JSON, which has only numbers of samples."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard._warnings import ShardError
from fastshard.webdataset.index import Place, TarIndex
from fastshard.webdataset.shard import ShardIndex
from fastshard.webdataset.sources import is_remote

if TYPE_CHECKING:
    import numpy.typing as npt

_IDX_VERSION = "v1.2"
_WIDS_KIND = {"__kind__": "wids-shard-index-v1", "wids_version": 1}


def write_idx(index: TarIndex, shard: int, path: str | os.PathLike[str]) -> None:
    """Writes the index of one shard as NVIDIA DALI's wds2idx does, version 1.2.

    File names are written with their field in lower case, as WebDataset has it.

    Args:
        index: of all shards.
        shard: number of the shard in index.urls.
        path: of the file to write; DALI's own are named shard-000.idx.

    Raises:
        ShardError: a name has a blank in it, or a sample a field without a name; the format has no way to write these.
    """
    arrays = index.shard(shard)
    lines = [f"{_IDX_VERSION} {len(arrays)}"]
    for i in range(len(arrays)):
        key = arrays.key(i)
        files = arrays.fields(i).items()
        lines.append(" ".join(f"{name} {offset} {size} {key}.{name}" for name, (offset, size) in files))
        if len(lines[-1].split()) != 4 * len(files):
            raise ShardError(f"{index.urls[shard]}: key {key!r}: DALI's format can't hold blanks and empty names")
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")


def read_idx(paths: Sequence[str | os.PathLike[str]], urls: Sequence[str]) -> TarIndex:
    """Reads index files of NVIDIA DALI's wds2idx, version 1.2, one a shard. No shard is read.

    Of a shard on this machine the size is checked: it must hold what the index tells.

    Args:
        paths: of the index files.
        urls: of the shards that they are of.

    Raises:
        ShardError: a file is no such index, or not of that shard.
        ValueError: not as many paths as urls, or none.
    """
    if len(paths) != len(urls) or not urls:
        raise ValueError(f"paths and urls must be as many, and one at least, got {len(paths)} and {len(urls)}")
    return TarIndex([_read_idx(Path(path), url) for path, url in zip(paths, urls, strict=True)])


def _read_idx(path: Path, url: str) -> Place:
    head, *lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() or [""]
    version, _, count = head.partition(" ")
    if version != _IDX_VERSION or count != str(len(lines)) or not lines:
        raise ShardError(f"{path}: must begin with '{_IDX_VERSION} ' and the number of its samples, got {head!r}")
    columns: list[tuple[str, int, int]] = []
    starts, keys, key_starts = [0], bytearray(), [0]
    for number, line in enumerate(lines, 2):
        words = line.split(" ")
        try:
            files = [(words[i], int(words[i + 1]), int(words[i + 2])) for i in range(0, len(words), 4)]
            key = words[3].removesuffix("." + words[0])
        except (ValueError, IndexError):
            files = []
        if not files or len(words) % 4 or not all(0 <= min(file[1:]) <= sum(file[1:]) < 2**63 for file in files):
            raise ShardError(f"{path}: line {number} must be field, offset, size, name of each file, got {line!r}")
        columns += [(name.lower(), offset, size) for name, offset, size in files]
        starts.append(len(columns))
        keys += key.encode("utf-8", "surrogateescape")
        key_starts.append(len(keys))
    names = {name: i for i, name in enumerate(dict.fromkeys(name for name, _, _ in columns))}
    field_ids = np.array([names[name] for name, _, _ in columns], np.uint16)
    offsets, sizes = (np.array(column, np.int64) for column in list(zip(*columns, strict=True))[1:])
    index = ShardIndex(
        offsets,
        sizes,
        np.array(starts, np.int64),
        np.array(key_starts, np.int64),
        field_ids,
        np.frombuffer(bytes(keys), np.uint8),
        tuple(names),
    )
    end = int((offsets + sizes).max())
    size = end if is_remote(url) else Path(url).stat().st_size
    if end > size:
        raise ShardError(f"{url}: offset {end}: {path} has a file that ends there, and the shard ends at {size}")
    return Place(url, len(index), size, held=index)


def write_wids(index: TarIndex, path: str | os.PathLike[str], name: str = "") -> None:
    """Writes the JSON of webdataset's wids: shards with their numbers of samples. Offsets have no place in it.

    Args:
        index: of all shards.
        path: of the JSON. Shards in its folder, or below, are written relative to it.
        name: of the dataset.
    """
    folder = Path(path).absolute().parent
    shards = []
    for url, count, size in zip(index.urls, index.samples_per_shard.tolist(), index.sizes_of_shards(), strict=True):
        local = None if is_remote(url) else Path(url).absolute()
        written = local.relative_to(folder).as_posix() if local and local.is_relative_to(folder) else str(local or url)
        shards.append({"url": written, "nsamples": count, "filesize": size})
    Path(path).write_text(json.dumps({**_WIDS_KIND, "name": name, "shardlist": shards}, indent=2) + "\n", "utf-8")


def read_wids(path: str | os.PathLike[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Reads the JSON of webdataset's wids: which shards there are, and how many samples each has.

    It has no offsets, so it is no TarIndex: give the urls to `TarIndex.build`, which reads the shards' headers.

    Args:
        path: of a JSON with "shardlist".

    Returns:
        The urls, those that are relative joined to the folder of the JSON; and int64, the samples of each.

    Raises:
        ValueError: no such JSON.
    """
    try:
        listed: list[dict[str, Any]] = json.loads(Path(path).read_text("utf-8"))["shardlist"]
        urls = [shard["url"] for shard in listed]
        counts = np.array([int(shard["nsamples"]) for shard in listed], np.int64)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path}: must be JSON with a "shardlist" of "url" and "nsamples" ({error!r})') from None
    return [url if is_remote(url) else str(Path(path).absolute().parent / url) for url in urls], counts
