"""Reckoning: what all ranks' accounts of an epoch come to, and whether it is what it should be.

One all-reduce of 24 numbers decides, from sums that are the same on every rank, so either every rank goes on or every
rank raises. Only then do ranks ask each other for more, to say what is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastshard._built import _core
from fastshard._warnings import LedgerError
from fastshard.audit.coverage import all_exactly_once, count_of
from fastshard.ledger.expected import Expected
from fastshard.ledger.figures import Account, Figures, stretches, total
from fastshard.ledger.together import Gather, Steps, Sum, agree, agreement, halves, joined

# Of each kind of sample that an error names.
MOST_NAMED = 1000


@dataclass(frozen=True)
class LedgerReport:
    """What a right account says; `str` of it says so in words.

    Attributes:
        epoch: the account's epoch.
        start: position from which on it has an account; 0 is the epoch's beginning.
        place: position up to which ranks have come.
        is_over: whether that is the epoch's end.
        draws: draws of all ranks together from `start` on, padding included.
        padded: how many of the draws were padding.
        dropped: samples that were dropped where ranks could not have as many, or a batch would not have been whole.
        num_ids: ids are in [0, num_ids).
        what: what is counted, such as "samples".
    """

    epoch: int
    start: int
    place: int
    is_over: bool
    draws: int
    padded: int
    dropped: int
    num_ids: int
    what: str

    def __str__(self) -> str:
        drawn = self.draws - self.padded
        rest = f", {self.dropped:,} dropped" if self.dropped else ""
        if self.what == "samples" and self.is_over and not self.start:
            once = all_exactly_once(self.num_ids, [self.padded])
            return (once if drawn == self.num_ids else once.replace("every one", f"{drawn:,}", 1)) + rest
        stretch = f" from position {self.start:,} on" if self.start else ""
        stretch += "" if self.is_over else f" up to position {self.place:,}"
        noun, *of = self.what.split(" ", 1)
        what = " ".join([count_of([drawn], noun.removesuffix("s")), *of])
        return f"every one of the {what}{stretch} exactly once, {count_of([self.padded], 'padded draw')}{rest}"


@dataclass(frozen=True)
class Totals:
    """All ranks' figures since the base: what they drew, and what they should have drawn since the account's start."""

    drawn: Figures
    expected: _core.Fingerprint


def add_up(
    call: str, account: Account | None, expected: Expected | None, rank: int, num_replicas: int
) -> Steps[Totals]:
    """Sums up what ranks have, or raises the same LedgerError on each if their accounts do not belong together.

    Args:
        call: the name of the method that asks, which must be the same everywhere.
        account: this rank's.
        expected: of the pass that is running or was the latest; what it gives is summed up for "verify" alone.
        rank: this rank.
        num_replicas: number of ranks.
    """
    facts: dict[str, Any] = {}
    words, error, present = [0] * 8, None, False
    try:
        facts = _facts(call, account, expected)
        if account is not None:
            drawn = total(account.own(rank), account.num_ids)
            due = expected.fingerprint(account.start, rank, num_replicas) if call == "verify" and expected else None
            sum_of = drawn.fingerprint
            words = [drawn.padded, drawn.dropped, sum_of.count, sum_of.first, sum_of.second]
            words += [due.count, due.first, due.second] if due else [0] * 3
            present = account.loaded is not None and account.origin[0] == rank
    except Exception as caught:
        if num_replicas == 1:
            raise
        error = caught  # to leave now would let the others wait
    digest = int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=8).digest(), "little")
    row = [int(error is not None), int(present), *agreement(digest), *halves(words)]
    sums = (yield Sum(np.array(row, np.int64))).tolist()
    needed = facts.get("states of earlier ranks", 0)
    if sums[0] or not agree(sums[2:8], num_replicas) or sums[1] != needed:
        told = yield Gather((None if error is None else f"{type(error).__name__}: {error}", facts, present))
        raise LedgerError(_explain(told)) from error
    padded, dropped, *rest = (word % 2**64 for word in joined(sums[8:]))
    together = Figures(account.num_ids if account else 1, False)
    together.padded, together.dropped, together.fingerprint = padded, dropped, _core.Fingerprint(*rest[:3])
    return Totals(together, _core.Fingerprint(*rest[3:]))


def locate(account: Account, expected: Expected, rank: int, num_replicas: int) -> Steps[dict[str, Any]]:
    """Which samples came less or more often than they should, as the arguments of LedgerError; all ranks together."""
    wanted, error = _core.Coverage(account.num_ids), None
    try:
        expected.add_to(wanted, account.start, rank, num_replicas)
    except Exception as caught:
        error = repr(caught)
    if any((yield Gather(error))):
        return {}
    parts = [figures.coverage for figures in account.own(rank) + ([account.base] if rank == 0 else [])]
    named: dict[str, list[int]] = {"missing": [], "doubled": []}
    numbers = {"num_missing": 0, "num_doubled": 0}
    for start, stop in stretches(account.num_ids):
        counts = -wanted.counts(start, stop)
        for coverage in parts:
            if coverage is not None:
                counts += coverage.counts(start, stop)
        counts = yield Sum(counts)
        for name, found in (("missing", np.flatnonzero(counts < 0)), ("doubled", np.flatnonzero(counts > 0))):
            numbers[f"num_{name}"] += len(found)
            named[name] += (found[: MOST_NAMED - len(named[name])] + start).tolist()
    return {**named, **numbers}


def _facts(call: str, account: Account | None, expected: Expected | None) -> dict[str, Any]:
    """What all ranks must agree on."""
    facts: dict[str, Any] = {"call": call}
    if account is not None:
        base = account.base
        facts |= {
            "epoch": account.epoch,
            "start": account.start,
            "place": account.place if expected is None else expected.place(),
            "num_ids": account.num_ids,
            "exact": account.exact,
            "what": expected and expected.what(),
            "draws in the base": base.fingerprint.count + base.padded,
            "fingerprint of the base": f"{base.fingerprint.first:016x}{base.fingerprint.second:016x}",
            "states of earlier ranks": account.origin[1] if account.loaded is not None else 0,
        }
    return facts


def _explain(told: list[tuple[str | None, Mapping[str, Any], bool]]) -> str:
    """Why accounts do not belong together, from what every rank told."""
    errors = [f"rank {rank}: {error}" for rank, (error, _, _) in enumerate(told) if error]
    if errors:
        return "the ledger can't be added up: " + "; ".join(errors)
    facts = [of_rank for _, of_rank, _ in told]
    differing = []
    for name in dict.fromkeys(name for of_rank in facts for name in of_rank):
        values: dict[str, list[int]] = {}
        for rank, of_rank in enumerate(facts):
            values.setdefault(repr(of_rank[name]) if name in of_rank else "missing", []).append(rank)
        if len(values) > 1:
            differing.append(f"{name}: " + ", ".join(f"{value} on {_ranks(on)}" for value, on in values.items()))
    if differing:
        return "ranks have different accounts; " + "; ".join(differing)
    num_replicas = facts[0]["states of earlier ranks"]
    absent = [rank for rank in range(num_replicas) if rank >= len(told) or not told[rank][2]]
    return (
        f"the account lacks what {_ranks(absent)} of {num_replicas} drew before the restart: a state holds what its "
        "own rank drew, and counts on the rank of that number. Load every rank's own state, or call gather() on all "
        "ranks before rank 0 saves"
    )


def _ranks(ranks: Iterable[int]) -> str:
    """Names ranks: a handful by name; of more, the first ones and the last."""
    ranks = list(ranks)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ranks if len(ranks) <= 8 else [*ranks[:6], "...", ranks[-1]]
    return "ranks " + ", ".join(map(str, shown))
