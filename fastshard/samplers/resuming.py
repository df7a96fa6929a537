"""ResumingBatchSampler: what samplers that make whole batches by themselves share: epochs, passes and their state."""

from __future__ import annotations

import abc
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import Sampler

from fastshard import _check
from fastshard.samplers.epochs import WithEpochs
from fastshard.samplers.passes import Passes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fastshard.cursor import Cursor

B = TypeVar("B")


class ResumingBatchSampler(WithEpochs, Sampler[B], abc.ABC):
    """A batch sampler whose epochs can be stopped after any batch. Subclasses say what a place in an epoch means."""

    def __init__(self) -> None:
        self._passes = Passes()

    @property
    def length(self) -> int:
        """For loaders built on this one: where a cursor's `consumed` counts as finished."""
        return self._length

    @property
    @abc.abstractmethod
    def _length(self) -> int:
        """Where a cursor's `consumed` counts as finished."""

    @abc.abstractmethod
    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """For loaders built on this one: the state after so many of this rank's batches of a pass that began there."""

    @abc.abstractmethod
    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """For loaders built on this one: load_state_dict with an accumulation to compare."""

    @abc.abstractmethod
    def batches_from(self, began: Cursor) -> int | None:
        """For loaders built on this one: how many batches this rank gets in a pass from there; None if unknown."""

    @abc.abstractmethod
    def padding_in(self, began: Cursor, batch: int) -> int:
        """For loaders built on this one: how many of the last draws of a batch of such a pass are padding.

        Args:
            began: where the pass began.
            batch: the number of the batch in the pass, from 0; this rank has drawn it.
        """

    def start_of(self, began: Cursor) -> int:
        """For loaders built on this one: `consumed` where such a pass begins, as a state would say it."""
        return began.consumed

    def batches_drawn(self, items: int) -> int:
        """For loaders built on this one: how many batches the items of a pass are, which is as many."""
        return items

    @abc.abstractmethod
    def is_over(self, began: Cursor, batches: int) -> bool:
        """For loaders built on this one: whether no rank gets a batch after so many of such a pass."""

    @abc.abstractmethod
    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:
        """For loaders built on this one: ids that such a pass leaves out, each on one rank. Asked at its end."""

    def progress(self) -> tuple[Cursor, int]:
        """For loaders built on this one: where the epoch's latest pass began, and how many batches it has given."""
        return self._passes.progress(self._length)

    def state_dict(self) -> dict[str, Any]:
        """As DistributedSampler.state_dict, counting batches.

        Where some ranks get a batch less than others, let rank 0 save: no rank gets more, so it is the last to finish.
        """
        return self.state_after(*self.progress())

    def state_at(self, batches: int) -> dict[str, Any]:
        """As state_dict, for who counts steps: after so many batches of the epoch's latest pass.

        Args:
            batches: batches that this rank has trained on since the pass began, or since the state was loaded.
        """
        return self.state_after(self.progress()[0], _check.integer("batches", batches, 0, _check.MAX_LENGTH))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As DistributedSampler.load_state_dict."""
        self.load_from(state)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has passes of its own, so that its epoch is its own.
        return {**self.__dict__, "_passes": copy.copy(self._passes)}
