"""DataLoader: torch's, whose state is exact: it counts what it has handed out, not what its workers have fetched."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any, TypeVar

import torch.utils.data
from torch.utils.data import IterableDataset, Sampler

from fastshard import _check
from fastshard._warnings import UnshardedWarning, warn
from fastshard.loader.alone import AloneSequential, AloneShuffled
from fastshard.loader.delivering import Delivering, Handed
from fastshard.loader.recording import Kept, Recorder
from fastshard.loader.sources import Indices, Reread, Source, of_indices, world_size
from fastshard.streaming.controlled import Controlled
from fastshard.streaming.stream import Stream

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    from fastshard.ledger import Ledger

T_co = TypeVar("T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """torch's DataLoader, which can be stopped after any batch and gone on with, at any world size.

    A subclass with the same arguments. What it adds is a count of the batches that it has *handed out*; workers fetch
    ahead, and what they fetched is not gone with the state. So `state_dict()` is right for any num_workers,
    prefetch_factor, persistent_workers and pin_memory, and any of them may be changed with the resume, which skips by
    arithmetic and reads nothing that was handed out before.

    That is with the samplers of this package, or with none: then every sample comes once a pass on this process, with
    shuffle=True in a new order in each (`seed` and the number of the pass decide it, and no global random state). Other
    samplers are drawn from anew on a resume, and must give what they gave; other random ones have no state. An iterable
    dataset is read again from its start, what was handed out is thrown away, and num_workers must stay as it was,
    because nothing is known of such a dataset but what it gives.

    Args:
        dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last, timeout,
            worker_init_fn, multiprocessing_context, generator, prefetch_factor, persistent_workers: as torch's.
        options: whatever else torch's DataLoader takes by keyword.
        accumulation: batches whose gradients are summed before a step of the optimizer, for the comparison of global
            batches that loading a state makes; at least 1.
        ledger: a Ledger that records the ids of all that is handed out. Not for iterable datasets.
        seed: for shuffle=True without a sampler; None is generator's initial seed, or 0.
        ids: for a stream of fastshard's with a ledger: takes a batch and returns its samples' ids, as Ledger.record
            wants them; ShardedWebDataset has them in "__index__".

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of its range, or contradicts another.

    Warns:
        UnshardedWarning: when it is iterated over: shuffle=True without a sampler, in a process group of several ranks.

    Example:
        >>> loader = DataLoader(range(10), batch_size=2, sampler=DistributedSampler(range(10), 1, 0))
        >>> batches = iter(loader)
        >>> first = next(batches).tolist(), next(batches).tolist()
        >>> state = loader.state_dict()
        >>> again = DataLoader(range(10), batch_size=2, sampler=DistributedSampler(range(10), 1, 0))
        >>> again.load_state_dict(state)
        >>> [batch.tolist() for batch in batches] == [batch.tolist() for batch in again]
        True
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        accumulation: int = 1,
        ledger: Ledger | None = None,
        seed: int | None = None,
        ids: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self.accumulation = _check.integer("accumulation", accumulation, 1, _check.MAX_LENGTH)
        self.ledger, self.seed = ledger, None if seed is None else _check.seed(seed)
        is_stream = isinstance(dataset, IterableDataset)
        if seed is not None and (not shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(f"seed is for shuffle=True without a sampler, got seed={seed}; give it to the sampler")
        self.ids = ids
        if is_stream and ledger is not None and (ids is None or not isinstance(dataset, Stream)):
            raise TypeError(
                "ledger must be None for an iterable dataset, whose ids nobody knows; call ledger.record, or, for a "
                "stream of fastshard's, give ids, which takes them out of a batch"
            )
        if ledger is not None and not options.get("in_order", True):
            raise ValueError("ledger must be None with in_order=False: batches come in another order than their ids")
        if sampler is None and batch_sampler is None and not is_stream and _is_filled(dataset):
            sampler, shuffle = _alone(dataset, shuffle, seed, generator), None
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            **options,
        )
        self._delivering: weakref.ref[Delivering] | None = None
        drawn = super()._index_sampler
        source, self._draws_from = self._find_source(drawn)
        self._handed = Handed(source)
        if ledger is not None and not is_stream:
            self._draws_from = Kept(self._draws_from)

    def _find_source(self, drawn: Any) -> tuple[Source, Any]:
        """Returns what the batches come from, and what torch is to draw from."""
        if isinstance(self.dataset, Controlled):
            source = self.dataset.loader_source(self.batch_size, self.drop_last)
            return source, source.requests(next(iter(drawn)))
        if isinstance(self.dataset, IterableDataset):
            reread = Reread(self.dataset, next(iter(drawn)), self.batch_size, self.num_workers)
            return reread, reread
        known = of_indices(self.sampler, self.batch_sampler)
        if known is not None:
            return known, drawn
        indices = Indices(drawn, None if drawn is not self.sampler else 1)
        return indices, indices

    @property
    def _index_sampler(self) -> Any:
        """What torch draws from, which is the sampler's own iterator unless something has to be counted there."""
        draws_from = self.__dict__.get("_draws_from")
        return super()._index_sampler if draws_from is None else draws_from

    @property
    def _source(self) -> Source:
        """What the next pass's batches come from: a sampler's batch_size may have been changed."""
        source = of_indices(self.sampler, self.batch_sampler)
        return self._handed.source if source is None else source

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from."""
        return self._source.passes.epoch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the passes to come: as the sampler's set_epoch, or the dataset's."""
        self._source.passes.set_epoch(epoch)
        self._source.set_epoch(epoch)

    def __iter__(self) -> Any:
        """Returns an iterator over the batches of a pass, which counts what it hands out."""
        source = self._source
        former = None if self._delivering is None else self._delivering()
        if self.persistent_workers and former is not None:
            former.supersede()
        if isinstance(self.sampler, AloneShuffled) and world_size() > 1:
            warn(
                f"each of {world_size()} ranks gets all {len(self.sampler.inner)} samples in the same order: "
                "shuffle=True shards nothing; give the loader sampler=DistributedSampler(dataset)",
                UnshardedWarning,
            )
        if isinstance(source, Reread) and source.is_told():
            self._iterator = None  # workers that live on have the former epoch's dataset
        before = source.passes.latest
        if isinstance(self.dataset, Controlled):
            self.dataset.driven(True)
        try:
            batches = super().__iter__()
        finally:
            if isinstance(self.dataset, Controlled):
                self.dataset.driven(False)
        delivering = Delivering(
            batches,
            source,
            self._handed,
            before,
            has_drawn=self.num_workers > 0,
            rereads=isinstance(source, Reread),
            recorder=self._recorder(source),
        )
        self._delivering = weakref.ref(delivering)
        return delivering

    def _recorder(self, source: Source) -> Recorder | None:
        if self.ledger is None:
            return None
        kept = self._draws_from.latest if isinstance(self._draws_from, Kept) else self.ids
        return Recorder(self.ledger, source, kept, len(self.dataset))  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        # Who iterates here is nothing to a copy, which knows the place all the same.
        return {**self.__dict__, "_delivering": None}

    def state_dict(self) -> dict[str, Any]:
        """Returns where the loop is: after the last batch that it was given, of the epoch's latest pass.

        A small dict that JSON can hold, the same on every rank (but for a ledger's part: see Ledger.gather). Changes
        nothing.

        Raises:
            TypeError: the order can't be gone on with: it hangs on a random state, or on in_order=False.
        """
        if not getattr(self, "in_order", True):
            raise TypeError("in_order=False hands out whatever is ready first, so no place in the order says what was")
        source = self._handed.source if self._handed.which is not None else self._source
        began, batches = source.passes.delivered(self._handed.which, source.length)
        state = source.state_after(began, batches, self.accumulation)
        return state if self.ledger is None else {**state, "ledger": self.ledger.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was saved; the next `iter()` gives the batch after the last one that was handed out.

        Args:
            state: from `state_dict()`, of this class or of the sampler.

        Raises:
            TypeError, StateMismatchError, EpochChangedError: as DistributedSampler.load_state_dict.

        Warns:
            GlobalBatchChangedWarning: a step has another number of samples now.
        """
        ledger = self.ledger if isinstance(state, Mapping) and "ledger" in state else None
        if ledger is not None:  # an account that can't be loaded must leave the place as it is
            type(ledger)(exact=ledger.exact).load_state_dict(state["ledger"])
        self._source.load_from(state, self.accumulation)
        if ledger is not None:
            ledger.load_state_dict(state["ledger"])


def _is_filled(dataset: Any) -> bool:
    return isinstance(dataset, Sized) and len(dataset) > 0


def _alone(dataset: Any, shuffle: bool | None, seed: int | None, generator: torch.Generator | None) -> Sampler[Any]:
    """A sampler for a loader that was given none."""
    if not shuffle:
        return AloneSequential(dataset)
    if seed is None:
        seed = 0 if generator is None else generator.initial_seed()
    return AloneShuffled(dataset, seed)
