"""How much memory does a sampler take in each rank? Each measurement is a fresh process; about five minutes, 6 GB."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from bench import memory_probe, peers
from bench.runner import Cell, Group, Plan, Question

SIZES = (1_000_000, 10_000_000, 50_000_000, 100_000_000)
QUICK_SIZES = (1_000_000, 10_000_000)


def plan(quick: bool) -> Plan:
    """Every peer at every size."""
    notes = [
        f"Peak resident growth of a fresh process: rank {peers.RANK} of {peers.NUM_REPLICAS} builds its sampler and "
        f"draws {memory_probe.DRAWS:,} ids, after the imports and a warm-up on {memory_probe.WARM_UP:,} samples.",
        f"Counted in pages, and as one page ({memory_probe.PAGE:,} bytes) where nothing grew; "
        "Linux knows a peak that is past, as torch's is, to about 0.3 MB. What fits in memory that the imports and the "
        "warm-up left free is not growth.",
        *peers.notes(),
    ]
    if not memory_probe.reset_peak():
        notes.append("This system can't reset a process's peak: growth below the imports' own peak is not seen.")
    return Plan([_group(samples) for samples in (QUICK_SIZES if quick else SIZES)], notes)


def growth(name: str, samples: int) -> float:
    """Measures a peer in a process of its own.

    Args:
        name: the peer's short name.
        samples: size of the dataset.

    Returns:
        Bytes by which the process's peak resident size grew.

    Raises:
        RuntimeError: the process failed; with what it printed.
    """
    command = [sys.executable, "-m", "bench.memory_probe", name, str(samples)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} ended with {done.returncode}:\n{done.stderr}")
    return float(done.stdout)


def _group(samples: int) -> Group:
    cells = [Cell(peer.label, partial(growth, name, samples)) for name, peer in peers.installed().items()]
    case, baseline = f"N = {peers.power(samples)}", peers.PEERS["torch"].label
    return Group(case, samples, cells, baseline, needs=peers.TORCH_BYTES_PER_SAMPLE * samples)


QUESTION = Question(
    name="memory",
    asks="How much does a rank's peak resident memory grow by its sampler?",
    unit="B",
    better="less",
    plan=plan,
    repeats=3,
    warm_up=False,
    per_sample=True,
)
