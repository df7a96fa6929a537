"""Guards: find who would split once more what a dataset or a stage of ours has split, and so lose most of it.

Whoever draws from it stands behind it: on the call stack, which in a forked worker goes down into the loader that
forked it; to a spawned worker the dataset is sent, with that loader on the stack. What it draws from are generators,
with what they in turn draw from among their variables. One walk over either costs some microseconds, once a pass.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from types import FrameType, GeneratorType
from typing import Any, NamedTuple

_DEEPEST = 30  # stages before a splitter

RANKS, WORKERS = "ranks", "workers"


class Splitter(NamedTuple):
    """Someone who gives each a part of what he gets.

    Attributes:
        name: what a message calls him.
        over: whom he deals to: RANKS, WORKERS, or both.
        framework: what he belongs to, if he splits whatever he is given: then who is not split may be given to him.
    """

    name: str
    over: frozenset[str]
    framework: str = ""


# By module and function: generators that are running as long as somebody draws from them.
_FUNCTIONS = {
    ("webdataset.shardlists", "split_by_node"): Splitter("webdataset's split_by_node", frozenset({RANKS})),
    ("webdataset.shardlists", "single_node_only"): Splitter("webdataset's single_node_only", frozenset({RANKS})),
    ("webdataset.shardlists", "split_by_worker"): Splitter("webdataset's split_by_worker", frozenset({WORKERS})),
    ("fastshard.webdataset.stages", "_by_rank"): Splitter("fastshard's split_by_rank", frozenset({RANKS})),
    ("fastshard.webdataset.stages", "_by_worker"): Splitter("fastshard's split_by_worker", frozenset({WORKERS})),
    ("fastshard.streaming.iterable", "_draws"): Splitter(
        "a ShardedIterable", frozenset({RANKS, WORKERS}), "ShardedIterable"
    ),
}
# By class: where it keeps the number of processes that it deals to.
_CLASSES = {"IterableDatasetShard": "num_processes", "DataLoaderDispatcher": "state", "IterableDataset": "_distributed"}
_FRAMEWORKS = ("accelerate", "transformers", "datasets")


def behind(frame: FrameType | None) -> Iterator[Splitter]:
    """Yields who is drawing, from this frame on, the next one first."""
    while frame is not None:
        found = _splitter(frame) or _framework(frame)
        if found is not None:
            yield found
        frame = frame.f_back


def before(source: Any, deepest: int = _DEEPEST) -> Iterator[Splitter]:
    """Yields whom a stage draws from, as far as they are generators, the next one first."""
    if not isinstance(source, GeneratorType) or source.gi_frame is None or not deepest:
        return
    found = _splitter(source.gi_frame)
    if found is not None:
        yield found
    for value in list(source.gi_frame.f_locals.values()):
        yield from before(value, deepest - 1)


def check_not_split_again(
    what: str, over: Collection[str], num_replicas: int, num_workers: int, instead: str = "leave it out"
) -> None:
    """Refuses splitters behind the function that calls this one, from its caller on.

    Args:
        what: what that function belongs to, as a message calls it.
        over: to whom it deals.
        num_replicas: number of ranks.
        num_workers: number of workers of each.
        instead: what else to do than to keep it from a framework.

    Raises:
        ValueError: someone behind it deals to the same ones.
    """
    counts = {RANKS: num_replicas, WORKERS: num_workers}
    for splitter in behind(sys._getframe(1).f_back):
        both = splitter.over.intersection(over)
        if not both or (splitter.framework and all(counts[each] == 1 for each in both)):
            continue
        dealt = " and ".join(f"{counts[each]} {each}" for each in (RANKS, WORKERS) if each in over)
        cure = "leave it out"
        if splitter.framework:
            cure = f"keep it away from {splitter.framework}, or let {splitter.framework} alone split: {instead}"
        raise ValueError(
            f"{splitter.name} stands behind {what}, which deals to {dealt} already: each would get a part of its part; "
            f"{cure}"
        )


def _splitter(frame: FrameType) -> Splitter | None:
    return _FUNCTIONS.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))


def _framework(frame: FrameType) -> Splitter | None:
    framework = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if framework not in _FRAMEWORKS:
        return None
    owner = frame.f_locals.get("self")
    name = type(owner).__name__
    processes = getattr(owner, _CLASSES.get(name, ""), None)
    for attribute in ("num_processes", "world_size"):
        processes = getattr(processes, attribute, processes)
    if isinstance(processes, int) and processes > 1:
        return Splitter(f"{framework}'s {name}", frozenset({RANKS}), framework)
    return None
