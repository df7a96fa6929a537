"""The samplers that are compared, each built for the same rank. A peer that is not installed is named, not measured."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
from torch.utils.data.distributed import DistributedSampler as TorchSampler

import fastshard

NUM_REPLICAS = 8
RANK = 3
EPOCH = 1

# A sampler of torch's has a tensor of 8 bytes a sample, then a list of 8 with int objects of 32, and its own share.
TORCH_BYTES_PER_SAMPLE = 56

SHARD = 8_192  # samples of a shard, which streaming's shuffles keep close together
GRAIN_ROUNDS = 4  # as grain's own transformations ask for
GRAIN_REMARK = (
    "grain's index_shuffle is no bijection at n = 65,537, 262,145 and 1,048,577: one id comes twice, "
    "the last one never (0.2.18)."
)
STREAMING_REMARK = (
    f"streaming's are for one node and shards of {SHARD:,} samples, which they shuffle within 2^18 or so."
)


class EpochSampler(Protocol):
    """What all peers have in common."""

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass."""

    def __iter__(self) -> Iterator[int]:
        """Hands out this rank's ids."""


@dataclass(frozen=True)
class Peer:
    """A sampler to compare.

    Args:
        label: as the tables name it.
        build: makes it for a dataset of so many samples, for rank RANK of NUM_REPLICAS.
        package: what must be installed for it, as package indexes name it, if that is not always there.
        remark: a sentence that readers of its figures need.
    """

    label: str
    build: Callable[[int], EpochSampler]
    package: str = ""
    remark: str = ""

    @property
    def installed(self) -> bool:
        """Whether it can be measured here."""
        return not self.package or version(self.package) is not None


def version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


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


class StreamingOrder:
    """An order of mosaicml-streaming's for one node of NUM_REPLICAS ranks, sliced."""

    def __init__(self, algorithm: str, samples: int) -> None:
        self.algorithm = algorithm
        self.samples = samples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass."""
        self.epoch = epoch

    def order(self) -> npt.NDArray[np.int64]:
        """The whole epoch's order, which the library's dataset makes too."""
        shards = np.full(-(-self.samples // SHARD), SHARD, np.int64)
        shards[-1] = self.samples - SHARD * (len(shards) - 1)
        return cast("npt.NDArray[np.int64]", _streaming_shuffle()(self.algorithm, shards, 1, 0, self.epoch))

    def __iter__(self) -> Iterator[int]:
        return iter(self.order()[RANK::NUM_REPLICAS].tolist())


class GrainShuffle:
    """grain's index_shuffle: random access, a Python call for each id. num_replicas must divide samples."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass."""
        self.epoch = epoch

    def ids(self, positions: range) -> Iterator[int]:
        """The ids at some positions."""
        shuffle, last, seed = _grain_shuffle(), self.samples - 1, self.epoch
        return (shuffle(position, last, seed, GRAIN_ROUNDS) for position in positions)

    def __iter__(self) -> Iterator[int]:
        return self.ids(range(RANK, self.samples, NUM_REPLICAS))


@functools.cache
def _grain_shuffle() -> Callable[[int, int, int, int], int]:
    return cast("Callable[[int, int, int, int], int]", importlib.import_module("grain.experimental").index_shuffle)


@functools.cache
def _streaming_shuffle() -> Callable[..., Any]:
    """streaming.base.shuffle.get_shuffle, which needs numpy alone.

    The packages that it lies in import transformers and clients of several clouds first, none of which a shuffle needs;
    empty ones stand in for them while it is imported.
    """
    spec = importlib.util.find_spec("streaming")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    standing_in = {name: ModuleType(name) for name in ("streaming", "streaming.base")}
    for name, module in standing_in.items():
        module.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
    before = {name: sys.modules.get(name) for name in standing_in}
    sys.modules.update(standing_in)
    try:
        return cast("Callable[..., Any]", importlib.import_module("streaming.base.shuffle").get_shuffle)
    finally:
        for name, module_before in before.items():
            del sys.modules[name]
            if module_before is not None:
                sys.modules[name] = module_before


def _torch(samples: int) -> EpochSampler:
    return TorchSampler(range(samples), num_replicas=NUM_REPLICAS, rank=RANK)  # type: ignore[arg-type] # len() will do


def _torchdata(samples: int) -> EpochSampler:
    module = importlib.import_module("torchdata.stateful_dataloader.sampler")
    sampler = module.StatefulDistributedSampler(range(samples), num_replicas=NUM_REPLICAS, rank=RANK)
    return cast("EpochSampler", sampler)


def _py1e(samples: int) -> EpochSampler:
    return StreamingOrder("py1e", samples)


def _py1br(samples: int) -> EpochSampler:
    return StreamingOrder("py1br", samples)


def _fastshard(order: str) -> Callable[[int], EpochSampler]:
    def build(samples: int) -> EpochSampler:
        return fastshard.DistributedSampler[int](range(samples), num_replicas=NUM_REPLICAS, rank=RANK, order=order)

    return build


PEERS: dict[str, Peer] = {
    "torch": Peer("torch DistributedSampler", _torch),
    "torchdata": Peer("torchdata StatefulDistributedSampler", _torchdata, "torchdata"),
    "numpy": Peer("numpy permutation[rank::P]", NumpyPermutation),
    "py1e": Peer("streaming py1e[rank::P]", _py1e, "mosaicml-streaming", STREAMING_REMARK),
    "py1br": Peer("streaming py1br[rank::P]", _py1br, "mosaicml-streaming"),
    "grain": Peer("grain index_shuffle, a call an id", GrainShuffle, "grain", GRAIN_REMARK),
    "fastshard-torch": Peer('fastshard order="torch"', _fastshard("torch")),
    "fastshard-shuffled": Peer('fastshard order="shuffled"', _fastshard("shuffled")),
}


def installed() -> dict[str, Peer]:
    """The peers that can be measured here, by their short names."""
    return {name: peer for name, peer in PEERS.items() if peer.installed}


def notes() -> list[str]:
    """The versions of the packages that are measured, what to know of them, and who can't be measured here."""
    packages = dict.fromkeys(peer.package for peer in PEERS.values() if peer.package and peer.installed)
    missing = [f"{peer.label} is not installed, and not measured." for peer in PEERS.values() if not peer.installed]
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    remarks = [peer.remark for peer in PEERS.values() if peer.remark and peer.installed]
    return [*([f"Peers: {versions}."] if versions else []), *remarks, *missing]


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
