"""Control: what the main process says to workers that are running: where the next pass begins.

Workers have copies of the dataset from the moment at which they were started, and persistent ones live on. So the place
is in memory that all of them share: forked workers have it, and spawned ones get its handle with the dataset.
"""

from __future__ import annotations

import torch

from fastshard.cursor import Cursor
from fastshard.streaming.place import Place

MOST_WORLDS = 500  # changes of the world size within one epoch


class Control:
    """A place, which one process writes and others read."""

    def __init__(self) -> None:
        # The epoch in two halves, for it may pass 2^63; consumed; how many former worlds; and for each two numbers.
        self._words = torch.zeros(4 + 2 * MOST_WORLDS, dtype=torch.int64)
        self._words.share_memory_()  # type: ignore[no-untyped-call]

    def write(self, place: Cursor) -> None:
        """Says where the next pass begins.

        Raises:
            ValueError: the world changed its size too often within this epoch.
        """
        former = place.former if isinstance(place, Place) else ()
        if len(former) > MOST_WORLDS:
            raise ValueError(f"an epoch may have at most {MOST_WORLDS} changes of the world size, got {len(former)}")
        flat = [number for pair in former for number in pair]
        words = [place.epoch >> 32, place.epoch & 0xFFFFFFFF, place.consumed, len(former), *flat]
        self._words[: len(words)] = torch.tensor(words, dtype=torch.int64)

    def read(self) -> Place:
        """What was said last."""
        high, low, consumed, count = self._words[:4].tolist()
        flat = self._words[4 : 4 + 2 * count].tolist()
        return Place(high << 32 | low, consumed, tuple(zip(flat[::2], flat[1::2], strict=True)))
