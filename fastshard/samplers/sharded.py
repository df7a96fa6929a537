"""ShardedBatchSampler: the batches of any batch sampler, dealt out to the ranks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import Any, TypeGuard, TypeVar, get_args

from torch.utils.data import RandomSampler, Sampler, SubsetRandomSampler, WeightedRandomSampler

from fastshard import _check
from fastshard._warnings import EmptyRankWarning, warn
from fastshard.cursor import Cursor
from fastshard.samplers.distributed import ask_group
from fastshard.samplers.passes import OnRepeatedEpoch, Passes
from fastshard.slicing import Slice, Uneven

B = TypeVar("B")

_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_DEPTH = 10  # wrappers around wrappers, of which the last one has the ids


class ShardedBatchSampler(Sampler[B]):
    """Gives each rank every P-th batch of a batch sampler, for a DataLoader's `batch_sampler=`.

    For batches that are made by a rule of their own: of one bucket, one class, one document. Rank r gets batches r,
    r + P, r + 2P, ..., each as it is and in that order. The batch sampler must give the same batches on every rank; it
    is not copied, and gives all of them on each.

    In step t, each rank draws P batches from it, t*P to t*P + P - 1, and keeps its own. So whatever state the batch
    sampler has (a generator, say) stays the same on all ranks, also where an epoch is cut short.

    Args:
        batch_sampler: a torch BatchSampler, or whatever can be iterated over once an epoch; with `len` or without.
        num_replicas: number of ranks P; None asks the process group.
        rank: this rank, in [0, num_replicas); None asks the process group.
        uneven: what happens where P does not divide the number of batches.
            "pad": every rank gets as many batches, going on with the first ones.
            "drop": the last batches, fewer than P, are not used.
            "keep": every batch exactly once; ranks differ by at most one batch.
        on_repeated_epoch: as for DistributedSampler. A second pass counts as a repetition only where the batch sampler,
            or the sampler in it, has a `set_epoch`.

    Attributes:
        batch_sampler: as given.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range, or batch_sampler gives each rank
            other batches: it is sharded already, or draws from torch's global random state.

    Warns:
        EmptyRankWarning: there are fewer batches than ranks, and uneven is not "pad". Without `len`, in the pass.

    Example:
        >>> by_class = [[0, 1, 2], [3], [4, 5], [6, 7, 8, 9], [10], [11, 12], [13]]
        >>> list(ShardedBatchSampler(by_class, num_replicas=2, rank=1))
        [[3], [6, 7, 8, 9], [11, 12], [0, 1, 2]]
        >>> [len(ShardedBatchSampler(by_class, 2, rank, uneven="keep")) for rank in range(2)]
        [4, 3]
    """

    def __init__(
        self,
        batch_sampler: Iterable[B],
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        uneven: Uneven = "pad",
        on_repeated_epoch: OnRepeatedEpoch = "warn",
    ) -> None:
        num_replicas, rank = ask_group(num_replicas, rank)
        self.num_replicas = _check.integer("num_replicas", num_replicas, 1, _check.MAX_LENGTH)
        self.rank = _check.integer("rank", rank, 0, self.num_replicas - 1)
        self.uneven: Uneven = _check.one_of("uneven", uneven, get_args(Uneven))
        self.on_repeated_epoch = _check.one_of("on_repeated_epoch", on_repeated_epoch, get_args(OnRepeatedEpoch))
        if not isinstance(batch_sampler, Iterable) or isinstance(batch_sampler, Iterator):
            raise TypeError(
                f"batch_sampler must be a batch sampler, or what else can be iterated over once an epoch, got "
                f"batch_sampler={batch_sampler!r}"
            )
        self.batch_sampler = batch_sampler
        if self.num_replicas > 1:
            for part in self._parts():
                _check_same_everywhere(part)
        self._passes = Passes()
        self._told = 0
        self._slice: Slice | None = None
        if _has_length(batch_sampler):
            len(self)

    def __len__(self) -> int:
        """The number of this rank's batches.

        Raises:
            TypeError: batch_sampler has no len.
            ValueError: batch_sampler has no batch.
        """
        if not _has_length(self.batch_sampler):
            raise TypeError(f"batch_sampler has no len, so its shares have none: {self.batch_sampler!r}")
        batches = len(self.batch_sampler)
        if batches == 0:
            raise ValueError("batch_sampler must have at least one batch, got len(batch_sampler)=0")
        if self._slice is None or self._slice.length != batches:  # another epoch may have more
            self._slice = Slice(batches, self.rank, self.num_replicas, self.uneven)
        return self._slice.num_samples

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from; assigning to it is `set_epoch`."""
        return self._passes.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler.set_epoch, and passes the epoch on to the batch sampler, or else the sampler in it."""
        self._passes.set_epoch(epoch)
        self._tell(self._passes.epoch)

    def __iter__(self) -> Iterator[B]:
        reshuffles = self._inner_set_epoch() is not None and not any(
            getattr(part, "shuffle", True) is False for part in self._parts()
        )
        return self._passes.run(self._chunks, length=1, reshuffles=reshuffles, on_repeated_epoch=self.on_repeated_epoch)

    def _chunks(self, cursor: Cursor) -> Iterator[list[B]]:
        epoch = cursor.epoch
        if epoch != self._told:  # on_repeated_epoch="advance"
            self._tell(epoch)
        batches = iter(self.batch_sampler)
        first = group = list(islice(batches, self.num_replicas))
        while len(group) == self.num_replicas:
            yield [group[self.rank]]
            group = list(islice(batches, self.num_replicas))
        if group and group is first and self.uneven != "pad" and not _has_length(self.batch_sampler):
            empty = self.num_replicas - (len(group) if self.uneven == "keep" else 0)
            warn(
                f"{empty} of {self.num_replicas} ranks get no batch: batch_sampler gave {len(group)} and "
                f"uneven={self.uneven!r}",
                EmptyRankWarning,
            )
        if group and self.uneven != "drop":
            if self.rank < len(group):
                yield [group[self.rank]]
            elif self.uneven == "pad":
                # A copy: who changes a batch in place must not change what another step gets.
                yield [copy.copy(first[(self.rank - len(group)) % len(first)])]

    def _tell(self, epoch: int) -> None:
        self._told = epoch
        inner = self._inner_set_epoch()
        if inner is not None:
            inner(epoch)

    def _inner_set_epoch(self) -> Callable[[int], object] | None:
        """The outermost set_epoch; to pass the epoch further in is that one's business."""
        return next((part.set_epoch for part in self._parts() if callable(getattr(part, "set_epoch", None))), None)

    def _parts(self) -> Iterator[Any]:
        """The batch sampler, the sampler in it, and so on."""
        part: Any = self.batch_sampler
        for _ in range(_DEPTH):
            yield part
            # None alone says that there is no further part: to ask whether it is true would ask for its len.
            inner = getattr(part, "batch_sampler", None)
            part = getattr(part, "sampler", None) if inner is None else inner
            if part is None:
                return

    def __getstate__(self) -> dict[str, Any]:
        # A copy has passes of its own, so that its epoch is its own.
        return {**self.__dict__, "_passes": copy.copy(self._passes)}


def _has_length(batch_sampler: object) -> TypeGuard[Sized]:
    if not isinstance(batch_sampler, Sized):
        return False
    try:
        len(batch_sampler)
    except (TypeError, NotImplementedError):  # torch's BatchSampler, over a sampler without len
        return False
    return True


def _check_same_everywhere(part: Any) -> None:
    """Refuses what gives each rank batches of its own. Frameworks have samplers of their own, so attributes decide."""
    name = type(part).__name__
    for count in ("num_replicas", "num_processes"):
        others = getattr(part, count, 1)
        if isinstance(others, int) and others > 1:
            raise ValueError(
                f"batch_sampler is sharded already, by a {name} with {count}={others}: to shard it again would leave "
                "each rank a part of its part; use it as it is, or build it with num_replicas=1, rank=0"
            )
    if isinstance(part, _RANDOM) and part.generator is None:
        raise ValueError(
            f"batch_sampler draws from a {name} without a generator, so from torch's global random state, of which "
            "each rank has its own: their batches would differ; give it a generator with the same seed on every rank, "
            "or build it over DistributedSampler(dataset, num_replicas=1, rank=0), which knows epochs too"
        )
