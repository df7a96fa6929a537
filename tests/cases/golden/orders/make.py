"""Writes the golden files beside it: python tests/cases/golden/orders/make.py

As the ones a folder up, for orders whose arguments are more than a size and a seed. `order` builds the order, with the
names of fastshard.orders; the ids come from the slow reference.
"""

import functools
import hashlib
import itertools
import json
import pathlib

import numpy as np

from fastshard import _reference, _reference_mixed, _reference_orders

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


def mixed():
    for lengths, shares, seed, num_samples, epoch in (
        ((5,), (1,), 0, 7, 0),
        ((100, 100), (1, 1), 0, 200, 0),
        ((100, 100), (1, 1), 0, 200, 1),
        ((7, 1000, 30), (3, 0, 1), -1, 999, 2**64 - 1),
        ((50, 20, 10), (5, 3, 2), 42, 5001, 3),
        ((1000, 3, 40), (30, 1, 1), 1, 10, 0),
        ((1000, 2000), (997, 503), 42, 6000, 3),
        ((17, 1, 2, 3, 500), (8, 4, 2, 1, 1), 42, 40_000, 3),
    ):
        inner = [functools.cache(functools.partial(shuffled, n, i)) for i, n in enumerate(lengths)]
        ids = _reference_mixed.mixed(inner, lengths, shares, seed, num_samples, epoch)
        sources = ", ".join(f"Shuffled({n}, {i})" for i, n in enumerate(lengths))
        yield f"Mixed([{sources}], {shares}, {seed}, {num_samples})", epoch, ids


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


FROZEN = "frozen; docs/randomness.md says what was tested before"
PROVISIONAL = "provisional"


def main():
    here = pathlib.Path(__file__).parent
    for name, make, twin in (
        ("blocks/1", blocks, _reference_orders),
        ("lengths/0", lengths, _reference_orders),
        ("mixed/0", mixed, _reference_mixed),
        ("repeated/1", repeated, _reference_orders),
        ("weighted/1", weighted, _reference_orders),
    ):
        head = {
            "name": name,
            "status": PROVISIONAL if name.endswith("/0") else FROZEN,
            "made_by": f"python tests/cases/golden/orders/make.py, from {twin.__name__.replace('.', '/')}.py",
            "sha256": "of all ids as little-endian int64",
        }
        lines = ",\n    ".join(json.dumps(described(*row)) for row in make())
        text = json.dumps(head, indent=2)[:-2] + f',\n  "orders": [\n    {lines}\n  ]\n}}\n'
        (here / f"{name.replace('/', '_')}.json").write_text(text)


if __name__ == "__main__":
    main()
