"""Cursor: how far a job has come. Beside the arguments that a run is started with, it is all the state there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastshard import _check
from fastshard._warnings import GlobalBatchChangedWarning, StateMismatchError, warn

VERSION = 1
"""Of the dict that `state_dict()` gives."""

_ORDER = ("order", "order_digest", "seed", "length", "uneven")  # what must be as it was
_JOB = ("num_replicas", "batch_size", "max_tokens", "accumulation")  # what may differ, as long as their product stays


@dataclass(frozen=True)
class Cursor:
    """A place in an epoch, the same on every rank.

    Args:
        epoch: any int in [0, 2^64).
        consumed: positions of the epoch's order that all ranks together are through with, in [0, 2^63).

    Example:
        >>> cursor = Cursor.from_consumed_samples(250, samples_per_epoch=96)
        >>> cursor, cursor.consumed_samples(samples_per_epoch=96)
        (Cursor(epoch=2, consumed=58), 250)
    """

    epoch: int = 0
    consumed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch", _check.integer("epoch", self.epoch, 0, _check.MAX_EPOCH))
        object.__setattr__(self, "consumed", _check.integer("consumed", self.consumed, 0, _check.MAX_LENGTH))

    @classmethod
    def from_consumed_samples(cls, consumed_samples: int, samples_per_epoch: int) -> Cursor:
        """The place where a job is that counts its samples over all epochs, as Megatron does.

        Args:
            consumed_samples: samples of all ranks together since the job began, padding not counted.
            samples_per_epoch: samples that all ranks together take in an epoch, in [1, 2^63): the dataset's length,
                less what is dropped at its end.

        Raises:
            TypeError, ValueError: an argument is not such an int.

        Source:
            Megatron-LM's MegatronPretrainingRandomSampler, where an epoch has total_samples, less total_samples modulo
            micro_batch_size * data_parallel_size; epoch and place in it are quotient and remainder by that.
        """
        per_epoch = _check.integer("samples_per_epoch", samples_per_epoch, 1, _check.MAX_LENGTH)
        most = (_check.MAX_EPOCH + 1) * per_epoch - 1
        return cls(*divmod(_check.integer("consumed_samples", consumed_samples, 0, most), per_epoch))

    def consumed_samples(self, samples_per_epoch: int) -> int:
        """The inverse of from_consumed_samples. What an epoch drops at its end is not counted."""
        per_epoch = _check.integer("samples_per_epoch", samples_per_epoch, 1, _check.MAX_LENGTH)
        return self.epoch * per_epoch + min(self.consumed, per_epoch)


def to_state(cursor: Cursor, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The dict for `cursor` in a run with these facts: of constant size, and all of it JSON."""
    return {"version": VERSION, **facts, "epoch": cursor.epoch, "consumed": cursor.consumed}


def from_state(state: Mapping[str, Any], facts: Mapping[str, Any]) -> Cursor:
    """The cursor in `state`, if it goes on in a run with these facts.

    Raises:
        TypeError: state is no such dict.
        StateMismatchError: the order would be another one, or the batch size, in a world of the same size.

    Warns:
        GlobalBatchChangedWarning: steps have another number of samples than those before.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be a dict from state_dict(), got state={state!r}")
    missing = [name for name in ("version", "epoch", "consumed", "num_replicas", *_ORDER) if name not in state]
    if missing:
        raise TypeError(f"state must be a dict from state_dict(), got one without {', '.join(missing)}: {state!r}")
    if state["version"] != VERSION:
        raise StateMismatchError(f"state must be of version {VERSION}, got version={state['version']!r}")
    _check.integer("num_replicas", state["num_replicas"], 1, _check.MAX_LENGTH)
    for name in ("batch_size", "accumulation"):
        if state.get(name) is not None:
            _check.integer(name, state[name], 1, _check.MAX_LENGTH)
    differing = [name for name in _ORDER if state[name] != facts[name]]
    if bool(state.get("max_tokens")) != bool(facts.get("max_tokens")):  # tokens can't be compared with samples
        differing.append("max_tokens")
    before, now = _global_batch(state), _global_batch(facts)
    if before and now and before != now and "max_tokens" not in differing:
        if state["num_replicas"] == facts["num_replicas"]:
            differing += [name for name in _JOB if (state.get(name) or 1) != (facts.get(name) or 1)]
        else:
            _warn_of_global_batch(state, facts)
    if differing:
        was = ", ".join(f"{name}={state.get(name)!r}" for name in differing)
        this = ", ".join(f"{name}={facts.get(name)!r}" for name in differing)
        raise StateMismatchError(f"the state is of another run: it has {was}, and this one {this}")
    return Cursor(state["epoch"], state["consumed"])


def _global_batch(facts: Mapping[str, Any]) -> int | None:
    """Samples, or tokens, of a step of all ranks together; None where neither is known."""
    size = facts.get("max_tokens") or facts.get("batch_size")
    return int(facts["num_replicas"] * size * (facts.get("accumulation") or 1)) if size else None


def _warn_of_global_batch(state: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    before, now = _global_batch(state), _global_batch(facts)
    assert before
    assert now
    name = "max_tokens" if facts.get("max_tokens") else "batch_size"
    micro = facts["num_replicas"] * facts[name]
    cure = f"accumulation={before // micro} would restore it" if before % micro == 0 else "no accumulation restores it"

    def product(of: Mapping[str, Any]) -> str:
        return f"{of[name]} * {of['num_replicas']} * {of.get('accumulation') or 1}"

    warn(
        f"the global batch ({name} * num_replicas * accumulation) was {product(state)} = {before} and is "
        f"{product(facts)} = {now}; {cure}",
        GlobalBatchChangedWarning,
    )
