"""Mixed: several orders interleaved in fixed proportions."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from fastshard import _check
from fastshard._built import _core
from fastshard.orders.base import Order
from fastshard.orders.shares import shares_of

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_SOURCES = 1024  # kMaxSources in csrc/order/interleave.h


@dataclass(frozen=True)
class Mixed(Order):
    """Several orders, the sources, interleaved in proportion to their weights.

    At every prefix of an epoch each source has been drawn within one of its share: after p positions, more than
    p * w - 1 and less than p * w + 1 times, where w is its weight by the sum of all. Which source comes where is random
    within that, differs from epoch to epoch, and is such that a rank's stride too meets each source in proportion.

    A source goes through its own epochs one after another: it is drawn draws[s] times in each of the mix's epochs, and
    its j-th draw of epoch e is position (e * draws[s] + j) % len of its epoch (e * draws[s] + j) // len. So over time
    each of its samples is drawn equally often, a short source comes again before a long one is through, and there is
    nothing to save.

    Ids are counted as torch.utils.data.ConcatDataset counts them: those of orders[s] come after the num_ids of all
    orders before it. `source_of` tells them apart again.

    Any position costs the same. An epoch's first request makes the pattern of the sources, at most 2^20 slots or
    2^15 + 2^8, whichever is more, at a step for each source in each; 4 bytes a slot are kept. A source that is much
    shorter than the stretches that are asked for is asked once for each of its epochs in them.

    Args:
        orders: one Order for each source, at most 1024: also the user's own, Weighted, or another Mixed. Their num_ids
            add up to less than 2^63.
        weights: one number for each, not negative: ints, fractions.Fraction, decimal.Decimal or floats, which count as
            the decimal they are printed as (0.1 is a tenth). They need not add up to 1. A source of weight 0 is never
            drawn, but its ids are counted. Weights whose proportions need a period of more than 2^20 positions count
            in steps of 2^-20 of their sum, and at least one of them; see `proportions`.
        seed: any int in [-2^63, 2^64), taken modulo 2^64, of the pattern; the sources have their own.
        num_samples: positions in an epoch, in [1, 2^63); None is the most for which no source's share of them is more
            than it has positions, but at least 1.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or out of its range; the message names it.

    Example:
        >>> web, books = orders.Shuffled(1000, seed=1), orders.Shuffled(60, seed=2)
        >>> order = orders.Mixed([web, books], weights=[0.9, 0.1])
        >>> len(order), order.num_ids, order.draws
        (600, 1060, (540, 60))
        >>> sources, ids = order.source_of(order.indices(epoch=0, stop=20))
        >>> int(sum(sources == 1)), order.source_of(1059)
        (2, (1, 59))

    Source: csrc/order/interleave.h.
    """

    orders: Sequence[Order]
    weights: Sequence[Any]
    seed: int = 0
    num_samples: int | None = None
    name: ClassVar[str] = "mixed/0"
    _trusted: ClassVar[bool] = True  # `take` of each source checks what it returns

    def __post_init__(self) -> None:
        sources = _checked(self.orders)
        weights, shares = shares_of(self.weights, len(sources))
        period = sum(shares)
        num_samples = self.num_samples
        if num_samples is None:
            fit = min(len(order) * period // share for order, share in zip(sources, shares, strict=True) if share)
            num_samples = min(max(fit, 1), _check.MAX_LENGTH)
        drawn = [s for s, share in enumerate(shares) if share]
        checked: dict[str, Any] = {
            "orders": sources,
            "weights": weights,
            "seed": _check.seed(self.seed),
            "num_samples": _check.integer("num_samples", num_samples, 1, _check.MAX_LENGTH),
        }
        mixture = _core.Mixture([shares[s] for s in drawn], checked["seed"] % 2**64, checked["num_samples"])
        draws = [0] * len(sources)
        for s, count in zip(drawn, mixture.counts(), strict=True):
            draws[s] = count
        derived = {
            # A resume depends on the names of all.
            "name": f"{self.name}({','.join(order.name for order in sources)})",
            "_draws": tuple(draws),
            "_proportions": tuple(Fraction(share, period) for share in shares),
            "_mixture": mixture,
            "_drawn": drawn,
            "_base": np.cumsum([0, *(order.num_ids for order in sources)], dtype=np.int64),
        }
        for name, value in (checked | derived).items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        length = self.num_samples
        assert length is not None
        return length

    @property
    def num_ids(self) -> int:
        """Of all sources together, as len(ConcatDataset)."""
        return int(self.__dict__["_base"][-1])

    @property
    def proportions(self) -> tuple[Fraction, ...]:
        """The part of the positions that each source really has; together 1."""
        proportions: tuple[Fraction, ...] = self.__dict__["_proportions"]
        return proportions

    @property
    def draws(self) -> tuple[int, ...]:
        """How often each source is drawn in an epoch; together len(self)."""
        draws: tuple[int, ...] = self.__dict__["_draws"]
        return draws

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled object is rebuilt on arrival.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @overload
    def source_of(self, ids: int) -> tuple[int, int]: ...
    @overload
    def source_of(self, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def source_of(self, ids: Any) -> Any:
        """Returns (source, id): which of `orders` an id of this one is from, and which id it is there.

        Args:
            ids: an id in [0, num_ids), or an array of them.

        Returns:
            Two ints for an int, two int64 arrays of the shape of `ids` for an array.

        Raises:
            TypeError: neither an int nor an array-like of ints.
            ValueError: an id is out of its range.
        """
        base: npt.NDArray[np.int64] = self.__dict__["_base"]
        if np.ndim(ids) == 0:
            given = _check.integer("ids", ids[()] if isinstance(ids, np.ndarray) else ids, 0, self.num_ids - 1)
            source = int(np.searchsorted(base, given, side="right")) - 1
            return source, given - int(base[source])
        array = np.asarray(ids)
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"ids must be an int or an array of ints, got an array of {array.dtype}")
        if array.size and not (array.min() >= 0 and array.max() < self.num_ids):
            raise ValueError(f"ids must be in [0, {self.num_ids}), got ids from {array.min()} to {array.max()}")
        array = array.astype(np.int64)
        sources = np.searchsorted(base, array, side="right") - 1
        return sources, array - base[sources]

    def digest(self) -> str:
        """Of the proportions, and of each source's seed, length and digest."""
        parts = [(getattr(order, "seed", None), len(order), order.num_ids, order.digest()) for order in self.orders]
        told = repr((self.proportions, parts)).encode()
        return hashlib.blake2b(told, digest_size=8).hexdigest()

    def _prepare(self, epoch: int) -> None:
        for source in self.__dict__["_drawn"]:
            order = self.orders[source]
            order.prepare(epoch * self.draws[source] // len(order) % 2**64)

    def _fill(self, epoch: int, start: int, count: int, step: int) -> npt.NDArray[np.int64]:
        # numpy multiplies 64-bit numbers modulo 2^64, and every position that exists is below.
        positions = np.arange(count, dtype=np.uint64)
        positions *= np.uint64(step)
        positions += np.uint64(start)
        return self._take(epoch, positions)

    def _take(self, epoch: int, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        where, draws, ends = self.__dict__["_mixture"].split(epoch, positions)
        ids = np.empty(len(positions), np.int64)
        begin = 0
        for source, end in zip(self.__dict__["_drawn"], ends.tolist(), strict=True):
            if begin < end:
                drawn = self._draws_of(source, epoch, draws[begin:end])
                drawn += self.__dict__["_base"][source]
                ids[where[begin:end]] = drawn
            begin = end
        return ids

    def _draws_of(self, source: int, epoch: int, draws: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The source's own ids of these draws of this epoch. `draws` is made use of."""
        order = self.orders[source]
        length = len(order)
        inner, first = divmod(epoch * self.draws[source], length)
        draws += np.uint64(first)  # both are below 2^63
        if int(draws.max()) < length:
            return order.take(inner % 2**64, draws)
        passes, places = np.divmod(draws, np.uint64(length))
        by_pass = np.argsort(passes, kind="stable")
        passes, places = passes[by_pass], places[by_pass]
        cuts = [0, *(np.flatnonzero(passes[1:] != passes[:-1]) + 1).tolist(), len(passes)]
        ids = np.empty(len(passes), np.int64)
        for begin, end in itertools.pairwise(cuts):
            ids[by_pass[begin:end]] = order.take((inner + int(passes[begin])) % 2**64, places[begin:end])
        return ids


def _checked(given: object) -> tuple[Order, ...]:
    if isinstance(given, Order) or not isinstance(given, Sequence):
        raise TypeError(f"orders must be a sequence of Orders, got orders={given!r}")
    orders = tuple(given)
    if not 1 <= len(orders) <= MAX_SOURCES:
        raise ValueError(f"orders must be 1 to {MAX_SOURCES} Orders, got {len(orders)}")
    for i, order in enumerate(orders):
        if not isinstance(order, Order):
            raise TypeError(f"orders must be a sequence of Orders, got orders[{i}]={order!r}")
        if not len(order):
            raise ValueError(f"orders must have at least one position each, got orders[{i}]={order!r} of none")
    total = sum(order.num_ids for order in orders)
    if total > _check.MAX_LENGTH:
        raise ValueError(f"orders must have less than 2^63 ids together, got {total}")
    return orders
