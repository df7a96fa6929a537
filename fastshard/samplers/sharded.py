"""ShardedBatchSampler: the batches of any batch sampler, dealt out to the ranks."""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, get_args

import numpy as np
import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from fastshard import _check
from fastshard._warnings import EmptyRankWarning, StateMismatchError, warn
from fastshard.cursor import Cursor, from_state, to_state
from fastshard.orders.base import Order
from fastshard.samplers.distributed import DistributedSampler, ask_group
from fastshard.samplers.passes import OnRepeatedEpoch
from fastshard.samplers.resuming import ResumingBatchSampler
from fastshard.slicing import Slice, Uneven

if TYPE_CHECKING:
    import numpy.typing as npt

B = TypeVar("B")

_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
# What the batches depend on beside the samples, by the names that samplers have for it.
_ARGUMENTS = ("batch_size", "max_tokens", "drop_last", "shuffle")
_DEPTH = 10  # wrappers around wrappers, of which the last one has the ids


class ShardedBatchSampler(ResumingBatchSampler[B]):
    """Gives each rank every P-th batch of a batch sampler, for a DataLoader's `batch_sampler=`.

    For batches that are made by a rule of their own: of one bucket, one class, one document. Rank r gets batches r,
    r + P, r + 2P, ..., each as it is and in that order. The batch sampler must give the same batches on every rank; it
    is not copied, and gives all of them on each.

    In step t, each rank draws P batches from it, t*P to t*P + P - 1, and keeps its own. So whatever state the batch
    sampler has (a generator, say) stays the same on all ranks, also where an epoch is cut short.

    A state counts batches of the batch sampler. To resume, each rank draws the consumed ones from it again and lets go
    of them, which reads no data; what is left is dealt out afresh. So after a restart the batch sampler must give the
    same batches for an epoch: it has a `set_epoch`, or no chance in it. Its own state is not to be loaded as well.

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
        super().__init__()
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
            for part in parts_of(self.batch_sampler):
                _check_same_everywhere(part)
        self._told = 0
        self._slice: Slice | None = None
        self._counted: tuple[int, int] | None = None  # the epoch that ended last, and its batches
        self._left: tuple[Cursor, list[Any]] | None = None  # the latest pass that came so far, and its last batches
        self._padded: tuple[Cursor, Any] | None = None  # the pass that was padded last, and by what
        if has_length(batch_sampler):
            len(self)

    def __len__(self) -> int:
        """The number of this rank's batches.

        Raises:
            TypeError: batch_sampler has no len.
            ValueError: batch_sampler has no batch.
        """
        if not has_length(self.batch_sampler):
            raise TypeError(f"batch_sampler has no len, so its shares have none: {self.batch_sampler!r}")
        share = self._share(self._passes.next_cursor(self._length))
        assert share is not None
        return share.num_samples

    @property
    def _length(self) -> int:
        return _check.MAX_LENGTH  # another epoch may have more batches, and without len nobody knows how many

    def _batches_in(self, epoch: int) -> int | None:
        """Batches of an epoch; without len None, until its end has come."""
        self._check_inner_place()
        if not has_length(self.batch_sampler):
            return self._counted[1] if self._counted and self._counted[0] == epoch else None
        batches = len(self.batch_sampler)
        if batches == 0:
            raise ValueError("batch_sampler must have at least one batch, got len(batch_sampler)=0")
        return batches

    def _share(self, began: Cursor) -> Slice | None:
        """This rank's slice of what was left when a pass began; None where nobody knows."""
        batches = self._batches_in(began.epoch)
        if not batches:
            return None
        start = min(began.consumed, batches)
        if self._slice is None or (self._slice.length, self._slice.start) != (batches, start):
            self._slice = Slice(batches, self.rank, self.num_replicas, self.uneven, start)
        return self._slice

    def batches_from(self, began: Cursor) -> int | None:
        """For loaders built on this one: how many batches this rank gets in a pass from there; None if unknown.

        Without len it is known when the end of the epoch has come.
        """
        share = self._share(began)
        if share is None:
            return 0 if began.consumed == self._length else None
        return share.num_samples

    def start_of(self, began: Cursor) -> int:
        """For loaders built on this one: `consumed` where such a pass begins, as a state would say it."""
        share = self._share(began)
        return share.start if share else began.consumed

    def is_over(self, began: Cursor, batches: int) -> bool:
        """For loaders built on this one: whether no rank gets a batch after so many of such a pass, if it is known."""
        share = self._share(began)
        return batches > 0 and batches >= (share.most_samples if share else self._length)

    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:
        """For loaders built on this one: ids of the batches that such a pass leaves out, on rank 0."""
        if self.rank or self.uneven != "drop" or self._left is None or self._left[0] != began:
            return np.empty(0, np.int64)
        return np.concatenate([np.empty(0, np.int64), *self._left[1]])

    def padding_in(self, began: Cursor, batch: int) -> int:
        """For loaders built on this one: how many samples of a drawn batch of such a pass are padding: all or none."""
        share = self._share(began)
        if not share or not share.num_padding or batch != share.num_samples - 1:
            return 0
        if self._padded is None or self._padded[0] != began:
            raise ValueError(f"batch must be one that this sampler has drawn from {began}, got batch={batch}")
        return len(self._padded[1])

    def state_dict(self) -> dict[str, Any]:
        """As DistributedSampler.state_dict, counting batches. With uneven="keep" let rank 0 save: it is the last one.

        Raises:
            TypeError: after a restart the batch sampler would give other batches.
        """
        return super().state_dict()

    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """For loaders built on this one: the state after so many of this rank's batches of a pass that began there."""
        check_repeatable(self.batch_sampler)
        share = self._share(began)
        end = share.length if share else self._length
        # After the last batch also where others are dropped: nobody comes for them.
        consumed = end if self.is_over(began, batches) else min(began.consumed + batches * self.num_replicas, end)
        return to_state(Cursor(began.epoch, consumed), self._facts(share.length if share else None, accumulation))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As DistributedSampler.load_state_dict; a changed world size deals out afresh the batches that are left.

        The first draw after it costs as much as to draw all consumed batches from the batch sampler.

        Raises:
            TypeError: state is no such dict, or after a restart the batch sampler gives other batches.
            StateMismatchError, EpochChangedError: as there.
        """
        self.load_from(state)

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """For loaders built on this one: load_state_dict with an accumulation to compare."""
        check_repeatable(self.batch_sampler)
        given = state if isinstance(state, Mapping) else {}
        told = self._told
        try:
            if isinstance(given.get("epoch"), int):
                self._tell(given["epoch"])  # how many batches it has may depend on it
            length = self._batches_in(self._told) if has_length(self.batch_sampler) else given.get("length")
            cursor = from_state(state, self._facts(length, accumulation))
            finished = length is not None and cursor.consumed >= length
            self._passes.load(Cursor(cursor.epoch, self._length) if finished else cursor)
        except Exception:
            self._tell(told)
            raise
        self._counted = (cursor.epoch, length) if finished and length is not None else None

    def _facts(self, length: int | None, accumulation: int | None) -> dict[str, Any]:
        """What a state must agree with."""
        parts = list(parts_of(self.batch_sampler))
        found = hashlib.blake2b(digest_size=8)
        for part in parts:
            known = [(name, value) for name in _ARGUMENTS if isinstance(value := getattr(part, name, None), int)]
            order = getattr(part, "order", None)
            what = (order.name, order.digest()) if isinstance(order, Order) else ()
            found.update(repr((type(part).__name__, known, what)).encode())
        sizes = {name: getattr(self.batch_sampler, name, None) for name in ("batch_size", "max_tokens")}
        return {
            "order": f"batches/{type(self.batch_sampler).__name__}",
            "order_digest": found.hexdigest(),
            "seed": next((seed % 2**64 for part in parts if isinstance(seed := getattr(part, "seed", None), int)), 0),
            "length": length,
            "uneven": self.uneven,
            "num_replicas": self.num_replicas,
            **{name: size if isinstance(size, int) else None for name, size in sizes.items()},
            "accumulation": accumulation,
        }

    def _check_inner_place(self) -> None:
        """What was loaded into a sampler within would be skipped by that one, and here again."""
        for part in parts_of(self.batch_sampler):
            if isinstance(part, DistributedSampler | ResumingBatchSampler) and (began := part.progress()[0]).consumed:
                raise StateMismatchError(
                    f"batch_sampler holds a {type(part).__name__} into which a state was loaded, of epoch "
                    f"{began.epoch} and consumed={began.consumed}: load the state of the {type(self).__name__} alone"
                )

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler.set_epoch, and passes the epoch on to the batch sampler, or else the sampler in it."""
        self._passes.set_epoch(epoch)
        self._tell(self._passes.epoch)

    def __iter__(self) -> Iterator[B]:
        reshuffles = part_with_epochs(self.batch_sampler) is not None and not any(
            getattr(part, "shuffle", True) is False for part in parts_of(self.batch_sampler)
        )
        return self._passes.run(
            self._chunks,
            length=self._length,
            reshuffles=reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
            state_after=self.state_after,
            load=self.load_state_dict,
        )

    def _chunks(self, cursor: Cursor) -> Iterator[list[B]]:
        epoch = cursor.epoch
        if epoch != self._told:  # on_repeated_epoch="advance"
            self._tell(epoch)
        self._check_inner_place()
        if cursor.consumed == self._length:
            return
        batches = iter(self.batch_sampler)
        first = list(islice(batches, min(cursor.consumed, self.num_replicas)))
        before = len(first) + sum(1 for _ in islice(batches, cursor.consumed - len(first)))
        group = list(islice(batches, self.num_replicas))
        first += group  # at least P, or all: what there is to pad with
        given, total = 0, self._batches_in(epoch) if self.uneven == "drop" else None
        while len(group) == self.num_replicas:
            given += 1
            mine = [group[self.rank]]
            end = before + (given + 1) * self.num_replicas
            if total is not None and end > total:  # whoever has the last batch knows what is dropped
                group = list(islice(batches, self.num_replicas))
                self._left = cursor, group
                yield mine
            else:
                yield mine
                group = list(islice(batches, self.num_replicas))
        before += given * self.num_replicas
        self._counted = epoch, before + len(group)
        self._left = cursor, group
        if group and not given and self.uneven != "pad" and not has_length(self.batch_sampler):
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
                padding = first[(before + self.rank) % (before + len(group))]
                self._padded = cursor, padding
                # A copy: who changes a batch in place must not change what another step gets.
                yield [copy.copy(padding)]

    def _tell(self, epoch: int) -> None:
        self._told = epoch
        inner = part_with_epochs(self.batch_sampler)
        if inner is not None:
            inner.set_epoch(epoch)


def parts_of(batch_sampler: Any) -> Iterator[Any]:
    """The batch sampler, the sampler in it, and so on."""
    part = batch_sampler
    for _ in range(_DEPTH):
        yield part
        # None alone says that there is no further part: to ask whether it is true would ask for its len.
        inner = getattr(part, "batch_sampler", None)
        part = getattr(part, "sampler", None) if inner is None else inner
        if part is None:
            return


def part_with_epochs(batch_sampler: Any) -> Any | None:
    """The outermost part with a set_epoch; to pass the epoch further in is that one's business."""
    return next((part for part in parts_of(batch_sampler) if callable(getattr(part, "set_epoch", None))), None)


def check_repeatable(batch_sampler: Any) -> None:
    """Refuses to tell a place in an epoch that nobody can draw again."""
    if part_with_epochs(batch_sampler) is not None:
        return
    for part in parts_of(batch_sampler):
        # numpy.random is named here, not above: numpy loads it with the first word, and it takes its time.
        generators = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
        values = getattr(part, "__dict__", {}).values()
        if isinstance(part, _RANDOM) or any(isinstance(value, generators) for value in values):
            raise TypeError(
                f"after a restart a {type(part).__name__} would give other samples, because it draws from a random "
                "generator, and nothing has a set_epoch; so there is no state. Use DistributedSampler, for one rank "
                "with num_replicas=1, rank=0"
            )


def has_length(batch_sampler: object) -> TypeGuard[Sized]:
    """Whether `len` works."""
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
