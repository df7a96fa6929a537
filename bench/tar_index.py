"""What does it cost to know where the samples of tar shards lie? `make core-bench` has the preads in C."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import io
import os
import random
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.runner import Cell, Group, Plan, Question
from bench.timing import items_per_second
from fastshard.webdataset import TarIndex
from fastshard.webdataset.sources import read_headers

SHARDS = 4
IMAGES = (1_000, 16_000, 100_000)  # bytes, on average
BYTES = 200_000_000  # of all shards of a case
BASELINE = "tarfile, headers"


@dataclass(frozen=True)
class Shards:
    """Shards on disk: their urls, the folder of their indexes, and where each one's headers are."""

    urls: list[str]
    folder: str
    headers: list[list[int]]


def plan(quick: bool) -> Plan:
    """Shards of an image and a label each, at several sizes, in the page cache."""
    notes = [
        f"{SHARDS} shards of samples with an image and a label of 2 bytes, images of 0.5 to 1.5 times the size, just "
        "written, so in the page cache.",
        "tarfile goes through the headers; webdataset reads all, and hands out the samples undecoded.",
        "A build saves; the core's headers are those of all shards in one thread, neither saved nor turned to arrays.",
    ]
    cases = [(1_000, 8_000_000)] if quick else [(image, BYTES) for image in IMAGES]
    return Plan([_group(image, max(SHARDS, total // (image + 2_048))) for image, total in cases], notes)


def _group(image: int, samples: int) -> Group:
    prepare = functools.cache(lambda: _make(image, samples))
    peers: dict[str, Callable[[Shards], object]] = {
        "TarIndex.build": _build,
        "TarIndex.load": lambda shards: TarIndex.load(shards.urls, cache=shards.folder),
        "the core's headers": lambda shards: [read_headers(url) for url in shards.urls],
        "os.pread, a header each": _pread,
        BASELINE: _walk,
    }
    if importlib.util.find_spec("webdataset"):
        peers["webdataset, samples"] = _read
    cells = [Cell(peer, items_per_second(samples, run, prepare)) for peer, run in peers.items()]
    return Group(f"images of {image:,} bytes", samples, cells, BASELINE)


def _make(image: int, samples: int) -> Shards:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    sizes = random.Random(0)
    urls = [str(Path(folder.name, f"shard-{shard}.tar")) for shard in range(SHARDS)]
    for shard, url in enumerate(urls):
        with tarfile.open(url, "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(shard, samples, SHARDS):
                for name, size in (("jpg", sizes.randrange(image // 2, image * 3 // 2)), ("cls", 2)):
                    member = tarfile.TarInfo(f"{i:09d}.{name}")
                    member.size = size
                    tar.addfile(member, io.BytesIO(bytes(size)))
    index = TarIndex.build(urls, cache=folder.name, progress=False)
    headers = [(index.shard(shard).offsets - 512).tolist() for shard in range(SHARDS)]
    return Shards(urls, folder.name, headers)


def _build(shards: Shards) -> object:
    for saved in Path(shards.folder).glob("*.fsi"):
        saved.unlink()
    return TarIndex.build(shards.urls, cache=shards.folder, progress=False)


def _pread(shards: Shards) -> None:
    for url, headers in zip(shards.urls, shards.headers, strict=True):
        with Path(url).open("rb", buffering=0) as file:
            for header in headers:
                os.pread(file.fileno(), 512, header)


def _walk(shards: Shards) -> None:
    for url in shards.urls:
        with tarfile.open(url, "r:") as tar:
            tar.getmembers()


def _read(shards: Shards) -> None:
    from webdataset.tariterators import group_by_keys, tar_file_expander  # type: ignore[import-untyped]

    for url in shards.urls:
        with Path(url).open("rb") as stream:
            for _ in group_by_keys(tar_file_expander([{"url": url, "stream": stream}])):
                pass


QUESTION = Question(
    name="tar_index",
    asks="What does it cost to know where the samples of tar shards lie?",
    unit="ids/s",
    better="more",
    plan=plan,
)
