"""One measurement of memory, in the process that is measured: `python -m bench.memory_probe PEER SAMPLES`."""

from __future__ import annotations

import gc
import mmap
import sys
from itertools import islice
from pathlib import Path

from bench import peers

DRAWS = 1_000
# Above the size where fastshard's shuffle turns from a table to a network, so that the same code pages are warm.
WARM_UP = 20_000
PAGE = mmap.PAGESIZE


def peak() -> int:
    """The largest resident size that this process has had, in bytes."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource  # not on every system, and not needed on Linux

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak() -> bool:
    """Lets the peak begin anew from what is resident now. Returns False where the system can't."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def growth(peer: peers.Peer, samples: int) -> int:
    """Builds the sampler and draws its first ids; returns the bytes that the peak grew by, at least one page."""
    _draw(peer, WARM_UP)
    gc.collect()
    reset_peak()
    before = peak()
    # Kept until the peak is read: Linux counts what is resident now to the page, and a peak that is past to 0.3 MB.
    kept = _draw(peer, samples)
    grown = peak() - before
    del kept
    return max(grown, PAGE)


def _draw(peer: peers.Peer, samples: int) -> object:
    """Returns what holds the sampler's memory after its first draws."""
    sampler = peer.build(samples)
    sampler.set_epoch(peers.EPOCH)
    ids = iter(sampler)
    return sampler, ids, list(islice(ids, DRAWS))


if __name__ == "__main__":
    print(growth(peers.PEERS[sys.argv[1]], int(sys.argv[2])))
