"""ShardedIterable: any iterable, dealt to ranks and workers, though nobody knows how long it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard import _check
from fastshard._warnings import EmptyRankWarning, warn
from fastshard.cursor import Cursor, from_state, to_state
from fastshard.streaming.controlled import Controlled
from fastshard.streaming.source import BatchSource

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.samplers.passes import OnRepeatedEpoch
    from fastshard.slicing import Uneven


class ShardedIterable(Controlled):
    """Gives each rank every P-th sample of an iterable, and each of its workers whole batches of these.

    Sample i of an epoch is rank i mod P's, as with DistributedSampler, and a rank's batch t is worker t mod K's: the
    same batches for any number of workers, at most one of them partial, and as many on every rank. Nothing has to be
    known of the iterable but that it gives the same samples everywhere; no rank asks another.

    Each worker of each rank goes through the whole iterable, and lets go of what is not its own. So it should be cheap
    to iterate over: what costs (reading a file, decoding) belongs behind it, into `map` or the loop. A resume goes
    through what was consumed once more; it may change the number of ranks and workers.

    Args:
        source: an iterable that can be iterated over once an epoch, or a function without arguments that returns an
            iterator (a generator function). If it has a `set_epoch`, it is told the epoch of each pass.
        batch_size: samples per batch on each rank, that of the loader; None where the loader hands out single samples.
        uneven: what happens where P does not divide the number of samples.
            "pad": every rank gets as many samples, going on with the first ones, which are kept for that.
            "drop": the last samples, fewer than P, are not used: a sample is given when all P of its group are there.
            "keep": every sample exactly once; ranks differ by at most one sample.
        rank, num_replicas: this rank and the number of ranks; None asks the process group, or the environment.
        on_repeated_epoch: as for DistributedSampler. A second pass counts as a repetition only where source has a
            `set_epoch`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range. An iterator is no source: it could
            be gone through once.

    Warns:
        EmptyRankWarning: in the pass, at its end: there were fewer samples than ranks, and uneven is not "pad".

    Example:
        >>> def lines():
        ...     yield from "abcdefg"
        >>> [list(ShardedIterable(lines, rank=rank, num_replicas=3)) for rank in range(3)]
        [['a', 'd', 'g'], ['b', 'e', 'a'], ['c', 'f', 'b']]
    """

    def __init__(
        self,
        source: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        batch_size: int | None = None,
        uneven: Uneven = "pad",
        rank: int | None = None,
        num_replicas: int | None = None,
        on_repeated_epoch: OnRepeatedEpoch = "warn",
    ) -> None:
        super().__init__(batch_size, uneven, rank, num_replicas, on_repeated_epoch)
        if isinstance(source, Iterator) or not (isinstance(source, Iterable) or callable(source)):
            raise TypeError(
                "source must be an iterable that can be gone through once an epoch, or a function that returns one, "
                f"got source={source!r}"
            )
        self.source = source

    @property
    def length(self) -> int:
        """As Controlled.length: nobody knows it, so only the end is finished."""
        return _check.MAX_LENGTH

    @property
    def _reshuffles(self) -> bool:
        return callable(getattr(self.source, "set_epoch", None))

    def _samples(self, epoch: int) -> Iterator[Any]:
        if callable(getattr(self.source, "set_epoch", None)):
            self.source.set_epoch(epoch)  # type: ignore[union-attr]
        return iter(self.source if isinstance(self.source, Iterable) else self.source())

    def _pieces(self, began: Cursor, worker: int, num_workers: int) -> Iterator[tuple[int, Iterator[Any]]]:
        if began.consumed == self.length:
            return
        size = self.batch_size or 1
        for draw, sample in enumerate(self._draws(began, self.rank, self.num_replicas)):
            if draw // size % num_workers == worker:
                yield 1, iter((sample,))

    def _draws(self, began: Cursor, rank: int, num_replicas: int) -> Iterator[Any]:
        """This rank's samples."""
        samples = self._samples(began.epoch)
        first = list(islice(samples, min(began.consumed, num_replicas)))
        before = len(first) + sum(1 for _ in islice(samples, began.consumed - len(first)))
        group = list(islice(samples, num_replicas))
        first += group[: num_replicas - len(first)]
        while len(group) == num_replicas:
            before += num_replicas
            yield group[rank]
            group = list(islice(samples, num_replicas))
        if not group:
            return
        if before < num_replicas and self.uneven != "pad":
            warn(
                f"{num_replicas - len(group) * (self.uneven == 'keep')} of {num_replicas} ranks get no sample: source "
                f"gave {len(group)} and uneven={self.uneven!r}",
                EmptyRankWarning,
            )
        if rank < len(group) and self.uneven != "drop":
            yield group[rank]
        elif self.uneven == "pad":
            yield first[(before + rank) % (before + len(group))]

    def loader_source(self, batch_size: int | None, drop_last: bool) -> IterableSource:
        """As Controlled.loader_source."""
        return IterableSource(self, batch_size, drop_last)


class IterableSource(BatchSource):
    """The batches of a ShardedIterable on this rank, of which only the end tells how many they are."""

    def batches_from(self, began: Cursor) -> int | None:
        """As Source.batches_from."""
        return 0 if began.consumed == self.length else None

    def is_over(self, began: Cursor, batches: int) -> bool:
        """As Source.is_over."""
        return batches == self.length or began.consumed == self.length

    def padding_in(self, began: Cursor, batch: int) -> int:  # noqa: ARG002
        """As Source.padding_in."""
        raise TypeError(
            "nobody knows where a ShardedIterable pads before its end, so a loader can keep no ledger of it"
        )

    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:  # noqa: ARG002
        """As Source.dropped_in."""
        return np.empty(0, np.int64)

    def state_after_draws(self, began: Cursor, draws: int, accumulation: int | None = None) -> dict[str, Any]:
        """As BatchSource.state_after_draws."""
        consumed = min(began.consumed + draws * self._stream.num_replicas, self.length)
        return to_state(Cursor(began.epoch, consumed), self._facts(accumulation))

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """As Source.load_from."""
        self._stream.go_on(from_state(state, self._facts(accumulation)))

    def _facts(self, accumulation: int | None) -> dict[str, Any]:
        source = getattr(self._stream, "source", None)
        return {
            "order": f"iterable/{getattr(source, '__name__', type(source).__name__)}",
            "order_digest": "",
            "seed": None,
            "length": None,
            "uneven": self._stream.uneven,
            "num_replicas": self._stream.num_replicas,
            "batch_size": self._batch_size,
            "accumulation": accumulation,
        }
