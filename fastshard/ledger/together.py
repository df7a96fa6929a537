"""Together: what ranks do as one, written as steps that yield what they need of the others.

A step yields a `Sum` or a `Gather` and is sent the answer. `run_steps` gets it from a process group, and tests from
ranks that are objects side by side in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")


@dataclass(frozen=True)
class Sum:
    """Asks for the sum of all ranks' numbers, element by element: an array of the same shape and type."""

    numbers: npt.NDArray[Any]


@dataclass(frozen=True)
class Gather:
    """Asks for a list of every rank's value, by rank. Values are pickled."""

    value: Any


Steps: TypeAlias = Generator[Sum | Gather, Any, T]


def rank_in(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This process's rank and the number of ranks in `group`, or in the default group; (0, 1) if there is none.

    Raises:
        ValueError: this process is not in that group.
    """
    if not (dist.is_available() and dist.is_initialized()):
        if group is not None:
            raise ValueError(f"group must be None where torch.distributed is not initialised, got group={group!r}")
        return 0, 1
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(f"group must be one that this process is in, got group={group!r}")
    return rank, dist.get_world_size(group)


def run_steps(steps: Callable[[int, int], Steps[T]], group: dist.ProcessGroup | None) -> T:
    """Runs `steps(rank, num_replicas)` to their end, and returns what they return."""
    rank, num_replicas = rank_in(group)
    running = steps(rank, num_replicas)
    answer: Any = None
    while True:
        try:
            asked = running.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(asked, Sum):
            answer = asked.numbers if num_replicas == 1 else _all_reduce(asked.numbers, group)
        elif num_replicas == 1:
            answer = [asked.value]
        else:
            answer = [None] * num_replicas
            dist.all_gather_object(answer, asked.value, group=group)


def _all_reduce(numbers: npt.NDArray[Any], group: dist.ProcessGroup | None) -> npt.NDArray[Any]:
    # Such as "cuda:nccl", or "cpu:gloo,cuda:nccl": through the CPU where the group can, else on the current device.
    backends = dist.get_backend_config(group)
    tensor = torch.from_numpy(numbers).to("cpu" if "cpu:" in backends else backends.partition(":")[0])
    dist.all_reduce(tensor, group=group)
    result: npt.NDArray[Any] = tensor.cpu().numpy()
    return result


# Sums of 64-bit words travel as halves of 32 bits in int64: exact for up to 2^31 ranks.


def halves(words: Sequence[int]) -> list[int]:
    """Low and high 32 bits of each word, modulo 2^64."""
    return [word >> shift & 0xFFFFFFFF for word in words for shift in (0, 32)]


def joined(sums: Sequence[int]) -> list[int]:
    """From sums of halves the sums of words, not reduced by anything."""
    return [int(low) + (int(high) << 32) for low, high in zip(sums[::2], sums[1::2], strict=True)]


def agreement(digest: int) -> list[int]:
    """Words of which the sums over all ranks show whether every rank has the same digest of 64 bits; see `agree`."""
    parts = halves([digest])
    return [*parts, *halves([part * part for part in parts])]


def agree(sums: Sequence[int], num_replicas: int) -> bool:
    """Whether all digests are equal, from the sums of `agreement`: the same answer on every rank, and a right one.

    Numbers x are all equal exactly where num_replicas times the sum of x^2 is the square of the sum of x (Cauchy and
    Schwarz). A rank that compared the sum with its own number would be content if its number were the mean.
    """
    squares = joined(sums[2:6])
    return all(num_replicas * square == int(part) ** 2 for part, square in zip(sums[:2], squares, strict=True))
