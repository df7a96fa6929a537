"""Batching: a DistributedSampler's draws, cut into batches. Says how many there are, and what a count of them means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard import _check

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.cursor import Cursor
    from fastshard.samplers.distributed import DistributedSampler
    from fastshard.samplers.passes import Passes
    from fastshard.slicing import Slice


@dataclass(frozen=True)
class Batching:
    """Batches of a sampler's draws on this rank.

    Args:
        sampler: whose draws they are.
        batch_size: draws in a batch.
        drop_last: whether what is short of a whole batch at the end of a pass is dropped.
        of_ids: whether the sampler gives ids, and something else makes batches of them.
        even: with drop_last, whether ranks that would have a batch more than others (uneven="keep") drop it too.
    """

    sampler: DistributedSampler[Any]
    batch_size: int
    drop_last: bool
    of_ids: bool = True
    even: bool = False

    def batches_in(self, share: Slice) -> int:
        """Batches in this rank's share."""
        if not self.drop_last:
            return -(-share.num_samples // self.batch_size)
        # Of the rank with the fewest samples: under "keep" the others may have one more, and a batch more.
        left = share.length - share.start
        fewest = left // share.num_replicas if self.even and share.uneven == "keep" else share.num_samples
        return fewest // self.batch_size

    def draws_in(self, share: Slice) -> int:
        """Draws in those batches."""
        return min(self.batches_in(share) * self.batch_size, share.num_samples)

    @property
    def passes(self) -> Passes:
        """The passes over the sampler."""
        return self.sampler.passes

    @property
    def length(self) -> int:
        """Positions in an epoch."""
        return len(self.sampler.order)

    def progress(self) -> tuple[Cursor, int]:
        """Where the epoch's latest pass began, and how many items the sampler has given: ids, or batches of its own."""
        return self.sampler.progress()

    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """The state after so many batches of a pass that began there."""
        # After the last batch of a pass with drop_last, what is left is dropped.
        draws = _check.MAX_LENGTH if self.is_over(began, batches) else batches * self.batch_size
        return self.sampler.state_after(began, draws, self.batch_size, accumulation)

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """Goes on from a state; see DistributedSampler.load_state_dict."""
        self.sampler.load_from(state, self.batch_size, accumulation)

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler.set_epoch."""
        self.sampler.set_epoch(epoch)

    def batches_from(self, began: Cursor) -> int:
        """Batches this rank gets in a pass from there."""
        return self.batches_in(self.sampler.share(began.consumed))

    def start_of(self, began: Cursor) -> int:
        """`consumed` where such a pass begins, as a state would say it."""
        return began.consumed

    def batches_drawn(self, items: int) -> int:
        """How many batches the items of a pass make so far."""
        return -(-items // self.batch_size) if self.of_ids else items

    def is_over(self, began: Cursor, batches: int) -> bool:
        """Whether no rank gets a batch after so many of such a pass. Rank 0 gets no fewer than others.

        Not before the first one: where a world is too large for what is left, another one may still come for it.
        """
        return batches > 0 and batches >= self.batches_in(replace(self.sampler.share(began.consumed), rank=0))

    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:
        """The ids that such a pass leaves out: of this rank's draws, and for rank 0 those that no rank has."""
        share, order = self.sampler.share(began.consumed), self.sampler.order
        real = share.num_samples - share.num_padding
        mine = share.indices(order, began.epoch, min(self.draws_in(share), real), real)
        if share.rank or share.uneven != "drop":
            return mine
        return np.append(mine, order.indices(began.epoch, share.start + share.total_size, share.length))

    def padding_in(self, began: Cursor, batch: int) -> int:
        """How many draws of that batch, its last ones, are padding."""
        share = self.sampler.share(began.consumed)
        end = min((batch + 1) * self.batch_size, share.num_samples)
        return max(0, end - max(batch * self.batch_size, share.num_samples - share.num_padding))
