"""Questions that all ranks answer together, and that nobody waits for before the answer is wanted.

One all-reduce of five integers each. All ranks must ask the same ones in the same order; one who doesn't is found out.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from fastshard.ledger.together import rank_in


class Ranks:
    """The ranks that talk in one group.

    Args:
        group: of several ranks; None is one alone.

    Attributes:
        passes: how many passes began here.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = None if group is None else weakref.ref(group)
        self._device = "cpu"
        self.passes = 0
        self._latest: Question | None = None
        if group is not None:
            backends = dist.get_backend_config(group)
            self._device = "cpu" if "cpu:" in backends else backends.partition(":")[0]

    def ask(self, says: Sequence[bool], number: int, where: str) -> Question:
        """Asks which of `says` any rank says.

        Args:
            says: as many on every rank.
            number: which question it is, the same on every rank; in [0, 2^63).
            where: in words, which it is.
        """
        if self._latest is not None:  # who left a loop has not read it
            self._latest.check()
        numbers = [*map(int, says), number, -number]
        if self._group is None:
            self._latest = Question(self, where, torch.tensor(numbers), None)
        else:
            tensor = torch.tensor(numbers, dtype=torch.int64).to(self._device)
            work = dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._group(), async_op=True)
            self._latest = Question(self, where, tensor, work)
        return self._latest

    def say(self, word: str | None) -> str:
        """What all ranks say that have something to say. All must call it."""
        words: list[Any] = [word]
        if self._group is not None:
            words = [None] * dist.get_world_size(self._group())
            dist.all_gather_object(words, word, group=self._group())
        return ", ".join(f"rank {rank}: {told}" for rank, told in enumerate(words) if told is not None)


class Question:
    """What was asked; see Ranks.ask."""

    def __init__(self, ranks: Ranks, where: str, numbers: torch.Tensor, work: dist.Work | None) -> None:
        self._ranks, self._where, self._numbers, self._work = ranks, where, numbers, work
        self._answer: list[int] | None = None
        self._is_checked = False

    def answer(self) -> list[int]:
        """Waits until all ranks have asked. Of each word whether any rank says it, then two numbers that add up to 0.

        If they don't, ranks have asked different questions.
        """
        if self._answer is None:
            if self._work is not None:
                self._work.wait()
            self._answer = self._numbers.tolist()
        return self._answer

    def check(self) -> None:
        """Raises RuntimeError on every rank, each of which must call it, if they have asked different questions."""
        is_checked, self._is_checked = self._is_checked, True
        if not is_checked and sum(self.answer()[-2:]) != 0:
            raise RuntimeError(f"ranks are not at the same step; {self._ranks.say(self._where)}")


_RANKS: weakref.WeakKeyDictionary[Any, Ranks] = weakref.WeakKeyDictionary()
# Groups of ours beside default groups. torch holds both until it destroys them.
_OWN: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()


def ranks_of(group: dist.ProcessGroup | None) -> Ranks:
    """The ranks of a group; None is all ranks, which then get a group of their own. All of them must call it.

    That is a gloo group: what is said in it goes past the device and its streams, and can't come between the
    collectives of anybody else.
    """
    if rank_in(group)[1] == 1:
        return Ranks(None)
    if group is None:
        world = dist.group.WORLD
        own = _OWN[world]() if world in _OWN else None
        group = dist.new_group(backend="gloo") if own is None else own
        _OWN[world] = weakref.ref(group)
    return _RANKS.setdefault(group, Ranks(group))
