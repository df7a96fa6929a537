"""How long from a checkpoint to the next batch? About a minute and 6 GB, nearly all torch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

import fastshard
from bench import peers
from bench.runner import Cell, Group, Plan, Question
from bench.timing import seconds_per_call

SIZES = (10_000_000, 100_000_000)
QUICK_SIZES = (100_000, 1_000_000)
BATCH_SIZE = 256
PERCENT = 90


@dataclass(frozen=True)
class Way:
    """A way to go on.

    Args:
        label: as the tables name it.
        checkpoint: called with samples and steps, off the clock: what a job has saved after so many steps of an epoch.
        resume: called with samples and that: the batches that come next.
        percent: how far into the epoch.
        package: what must be installed for it.
    """

    label: str
    checkpoint: Callable[[int, int], Any]
    resume: Callable[[int, Any], Iterator[Any]]
    percent: int = PERCENT
    package: str = ""


def steps(samples: int, percent: int) -> int:
    """Steps of a rank that are that far into the epoch."""
    return samples // peers.NUM_REPLICAS // BATCH_SIZE * percent // 100


def ours(samples: int) -> fastshard.DistributedBatchSampler:
    """Our sampler, as a process that goes on builds it."""
    return fastshard.DistributedBatchSampler(range(samples), BATCH_SIZE, peers.NUM_REPLICAS, peers.RANK)


def our_state(samples: int, done: int) -> Any:
    """Its state in epoch EPOCH."""
    batches = ours(samples)
    batches.set_epoch(peers.EPOCH)
    return batches.state_at(done)


def our_loader(samples: int, state: Any) -> Iterator[Any]:
    """Goes on in torch's DataLoader."""
    batches = ours(samples)
    batches.load_state_dict(state)
    return iter(DataLoader(range(samples), batch_sampler=batches))  # type: ignore[arg-type] # a range has all it needs


def our_own_loader(samples: int, state: Any) -> Iterator[Any]:
    """Goes on in fastshard's DataLoader."""
    loader: fastshard.DataLoader[int] = fastshard.DataLoader(range(samples), batch_sampler=ours(samples))  # type: ignore[arg-type]
    loader.load_state_dict(state)
    batches: Iterator[Any] = iter(loader)
    return batches


def torchdata_state(samples: int, done: int) -> Any:
    """What StatefulDataLoader saves after so many steps: its first state, with the counts moved on to save a walk."""
    state = _torchdata(samples).state_dict()
    state["_num_yielded"] = state["_sampler_iter_yielded"] = done
    state["_sampler_iter_state"]["samples_yielded"] = done * BATCH_SIZE
    state["_sampler_iter_state"]["sampler_state"]["yielded"] = done * BATCH_SIZE
    return state


def torchdata_loader(samples: int, state: Any) -> Iterator[Any]:
    """Goes on in StatefulDataLoader over its own distributed sampler."""
    loader = _torchdata(samples)
    loader.load_state_dict(state)
    return iter(loader)


def _torchdata(samples: int) -> Any:
    sampler = peers.PEERS["torchdata"].build(samples)
    sampler.set_epoch(peers.EPOCH)
    module = importlib.import_module("torchdata.stateful_dataloader")
    return module.StatefulDataLoader(range(samples), BATCH_SIZE, sampler=sampler)


def accelerate_loader(samples: int, done: int) -> Iterator[Any]:
    """Goes on by skip_first_batches over torch's sampler."""
    sampler = peers.PEERS["torch"].build(samples)
    sampler.set_epoch(peers.EPOCH)
    loader: DataLoader[int] = DataLoader(range(samples), BATCH_SIZE, sampler=sampler)  # type: ignore[arg-type]
    module = importlib.import_module("accelerate")
    module.PartialState(cpu=True)
    return iter(module.skip_first_batches(loader, done))


WAYS = (
    Way("torchdata", torchdata_state, torchdata_loader, package="torchdata"),
    Way("accelerate skip_first_batches", lambda _, done: done, accelerate_loader, package="accelerate"),
    Way("fastshard DataLoader", our_state, our_own_loader),
    *(Way(f"fastshard at {percent}%", our_state, our_loader, percent) for percent in (0, 50, PERCENT)),
)


def plan(quick: bool) -> Plan:
    """Every way at every size."""
    missing = [f"{way.package} is not installed, and not measured." for way in WAYS if not _installed(way)]
    versions = [f"{way.package} {peers.version(way.package)}" for way in WAYS if way.package and _installed(way)]
    notes = [
        f"Timed: build sampler and loader, load, take the first batch; rank {peers.RANK} of {peers.NUM_REPLICAS}, "
        f"batches of {BATCH_SIZE} from a range, no workers. At {PERCENT}% of the epoch where nothing else is said.",
        f"Peers: {', '.join(versions)}, over torch's order.",
        *missing,
    ]
    return Plan([_group(samples) for samples in (QUICK_SIZES if quick else SIZES)], notes)


def _installed(way: Way) -> bool:
    return not way.package or peers.version(way.package) is not None


def _group(samples: int) -> Group:
    cells = []
    for way in filter(_installed, WAYS):
        checkpoint = way.checkpoint(samples, steps(samples, way.percent))
        cells.append(Cell(way.label, seconds_per_call(partial(first_batch, way, samples, checkpoint))))
    needs = peers.TORCH_BYTES_PER_SAMPLE * samples
    return Group(f"N = {peers.power(samples)}", samples, cells, cells[0].peer, needs)


def first_batch(way: Way, samples: int, checkpoint: Any) -> Any:
    """What a job waits for."""
    return next(way.resume(samples, checkpoint))


QUESTION = Question(
    name="resume",
    asks="How long does a job wait for its first batch after a checkpoint is loaded?",
    unit="s",
    better="less",
    plan=plan,
)
