"""Writes the golden files beside it: python tests/cases/golden/make.py

The ids come from the slow reference, not from the core, so the files can't repeat the core's mistakes. An order's name
carries its version. A version's ids never change: a new algorithm is a new name and a new file, and the old file stays.
"""

import hashlib
import json
import pathlib

import numpy as np

from fastshard import _reference

SIZES = [1, 2, 7, 1000, 16_641, 200_000]  # 16,641 is 129^2: two odd digits, but for one that is made even
LARGE = [
    65535 * 65534,
    65535 * 65534 + 1,
    10**12,
    2**63 - 1,
]  # ends of 16 bits, and far beyond: by the ends
KEYS = [(0, 0), (0, 1), (1, 0), (42, 3), (-1, 2**64 - 1)]  # (seed, epoch)
WHOLE = 20  # longer orders are given by their ends and their digest


def sequential(n, _seed, _epoch):
    return list(range(n))


def shuffled(n, seed, epoch):
    return list(map(_reference.shuffled(n, seed, epoch), range(n)))


def described(n, seed, epoch, ids):
    digest = hashlib.sha256(np.array(ids, "<i8").tobytes()).hexdigest()
    return {"n": n, "seed": seed, "epoch": epoch, "first": ids[:WHOLE], "last": ids[-WHOLE:], "sha256": digest}


def ends(n, seed, epoch):
    order = _reference.shuffled(n, seed, epoch)
    first, last = list(map(order, range(WHOLE))), list(map(order, range(n - WHOLE, n)))
    return {"n": n, "seed": seed, "epoch": epoch, "first": first, "last": last}


def main():
    here = pathlib.Path(__file__).parent
    for name, note, make, keys in (
        ("sequential/1", "frozen", sequential, KEYS[:2]),
        ("shuffled/1", "frozen; docs/randomness.md says what was tested before", shuffled, KEYS),
        (
            "torch/1",
            "frozen; equal to torch.randperm on the CPU after manual_seed(seed + epoch)",
            _reference.torch_order,
            KEYS,
        ),
    ):
        orders = [described(n, *key, make(n, *key)) for n in SIZES for key in keys]
        if make is shuffled:
            orders += [ends(n, *key) for n in LARGE for key in keys]
        head = {
            "name": name,
            "status": note,
            "made_by": "python tests/cases/golden/make.py, from fastshard/_reference.py",
            "sha256": "of all ids as little-endian int64",
        }
        lines = ",\n    ".join(json.dumps(order) for order in orders)
        text = json.dumps(head, indent=2)[:-2] + f',\n  "orders": [\n    {lines}\n  ]\n}}\n'
        (here / f"{name.replace('/', '_')}.json").write_text(text)


if __name__ == "__main__":
    main()
