"""Ledger: one rank's side of an epoch's account. A few nanoseconds an id, and one small all-reduce an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastshard import _check
from fastshard._built import _core
from fastshard._warnings import LedgerError, StateMismatchError
from fastshard.audit.coverage import count_of
from fastshard.ledger.expected import Expected
from fastshard.ledger.figures import Account, stretches
from fastshard.ledger.reckoning import LedgerReport, add_up, locate
from fastshard.ledger.together import Steps, Sum, rank_in, run_steps

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch.distributed as dist

VERSION = 1
"""Of the dict that `state_dict()` gives."""


class Ledger:
    """Keeps account of what a rank draws of an epoch; `verify()` proves that all ranks together drew what they should.

    Of the draws it keeps a fingerprint: their number and two sums of 64-bit hashes of their ids. docs/ledger.md says
    what that proves. A loader calls `begin` and `record`; by hand it goes as in the example.

    Args:
        exact: also keep how often each id came, so that an error can name samples: num_ids / 8 bytes as long as each
            comes once, as much again for each further bit of a count, and for what came with a loaded state.

    Raises:
        TypeError: exact is no bool.

    Example:
        >>> ledger = Ledger()
        >>> ledger.begin(RangeExpected(5, epoch=0))
        >>> ledger.record([3, 1])
        >>> ledger.record([4, 0, 2, 3], padding=1)
        >>> print(ledger.verify())
        every one of the 5 samples exactly once, 1 padded draw
    """

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = _check.boolean("exact", exact)
        self._account: Account | None = None
        self._expected: Expected | None = None  # of the latest pass; None if none has begun since a state was loaded

    @property
    def exact(self) -> bool:
        """Whether it keeps how often each id came."""
        return self._exact

    def begin(self, expected: Expected) -> None:
        """Says that a pass begins. What is recorded from here on was drawn in it.

        At the beginning of an epoch a new account is opened. In its middle, at position s, the account goes on if it is
        the one of this epoch up to s: because a state with that place was loaded, or because the pass before this one
        stopped there. If the pass before began there too, its draws are taken out again. Without an account up to s,
        a new one is opened, which then is one from s on and says so.

        Args:
            expected: what all ranks should draw in the pass; `RangeExpected`, or a loader's own.

        Raises:
            TypeError, ValueError: expected is no Expected, or a number of it is out of its range.
            StateMismatchError: the account that would go on is one of another number of ids.
        """
        if not isinstance(expected, Expected):
            raise TypeError(f"expected must be an Expected, such as RangeExpected(num_samples), got {expected!r}")
        epoch = _check.integer("epoch", expected.epoch, 0, _check.MAX_EPOCH)
        start = _check.integer("start", expected.start, 0, _check.MAX_LENGTH)
        num_ids = _check.integer("num_ids", expected.num_ids, 1, _check.MAX_LENGTH)
        account = self._account
        reached = self._place()
        if account is None or account.epoch != epoch or start == 0 or start not in (account.place, reached):
            self._account = Account(epoch, start, num_ids, self._exact)
        elif account.num_ids != num_ids:
            raise StateMismatchError(f"the account is one of num_ids={account.num_ids}, and the pass of {num_ids}")
        elif start == account.place:
            account.running = account.empty()
        else:
            account.settle(start)
        self._expected = expected

    def record(self, ids: list[int] | npt.NDArray[np.integer[Any]] | torch.Tensor, padding: int = 0) -> None:
        """Records ids that this rank drew, in any order and any number of pieces.

        Args:
            ids: each in [0, num_ids) of the pass; a list of ints, or a 1-D array or tensor of them.
            padding: how many of them, the last ones, are padding; these are only counted.

        Raises:
            RuntimeError: no pass has begun.
            TypeError, ValueError: ids are no such ids, or padding is not in [0, len(ids)]. Nothing is recorded then.
        """
        account = self._account
        if account is None or self._expected is None:
            raise RuntimeError("no pass has begun; call begin(expected) before record(ids)")
        running = account.running
        given = ids if type(ids) is list else _as_array(ids)
        if padding:
            end = len(given) - _check.integer("padding", padding, 0, len(given))
            _core.Fingerprint().add(given[end:], account.num_ids)  # checks them
            given = given[:end]
        running.fingerprint.add(given, account.num_ids)
        if running.coverage is not None:
            running.coverage.add(given)
        if padding:
            running.padded += padding

    def drop(self, ids: list[int] | npt.NDArray[np.integer[Any]] | torch.Tensor) -> None:
        """Says of ids that they will not be drawn in this epoch; they are counted apart.

        A loader says so at an epoch's end, where not every rank would have had as many, or not a whole batch.

        Args:
            ids: as for record. Each is to be dropped by one rank.
        """
        given = ids if type(ids) is list else _as_array(ids)
        self.record(given)
        assert self._account is not None
        self._account.running.dropped += len(given)

    def verify(self, group: dist.ProcessGroup | None = None) -> LedgerReport:
        """Proves that all ranks together drew what they should by now, and returns what that is.

        All ranks of the group must call it, at the same place of the epoch; with one rank, or without
        torch.distributed, nothing is sent. It costs one all-reduce of 24 numbers if all is right, and changes nothing.

        Args:
            group: of the ranks that share the epoch; None is the default group.

        Raises:
            LedgerError: on every rank: the draws are not what they should be; or ranks have accounts of different
                epochs, places or states; or the state of a rank before a restart is missing; or no pass has begun.
            ValueError: this process is not in the group.
        """
        return run_steps(self._verify, group)

    def gather(self, group: dist.ProcessGroup | None = None) -> None:
        """Brings together what all ranks drew, so that one rank's state is enough to go on, at any world size.

        All ranks must call it, at the same place of the epoch, as a rule just before rank 0 saves. One all-reduce of 24
        numbers; with exact=True also one of 4 bytes an id, in pieces. What is gathered stays in the account: if the
        pass is abandoned for another from its own beginning, there is no account up to there any more.

        Args:
            group: as for verify.

        Raises:
            LedgerError: on every rank: accounts do not belong together, as for verify.
            ValueError: this process is not in the group.
        """
        run_steps(self._gather, group)

    def state_dict(self, group: dist.ProcessGroup | None = None) -> dict[str, Any]:
        """Returns the account up to here: a dict that JSON can hold, of constant size (exact: of num_ids / 8 bytes).

        It has what was gathered, and what this rank drew since. So either every rank saves its own and loads its own,
        or all call `gather()` before one saves for all. Changes nothing, and asks no other rank.

        Args:
            group: as for verify; it says which number this rank has.
        """
        state: dict[str, Any] = {"version": VERSION, "exact": self._exact, "account": None}
        if self._account is not None:
            state["account"] = self._account.to_state(self._place(), *rank_in(group))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the account in `state`, in the next pass that begins at the place where it was saved.

        Args:
            state: from `state_dict()`, of this rank or, after `gather()`, of any.

        Raises:
            TypeError, ValueError: state is no such dict, or is damaged.
            StateMismatchError: it is of another version, or of a ledger with another `exact`.
        """
        names = ("version", "exact", "account")
        if not isinstance(state, Mapping) or any(name not in state for name in names):
            raise TypeError(f"state must be a dict from Ledger.state_dict(), got state={state!r:.300}")
        for name, mine in (("version", VERSION), ("exact", self._exact)):
            if state[name] != mine:
                raise StateMismatchError(f"state must be one with {name}={mine!r}, got {name}={state[name]!r}")
        self._account = None if state["account"] is None else Account.from_state(state["account"], self._exact)
        self._expected = None

    def _place(self) -> int:
        """Position up to which the account reaches."""
        if self._expected is not None:
            return _check.integer("place", self._expected.place(), 0, _check.MAX_LENGTH)
        return 0 if self._account is None else self._account.place

    def _verify(self, rank: int, num_replicas: int) -> Steps[LedgerReport]:
        account, expected = self._account, self._expected
        totals = yield from add_up("verify", account, expected, rank, num_replicas)
        if account is None or expected is None:
            raise LedgerError("no pass has begun on any rank; call begin(expected), record(ids), then verify()")
        totals.drawn.add(account.base)
        padded, dropped = totals.drawn.padded, totals.drawn.dropped
        drawn, due = (sums.count - dropped for sums in (totals.drawn.fingerprint, totals.expected))
        if totals.drawn.fingerprint != totals.expected:
            found = (yield from locate(account, expected, rank, num_replicas)) if self._exact else None
            raise LedgerError(_what_is_wrong(account.epoch, drawn, due, found), **(found or {}))
        return LedgerReport(
            epoch=account.epoch,
            start=account.start,
            place=expected.place(),
            is_over=expected.is_over(),
            draws=drawn + padded,
            padded=padded,
            dropped=dropped,
            num_ids=account.num_ids,
            what=expected.what(),
        )

    def _gather(self, rank: int, num_replicas: int) -> Steps[None]:
        account = self._account
        totals = yield from add_up("gather", account, self._expected, rank, num_replicas)
        if account is None:
            return
        place = self._place()
        base = account.base
        if base.coverage is not None:
            own = [figures.coverage for figures in account.own(rank) if figures.coverage is not None]
            for start, stop in stretches(account.num_ids):
                counts = sum((coverage.counts(start, stop) for coverage in own), np.zeros(stop - start, np.int32))
                base.coverage.add_counts(start, (yield Sum(counts)))
        base.add(totals.drawn)
        account.loaded, account.since, account.running = None, account.empty(), account.empty()
        account.place = account.opened = place


def _as_array(ids: Any) -> npt.NDArray[np.int64]:
    """Ids that are no list, as a contiguous int64 array."""
    if isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.ndim == 1 and ids.flags.c_contiguous:
        return ids  # what follows costs more than the hashes of a batch
    array: npt.NDArray[Any] = np.asarray(ids.detach().cpu() if isinstance(ids, torch.Tensor) else ids)
    if array.ndim != 1:
        raise ValueError(f"ids must have one dimension, got ids of shape {array.shape}")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"ids must be ints, got ids of dtype {array.dtype}")
    if array.dtype == np.uint64 and array.size and array.max() > _check.MAX_LENGTH:
        raise ValueError(f"ids must be in [0, 2^63), got {array.max()}")
    return np.ascontiguousarray(array, np.int64)


def _what_is_wrong(epoch: int, drawn: int, due: int, found: Mapping[str, Any] | None) -> str:
    """In words, from how many draws there were and should have been, and what `locate` found if it was asked."""
    if drawn != due:
        few_or_many = "few" if drawn < due else "many"
        what = f"{count_of([abs(drawn - due)], 'draw')} too {few_or_many}: {drawn:,} where there should be {due:,}"
    else:
        what = (
            f"{count_of([drawn], 'draw')} as there should be, but not of the right samples: some came in others' place"
        )
    if found is None:
        what += "; Ledger(exact=True) names samples"
    for name, words in (("missing", "missing"), ("doubled", "drawn too often")):
        number = found.get(f"num_{name}", 0) if found else 0
        if found and number:
            listed = ", ".join(map(str, found[name][:8])) + (", ..." if number > 8 else "")
            what += f"; {count_of([number], 'sample')} {words}: {listed}"
    return f"epoch {epoch}: {what}"
