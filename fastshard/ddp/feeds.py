"""Feeds: one pass over a loader that is fetched from ahead, and its state without what nobody was given yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from fastshard.loader.delivering import Delivering


class Feed(Protocol):
    """A pass over a loader."""

    def fetch(self) -> Any:
        """The next batch, or StopIteration."""

    def give(self, batch: Any) -> None:
        """Says that the batch that was fetched goes to the loop."""

    def end(self, left: Any) -> None:
        """Says that the pass is over, and which batch was fetched and not given; None if none was."""

    def close(self) -> None:
        """Lets the loader's iterator go, with its workers. The state stays."""

    def state(self, *, before_last: bool = False) -> dict[str, Any]:
        """The loader's state after the batch that was given last, or before it."""


def feed(loader: Any) -> Feed:
    """Begins a pass over any iterable."""
    batches = iter(loader)
    return Counted(loader, batches) if isinstance(batches, Delivering) else Remembered(loader, batches)


class Counted:
    """Of fastshard.DataLoader, which counts what is given; so its state, and its ledger, are right by themselves."""

    def __init__(self, loader: Any, batches: Delivering) -> None:
        self._loader, self._deliveries = loader, batches.deliveries
        self._batches: Delivering | None = batches

    def fetch(self) -> Any:
        """As Feed.fetch."""
        assert self._batches is not None
        return self._batches.fetch()

    def give(self, batch: Any) -> None:
        """As Feed.give."""
        assert self._batches is not None
        self._batches.give(batch)

    def end(self, left: Any) -> None:
        """As Feed.end."""
        if self._batches is None:  # the loop was left before
            self._deliveries.ended = True
        else:
            self._batches.end(left)

    def close(self) -> None:
        """As Feed.close."""
        self._batches = None

    def state(self, *, before_last: bool = False) -> dict[str, Any]:
        """As Feed.state."""
        with self._deliveries.rewound(int(before_last)):
            state: dict[str, Any] = self._loader.state_dict()
        return state


class Remembered:
    """Of another loader, whose state says what was fetched: so it is asked before each fetch, if there is one."""

    def __init__(self, loader: Any, batches: Iterator[Any]) -> None:
        self._loader = loader
        self._batches: Iterator[Any] = batches
        self._is_stateful = callable(getattr(loader, "state_dict", None))
        self._before: Any = None  # before the batch that was given last
        self._after: Any = None  # after it
        self._over = False

    def fetch(self) -> Any:
        """As Feed.fetch."""
        if self._is_stateful:
            self._before, self._after = self._after, self._loader.state_dict()
        return next(self._batches)

    def give(self, batch: Any) -> None:
        """As Feed.give."""

    def end(self, left: Any) -> None:  # noqa: ARG002
        """As Feed.end."""
        self._over = True

    def close(self) -> None:
        """As Feed.close."""
        self._batches = iter(())

    def state(self, *, before_last: bool = False) -> dict[str, Any]:
        """As Feed.state; after the end it is the loader's own."""
        state: dict[str, Any] = self._loader.state_dict() if self._over else self._after
        return self._before if before_last else state
