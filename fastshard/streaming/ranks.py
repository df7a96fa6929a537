"""Who a stream is read for: given, or the process group's, or what torchrun says where there is no group yet."""

from __future__ import annotations

import os

import torch.distributed as dist

from fastshard import _check


def find(rank: int | None, num_replicas: int | None) -> tuple[int, int]:
    """Returns (rank, num_replicas): as given; what is None is the process group's, or else the environment's, or alone.

    Raises:
        TypeError, ValueError: a number is out of its range, or only one of RANK and WORLD_SIZE is set.
    """
    if rank is None or num_replicas is None:
        found_rank, found_replicas = _found() or (0, 1)
        num_replicas = found_replicas if num_replicas is None else num_replicas
        rank = found_rank if rank is None else rank
    num_replicas = _check.integer("num_replicas", num_replicas, 1, _check.MAX_LENGTH)
    return _check.integer("rank", rank, 0, num_replicas - 1), num_replicas


def to_send(rank: int | None, num_replicas: int | None) -> tuple[int | None, int | None]:
    """Returns what another process, which may know no process group, should be given in their place.

    Where nobody has said yet who this process is, it may be the other one that will be told.
    """
    is_open = rank is None or num_replicas is None
    return (rank, num_replicas) if is_open and _found() is None else find(rank, num_replicas)


def _found() -> tuple[int, int] | None:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    given = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    if given["WORLD_SIZE"] is None and given["RANK"] is None:
        return None
    if given["RANK"] is None or given["WORLD_SIZE"] is None:
        raise ValueError(f"RANK and WORLD_SIZE must both be set or neither, got {given}; or give rank and num_replicas")
    return int(given["RANK"]), int(given["WORLD_SIZE"])
