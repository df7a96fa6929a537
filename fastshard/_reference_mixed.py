"""Mixed once more: slow, short, plain ints. See _reference.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from fastshard._reference import philox

MIXED_VERSION = int.from_bytes(b"mixing/0", "big")
SLOTS, SPAN = 2**15, 256

_SPANS, _REST, _PICK = 0, 1, 2  # what the words of Mixed's Philox streams are for


def mixed(
    inner: Sequence[Callable[[int], Sequence[int]]],
    num_ids: Sequence[int],
    shares: Sequence[int],
    seed: int,
    num_samples: int,
    epoch: int,
) -> list[int]:
    """Returns the ids of `Mixed` in `epoch`.

    Args:
        inner: for each source, the function epoch -> its ids.
        num_ids: of each source.
        shares: whole numbers in proportion to the weights, without a common divisor.
        seed: any int.
        num_samples: positions in an epoch.
        epoch: any int.
    """
    sources = interleaved(shares, seed, num_samples, epoch)
    base = [0, *itertools.accumulate(num_ids)]
    drawn = [epoch * sources.count(s) for s in range(len(shares))]
    ids = []
    for s in sources:
        pass_, place = divmod(drawn[s], len(inner[s](0)))
        ids.append(base[s] + inner[s](pass_ % 2**64)[place])
        drawn[s] += 1
    return ids


def interleaved(shares: Sequence[int], seed: int, num_samples: int, epoch: int) -> list[int]:
    """Returns the source at each position of `epoch`."""
    drawn = [s for s, share in enumerate(shares) if share]
    parts = [shares[s] for s in drawn]
    period = sum(parts)
    whole, rest = num_samples // period * period, num_samples % period
    span = max(1, SPAN // period) * period
    number = min(-(-whole // span), max(1, SLOTS // span))

    def words(use: int) -> Callable[[int], int]:
        return lambda i: philox((epoch, i // 4, 0, use), (seed % 2**64, MIXED_VERSION))[i % 4]

    slots: list[int] = []
    had = [[0] * len(parts) for _ in range(period)]
    for made in range(number * span // period):
        owed = [[made * part - of * period for part, of in zip(parts, at, strict=True)] for at in had]
        account = owed if number * span > period else None
        slots += pattern(parts, period, parts, account, words(_SPANS), made * period)
        for t, s in enumerate(slots[-period:]):
            had[t][s] += 1
    pick = words(_PICK)
    starts = [(pick(i) * number >> 64) * span for i in range(-(-whole // span))]
    order = [slot for start in starts for slot in slots[start : start + span]][:whole]
    order += pattern(parts, rest, earliest_deadline_counts(parts, rest), None, words(_REST), 0)
    return [drawn[s] for s in order]


def pattern(
    parts: Sequence[int],
    length: int,
    counts: Sequence[int],
    owed: Sequence[Sequence[int]] | None,
    word: Callable[[int], int],
    first_word: int,
) -> list[int]:
    """Returns the source in each of the first `length` slots of a period, of which s has counts[s]."""
    period = sum(parts)
    # How many sources may be ahead in a slot: what is not due by then.
    room = [slot - sum(slot * part // period for part in parts) for slot in range(length)] + [0]
    drawn = [0] * len(parts)
    sources = []
    for slot in range(length):
        full = next(later for later in range(slot + 1, length + 1) if not room[later])
        deadlines = [min(length, -((drawn[s] + 1) * -period // part)) for s, part in enumerate(parts)]
        odds = [0] * len(parts)
        for s, part in enumerate(parts):
            due, fraction = divmod(slot * part, period)
            ahead = drawn[s] > due
            if drawn[s] == counts[s] or (ahead and fraction + part <= period) or deadlines[s] > full:
                continue
            if ahead:
                odds[s] = (fraction + part - period << 24) // fraction
            elif part < period:
                odds[s] = (part << 24) // (period - fraction)
            if owed:
                odds[s] *= min(max(period + owed[slot][s], period // 16 + 1), 16 * period)
            if deadlines[s] == slot + 1:
                chosen = s
                break
        else:
            point = word(first_word + slot) * sum(odds) >> 64
            chosen = next(s for s, end in enumerate(itertools.accumulate(odds)) if end > point)
        for later in range(slot + 1, deadlines[chosen]):
            room[later] -= 1
        drawn[chosen] += 1
        sources.append(chosen)
    return sources


def earliest_deadline_counts(parts: Sequence[int], length: int) -> list[int]:
    """Returns how often each source is drawn in `length` slots if the earliest deadline always comes first."""
    period = sum(parts)
    counts = [0] * len(parts)
    for slot in range(length):
        released = [s for s, part in enumerate(parts) if counts[s] * period // part <= slot]
        counts[min(released, key=lambda s: (-((counts[s] + 1) * -period // parts[s]), s))] += 1
    return counts
