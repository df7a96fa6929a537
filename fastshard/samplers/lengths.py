"""LengthBucketBatchSampler: batches of samples of about the same length, as many and as long on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import length_hint
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from fastshard import _check
from fastshard.cursor import Cursor, from_state, to_state
from fastshard.orders.lengths import LengthGrouped
from fastshard.samplers.distributed import ask_group
from fastshard.samplers.length_plan import Plan
from fastshard.samplers.passes import OnRepeatedEpoch
from fastshard.samplers.resuming import ResumingBatchSampler
from fastshard.slicing import Uneven

if TYPE_CHECKING:
    import numpy.typing as npt

# What the batches were planned by. To change one of them afterwards would be obeyed in part.
_FIXED = frozenset(
    {"order", "batch_size", "max_tokens", "num_replicas", "rank", "shuffle", "seed", "drop_last", "uneven"}
)

# Global batches whose numbers are asked of the order at a time. Their ids are computed when a batch is asked for.
STEPS = 1024


class LengthBucketBatchSampler(ResumingBatchSampler[Any]):
    """Gives each rank batches of samples of about the same length, for a DataLoader's `batch_sampler=`.

    In each step the batches of all ranks come from one bucket of neighbours in length and have the same number of
    samples, so no rank pads much, and none waits long for another (see `orders.LengthGrouped`). Every rank gets as many
    batches. At most one global batch of an epoch is partial, the last one, of the shortest samples.

    A batch costs its number of samples times its longest one. In a step, the dearest batch costs at most longest /
    shortest of the bucket times the cheapest: 1 / (1 - spread) where samples are many, more where lengths are rare
    (`sampler.order.buckets` has both). The partial batch, whose ranks may differ by a sample, comes on top of that.

    Args:
        lengths, batch_size, max_tokens, shuffle, seed, spread, min_steps: as for `orders.LengthGrouped`.
        num_replicas, rank: as for DistributedSampler; None asks the process group.
        drop_last: True drops the partial global batch, so that all batches of a bucket have the same size.
        uneven: what happens where P does not divide the partial global batch. None is "drop" with drop_last and "pad"
            without.
            "pad": every rank gets as many samples; what is missing is drawn again from the same bucket.
            "drop": every rank gets as many samples; fewer than P are not drawn.
            "keep": every sample exactly once; ranks differ by at most one sample. If there are fewer than P, they are
            made two global batches with the whole one before them, so that every rank has a batch.
            With drop_last and "pad", ranks are padded first, and what is then short of a whole batch is dropped.
        on_repeated_epoch: as for DistributedSampler.
        as_array: yield int64 arrays, not lists of int: for datasets whose `__getitems__` takes arrays.

    Attributes:
        order: the LengthGrouped order that the batches are from.
        num_padding: how many of this rank's draws are padding: 0 or 1, in the last batch.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, out of its range, or contradicts another.

    Warns:
        EmptyRankWarning: some rank gets no batch, or fewer than others ("keep" with batches of one sample).

    Example:
        >>> lengths = [3, 70, 5, 72, 4, 71, 6, 73]
        >>> ranks = [LengthBucketBatchSampler(lengths, 2, num_replicas=2, rank=r, min_steps=1) for r in range(2)]
        >>> [sorted(lengths[id] // 10 for id in batch) for batch in zip(*ranks) for batch in batch] in (
        ...     [[0, 0], [0, 0], [7, 7], [7, 7]], [[7, 7], [7, 7], [0, 0], [0, 0]])
        True
        >>> tokens = LengthBucketBatchSampler(lengths, max_tokens=150, num_replicas=2, rank=0, drop_last=True)
        >>> all(len(batch) * max(lengths[id] for id in batch) <= 150 for batch in tokens)
        True
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: Uneven | None = None,
        spread: float = LengthGrouped.spread,
        min_steps: int = LengthGrouped.min_steps,
        on_repeated_epoch: OnRepeatedEpoch = "warn",
        as_array: bool = False,
    ) -> None:
        super().__init__()
        num_replicas, rank = ask_group(num_replicas, rank)
        order = LengthGrouped(lengths, batch_size, max_tokens, num_replicas, seed, shuffle, spread, min_steps)
        self.order = order
        self.batch_size, self.max_tokens = order.batch_size, order.max_tokens
        self.num_replicas = order.num_replicas
        self.rank = _check.integer("rank", rank, 0, self.num_replicas - 1)
        self.shuffle, self.seed = order.shuffle, order.seed
        self.drop_last, self.as_array = _check.boolean("drop_last", drop_last), _check.boolean("as_array", as_array)
        default: Uneven = "drop" if self.drop_last else "pad"
        self.uneven: Uneven = _check.one_of("uneven", default if uneven is None else uneven, get_args(Uneven))
        self.on_repeated_epoch = _check.one_of("on_repeated_epoch", on_repeated_epoch, get_args(OnRepeatedEpoch))
        self._plan = Plan(order, self.rank, self.uneven, self.drop_last)
        self._rest: tuple[int, Plan] | None = None  # what is left of an epoch that was loaded
        self.num_padding = self._plan.padding(self._plan.num_steps - 1)
        self._plan.warn_of_empty_ranks()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and name in self.__dict__:
            raise AttributeError(f"{name} is fixed when the sampler is built, got {name}={value!r}; build a new one")
        super().__setattr__(name, value)

    @property
    def _length(self) -> int:
        return len(self.order)

    def _plan_at(self, began: Cursor) -> Plan:
        """That of a pass which began there."""
        if self._rest and began.epoch == self._rest[0] and began.consumed >= self._rest[1].begin:
            return self._rest[1]
        return self._plan

    def _current(self) -> tuple[int, Plan, int]:
        """The epoch, and the plan and first step of its latest pass, or of the next one if there was none."""
        began, _ = self.progress()
        plan = self._plan_at(began)
        return began.epoch, plan, plan.step_at(began.epoch, began.consumed)

    def __len__(self) -> int:
        return self.batches_from(self._passes.next_cursor(self._length))

    def batches_from(self, began: Cursor) -> int:
        """For loaders built on this one: how many batches this rank gets in a pass from there."""
        plan = self._plan_at(began)
        return max(0, plan.num_batches - plan.step_at(began.epoch, began.consumed))

    def padding_in(self, began: Cursor, batch: int) -> int:
        """For loaders built on this one: how many of the last draws of a batch of such a pass are padding: 0 or 1."""
        plan = self._plan_at(began)
        return plan.padding(plan.step_at(began.epoch, began.consumed) + batch)

    def is_over(self, began: Cursor, batches: int) -> bool:
        """For loaders built on this one: whether no rank gets a batch after so many of such a pass."""
        plan = self._plan_at(began)
        return batches > 0 and plan.step_at(began.epoch, began.consumed) + batches >= plan.num_steps

    def dropped_in(self, began: Cursor) -> npt.NDArray[np.int64]:
        """For loaders built on this one: ids that such a pass leaves out, each on one rank."""
        plan = self._plan_at(began)
        if self.rank or began.consumed >= self._length:
            return np.empty(0, np.int64)
        return plan.dropped(began.epoch)

    def state_after(self, began: Cursor, batches: int, accumulation: int | None = None) -> dict[str, Any]:
        """For loaders built on this one: the state after so many of this rank's batches of a pass that began there."""
        plan = self._plan_at(began)
        step = plan.step_at(began.epoch, began.consumed) + batches
        consumed = plan.consumed_before(began.epoch, step) if batches else min(began.consumed, self._length)
        former = {"former_plans": [dict(part) for part in plan.former]}
        return to_state(Cursor(began.epoch, consumed), self._facts(accumulation) | former)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As DistributedSampler.load_state_dict.

        At another number of ranks, or of samples or tokens in a batch, what is left of the epoch is planned afresh: it
        is sorted and cut into buckets as in a new sampler. Epochs after that are as if it had never been stopped.

        At the same ones, nothing of all samples is looked at. For the rest of an epoch in which they changed, the state
        has the chain of plans that it had, and each costs as much as to build a sampler of what was left.
        """
        self.load_from(state)

    def load_from(self, state: Mapping[str, Any], accumulation: int | None = None) -> None:
        """For loaders built on this one: load_state_dict with an accumulation to compare."""
        cursor = from_state(state, self._facts(accumulation))
        rest = self._plan
        if 0 < cursor.consumed < self._length:
            former = state.get("former_plans")
            if not isinstance(former, list) or any({*rest.sizes, "consumed"} - {*part} for part in former):
                raise TypeError(f"state must be a dict from state_dict(), got former_plans={former!r}")
            here = cursor.consumed - sum(part["consumed"] for part in former)
            latest = {name: state[name] for name in rest.sizes} | {"consumed": here}
            rest = rest.resume(cursor.epoch, [*former, latest] if here else former)
        self._passes.load(cursor)
        self._rest = None if rest is self._plan else (cursor.epoch, rest)
        if self._rest:
            rest.warn_of_empty_ranks()

    def _facts(self, accumulation: int | None) -> dict[str, Any]:
        """What a state must agree with."""
        return {
            "order": self.order.name,
            "order_digest": self.order.samples_digest,
            "seed": self.seed % 2**64,
            "length": len(self.order),
            "uneven": self.uneven,
            "num_replicas": self.num_replicas,
            "batch_size": self.batch_size,
            "max_tokens": self.max_tokens,
            "accumulation": accumulation,
        }

    def where(self, id: int) -> tuple[int, int, int] | None:  # noqa: A002 (the field's word)
        """Returns (rank, step, slot): who draws sample `id` in the current epoch, in which batch, at which place in it.

        Without walking, but after a resume at another number of ranks, which looks through the ids that were left. None
        if no rank draws it. A sample that is drawn again as padding is found at its own place.

        Raises:
            TypeError, ValueError: id is not an int in [0, len(lengths)).
        """
        id = _check.integer("id", id, 0, len(self.order) - 1)  # noqa: A001
        epoch, plan, first = self._current()
        found = plan.where(epoch, id)
        return (found[0], found[1] - first, found[2]) if found and found[1] >= first else None

    def global_batch(self, step: int) -> npt.NDArray[np.int64]:
        """Returns the ids that all ranks together draw in one step of the current epoch, without walking there.

        Args:
            step: the step, from 0 up to before the last one of any rank.

        Returns:
            An int64 array; the id at i is drawn by rank i mod P in slot i div P.

        Raises:
            TypeError, ValueError: step is not such an int.
        """
        epoch, plan, first = self._current()
        step = first + _check.integer("step", step, 0, max(0, plan.num_steps - first - 1))
        parts = plan.steps(epoch, step, step + 1)
        return plan.global_batch(epoch, *parts[0]) if parts else np.empty(0, np.int64)

    def __iter__(self) -> Iterator[Any]:
        return self._passes.run(
            self._chunks,
            length=self._length,
            reshuffles=self.order.reshuffles,
            on_repeated_epoch=self.on_repeated_epoch,
            state_after=self.state_after,
            load=self.load_state_dict,
        )

    def _chunks(self, cursor: Cursor) -> Iterator[Iterator[Any]]:
        epoch, plan = cursor.epoch, self._plan_at(cursor)

        def make(part: tuple[int, range]) -> Any:
            batch = plan.batch(epoch, *part)
            return batch if self.as_array else batch.tolist()

        for start in range(plan.step_at(epoch, cursor.consumed), plan.num_batches, STEPS):
            yield _Batches(plan.steps(epoch, start, min(start + STEPS, plan.num_batches)), make)


class _Batches:
    """As map(make, parts), which does not say how many are left."""

    def __init__(self, parts: list[tuple[int, range]], make: Callable[[tuple[int, range]], Any]) -> None:
        self._parts = iter(parts)
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._make(next(self._parts))

    def __length_hint__(self) -> int:
        return length_hint(self._parts)
