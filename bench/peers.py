"""The samplers that are compared, each built for the same rank. A peer that is not installed is named, not measured."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from torch.utils.data.distributed import DistributedSampler as TorchSampler

import fastshard

NUM_REPLICAS = 8
RANK = 3
EPOCH = 1

# A sampler of torch's has a tensor of 8 bytes a sample, then a list of 8 with int objects of 32, and its own share.
TORCH_BYTES_PER_SAMPLE = 56


class EpochSampler(Protocol):
    """What all peers have in common."""

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass."""

    def __iter__(self) -> Iterator[int]:
        """Hands out this rank's ids."""


def is_installed(module: str) -> bool:
    """Whether a module can be imported here."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that the module is in
        return False


@dataclass(frozen=True)
class Peer:
    """A sampler to compare.

    Args:
        label: as the tables name it.
        build: makes it for a dataset of so many samples, for rank RANK of NUM_REPLICAS.
        module: what must be installed for it, if that is not always there.
    """

    label: str
    build: Callable[[int], EpochSampler]
    module: str = ""

    @property
    def installed(self) -> bool:
        """Whether it can be measured here."""
        return not self.module or is_installed(self.module)


class NumpyPermutation:
    """What people write by hand: NumPy's permutation, sliced. It doesn't pad, so num_replicas must divide samples."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng((0, self.epoch)).permutation(self.samples)
        return iter(order[RANK::NUM_REPLICAS].tolist())


def _torch(samples: int) -> EpochSampler:
    return TorchSampler(range(samples), num_replicas=NUM_REPLICAS, rank=RANK)  # type: ignore[arg-type] # len() will do


def _torchdata(samples: int) -> EpochSampler:
    module = importlib.import_module("torchdata.stateful_dataloader.sampler")
    sampler = module.StatefulDistributedSampler(range(samples), num_replicas=NUM_REPLICAS, rank=RANK)
    return cast("EpochSampler", sampler)


def _fastshard(order: str) -> Callable[[int], EpochSampler]:
    def build(samples: int) -> EpochSampler:
        return fastshard.DistributedSampler[int](range(samples), num_replicas=NUM_REPLICAS, rank=RANK, order=order)

    return build


PEERS: dict[str, Peer] = {
    "torch": Peer("torch DistributedSampler", _torch),
    "torchdata": Peer(
        "torchdata StatefulDistributedSampler", _torchdata, module="torchdata.stateful_dataloader.sampler"
    ),
    "numpy": Peer("numpy permutation[rank::P]", NumpyPermutation),
    "fastshard-torch": Peer('fastshard order="torch"', _fastshard("torch")),
    "fastshard-shuffled": Peer('fastshard order="shuffled"', _fastshard("shuffled")),
}


def installed() -> dict[str, Peer]:
    """The peers that can be measured here, by their short names."""
    return {name: peer for name, peer in PEERS.items() if peer.installed}


def missing_notes() -> list[str]:
    """One sentence for each peer that can't be measured here."""
    return [f"{peer.label} is not installed, and not measured." for peer in PEERS.values() if not peer.installed]


def started(peer: Peer, samples: int) -> tuple[EpochSampler, Iterator[int]]:
    """Builds a sampler, sets its epoch and draws its first id: what a job waits for before its first batch."""
    sampler = peer.build(samples)
    sampler.set_epoch(EPOCH)
    ids = iter(sampler)
    next(ids)
    return sampler, ids


def power(samples: int) -> str:
    """Writes a size as people say it: 50_000_000 is 5e7."""
    digits = str(samples).rstrip("0")
    exponent = len(str(samples)) - 1
    return f"{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e{exponent}"
