"""StreamSource: what a loader counts by when its batches come from a stream of ours."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard import _check
from fastshard._warnings import StateMismatchError
from fastshard.cursor import Cursor, from_state, to_state
from fastshard.ledger.expected import CHUNK, PiecewiseExpected, check_parts
from fastshard.streaming.place import Place
from fastshard.streaming.runs import Runs, parse_former

if TYPE_CHECKING:
    import numpy.typing as npt

    from fastshard.samplers.passes import Passes
    from fastshard.samplers.prefetching import Deliveries
    from fastshard.streaming.controlled import Controlled
    from fastshard.streaming.stream import Stream


class BatchSource(abc.ABC):
    """The batches of a dataset of ours on this rank.

    Args:
        stream: the dataset.
        batch_size: samples in the loader's batches; None if it hands out samples.
        drop_last: whether the loader drops a last batch that is not whole.

    Raises:
        ValueError: the dataset deals batches of another size to the workers.
    """

    def __init__(self, stream: Controlled, batch_size: int | None, drop_last: bool) -> None:
        if (batch_size or 1) != (stream.batch_size or 1):
            raise ValueError(
                f"the loader's batch_size={batch_size} must be that of the dataset, which deals whole batches to the "
                f"workers, got {type(stream).__name__}(batch_size={stream.batch_size})"
            )
        self._stream, self._batch_size, self._drop_last = stream, batch_size or 1, drop_last

    @property
    def passes(self) -> Passes:
        """As Source.passes."""
        return self._stream.passes

    @property
    def length(self) -> int:
        """As Source.length."""
        return self._stream.length

    def requests(self, item: Any) -> Requests:
        """What torch draws in the place of indices."""
        return Requests(self, item)

    def set_epoch(self, epoch: int) -> None:
        """As Source.set_epoch."""
        self._stream.set_epoch(epoch)

    def drive(self, chunks: Callable[[Cursor], Iterable[Iterable[Any]]]) -> Iterator[Any]:
        """See Controlled.drive."""
        return self._stream.drive(chunks)

    def start_of(self, began: Cursor) -> int:
        """As Source.start_of."""
        return began.consumed

    def batches_drawn(self, items: int) -> int:
        """As Source.batches_drawn."""
        return items

    @abc.abstractmethod
    def batches_from(self, began: Cursor) -> int | None:
        """As Source.batches_from."""

    @abc.abstractmethod
    def is_over(self, began: Cursor, batches: int) -> bool:
        """As Source.is_over."""

    @abc.abstractmethod
    def padding_in(self, began: Cursor, batch: int) -> int:
        """As Source.padding_in."""

    @abc.abstractmethod
    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:
        """As Source.dropped_in."""

    @abc.abstractmethod
    def state_after_draws(self, began: Cursor, draws: int, accumulation: int | None = None) -> dict[str, Any]:
        """The state after so many of each rank's draws."""

    @abc.abstractmethod
    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """As Source.load_from."""

    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """As Source.state_after."""
        over = self.is_over(began, batches)
        return self.state_after_draws(began, _check.MAX_LENGTH if over else batches * self._batch_size, accumulation)


class StreamSource(BatchSource):
    """The batches of a stream on this rank. Args and Raises: as for BatchSource."""

    def __init__(self, stream: Stream, batch_size: int | None, drop_last: bool) -> None:
        super().__init__(stream, batch_size, drop_last)
        self.stream = stream

    def batches_from(self, began: Cursor) -> int:
        """As Source.batches_from."""
        return self._batches(began, self.stream.rank)

    def _batches(self, began: Cursor, rank: int) -> int:
        return self._batches_of(self.stream.runs(began).today.draws(rank))

    def _batches_of(self, draws: int) -> int:
        return draws // self._batch_size if self._drop_last else -(-draws // self._batch_size)

    def is_over(self, began: Cursor, batches: int) -> bool:
        """As Source.is_over."""
        return batches > 0 and batches >= self._batches_of(self.stream.runs(began).today.most_draws)

    def padding_in(self, began: Cursor, batch: int) -> int:
        """As Source.padding_in."""
        today, rank = self.stream.runs(began).today, self.stream.rank
        end = min((batch + 1) * self._batch_size, today.draws(rank))
        return max(0, end - max(batch * self._batch_size, today.run(rank)))

    def first_padded(self, began: Cursor) -> int:
        """The first batch of such a pass that has padding, if it has any."""
        return self.stream.runs(began).today.run(self.stream.rank) // self._batch_size

    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:
        """As Source.dropped_in."""
        today, rank = self.stream.runs(began).today, self.stream.rank
        drawn = min(self._batches(began, rank) * self._batch_size, today.draws(rank))
        return self.stream.ids(began, rank, min(drawn, today.run(rank)), today.run(rank))

    def state_after_draws(self, began: Cursor, draws: int, accumulation: int | None = None) -> dict[str, Any]:
        """The state after so many of each rank's draws."""
        runs = self.stream.runs(began)
        former: tuple[tuple[int, int], ...] = ()
        if began.consumed >= self.length or (draws and draws >= runs.today.most_draws):
            consumed = self.length  # also where the last ones are dropped: nobody comes for them
        else:
            consumed, former = runs.consumed(draws), runs.after(draws)
        facts = self._facts(accumulation) | {"former_runs": [list(pair) for pair in former]}
        return to_state(Cursor(began.epoch, consumed), facts)

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """As Source.load_from."""
        cursor = from_state(state, self._facts(accumulation))
        former = parse_former(state.get("former_runs"))
        if cursor.consumed < self.length:
            told = self.stream.runs_of(self.stream.num_replicas, former).consumed(0)
            if told != cursor.consumed:
                raise StateMismatchError(
                    f"the state contradicts itself: consumed={cursor.consumed}, and former_runs={former} make {told}"
                )
        self.stream.go_on(Place(cursor.epoch, cursor.consumed, former))

    def _facts(self, accumulation: int | None) -> dict[str, Any]:
        order = self.stream.order
        return {
            "order": order.name,
            "order_digest": order.digest(),
            "seed": getattr(order, "seed", 0) % 2**64,
            "length": len(order),
            "uneven": self.stream.uneven,
            "num_replicas": self.stream.num_replicas,
            "batch_size": self._batch_size,
            "accumulation": accumulation,
        }

    def expected(self, began: Cursor, deliveries: Deliveries) -> StreamExpected:
        """What a ledger should come to."""
        return StreamExpected(self, began, deliveries)


class Requests:
    """A request for each batch that a pass will have: no worker is asked for more than it has. Without end, if unknown.

    Args:
        source: the batches.
        item: a request, as torch makes it.
    """

    def __init__(self, source: BatchSource, item: Any) -> None:
        self._source, self._item = source, item

    def __iter__(self) -> Iterator[Any]:
        return self._source.drive(self._chunks)

    def _chunks(self, began: Cursor) -> Iterator[Iterable[Any]]:
        batches = self._source.batches_from(began)
        if batches is not None:
            yield repeat(self._item, batches)
        while batches is None:
            yield repeat(self._item, CHUNK)

    def __len__(self) -> int:
        batches = self._source.batches_from(self._source.passes.next_cursor(self._source.length))
        if batches is None:
            raise TypeError("nobody knows how many batches there are")
        return batches


class StreamExpected(PiecewiseExpected):
    """What all ranks should draw in a pass over a stream; see ledger.Expected."""

    def __init__(self, source: StreamSource, began: Cursor, deliveries: Deliveries) -> None:
        self._source, self._began, self._deliveries = source, began, deliveries
        self.epoch, self.start, self.num_ids = began.epoch, began.consumed, source.stream.order.num_ids

    def place(self) -> int:
        """See Expected."""
        consumed: int = self._source.state_after(self._began, self._deliveries.count())["consumed"]
        return consumed

    def is_over(self) -> bool:
        """See Expected."""
        return self._source.is_over(self._began, self._deliveries.count())

    def what(self) -> str:
        """See Expected."""
        return "samples"

    def _check_parts(self, parts: int) -> None:
        check_parts(parts, self._source.stream.num_replicas)

    def _pieces(self, start: int, part: int, parts: int) -> Iterator[npt.NDArray[np.int64]]:
        """One rank's part: of former worlds that the account knows, each parts-th rank; of today's its own."""
        stream, former = self._source.stream, getattr(self._began, "former", ())
        runs = stream.runs(self._began)
        for number, (num_replicas, draws) in enumerate(former):
            world = stream.runs_of(num_replicas, former[:number])
            first = world.draws_until(start)
            for rank in range(part, num_replicas, parts):
                yield from self._ids(world, rank, first, min(draws, world.today.run(rank)))
        if self.is_over():
            drawn = runs.today.run(part)
        else:
            batches = self._source._batches(self._began, part) * self._source._batch_size
            drawn = min(self._deliveries.batches * self._source._batch_size, batches, runs.today.run(part))
        yield from self._ids(runs, part, 0, drawn)

    def _ids(self, runs: Runs, rank: int, first: int, stop: int) -> Iterator[npt.NDArray[np.int64]]:
        order = self._source.stream.order
        for at in range(first, stop, CHUNK):
            yield order.take(self.epoch, runs.positions(rank, at, min(at + CHUNK, stop)))
