"""ShardedIterable: any iterable, dealt to ranks and workers, though nobody knows how long it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fastshard import _check
from fastshard._warnings import EmptyRankWarning, warn
from fastshard.cursor import Cursor, from_state, to_state
from fastshard.streaming.controlled import Controlled
from fastshard.streaming.self_splitting import at_epoch, check_seeded, check_whole, own_shards, seeds_of, unseen
from fastshard.streaming.source import BatchSource

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.samplers.passes import OnRepeatedEpoch
    from fastshard.slicing import Uneven

By = Literal["samples", "shards"]


class ShardedIterable(Controlled):
    """Gives each rank every P-th sample of an iterable, and each of its workers whole batches of these.

    Sample i of an epoch is rank i mod P's, as with DistributedSampler, and a rank's batch t is worker t mod K's: the
    same batches for any number of workers, at most one of them partial, and as many on every rank. Nothing has to be
    known of the iterable but that it gives the same samples everywhere; no rank asks another.

    Each worker of each rank goes through the whole iterable, and lets go of what is not its own. So it should be cheap
    to iterate over: what costs (decoding, tokenizing) belongs behind it, into a loader's `collate_fn` or the loop. A
    resume goes through what was consumed once more; it may change the number of ranks and workers.

    Where that is too dear and the source has shards, by="shards" gives rank r the shards r, r+P, ... Each worker then
    goes through its rank's shards only. It is the same for any number of workers too, but nobody knows how long shards
    are, so ranks get unlike numbers of samples: `ddp.lockstep` makes their steps even. docs/streams.md compares both.

    Args:
        source: an iterable that can be iterated over once an epoch, or a function without arguments that returns an
            iterator (a generator function). If it has a `set_epoch`, it is told the epoch of each pass. It sees no
            loader worker, and so does not split itself, as Hugging Face's IterableDataset and webdataset would.
        batch_size: samples per batch on each rank, that of the loader; None where the loader hands out single samples.
        by: "samples", or "shards" for a source that has `num_shards` and `shard(num_shards, index)`: Hugging Face's
            IterableDataset, or one of your own. A resume needs the same number of ranks then.
        uneven: what happens where P does not divide the number of samples.
            "pad": every rank gets as many samples, going on with the first ones, which are kept for that.
            "drop": the last samples, fewer than P, are not used: a sample is given when all P of its group are there.
            "keep": every sample exactly once; ranks differ by at most one sample. by="shards" needs this word, and
            there they differ by what their shards do.
        rank, num_replicas: this rank and the number of ranks; None asks the process group, or the environment.
        on_repeated_epoch: as for DistributedSampler. A second pass counts as a repetition only where source has a
            `set_epoch`.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range. An iterator is no source: it could
            be gone through once. A dataset that is split already is none, and one without shards none by="shards". In
            the pass: there are fewer shards than ranks, or a Hugging Face dataset shuffles without a seed.

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
        by: By = "samples",
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
        check_whole(source)
        self.source = source
        self.by: By = _check.one_of("by", by, get_args(By))
        if by == "shards" and not (hasattr(source, "num_shards") and callable(getattr(source, "shard", None))):
            raise TypeError(f'by="shards" needs a source with num_shards and shard(num_shards, index), got {source!r}')
        if by == "shards" and uneven != "keep":
            raise ValueError(
                f'uneven must be "keep" with by="shards", got uneven={uneven!r}: nobody knows how long shards are; '
                "fastshard.ddp.lockstep(loader) makes the ranks' steps even"
            )

    @property
    def length(self) -> int:
        """As Controlled.length: nobody knows it, so only the end is finished."""
        return _check.MAX_LENGTH

    @property
    def _reshuffles(self) -> bool:
        return callable(getattr(self.source, "set_epoch", None))

    def _samples(self, epoch: int, rank: int, num_replicas: int) -> Iterator[Any]:
        """What is dealt: all samples, or those of the rank's shards."""
        check_seeded(self.source, num_replicas)
        if self.by == "shards":
            source = own_shards(self.source, epoch, rank, num_replicas)
        else:
            source = at_epoch(self.source, epoch)
        return unseen(iter(source if isinstance(source, Iterable) else source()))

    def _pieces(self, began: Cursor, worker: int, num_workers: int) -> Iterator[tuple[int, Iterator[Any]]]:
        if began.consumed == self.length:
            return
        size = self.batch_size or 1
        for draw, sample in enumerate(self._draws(began, self.rank, self.num_replicas)):
            if draw // size % num_workers == worker:
                yield 1, iter((sample,))

    def _draws(self, began: Cursor, rank: int, num_replicas: int) -> Iterator[Any]:
        """This rank's samples."""
        samples = self._samples(began.epoch, rank, num_replicas)
        if self.by == "shards":
            yield from islice(samples, began.consumed, None)
            return
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

    @property
    def dealt_to(self) -> int:
        """For loaders built on this one: ranks that one count of consumed samples is for."""
        return 1 if self.by == "shards" else self.num_replicas

    @property
    def digest(self) -> str:
        """For loaders built on this one: what else a state must have in common with the run that loads it."""
        facts = [f"seed={seed}" for seed in seeds_of(self.source)]
        if self.by == "shards":
            facts += [f"num_shards={self.source.num_shards}", f"num_replicas={self.num_replicas}"]  # type: ignore[union-attr]
        return ", ".join(facts)

    def loader_source(self, batch_size: int | None, drop_last: bool) -> IterableSource:
        """As Controlled.loader_source."""
        return IterableSource(self, batch_size, drop_last)


class IterableSource(BatchSource):
    """The batches of a ShardedIterable on this rank, of which only the end tells how many they are.

    Args and Raises: as for BatchSource.
    """

    def __init__(self, stream: ShardedIterable, batch_size: int | None, drop_last: bool) -> None:
        super().__init__(stream, batch_size, drop_last)
        self._iterable = stream

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
        consumed = min(began.consumed + draws * self._iterable.dealt_to, self.length)
        return to_state(Cursor(began.epoch, consumed), self._facts(accumulation))

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """As Source.load_from."""
        self._stream.go_on(from_state(state, self._facts(accumulation)))

    def _facts(self, accumulation: int | None) -> dict[str, Any]:
        source = self._iterable.source
        kind = "iterable" if self._iterable.by == "samples" else "iterable by shards"
        return {
            "order": f"{kind}/{getattr(source, '__name__', type(source).__name__)}",
            "order_digest": self._iterable.digest,
            "seed": None,
            "length": None,
            "uneven": self._stream.uneven,
            "num_replicas": self._stream.num_replicas,
            "batch_size": self._batch_size,
            "accumulation": accumulation,
        }
