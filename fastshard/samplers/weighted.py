"""WeightedDistributedSampler: draws by weight, dealt out to the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastshard.orders import Weighted
from fastshard.samplers.distributed import DistributedSampler

if TYPE_CHECKING:
    from fastshard.samplers.passes import OnRepeatedEpoch
    from fastshard.slicing import Uneven


class WeightedDistributedSampler(DistributedSampler[int]):
    """torch's WeightedRandomSampler for several ranks: one sequence of draws by weight, of which each takes its slice.

    Short for `DistributedSampler(dataset, order=orders.Weighted(weights, num_samples, seed))`; for whole batches, give
    that order to DistributedBatchSampler. Everything that holds for a DistributedSampler holds here.

    Args:
        weights, replacement: as for `orders.Weighted`; one weight for each sample of the dataset.
        num_samples: draws of all ranks together in an epoch; `len(sampler)`, and the attribute num_samples, are a
            rank's share of them.
        num_replicas, rank, seed, drop_last, uneven, on_repeated_epoch: as for DistributedSampler.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of its range, or contradicts another.

    Example:
        >>> weights = [1.0] * 900 + [9.0] * 100  # a rare class, drawn as often as the frequent one
        >>> ranks = [WeightedDistributedSampler(weights, 2000, num_replicas=4, rank=rank) for rank in range(4)]
        >>> [len(sampler) for sampler in ranks]
        [500, 500, 500, 500]
        >>> rare = sum(id >= 900 for sampler in ranks for id in sampler)
        >>> 900 < rare < 1100
        True
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        replacement: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: Uneven | None = None,
        on_repeated_epoch: OnRepeatedEpoch = "warn",
    ) -> None:
        order = Weighted(weights, num_samples, seed, replacement)
        super().__init__(
            range(order.num_ids),
            num_replicas,
            rank,
            drop_last=drop_last,
            order=order,
            uneven=uneven,
            on_repeated_epoch=on_repeated_epoch,
        )
