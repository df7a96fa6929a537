"""DistributedSampler: torch's class, with its order from the core. O(1) memory and start for `order="shuffled"`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import torch.distributed as dist
import torch.utils.data.distributed as torch_distributed
from torch.utils.data import BatchSampler, Sampler

from fastshard import _check, orders
from fastshard._built import _core
from fastshard.cursor import Cursor, from_state, to_state
from fastshard.samplers.passes import OnRepeatedEpoch, Passes
from fastshard.slicing import Slice, Uneven

if TYPE_CHECKING:
    from collections.abc import Sized

    import numpy as np
    import numpy.typing as npt

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Ids that are asked of the core at a time: enough for the call to cost nothing per id, few enough for the first id to
# come at once and for the array to stay in the first-level cache (32 kB).
CHUNK = 4096


class DistributedSampler(torch_distributed.DistributedSampler[T_co]):
    """Gives each rank its slice of one global shuffle; replaces torch's DistributedSampler.

    A subclass of torch's with the same positional arguments and attributes, so frameworks take it for one. Unlike
    torch's it starts at once whatever the dataset's size, and holds no list of all ids.

    Args:
        dataset: anything with `len`; its length is fixed from here on.
        num_replicas: number of ranks; None asks the process group.
        rank: this rank, in [0, num_replicas); None asks the process group.
        shuffle: False is dataset order, as with torch.
        seed: any int in [-2^63, 2^64), the same on every rank.
        drop_last: torch's name for uneven="drop" (True) and uneven="pad" (False).
        order: "shuffled" is fastshard's own permutation, "torch" exactly the one torch's sampler would use (computed
            once an epoch, 4 bytes a sample); or any Order, whose own seed then holds.
        uneven: see `Slice`; None follows drop_last. "keep" uses every sample exactly once, for evaluation or Join.
        on_repeated_epoch: what a second pass without `set_epoch` does. "warn" warns once, "error" raises
            RepeatedEpochError, "advance" goes to the next epoch by itself, "ignore" repeats the order in silence.

    Attributes:
        num_samples: draws of this rank per epoch, padding included; `len(sampler)`, except where a state was loaded:
            there `len` says what the next pass will give.
        num_padding: how many of this rank's last draws are padding, that is, samples also drawn elsewhere.
        total_size: draws of all ranks together, padding included.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of its range, or contradicts another.

    Warns:
        EmptyRankWarning: some rank gets no sample.

    Example:
        >>> sampler = DistributedSampler(range(10), num_replicas=2, rank=0, seed=1)
        >>> sampler.set_epoch(3)
        >>> list(sampler) == sampler.indices().tolist()
        True
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        order: str | orders.Order = "shuffled",
        uneven: Uneven | None = None,
        on_repeated_epoch: OnRepeatedEpoch = "warn",
    ) -> None:
        if isinstance(dataset, BatchSampler) or (isinstance(dataset, Sampler) and hasattr(dataset, "num_replicas")):
            raise TypeError(f"dataset must be the dataset, got a {type(dataset).__name__}: that would shard it twice")
        num_replicas, rank = ask_group(num_replicas, rank)
        if len(dataset) == 0:
            raise ValueError("dataset must have at least one sample, got len(dataset)=0")
        shuffle, drop_last = _check.boolean("shuffle", shuffle), _check.boolean("drop_last", drop_last)
        if uneven is None:
            uneven = "drop" if drop_last else "pad"
        elif drop_last and uneven != "drop":
            raise ValueError(f'drop_last=True means uneven="drop", got uneven={uneven!r}; leave one of them out')
        self.order = _resolve_order(order, len(dataset), shuffle, seed)
        self.slice = Slice(len(self.order), rank, num_replicas, uneven)
        self.on_repeated_epoch = _check.one_of("on_repeated_epoch", on_repeated_epoch, get_args(OnRepeatedEpoch))
        super().__init__(
            dataset,  # type: ignore[arg-type] # torch's annotation asks for a Dataset, its code for len()
            num_replicas=self.slice.num_replicas,
            rank=self.slice.rank,
            shuffle=self.order.reshuffles,
            seed=getattr(self.order, "seed", _check.seed(seed)),
            drop_last=uneven == "drop",
        )
        self._passes = Passes()  # torch's class has set epoch 0, which nobody asked for
        self.uneven: Uneven = uneven
        self.num_samples = self.slice.num_samples
        self.num_padding = self.slice.num_padding
        self.total_size = self.slice.total_size
        self._built_from = self._facts()

    @functools.cached_property
    def _passes(self) -> Passes:
        return Passes()  # not made in __init__: a subclass may set its epoch before it calls that

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from; assigning to it is `set_epoch`."""
        return self._passes.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._passes.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the passes to come. Call it on every rank, before `iter()` of the loader.

        Args:
            epoch: any int in [0, 2^64).

        Raises:
            TypeError, ValueError: epoch is not such an int.
            EpochChangedError: not here, but in a running pass over another epoch, if it draws again.

        Warns:
            EpochChangedWarning: a loader's workers have fetched all of another epoch, and not all of it was taken.
        """
        self._passes.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the epoch's latest pass has come to: a small dict that JSON can hold, the same on every rank.

        Counts what this sampler has handed out. A torch DataLoader with workers draws ahead of what it delivers: there
        count the steps yourself, and use `state_at`. Changes nothing.
        """
        return self.state_after(*self.progress())

    def state_at(self, batches: int, batch_size: int) -> dict[str, Any]:
        """As state_dict, for who counts steps: after so many batches of the epoch's latest pass.

        Args:
            batches: batches that this rank has trained on since the pass began, or since the state was loaded.
            batch_size: samples per batch on each rank.
        """
        batches = _check.integer("batches", batches, 0, _check.MAX_LENGTH)
        batch_size = _check.integer("batch_size", batch_size, 1, _check.MAX_LENGTH)
        return self.state_after(self.progress()[0], batches * batch_size, batch_size)

    def progress(self) -> tuple[Cursor, int]:
        """For samplers built on this one: where the epoch's latest pass began, and how many items it has given."""
        self._check_unchanged()
        return self._passes.progress(len(self.order))

    def state_after(
        self, began: Cursor, draws: int, batch_size: int | None = None, accumulation: int | None = None
    ) -> dict[str, Any]:
        """For samplers and loaders built on this one: the state after so many of this rank's draws of a pass."""
        share = self.share(began.consumed)
        if draws and draws >= share.most_samples:
            consumed = share.length  # also where the last ones are dropped: nobody comes for them
        else:
            consumed = min(began.consumed + draws * self.num_replicas, share.length)
        return to_state(Cursor(began.epoch, consumed), self.facts(batch_size, accumulation))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was saved, at whatever world size: what is left of its epoch is dealt out afresh.

        `set_epoch` of the same epoch keeps the place, another one begins at its start. An epoch that was finished stays
        so: `set_epoch` of it gives nothing, and without that the next pass is one over the next epoch.

        Args:
            state: from `state_dict()` of any rank.

        Raises:
            TypeError: state is no such dict.
            StateMismatchError: it is of a run with another order, or with another batch size at the same world size;
                the message lists each difference with both values.
            EpochChangedError: a loader's workers have fetched what nobody has taken yet. A running pass raises it when
                it draws again.

        Warns:
            GlobalBatchChangedWarning: all ranks together had another number of samples in a step.
        """
        self.load_from(state, None)

    def load_from(self, state: Mapping[str, Any], batch_size: int | None, accumulation: int | None = None) -> None:
        """For samplers and loaders built on this one: load_state_dict with a global batch to compare."""
        self._check_unchanged()
        self._passes.load(from_state(state, self.facts(batch_size, accumulation)))

    @property
    def passes(self) -> Passes:
        """For samplers and loaders built on this one."""
        return self._passes

    def facts(self, batch_size: int | None, accumulation: int | None = None) -> dict[str, Any]:
        """For samplers and loaders built on this one: what a state must agree with."""
        return {
            "order": self.order.name,
            "order_digest": self.order.digest(),
            "seed": self.seed % 2**64,
            "length": len(self.order),
            "uneven": self.uneven,
            "num_replicas": self.num_replicas,
            "batch_size": batch_size,
            "accumulation": accumulation,
        }

    def _current_share(self) -> Slice:
        """That of the epoch's latest pass, or of the next one if there was none."""
        return self.share(self.progress()[0].consumed)

    def share(self, consumed: int) -> Slice:
        """For samplers built on this one: this rank's slice of what is left when so many positions are consumed."""
        return replace(self.slice, start=consumed) if consumed else self.slice

    def share_to_come(self) -> Slice:
        """For samplers built on this one: this rank's slice of what the next pass will give."""
        return self.share(self._passes.next_cursor(len(self.order)).consumed)

    def __len__(self) -> int:
        return self.share_to_come().num_samples

    def indices(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.int64]:
        """Returns the ids of this rank's draws [start, stop) in the current epoch, without walking to them.

        Args:
            start: first draw, in [0, len(self)].
            stop: end of the draws, in [start, len(self)]; None is len(self).

        Returns:
            An int64 array of stop - start ids.
        """
        self._check_unchanged()
        return self._current_share().indices(self.order, self.epoch, start, stop)

    def where(self, id: int, batch_size: int) -> tuple[int, int, int] | None:  # noqa: A002 (the field's word)
        """Returns (rank, step, slot): who draws sample `id` in the current epoch, in which batch, at which place in it.

        Without walking, whatever the dataset's size (with order="torch" one look through its table).

        Args:
            id: a sample id, in [0, len(dataset)).
            batch_size: samples per batch on each rank, at least 1.

        Returns:
            None if no rank draws it (its position was dropped). A sample that is drawn again as padding is found at its
            own position.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of its range, or the order is no bijection.
        """
        self._check_unchanged()
        batch_size = _check.integer("batch_size", batch_size, 1, _check.MAX_LENGTH)
        drawn = self._current_share().draw_of(self.order.position(self.epoch, id))
        return drawn and (drawn[0], *divmod(drawn[1], batch_size))

    def global_batch(self, step: int, batch_size: int) -> npt.NDArray[np.int64]:
        """Returns the ids that all ranks together draw in step `step` of the current epoch; see Slice.global_batch."""
        self._check_unchanged()
        return self._current_share().global_batch(self.order, self.epoch, step, batch_size)

    def __iter__(self) -> Iterator[T_co]:
        ids = self.run_chunks(self._chunks, self.state_after, self.load_state_dict)
        return cast("Iterator[T_co]", ids)  # torch says T_co, and means the ids

    def run_chunks(
        self,
        chunks: Callable[[Cursor], Iterable[Iterable[T]]],
        state_after: Callable[[Cursor, int], dict[str, Any]],
        load: Callable[[Mapping[str, Any]], None],
    ) -> Iterator[T]:
        """For samplers built on this one: a pass over `chunks(cursor)`, which counts as a pass over this sampler.

        Args:
            chunks: called at the first draw with the place; gives chunks of ids or of batches, with a length hint.
            state_after: the state after so many of these ids or batches of a pass that began at a cursor.
            load: the sampler's load_state_dict.
        """
        self._check_unchanged()
        return self._passes.run(
            chunks,
            length=len(self.order),
            reshuffles=self.order.reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
            state_after=state_after,
            load=load,
        )

    def _chunks(self, cursor: Cursor) -> Iterator[_core.Ids]:
        share = self.share(cursor.consumed)
        for start in range(0, share.num_samples, CHUNK):
            stop = min(start + CHUNK, share.num_samples)
            yield _core.Ids(self.draws(share, cursor.epoch, start, stop))

    def draws(self, share: Slice, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """For samplers built on this one: draws [start, stop) of a pass that goes through a share in turn."""
        if start <= share.num_samples // 2 < stop and epoch < _check.MAX_EPOCH:
            self.order.prepare(epoch + 1)
        return share.indices(self.order, epoch, start, stop)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has passes of its own, so that its epoch is its own.
        return {**self.__dict__, "_passes": copy.copy(self._passes)}

    def _facts(self) -> dict[str, object]:
        names = [
            "num_replicas",
            "rank",
            "shuffle",
            "seed",
            "drop_last",
            "uneven",
            "num_samples",
            "num_padding",
            "total_size",
        ]
        return {"len(dataset)": len(self.dataset)} | {name: getattr(self, name) for name in names}  # type: ignore[arg-type]

    def _check_unchanged(self) -> None:
        """The order was made for these values. torch takes a change into account half; here it is an error."""
        now = self._facts()
        for name, built in self._built_from.items():
            if now[name] != built:
                raise RuntimeError(f"{name} was {built} when the sampler was built and is {now[name]}; build a new one")


def ask_group(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Returns both numbers as they are given; those that are None are the process group's."""
    if (num_replicas is None or rank is None) and not dist.is_available():
        raise RuntimeError("this torch has no torch.distributed to ask; give num_replicas and rank")
    return dist.get_world_size() if num_replicas is None else num_replicas, dist.get_rank() if rank is None else rank


def _resolve_order(order: str | orders.Order, length: int, shuffle: bool, seed: int) -> orders.Order:
    """The order that the arguments ask for together, or an error where they contradict each other."""
    seed = _check.seed(seed)
    if isinstance(order, str):
        make = orders.BY_NAME[_check.one_of("order", order, orders.BY_NAME)]
        return make(length, seed) if shuffle else orders.Sequential(length)
    if not isinstance(order, orders.Order):
        raise TypeError(f"order must be a name or an Order, got order={order!r}")
    if not shuffle and order.reshuffles:
        raise ValueError(f"shuffle=False contradicts order={order!r}; leave one of them out")
    if seed != 0 and (seed - getattr(order, "seed", 0)) % 2**64:
        raise ValueError(f"seed={seed} contradicts order={order!r}, which has its own or needs none; leave seed out")
    if order.num_ids != length:
        raise ValueError(f"order must be one of len(dataset)={length} ids, got one of {order.num_ids}: {order!r}")
    return order
