"""The machine and the versions that a result was measured on, without which its numbers mean nothing."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch

import fastshard
from fastshard import _core


def describe() -> dict[str, str]:
    """Names what a reader needs to judge the numbers, in the order in which it is shown; memory in GiB."""
    return {
        "CPU": cpu_name(),
        "cores": f"{psutil.cpu_count(logical=False) or '?'} physical, {os.cpu_count()} logical",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB, transparent huge pages: {huge_pages()}",
        "load before": load(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "torch": str(torch.__version__),
        "fastshard": f"{fastshard.__version__}, commit {commit()}",
        "instruction set": instruction_set(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def instruction_set() -> str:
    """What fastshard's core runs, and what else it could."""
    return f"{_core.instruction_set} (of {', '.join(_core.instruction_sets)})"


def load() -> str:
    """How many processes wanted a core in the last minute, this one included. Above the cores, times are too long."""
    return f"{psutil.getloadavg()[0]:.2f} processes (one-minute average)"


def cpu_name() -> str:
    """The processor's name as its maker writes it, or as much of it as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or platform.machine()


def huge_pages() -> str:
    """Linux's setting, which decides whether a permutation of gigabytes misses the TLB at every swap."""
    try:
        modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "unknown"
    return modes.partition("[")[2].partition("]")[0]


def commit() -> str:
    """The checkout's commit, with "-dirty" where tracked files differ from it."""
    return _output("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or "unknown"


def _output(*command: str) -> str:
    """What a command prints, or nothing if it fails or isn't there."""
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
