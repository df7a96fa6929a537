"""What do samples of tar shards cost: in a pass, after a resume, and in bytes? Minutes, and 700 MB of disk."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import io
import itertools
import os
import random
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench import peers
from bench.runner import Cell, Group, Plan, Question
from bench.timing import seconds_per_call
from fastshard.webdataset import ShardedWebDataset, TarIndex

SHARDS = 16
IMAGES = {1_000: 40_000, 16_000: 12_000, 100_000: 4_000}  # bytes, on average, and how many
QUICK_IMAGES = {1_000: 400}
SHUFFLE_BUFFER = 1_000  # samples, as webdataset's own examples have it
BATCH_SIZE = 32
PERCENT = 90
NUM_REPLICAS = 8
BASELINE = "webdataset, in order"


def plan(quick: bool) -> Plan:
    """Each reader at each size of image, the shards in the page cache and not."""
    notes = [
        f"{SHARDS} shards of samples with an image and a label of 2 bytes, images of 0.5 to 1.5 times the size; one "
        "process, no workers, nothing decoded.",
        f"webdataset shuffles shards, and samples in a buffer of {SHUFFLE_BUFFER:,}; fastshard within windows of 8.",
        "Where the page cache is cold, it was told to drop the shards (posix_fadvise) before each measurement; what a "
        "virtual machine's host keeps of them is not known.",
    ]
    return _plan(
        notes,
        [
            _group(f"images of {image:,} bytes, page cache {cache}", count, READERS, BASELINE, image, cache == "cold")
            for image, count in (QUICK_IMAGES if quick else IMAGES).items()
            for cache in ("warm", "cold")
        ],
    )


def plan_resume(quick: bool) -> Plan:
    """The first batch after 90% of an epoch."""
    notes = [
        f"From a checkpoint at {PERCENT}% to the next batch of {BATCH_SIZE}, one rank, in the process that has the "
        "index loaded; building the dataset and loading the state included.",
        "webdataset has no state: it reads on, and lets go of what it has had.",
    ]
    groups = []
    for image, count in (QUICK_IMAGES if quick else IMAGES).items():
        shards = functools.cache(partial(make_shards, image, count))
        cells = [
            Cell(peer, seconds_per_call(partial(_first_batch, way, shards, count)))
            for peer, way in {BASELINE: _skip, "fastshard, shuffled": _resume}.items()
            if peer != BASELINE or _has_webdataset()
        ]
        groups.append(Group(f"images of {image:,} bytes", count, cells, BASELINE))
    return _plan(notes, groups)


def plan_bytes(quick: bool) -> Plan:
    """What all ranks together read."""
    notes = [f"Bytes that {NUM_REPLICAS} ranks, one after the other, got by read and pread (rchar of /proc/self/io)."]
    groups = []
    for image, count in (QUICK_IMAGES if quick else IMAGES).items():
        shards = functools.cache(partial(make_shards, image, count))
        cells = [
            Cell("the shards", partial(_size, shards)),
            Cell("fastshard, shuffled", partial(_bytes_read, shards, True)),
            Cell("fastshard, in order", partial(_bytes_read, shards, False)),
        ]
        groups.append(Group(f"images of {image:,} bytes", count, cells, "the shards"))
    return _plan(notes, groups)


def _plan(notes: list[str], groups: list[Group]) -> Plan:
    if not _has_webdataset():
        notes.append("webdataset is not installed, and not measured.")
    else:
        notes.append(f"webdataset {peers.version('webdataset')}.")
    return Plan(groups, notes)


def _has_webdataset() -> bool:
    return importlib.util.find_spec("webdataset") is not None


def _in_order(shards: list[str]) -> Iterable[Any]:
    import webdataset

    dataset: Iterable[Any] = webdataset.WebDataset(shards, shardshuffle=False)
    return dataset


def _shuffled(shards: list[str]) -> Iterable[Any]:
    import webdataset

    dataset: Iterable[Any] = webdataset.WebDataset(shards, shardshuffle=SHARDS, seed=1).shuffle(SHUFFLE_BUFFER)
    return dataset


def _ours(shards: list[str], shuffle: bool) -> ShardedWebDataset:
    return ShardedWebDataset(shards, batch_size=BATCH_SIZE, shuffle=shuffle, rank=0, num_replicas=1, progress=False)


READERS: dict[str, Callable[[list[str]], Iterable[Any]]] = {
    BASELINE: _in_order,
    "webdataset, shuffled": _shuffled,
    "fastshard, in order": partial(_ours, shuffle=False),
    "fastshard, shuffled": partial(_ours, shuffle=True),
}


def _group(case: str, count: int, readers: Any, baseline: str, image: int, cold: bool) -> Group:
    shards = functools.cache(partial(make_shards, image, count))
    cells = [
        Cell(peer, partial(_samples_per_second, build, shards, count, cold))
        for peer, build in readers.items()
        if _has_webdataset() or not peer.startswith("webdataset")
    ]
    return Group(case, count, cells, baseline)


def _samples_per_second(
    build: Callable[[list[str]], Iterable[Any]], shards: Callable[[], list[str]], count: int, cold: bool
) -> float:
    urls = shards()
    if cold:
        forget(urls)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset leaves its files to the garbage collector
        begin = time.perf_counter()
        seen = sum(1 for _ in build(urls))
        seconds = time.perf_counter() - begin
    if seen != count:
        raise AssertionError(f"{seen} samples of {count}")
    return count / seconds


def _first_batch(way: Callable[[list[str], int], list[Any]], shards: Callable[[], list[str]], count: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if len(way(shards(), count * PERCENT // 100 // BATCH_SIZE)) != BATCH_SIZE:
            raise AssertionError("no whole batch")


def _skip(shards: list[str], batches: int) -> list[Any]:
    start = batches * BATCH_SIZE
    return list(itertools.islice(_in_order(shards), start, start + BATCH_SIZE))


def _resume(shards: list[str], batches: int) -> list[Any]:
    state = _state(tuple(shards), batches)
    dataset = ShardedWebDataset(_index(tuple(shards)), batch_size=BATCH_SIZE, rank=0, num_replicas=1)
    dataset.load_state_dict(state)
    return list(itertools.islice(dataset, BATCH_SIZE))


@functools.cache
def _index(shards: tuple[str, ...]) -> TarIndex:
    return TarIndex.build(shards, progress=False)


@functools.cache
def _state(shards: tuple[str, ...], batches: int) -> dict[str, Any]:
    return ShardedWebDataset(_index(shards), batch_size=BATCH_SIZE, rank=0, num_replicas=1).state_at(batches)


def _size(shards: Callable[[], list[str]]) -> float:
    return float(sum(Path(url).stat().st_size for url in shards()))


def _bytes_read(shards: Callable[[], list[str]], shuffle: bool) -> float:
    index = _index(tuple(shards()))
    before = _rchar()
    for rank in range(NUM_REPLICAS):
        dataset = ShardedWebDataset(
            index, batch_size=BATCH_SIZE, shuffle=shuffle, rank=rank, num_replicas=NUM_REPLICAS, uneven="keep"
        )
        for _ in dataset:
            pass
    return float(_rchar() - before)


def _rchar() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def forget(urls: list[str]) -> None:
    """Tells the page cache that these files will not be needed."""
    for url in urls:
        with Path(url).open("rb") as file:
            os.fsync(file.fileno())  # a page that is not written yet stays
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@functools.cache
def make_shards(image: int, count: int) -> list[str]:
    """Shards of so many samples, with their indexes; gone when the process ends."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    sizes = random.Random(0)
    urls = [str(Path(folder.name, f"shard-{shard:02}.tar")) for shard in range(SHARDS)]
    for shard, url in enumerate(urls):
        with tarfile.open(url, "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(shard, count, SHARDS):
                for name, size in (("jpg", sizes.randrange(image // 2, image * 3 // 2)), ("cls", 2)):
                    member = tarfile.TarInfo(f"{i:09d}.{name}")
                    member.size = size
                    tar.addfile(member, io.BytesIO(sizes.randbytes(size)))
    TarIndex.build(urls, progress=False)
    return urls


QUESTION = Question(
    name="webdataset",
    asks="How fast do the samples of tar shards come?",
    unit="ids/s",
    better="more",
    plan=plan,
)
RESUME = Question(
    name="webdataset_resume",
    asks="How long from a checkpoint at 90% of tar shards to the next batch?",
    unit="s",
    better="less",
    plan=plan_resume,
)
BYTES = Question(
    name="webdataset_bytes",
    asks="How many bytes do all ranks together read of tar shards?",
    unit="B",
    better="less",
    plan=plan_bytes,
)
