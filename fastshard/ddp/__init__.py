"""What surrounds a sampler in a DDP loop; each piece works alone in a plain torch loop."""

from fastshard.ddp.stepping import Lockstep, lockstep

__all__ = ["Lockstep", "lockstep"]
