"""Place: a cursor in an epoch whose ranks go through runs, which hang on the worlds that there were."""

from __future__ import annotations

from dataclasses import dataclass

from fastshard.cursor import Cursor


@dataclass(frozen=True)
class Place(Cursor):
    """A place in an epoch.

    Args:
        epoch, consumed: as for Cursor.
        former: see Runs.
    """

    former: tuple[tuple[int, int], ...] = ()
