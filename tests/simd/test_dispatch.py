"""Which instruction set runs, and that it makes no difference to an id."""

import os
import subprocess
import sys

import pytest

from fastshard import _core

# Digests of ids from all three forms of Shuffled, at sizes and strides where blocks, tails and cycle-walking meet.
DIGESTS = """
import hashlib
from fastshard import _core, orders
print(_core.instruction_set)
for n in (5, 16384, 16385, 16641, 65536, 1000003, 2**30 + 1, 65535 * 65534, 65535**2, 10**12, 2**62 + 1, 2**63 - 1):
    for start, count, step in ((0, 5000, 1), (1, 63, 1), (3, 64, 7), (0, 4097, 1024), (n // 2, 700, 65537)):
        stop = min(n, start + (count - 1) * step + 1)
        ids = orders.Shuffled(n, seed=n % 7).indices(3, min(start, stop), stop, step)
        print(n, start, step, len(ids), hashlib.sha256(ids.tobytes()).hexdigest())
"""


def run(code: str, instruction_set: str | None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "FASTSHARD_SIMD"}
    if instruction_set is not None:
        environment["FASTSHARD_SIMD"] = instruction_set
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env=environment
    )


@pytest.fixture(scope="module")
def portable() -> list[str]:
    return run(DIGESTS, "portable").stdout.splitlines()


def test_portable_is_always_there_and_the_fastest_runs_unasked() -> None:
    assert _core.instruction_sets[-1] == "portable"
    assert run(DIGESTS, None).stdout.splitlines()[0] == _core.instruction_sets[0]


@pytest.mark.parametrize("instruction_set", _core.instruction_sets)
def test_the_forced_set_runs_and_gives_the_portable_ids(instruction_set: str, portable: list[str]) -> None:
    lines = run(DIGESTS, instruction_set).stdout.splitlines()
    assert lines[0] == instruction_set
    assert len(lines) == 61
    assert lines[1:] == portable[1:]


@pytest.mark.parametrize("wrong", ["sse9", "AVX2", "avx2 "])
def test_a_set_that_can_not_be_had_fails_the_import_and_names_those_that_can(wrong: str) -> None:
    done = run("import fastshard", wrong)
    assert done.returncode != 0
    assert f"got FASTSHARD_SIMD={wrong}" in done.stderr
    assert ", ".join(_core.instruction_sets) in done.stderr
