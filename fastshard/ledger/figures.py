"""Figures: what a ledger knows of some draws. Account: the figures of one epoch, by where they come from."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastshard import _check
from fastshard._built import _core
from fastshard.ledger.expected import CHUNK


class Figures:
    """Of some draws: the fingerprint of those that are no padding, how many were, and how often each id came.

    What was dropped is in fingerprint and coverage as if it had been drawn, and counted apart.

    Args:
        num_ids: ids are in [0, num_ids).
        exact: whether to know how often each id came.
    """

    __slots__ = ("coverage", "dropped", "fingerprint", "padded")

    def __init__(self, num_ids: int, exact: bool) -> None:
        self.fingerprint = _core.Fingerprint()
        self.padded = self.dropped = 0
        self.coverage = _core.Coverage(num_ids) if exact else None

    def is_empty(self) -> bool:
        """Whether there was no draw."""
        return self.fingerprint.count == 0 and self.padded == 0

    def add(self, other: Figures) -> None:
        """Adds those of other draws."""
        self.fingerprint = self.fingerprint + other.fingerprint
        self.padded += other.padded
        self.dropped += other.dropped
        if self.coverage is not None and other.coverage is not None and other.fingerprint.count:
            for start, stop in stretches(other.coverage.num_ids):
                self.coverage.add_counts(start, other.coverage.counts(start, stop))

    def to_state(self) -> dict[str, Any]:
        """As JSON can hold it. The fingerprint's sums are text: not every reader of JSON keeps 64 bits of a number."""
        first, second = self.fingerprint.first, self.fingerprint.second
        state: dict[str, Any] = {
            "count": self.fingerprint.count,
            "padded": self.padded,
            "dropped": self.dropped,
            "fingerprint": f"{first:016x}{second:016x}",
        }
        if self.coverage is not None:
            state["coverage"] = base64.b64encode(zlib.compress(self.coverage.to_bytes(), 1)).decode()
        return state

    def __reduce__(self) -> tuple[Any, ...]:
        exact = self.coverage is not None
        return Figures.from_state, (self.to_state(), self.coverage.num_ids if self.coverage is not None else 1, exact)

    @classmethod
    def from_state(cls, state: Any, num_ids: int, exact: bool) -> Figures:
        """What `to_state` gave; raises TypeError or ValueError if it can't be that."""
        figures = cls(num_ids, False)
        try:
            sums = [int(state["fingerprint"][half], 16) for half in (slice(16), slice(16, 32))]
            figures.fingerprint = _core.Fingerprint(_count("count", state["count"]), *sums)
            figures.padded = _count("padded", state["padded"])
            figures.dropped = _count("dropped", state["dropped"])
            if exact:
                packed = zlib.decompress(base64.b64decode(state["coverage"], validate=True))
                figures.coverage = _core.Coverage.from_bytes(num_ids, packed)
        except (KeyError, TypeError, IndexError) as error:
            raise TypeError(f"state must be a dict from Ledger.state_dict(), got figures={state!r:.300}") from error
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"the state's coverage is damaged: {error}") from error
        return figures


class Account:
    """What is known of one epoch from position `start` on.

    Attributes:
        place: position up to which all but `running` reaches.
        base: what all ranks agree on.
        opened: position at which this object began, or was gathered: up to there no rank has anything of its own but
            `loaded`.
        loaded: what one rank drew after that, as a state said, and `origin`, that rank and its num_replicas: it counts
            on the rank of that number only.
        since: what this rank drew after that in passes that others went on from.
        running: what it drew in the latest pass.
    """

    def __init__(self, epoch: int, start: int, num_ids: int, exact: bool) -> None:
        self.epoch, self.start, self.num_ids, self.exact = epoch, start, num_ids, exact
        self.place = start
        self.opened = start
        self.base = self.empty()
        self.loaded: Figures | None = None
        self.origin = (0, 1)
        self.since = self.empty()
        self.running = self.empty()

    def empty(self) -> Figures:
        """Figures of no draw."""
        return Figures(self.num_ids, self.exact)

    def settle(self, place: int) -> None:
        """The latest pass came to `place`, and another one goes on there."""
        self.since.add(self.running)
        self.running = self.empty()
        self.place = place

    def own(self, rank: int) -> list[Figures]:
        """What this rank has to add to what others have."""
        loaded = [self.loaded] if self.loaded is not None and self.origin[0] == rank else []
        return [*loaded, self.since, self.running]

    def to_state(self, place: int, rank: int, num_replicas: int) -> dict[str, Any]:
        """The account, up to `place`, as JSON can hold it."""
        own, origin = self.loaded, self.origin
        if own is None or place != self.place or not (self.since.is_empty() and self.running.is_empty()):
            own, origin = self.empty(), (rank, num_replicas)
            for figures in self.own(rank):
                own.add(figures)
            if own.is_empty() and place == self.opened:
                own = None
        return {
            "epoch": self.epoch,
            "start": self.start,
            "place": place,
            "num_ids": self.num_ids,
            "base": self.base.to_state(),
            "own": own and {"rank": origin[0], "num_replicas": origin[1], **own.to_state()},
        }

    @classmethod
    def from_state(cls, state: Any, exact: bool) -> Account:
        """What `to_state` gave; raises TypeError or ValueError if it can't be that."""
        names = ("epoch", "start", "place", "num_ids", "base", "own")
        if not isinstance(state, Mapping) or any(name not in state for name in names):
            raise TypeError(f"state must be a dict from Ledger.state_dict(), got account={state!r:.300}")
        account = cls(
            _check.integer("epoch", state["epoch"], 0, _check.MAX_EPOCH),
            _count("start", state["start"]),
            _check.integer("num_ids", state["num_ids"], 1, _check.MAX_LENGTH),
            exact,
        )
        account.place = account.opened = _count("place", state["place"])
        account.base = Figures.from_state(state["base"], account.num_ids, exact)
        own = state["own"]
        if own is not None:
            account.loaded = Figures.from_state(own, account.num_ids, exact)
            num_replicas = _check.integer("num_replicas", own.get("num_replicas"), 1, _check.MAX_LENGTH)
            account.origin = (_check.integer("rank", own.get("rank"), 0, num_replicas - 1), num_replicas)
        return account


def stretches(num_ids: int) -> Iterator[tuple[int, int]]:
    """[0, num_ids) in pieces whose counts are a small array."""
    return ((start, min(start + CHUNK, num_ids)) for start in range(0, num_ids, CHUNK))


def total(figures: Iterable[Figures], num_ids: int) -> Figures:
    """Several together, without how often each id came."""
    together = Figures(num_ids, False)
    for each in figures:
        together.add(each)
    return together


def _count(name: str, value: object) -> int:
    return _check.integer(name, value, 0, _check.MAX_LENGTH)
