"""Weighted: samples drawn in proportion to their weights, with replacement or without."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from fastshard import _check
from fastshard._built import _core
from fastshard.orders.arrays import ArrayOrder

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, eq=False, repr=False)
class Weighted(ArrayOrder):
    """Draws by weight, as torch's WeightedRandomSampler makes them, but of one order for all ranks.

    With replacement, every position is a draw of its own: it holds sample i with probability weights[i] / sum(weights),
    and costs the same wherever it is. An alias table takes 12 bytes a weight, besides the weights themselves, and is
    made once, not once an epoch.

    Without, the samples of an epoch are those that drawing one after the other without putting back gives, in that
    order; no sample comes twice. An epoch is computed at the first request, in one pass over the weights and a sort of
    the draws, and then kept in 8 bytes a draw.

    Args:
        weights: one number for each sample, not negative and finite: any 1-D array-like or torch tensor, which is
            copied as float64. They need not add up to 1. A sample of weight 0 is never drawn. With replacement,
            weights count in steps of 2^-63 of their sum.
        num_samples: draws in an epoch, in [1, 2^63); without replacement, at most as many as weights above 0.
        seed: any int in [-2^63, 2^64), taken modulo 2^64. No two pairs of (seed, epoch) share a stream.
        replacement: whether a sample may be drawn again in the same epoch.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range; the message names it, and the first
            weight that is wrong.

    Example:
        >>> import numpy as np
        >>> order = orders.Weighted([0.0, 1.0, 3.0], num_samples=10_000, seed=1)
        >>> counts = np.bincount(order.indices(epoch=0), minlength=3)
        >>> counts[0], bool(abs(counts[2] / counts[1] - 3) < 0.3)
        (np.int64(0), True)
        >>> sorted(orders.Weighted([1.0, 2.0, 3.0], num_samples=3, replacement=False).indices(epoch=0).tolist())
        [0, 1, 2]

    Source: csrc/order/alias_table.h and weighted.h name the algorithms.
    """

    weights: npt.NDArray[np.float64]
    num_samples: int
    seed: int = 0
    replacement: bool = True
    name: ClassVar[str] = "weighted/1"

    def __post_init__(self) -> None:
        weights = _checked(self.weights)
        if not isinstance(self.replacement, bool):
            raise TypeError(f"replacement must be a bool, got replacement={self.replacement!r}")
        num_samples = _check.integer("num_samples", self.num_samples, 1, _check.MAX_LENGTH)
        positive = int(np.count_nonzero(weights))
        if not self.replacement and num_samples > positive:
            raise ValueError(
                f"num_samples must be at most the number of weights above 0, {positive}, without replacement, got "
                f"num_samples={num_samples}"
            )
        checked = {"weights": weights, "num_samples": num_samples, "seed": _check.seed(self.seed)}
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        seed = self.seed % 2**64
        if not self.replacement:
            self._keep(_core.WeightedSubset(weights, num_samples, seed))
        elif len(weights) < 2**32:
            self._keep(_core.WeightedDraws(weights, seed))
        else:
            self._keep(_core.WideWeightedDraws(weights, seed))

    def __len__(self) -> int:
        return self.num_samples

    @property
    def num_ids(self) -> int:
        """The number of weights: the length of the dataset."""
        return len(self.weights)


def _checked(weights: Any) -> npt.NDArray[np.float64]:
    """A float64 copy of `weights` that nobody can write to."""
    if isinstance(weights, torch.Tensor):
        # numpy has no bfloat16, and can't see other devices.
        weights = weights.detach().to("cpu", torch.float64).numpy()
    try:
        given = np.asarray(weights)
        if given.dtype.kind not in "biuf":
            raise TypeError  # noqa: TRY301 (what numpy can't convert is the same mistake)
        copy = np.array(given, np.float64, order="C")
    except (TypeError, ValueError):
        raise TypeError(f"weights must be a 1-D array of real numbers, got weights={reprlib.repr(weights)}") from None
    if copy.ndim != 1:
        raise ValueError(f"weights must have one dimension, got weights of shape {copy.shape}")
    if not copy.size:
        raise ValueError("weights must have at least one weight, got none")
    wrong = ~((copy >= 0) & (copy < np.inf))
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"weights must be finite and not negative, got weights[{first}]={given[first]}")
    if not copy.any():
        raise ValueError(f"weights must have at least one above 0, got {copy.size} of 0")
    copy += 0.0  # no negative zeros
    copy.flags.writeable = False
    return copy
