"""How long from the construction of a sampler to its first index? About three minutes and 6 GB, mostly torch's."""

from __future__ import annotations

from functools import partial

from bench import peers
from bench.runner import Cell, Group, Plan, Question
from bench.timing import seconds_per_call

SIZES = (100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
QUICK_SIZES = (100_000, 1_000_000)


def plan(quick: bool) -> Plan:
    """Every peer at every size."""
    notes = [
        f"Timed: construct, set_epoch({peers.EPOCH}), iter, next; rank {peers.RANK} of {peers.NUM_REPLICAS}.",
        *peers.notes(),
    ]
    return Plan([_group(samples) for samples in (QUICK_SIZES if quick else SIZES)], notes)


def _group(samples: int) -> Group:
    cells = [
        Cell(peer.label, seconds_per_call(partial(peers.started, peer, samples))) for peer in peers.installed().values()
    ]
    case, baseline = f"N = {peers.power(samples)}", peers.PEERS["torch"].label
    return Group(case, samples, cells, baseline, needs=peers.TORCH_BYTES_PER_SAMPLE * samples)


QUESTION = Question(
    name="epoch_start",
    asks="How long does a job wait for its first index, from the construction of the sampler?",
    unit="s",
    better="less",
    plan=plan,
)
