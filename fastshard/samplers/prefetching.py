"""Which DataLoader with workers is drawing from a sampler, and what it has drawn but not delivered.

fastshard.DataLoader says by itself what it has handed out (`Deliveries`). Of torch's, a sampler can't see it through
its iterator: the loader asks for indices some batches ahead, at once when it is made. torch has no public word for it,
so this reads the loader's own counters; without them nothing is known and nothing is said, and the guards that build on
it are silent.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch.utils.data import dataloader as torch_dataloader

from fastshard import _check
from fastshard._warnings import EpochChangedError

_FRAMES = 20  # from a sampler up to the loader: a batch sampler between them, perhaps a framework's wrappers


@dataclass
class Deliveries:
    """What a fastshard.DataLoader has handed out of one pass.

    Args:
        batches: how many batches.
        ended: whether the pass was iterated to its end.
        epoch: of the pass.
        changed_to: the epoch that `set_epoch` asked for when the workers had fetched all of this one.
        overtaken_by: what loaded another place then.
    """

    batches: int = 0
    ended: bool = False
    epoch: int = 0
    changed_to: int | None = None
    overtaken_by: str | None = None

    def count(self) -> int:
        """The batches; after the end 2^63 - 1, for others may get more."""
        return _check.MAX_LENGTH if self.ended else self.batches

    @contextmanager
    def rewound(self, batches: int) -> Iterator[None]:
        """In this context, so many of the batches that were handed out last are not."""
        now = self.batches, self.ended
        self.batches, self.ended = self.batches - batches, self.ended and not batches
        try:
            yield
        finally:
            self.batches, self.ended = now

    def change_to(self, epoch: int) -> None:
        """Whoever takes a batch that is left gets EpochChangedError, unless the change is taken back."""
        self.changed_to = None if epoch == self.epoch else epoch

    def check(self) -> None:
        """Raises EpochChangedError if the epoch, or the place, was changed."""
        if self.overtaken_by is not None:
            raise overtaken(self.overtaken_by)
        if self.changed_to is not None:
            raise epoch_changed(self.changed_to, self.epoch)


def epoch_changed(to: int, epoch: int) -> EpochChangedError:
    """The error for a `set_epoch(to)` that came when samples of `epoch` were drawn already."""
    return EpochChangedError(
        f"set_epoch({to}) was called while a pass over epoch {epoch} was running, whose samples are already being "
        "drawn (a DataLoader with workers draws ahead as soon as iter() is called); call set_epoch before iter()"
    )


def overtaken(by: str) -> EpochChangedError:
    """The error for a load that came when samples were drawn already."""
    return EpochChangedError(f"{by} while a pass was running; call it before iter()")


class Loader:
    """A loader's iterator, which is not kept alive."""

    def __init__(self, iterator: torch_dataloader._MultiProcessingDataLoaderIter) -> None:
        self._iterator = weakref.ref(iterator)

    def undelivered(self) -> int:
        """Batches that were sent to workers and not yet taken by the consumer; 0 if the iterator is gone."""
        iterator = self._iterator()
        sent, received = (getattr(iterator, name, 0) for name in ("_send_idx", "_rcvd_idx"))
        return max(0, int(sent) - int(received))


def drawing_loader() -> Loader | None:
    """Returns the loader with workers whose call for an index led here, if one did."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_back is None:
            break
        frame = frame.f_back
        if frame.f_code.co_filename == torch_dataloader.__file__:
            caller = frame.f_locals.get("self")
            if isinstance(caller, torch_dataloader._MultiProcessingDataLoaderIter):
                return Loader(caller)
    return None
