"""Statistics: what reading has come to, over all workers of this process."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.data import get_worker_info

_ROWS = 1024  # workers that count each for itself; those above share rows, and may lose a count


@dataclass(frozen=True)
class Statistics:
    """Sums since the dataset was made.

    Attributes:
        samples: that were read.
        bytes_read: of the shards, gaps between neighbouring samples included.
        requests: preads of local shards, range requests of remote ones.
        replaced: samples that could not be read, and in whose place another one was given; with on_error="skip".
    """

    samples: int
    bytes_read: int
    requests: int
    replaced: int


class Counters:
    """Counts of the main process and each of its workers, in memory that they share."""

    def __init__(self) -> None:
        self._rows = torch.zeros(_ROWS, 4, dtype=torch.int64)
        self._rows.share_memory_()  # type: ignore[no-untyped-call]

    def add(self, samples: int, bytes_read: int, requests: int, replaced: int) -> None:
        """Counts for this worker, or the main process."""
        worker = get_worker_info()
        row = self._rows[0 if worker is None else 1 + worker.id % (_ROWS - 1)]
        row += torch.tensor([samples, bytes_read, requests, replaced])

    def total(self) -> Statistics:
        """The sums."""
        return Statistics(*self._rows.sum(0).tolist())
