"""Lockstep: ranks that have unlike numbers of batches make the same number of steps.

It costs one all-reduce of five integers a step, which the step hides: ranks say whether they have a batch for step
t + 1 before they are given the one for step t, and read the answer after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from fastshard import _check
from fastshard.ddp.feeds import Feed, feed
from fastshard.ddp.questions import Ranks, ranks_of

if TYPE_CHECKING:
    import torch.distributed as dist

T = TypeVar("T")
End = Literal["shortest", "longest"]


def lockstep(loader: Iterable[T], *, end: End = "shortest", group: dist.ProcessGroup | None = None) -> Lockstep[T]:
    """Iterates over a loader so that all ranks make the same number of steps, however many batches each has.

    For ranks whose numbers of batches nobody knows beforehand: a filter behind the split, shards dealt whole. It can be
    iterated over again for each epoch. Before each batch a rank fetches the one after it; see `Lockstep` for the state.

    All ranks must iterate over it alike: who leaves the loop does so after the same step on all ranks. What a rank's
    loader raises, it raises after the steps for which all had a batch: on that rank, and on all others a RuntimeError
    that names it.

    Args:
        loader: any iterable of batches; fastshard.DataLoader if a ledger is to be right.
        end: "shortest": all stop where the first rank runs out, and what the others have left is not used.
            "longest": all stop when every rank has run out; who runs out before is given its first batch of the pass
            again.
        group: the ranks that step together; None is all ranks, which then talk through a gloo group of their own.
            Collectives of a group that is given come between those of the training step.

    Returns:
        An iterable with `set_epoch`, `state_dict` and `load_state_dict`.

    Raises:
        TypeError, ValueError: end is another word, or loader no iterable.
        RuntimeError: in the pass, on every rank: a rank's loader raised; or ranks are not at the same step; or end is
            "longest" and a rank has no batch at all while others have.

    Example:
        >>> list(lockstep(["one rank", "needs", "no process group"]))
        ['one rank', 'needs', 'no process group']
    """
    return Lockstep(loader, end, group)


class Lockstep(Generic[T]):
    """See `lockstep`.

    Attributes:
        dropped: batches that this rank had fetched and that nobody was given when the latest pass came to its end: 0
            or 1. What it had not fetched is not counted.
        padded: times that a batch was given again in the latest pass.
    """

    def __init__(self, loader: Iterable[T], end: End, group: dist.ProcessGroup | None) -> None:
        if not isinstance(loader, Iterable):
            raise TypeError(f"loader must be an iterable of batches, got loader={loader!r}")
        self.loader, self.group = loader, group
        self.end: End = _check.one_of("end", end, get_args(End))
        self.dropped = self.padded = 0
        self._latest: _Pass | None = None

    def __iter__(self) -> Iterator[T]:
        """A pass, which begins with its first batch."""
        self.dropped = self.padded = 0
        this = self._latest = _Pass(self.loader, self.end, ranks_of(self.group))
        try:
            this.fetch()
            while this.goes_on():
                batch = this.take()
                self.padded = this.padded
                yield batch
            self.dropped = this.dropped
        finally:
            this.close()

    def __len__(self) -> int:
        """The loader's: at most so many steps with end="shortest", at least so many with "longest"."""
        return len(self.loader)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Tells the loader the epoch of the next pass; of a torch loader its samplers and dataset."""
        places = [self.loader, *(getattr(self.loader, name, None) for name in ("batch_sampler", "sampler", "dataset"))]
        told = [place for place in places if callable(getattr(place, "set_epoch", None))]
        if not told:
            raise AttributeError(f"nothing in {type(self.loader).__name__} has a set_epoch")
        for place in told[:1] if told[0] is self.loader else told:
            place.set_epoch(epoch)  # type: ignore[union-attr]

    def state_dict(self) -> dict[str, Any]:
        """The loader's state after the last batch that was given here, though one more was fetched.

        It is this rank's: where ranks have unlike batches, each saves and loads its own. After the last step that all
        ranks make, the pass is over for the state too. A rank that is given batches again saves the place before its
        last own batch, and begins with that one, once more.

        Raises:
            TypeError: the loader has no state.
        """
        self._check_stateful()
        state = None if self._latest is None else self._latest.state()
        return self.loader.state_dict() if state is None else state  # type: ignore[attr-defined]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was saved, in the next pass.

        Raises:
            TypeError: the loader has no state; and what the loader raises.
        """
        self._check_stateful()
        self._latest = None
        self.loader.load_state_dict(state)  # type: ignore[attr-defined]

    def _check_stateful(self) -> None:
        if not callable(getattr(self.loader, "state_dict", None)):
            raise TypeError(f"the loader must have a state_dict, as fastshard.DataLoader, got {self.loader!r}")


class _Pass:
    """One pass on this rank: the batch in hand, and what was asked about it."""

    def __init__(self, loader: Iterable[Any], end: End, ranks: Ranks) -> None:
        self._loader, self._end, self._ranks = loader, end, ranks
        ranks.passes += 1
        self._number = ranks.passes
        self.padded = self.dropped = 0
        self._step = 0
        self._feed: Feed | None = None
        self._hand: list[Any] = []  # the batch that was fetched and not given yet
        self._first: list[Any] = []  # what is given again
        self._error: Exception | None = None
        self._ran_out = self._over = False

    def fetch(self) -> None:
        """Fetches a batch, and asks the other ranks whether they have one, without waiting for the answer.

        That comes between two steps on every rank, so all ranks' collectives are in one order, the step's own among
        them: nobody can wait for a rank that waits for him.
        """
        try:
            if self._feed is None:
                self._feed = feed(self._loader)
            if not self._ran_out:
                self._hand.append(self._feed.fetch())
        except StopIteration:
            self._ran_out = True
        except Exception as error:  # the others are waiting for a word, so it is raised when they have it
            self._error = error
        says = [bool(self._hand), self._ran_out, self._error is not None]
        number = (self._number << 32 | self._step) << 1 | (self._end == "longest")
        where = f"step {self._step} of pass {self._number} with end={self._end!r}"
        self._question = self._ranks.ask(says, number, where)

    def goes_on(self) -> bool:
        """Waits for the answer; whether all make this step.

        Raises:
            RuntimeError: on every rank: see `lockstep`.
        """
        self._question.check()
        has, ran_out, failed = self._question.answer()[:3]
        if failed:
            error = self._error
            told = self._ranks.say(None if error is None else f"{type(error).__name__}: {error}")
            if error is not None:
                raise error
            raise RuntimeError(f"the loader of another rank raised, so all ranks stop; {told}")
        if self._end == "longest" and has and ran_out and self._step == 0:
            told = self._ranks.say(None if self._hand else "no batch")
            raise RuntimeError(f'end="longest" gives batches again where there is one on every rank; {told}')
        self._finish_if_over()
        return not self._over

    def _finish_if_over(self) -> None:
        """Waits for the answer; if it is that nobody makes another step, the loader's pass is over too."""
        has, ran_out, failed, last, first = self._question.answer()
        if self._over or failed or last != -first or not (ran_out if self._end == "shortest" else not has):
            return
        assert self._feed is not None
        self._over = True
        self.dropped = len(self._hand)
        self._feed.end(self._hand.pop() if self._hand else None)

    def take(self) -> Any:
        """The batch of this step; fetches the next one."""
        assert self._feed is not None
        if self._hand:
            batch = self._hand.pop()
            self._feed.give(batch)
            if self._end == "longest" and not self._first:
                self._first = [batch]
        else:
            batch = self._first[0]
            self.padded += 1
        self._step += 1
        self.fetch()
        return batch

    def close(self) -> None:
        """Lets the loader's iterator and the batches go."""
        self._hand, self._first = [], []
        if self._feed is not None:
            self._feed.close()

    def state(self) -> dict[str, Any] | None:
        """See Lockstep.state_dict; None if no pass has begun. All ranks have asked, so their answer is on its way."""
        if self._feed is None:
            return None
        self._finish_if_over()
        given_again = self._end == "longest" and self._ran_out and not self._over
        return self._feed.state(before_last=given_again and self._step > 0)
