"""DistributedBatchSampler: whole batches of a rank's slice, made by the core many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler

from fastshard import _check
from fastshard._built import _core
from fastshard._warnings import EmptyRankWarning, warn
from fastshard.samplers.batching import Batching
from fastshard.samplers.distributed import CHUNK, DistributedSampler

if TYPE_CHECKING:
    from collections.abc import Sized

    import numpy as np
    import numpy.typing as npt

    from fastshard import orders
    from fastshard.cursor import Cursor
    from fastshard.samplers.passes import OnRepeatedEpoch
    from fastshard.slicing import Uneven

# Ids that are asked of the core at a time for lists. Their ints cost so little that a call's own cost shows with CHUNK.
LIST_CHUNK = 4 * CHUNK


class DistributedBatchSampler(BatchSampler):
    """Gives each rank its batches of one global shuffle, for a DataLoader's `batch_sampler=`.

    Batch t of all ranks together is the global batch: positions [t*b*P, (t+1)*b*P) of the order.

    Args:
        dataset: anything with `len`.
        batch_size: samples per batch on this rank (the micro-batch b), at least 1.
        num_replicas, rank, shuffle, seed, order, on_repeated_epoch: as for DistributedSampler.
        drop_last: True drops partial *global* batches, so that every batch has batch_size samples and every rank the
            same number of batches. False keeps the last, smaller batch.
        uneven: as for DistributedSampler; None is "drop" with drop_last and "pad" without. With drop_last and "pad",
            ranks are padded first, and what is then short of a whole batch is dropped.
        as_array: yield int64 arrays, not lists of int: for datasets whose `__getitems__` takes arrays.

    Attributes:
        sampler: the DistributedSampler whose draws are batched.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of its range, or contradicts another.

    Warns:
        EmptyRankWarning: some rank gets no batch.

    Example:
        >>> batches = DistributedBatchSampler(range(10), batch_size=2, num_replicas=3, rank=0, drop_last=True)
        >>> len(batches), [len(batch) for batch in batches]
        (1, [2])
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        order: str | orders.Order = "shuffled",
        uneven: Uneven | None = None,
        on_repeated_epoch: OnRepeatedEpoch = "warn",
        as_array: bool = False,
    ) -> None:
        batch_size = _check.integer("batch_size", batch_size, 1, _check.MAX_LENGTH)
        drop_last, as_array = _check.boolean("drop_last", drop_last), _check.boolean("as_array", as_array)
        sampler: DistributedSampler[int] = DistributedSampler(
            dataset,
            num_replicas,
            rank,
            shuffle,
            seed,
            order=order,
            uneven=("drop" if drop_last else "pad") if uneven is None else uneven,
            on_repeated_epoch=on_repeated_epoch,
        )
        super().__init__(sampler, batch_size, drop_last)
        self.sampler: DistributedSampler[int] = sampler
        self.as_array = as_array
        if drop_last and not len(self) and sampler.num_samples:
            warn(
                f"no rank gets a batch: {sampler.slice.length} samples are fewer than batch_size={batch_size} on each "
                f"of {sampler.num_replicas} ranks, and drop_last=True",
                EmptyRankWarning,
            )

    def __len__(self) -> int:
        return self.batching.batches_in(self.sampler.share_to_come())

    @property
    def batching(self) -> Batching:
        """For loaders that count batches. Made anew, because batch_size and drop_last may be changed."""
        return Batching(self.sampler, self.batch_size, self.drop_last, of_ids=False, even=True)

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from; assigning to it is `set_epoch`."""
        return self.sampler.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler.set_epoch."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As DistributedSampler.state_dict, counting batches; and a later run is compared with the batch size."""
        return self.batching.state_after(*self.sampler.progress())

    def state_at(self, batches: int) -> dict[str, Any]:
        """As DistributedSampler.state_at, for this batch size."""
        began, _ = self.sampler.progress()
        return self.batching.state_after(began, _check.integer("batches", batches, 0, _check.MAX_LENGTH))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As DistributedSampler.load_state_dict."""
        self.batching.load_from(state)

    def where(self, id: int) -> tuple[int, int, int] | None:  # noqa: A002 (the field's word)
        """As DistributedSampler.where, for this batch size; None also if the sample's batch is dropped."""
        found = self.sampler.where(id, self.batch_size)
        return None if self.drop_last and found and found[1] >= len(self) else found

    def global_batch(self, step: int) -> npt.NDArray[np.int64]:
        """As DistributedSampler.global_batch, for this batch size. Dropped batches have no step."""
        if self.drop_last:
            step = _check.integer("step", step, 0, max(0, len(self) - 1))
        return self.sampler.global_batch(step, self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        return self.sampler.run_chunks(self._chunks, self.batching.state_after, self.load_state_dict)

    def _chunks(self, cursor: Cursor) -> Iterator[Iterable[Any]]:
        share = self.sampler.share(cursor.consumed)
        num_samples = self.batching.draws_in(share)
        size = max(1, min(self.batch_size, num_samples))  # numpy refuses shapes that no address space holds
        # A batch that is an array keeps its whole chunk alive.
        chunk = max(1, (CHUNK if self.as_array else LIST_CHUNK) // size) * size
        for start in range(0, num_samples, chunk):
            stop = min(start + chunk, num_samples)
            ids = self.sampler.draws(share, cursor.epoch, start, stop)
            if self.as_array:
                whole = len(ids) // size * size
                last = [ids[whole:]] if whole < len(ids) else []
                yield [*ids[:whole].reshape(-1, size), *last]
            else:
                yield _core.Batches(ids, size)
