"""install(): every DistributedSampler that this process builds under torch's name is fastshard's.

Code that has imported torch's class already holds the class object itself, so replacing a module's attribute would miss
it, and would break `isinstance` for samplers that derive from torch's class. So the class stays, and what building it
makes is changed: torch's class has no `__new__` of its own, and gets one that makes ours. Subclasses, ours among them,
are not touched.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch.utils.data.distributed as torch_distributed

from fastshard import _check, orders
from fastshard.samplers.distributed import DistributedSampler
from fastshard.samplers.passes import OnRepeatedEpoch
from fastshard.slicing import Uneven

T_co = TypeVar("T_co", covariant=True)

_options: dict[str, Any] | None = None


class InstalledDistributedSampler(DistributedSampler[T_co]):
    """What torch's name makes while fastshard is installed: ours, with the options given to `install`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**(_options or {}), **kwargs})

    # Frameworks build a sampler once more from the names of its arguments.
    __init__.__signature__ = inspect.signature(DistributedSampler.__init__)  # type: ignore[attr-defined]


def install(
    *, order: str = "shuffled", uneven: Uneven | None = None, on_repeated_epoch: OnRepeatedEpoch = "warn"
) -> None:
    """Puts fastshard's DistributedSampler in the place of torch's, for this process.

    Whoever builds `torch.utils.data.distributed.DistributedSampler` from now on, under whatever name and whenever they
    imported it, gets an instance of `fastshard.DistributedSampler`. Classes derived from torch's are not touched. A
    second call replaces the options.

    Args:
        order: "shuffled", or "torch" for exactly the ids that torch would have given.
        uneven: as for DistributedSampler; None follows drop_last, as with torch.
        on_repeated_epoch: as for DistributedSampler.

    Raises:
        TypeError, ValueError: as DistributedSampler would.
    """
    global _options
    _check.one_of("order", order, orders.BY_NAME)  # a name, since every sampler makes an order of its own length
    options: dict[str, Any] = {"order": order, "uneven": uneven, "on_repeated_epoch": on_repeated_epoch}
    DistributedSampler(range(1), num_replicas=1, rank=0, **options)  # a wrong option raises here, not in a training job
    _options = options
    torch_distributed.DistributedSampler.__new__ = staticmethod(_new)  # type: ignore[method-assign]


def uninstall() -> None:
    """Takes `install` back, if it was called. Samplers that were built meanwhile stay what they are."""
    global _options
    _options = None


def _new(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
    """`__new__` of torch's class, from the first `install` on; while uninstalled it makes what torch would."""
    # copy and pickle call it without arguments, to fill a sampler that was built before.
    built = cls is torch_distributed.DistributedSampler and (args or kwargs)
    return object.__new__(InstalledDistributedSampler if built and _options is not None else cls)


# Whoever asks for the arguments of torch's class finds its `__new__` before its `__init__`.
_new.__signature__ = inspect.signature(torch_distributed.DistributedSampler.__init__)  # type: ignore[attr-defined]
