"""BlockShuffled: blocks shuffled, then samples within windows of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fastshard import _check
from fastshard._built import _core
from fastshard.orders.arrays import ArrayOrder, whole_numbers

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, eq=False, repr=False)
class BlockShuffled(ArrayOrder):
    """A shuffle for data in blocks (shards, files, row groups) that are costly to open and cheap to read on.

    Each epoch puts the blocks in an order of its own and cuts that into windows of `window` blocks; the samples of a
    window are then shuffled among themselves. So who reads the positions in turn has `window` blocks open at a time,
    and each block once. The wider the window, the closer to a full shuffle: one of all blocks is a full shuffle. Still
    every sample comes exactly once, and any position can be had at once.

    Block k holds the ids from sum(block_sizes[:k]) on. Holds 24 bytes a block. A stretch of positions costs a little
    for every window it touches and log2(window) steps an id; windows of at most 4,096 samples cost up to their own
    size each, so a stride that is longer than such a window costs that for every id.

    Args:
        block_sizes: samples in each block: any 1-D array-like of ints, at least 0 each, that add up to a number in
            [1, 2^63).
        seed: any int in [-2^63, 2^64), taken modulo 2^64. No two pairs of (seed, epoch) share an order, other than by
            chance.
        window: how many blocks in a row are shuffled together, in [1, 2^63).

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range; the message names it, and the first
            block size that is wrong.

    Example:
        >>> order = orders.BlockShuffled([2, 3, 2, 3], seed=1, window=1)
        >>> blocks = [order.blocks_of(0, start, stop).tolist() for start, stop in ((0, 10), (0, 2), (9, 10))]
        >>> sorted(blocks[0]), blocks[0][:1] == blocks[1], blocks[0][-1:] == blocks[2]
        ([0, 1, 2, 3], True, True)
        >>> sorted(order.indices(epoch=0).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

    Source: csrc/order/blocks.h.
    """

    block_sizes: npt.NDArray[np.int64]
    seed: int
    window: int
    name: ClassVar[str] = "blocks/1"

    def __post_init__(self) -> None:
        sizes = _checked(self.block_sizes)
        checked = {
            "block_sizes": sizes,
            "seed": _check.seed(self.seed),
            "window": _check.integer("window", self.window, 1, _check.MAX_LENGTH),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_length", int(sizes.sum()))
        self._keep(_core.BlockShuffled(sizes, self.seed % 2**64, self.window))

    def __len__(self) -> int:
        length: int = self.__dict__["_length"]
        return length

    def blocks_of(self, epoch: int, start: int = 0, stop: int | None = None) -> npt.NDArray[np.int64]:
        """Returns the blocks that have a sample at positions [start, stop), in the order in which the epoch has them.

        What a reader opens for these positions, and what it can fetch ahead. Windows that lie wholly within cost
        nothing per sample; of the first and the last one, the positions asked for are computed.

        Args:
            epoch: any int in [0, 2^64).
            start: first position, in [0, len(self)].
            stop: end of the positions, in [start, len(self)]; None is len(self).

        Returns:
            An int64 array of block numbers, each once, none of an empty block.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of its range.
        """
        epoch = _check.integer("epoch", epoch, 0, _check.MAX_EPOCH)
        start = _check.integer("start", start, 0, len(self))
        stop = len(self) if stop is None else _check.integer("stop", stop, start, len(self))
        core = self._core
        assert isinstance(core, _core.BlockShuffled)
        return core.blocks_of(epoch, start, stop)

    def _position(self, epoch: int, sample: int) -> int:
        core = self._core
        assert isinstance(core, _core.Bijection)
        return core.position(epoch, sample)


def _checked(block_sizes: Any) -> npt.NDArray[np.int64]:
    """An int64 copy of `block_sizes` that nobody can write to, whose sum is in [1, 2^63)."""
    sizes = whole_numbers("block_sizes", "block", block_sizes).astype(np.int64)
    # Each sum of the high and of the low halves fits; below 2^31 blocks, which 16 GiB of sizes are.
    total = (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())
    if not 1 <= total <= _check.MAX_LENGTH:
        raise ValueError(f"block_sizes must add up to a number in [1, 2^63), got {total}")
    sizes.flags.writeable = False
    return sizes
