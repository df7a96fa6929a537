"""Writes the golden files beside it: python tests/cases/golden/orders/make.py

As the ones a folder up, for orders whose arguments are more than a size and a seed. `order` builds the order, with the
names of fastshard.orders; the ids come from the slow reference.
"""

import hashlib
import itertools
import json
import pathlib

import numpy as np

from fastshard import _reference, _reference_orders

WHOLE = 20  # longer orders are given by their ends and their digest


def shuffled(n, seed, epoch):
    return list(map(_reference.shuffled(n, seed, epoch), range(n)))


def repeated():
    for n, seed, repeats, epoch in ((1, 0, 1, 0), (2, 0, 3, 1), (7, 1, 2, 0), (1000, 42, 3, 3), (20_000, -1, 10, 5)):
        ids = _reference_orders.repeated(shuffled(n, seed, epoch), repeats)
        yield f"Repeated(Shuffled({n}, {seed}), {repeats})", epoch, ids


def weighted():
    for weights, seed, epoch in (
        ([1.0], 0, 0),
        ([3, 0, 1, 2.5], 0, 0),
        ([3, 0, 1, 2.5], 0, 1),
        ([3, 0, 1, 2.5], -1, 2**64 - 1),
        ([1e300, 5e-324, 3e300, 1e299], 42, 3),
        (range(1000), 42, 3),
    ):
        at = _reference_orders.weighted([float(weight) for weight in weights], seed, epoch)
        yield f"Weighted({weights}, 5000, {seed})", epoch, list(map(at, range(5000)))
    for weights, count, seed, epoch in (([3, 0, 1, 2.5], 3, 0, 0), (range(1000), 999, 42, 3), (range(5000), 50, -1, 1)):
        ids = _reference_orders.weighted_subset([float(weight) for weight in weights], count, seed, epoch)
        yield f"Weighted({weights}, {count}, {seed}, replacement=False)", epoch, ids


def blocks():
    for sizes, seed, window, epoch in (
        ([1], 0, 1, 0),
        ([3, 0, 4], 0, 1, 1),
        ([3, 0, 4], 1, 2, 0),
        ([3, 0, 4], -1, 9, 2**64 - 1),
        (range(100), 42, 10, 3),
        ([20_000, 3, 15_000, 16_384, 0, 1, 30_000], 42, 2, 3),
        ([4096, 4097, 4225, 0, 16_641], 42, 1, 3),  # a table, and networks with an even digit by chance and by rule
    ):
        windows = _reference_orders.block_shuffled(list(sizes), seed, window, epoch)
        yield f"BlockShuffled({sizes}, {seed}, {window})", epoch, list(itertools.chain(*windows))


def lengths():
    skewed = "[min(2000, 10 + 40000 // (1 + i * 7919 % 3001)) for i in range(3000)]"
    for given, sizes, epoch in (
        ("[5]", (1, None, 1, 0), 0),
        ("[4, 0, 9, 4, 3, 8, 4]", (2, None, 1, 0), 0),
        ("[4, 0, 9, 4, 3, 8, 4]", (2, None, 1, 0), 1),
        ("[4, 0, 9, 4, 3, 8, 4]", (None, 9, 2, -1), 2**64 - 1),
        (skewed, (8, None, 4, 42), 3),
        (skewed, (None, 4000, 2, 42), 3),
    ):
        steps = _reference_orders.length_grouped(eval(given), *sizes, epoch)
        yield f"LengthGrouped({given}, {', '.join(map(str, sizes))})", epoch, list(itertools.chain(*steps))


def described(order, epoch, ids):
    digest = hashlib.sha256(np.array(ids, "<i8").tobytes()).hexdigest()
    return {"order": order, "epoch": epoch, "first": ids[:WHOLE], "last": ids[-WHOLE:], "sha256": digest}


def main():
    here = pathlib.Path(__file__).parent
    for name, make in (
        ("blocks/1", blocks),
        ("lengths/0", lengths),
        ("repeated/1", repeated),
        ("weighted/1", weighted),
    ):
        head = {
            "name": name,
            "status": "frozen; docs/randomness.md says what was tested before",
            "made_by": "python tests/cases/golden/orders/make.py, from fastshard/_reference_orders.py",
            "sha256": "of all ids as little-endian int64",
        }
        lines = ",\n    ".join(json.dumps(described(*row)) for row in make())
        text = json.dumps(head, indent=2)[:-2] + f',\n  "orders": [\n    {lines}\n  ]\n}}\n'
        (here / f"{name.replace('/', '_')}.json").write_text(text)


if __name__ == "__main__":
    main()
