"""The battery's cases for `BlockShuffled`: the tests of permutation_battery.py on each of its parts.

Windows are what the network is used for below the size at which `Shuffled` begins with it, so they have the most cases.
"""

from __future__ import annotations

from permutation_battery import WHOLE, Case

LAID_OUT = (4225, 16384, 16641)  # the order of blocks is laid out whole for every key, so no larger ones
NETWORKS = (4097, 4225, 8192, 16384)  # windows: a table up to 4,096; 65 * 65 needs a digit made even


def block_cases():
    """Returns (name of a subject, case), those on the same permutations one after the other."""
    found = [("one window", Case("all permutations", n, 100_000)) for n in (3, 4, 5, 6)]
    whole = {
        "blocks": (16, 257, 1024, 4225, 16641),
        "windows": (16, 257, 4096, *NETWORKS, 16641),
        "streams": (16, 1024, 4225, 16384, 16385),
        "one window": (16, 257, 1024, 4097),
    }
    for subject, sizes in whole.items():
        for n in sizes:
            found += [(subject, Case(name, n, 5_000 if n in (16, 17) else 2**20 // n)) for name in WHOLE]
    for subject, sizes in {**whole, "windows": (16, *NETWORKS)}.items():
        found += [(subject, Case("item by position", n, 20_000 if n == 16 else 2**21 // n)) for n in sizes]
    for subject, sizes in (("blocks", (257, 16641)), ("windows", NETWORKS), ("one window", (257, 4097))):
        found += [(subject, Case("differences", n, 2**22 // n)) for n in sizes]
    found += [("windows", Case("columns", n, 2**20)) for n in NETWORKS]
    for name in ("serial pairs", "displacements", "batches", "across keys"):
        found += [("blocks", Case(name, n, 2**17)) for n in LAID_OUT]
        found += [("windows", Case(name, n, 2**17)) for n in (*NETWORKS, 65537)]
    found += [("streams", Case("across keys", n, 2**18)) for n in (4096, 4225, 16384, 16385)]
    return found + [("one window", Case(name, 16641, 2**17)) for name in ("serial pairs", "batches", "across keys")]
