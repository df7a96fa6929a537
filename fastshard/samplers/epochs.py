"""WithEpochs: what samplers and streams say of the epoch in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastshard.samplers.passes import Passes


class WithEpochs:
    """Has passes, of which the user chooses the epochs."""

    _passes: Passes

    @property
    def passes(self) -> Passes:
        """For loaders built on this one."""
        return self._passes

    @property
    def epoch(self) -> int:
        """The epoch that the next pass draws from; assigning to it is `set_epoch`."""
        return self._passes.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """As DistributedSampler.set_epoch."""
        self._passes.set_epoch(epoch)
