"""Which torch DataLoader with workers is drawing from a sampler, and what it has drawn but not delivered.

A sampler can't see this through its iterator: the loader asks for indices some batches ahead, at once when it is made.
torch has no public word for it, so this reads the loader's own counters; without them nothing is known and nothing is
said, and the guards that build on it are silent.
"""

from __future__ import annotations

import sys
import weakref

from torch.utils.data import dataloader as torch_dataloader

_FRAMES = 20  # from a sampler up to the loader: a batch sampler between them, perhaps a framework's wrappers


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
