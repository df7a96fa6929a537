"""Measures how close windows of W blocks come to a full shuffle, prints a table, and draws docs/windows.svg.

`python docs/windows.py`: seconds. The dataset is 1,024 blocks of 1,000 samples, sorted by class: 64 classes of 16
blocks. docs/randomness.md says what the numbers mean.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from fastshard.orders import BlockShuffled, Shuffled

BLOCKS, SIZE, CLASSES = 1024, 1000, 64
BATCHES = (64, 256, 1024)
WINDOWS = [1 << k for k in range(11)]
EPOCHS = 4
COLOURS = ("#1b7837", "#2166ac", "#b2182b")
N = BLOCKS * SIZE


def spread(ids, batch):
    """Variance of the number of samples of a class in a batch, as a multiple of a full shuffle's."""
    whole = ids[: len(ids) // batch * batch].reshape(-1, batch) // (N // CLASSES)
    counts = np.bincount((whole + np.arange(len(whole))[:, None] * CLASSES).ravel(), minlength=len(whole) * CLASSES)
    expected = batch / CLASSES
    full = expected * (1 - 1 / CLASSES) * (N - batch) / (N - 1)
    return ((counts - expected) ** 2).mean() / full


def spread_law(window, batch):
    """The same by probability, for batches that lie within a window: pairs of samples of one class in a batch."""
    same_block = (SIZE - 1) / (window * SIZE - 1)
    same_class = same_block + (1 - same_block) * (BLOCKS // CLASSES - 1) / (BLOCKS - 1)
    full = (N // CLASSES - 1) / (N - 1)
    return (1 + (batch - 1) * (same_class - 1 / CLASSES) / (1 - 1 / CLASSES)) / (
        1 + (batch - 1) * (full - 1 / CLASSES) / (1 - 1 / CLASSES)
    )


def distinct_blocks(ids, batch):
    """Mean number of blocks in a batch."""
    whole = np.sort(ids[: len(ids) // batch * batch].reshape(-1, batch) // SIZE, axis=1)
    return 1 + (np.diff(whole, axis=1) > 0).sum(axis=1).mean()


def distinct_law(batch):
    """The same of a full shuffle."""
    missed = (
        math.lgamma(N - SIZE + 1) - math.lgamma(N - SIZE - batch + 1) - math.lgamma(N + 1) + math.lgamma(N - batch + 1)
    )
    return BLOCKS * (1 - math.exp(missed))


def distance(ids):
    """How far apart two neighbours of a block come, as a share of the N / 3 of a full shuffle."""
    position = np.empty(N, np.int64)
    position[ids] = np.arange(N)
    steps = np.abs(np.diff(position.reshape(BLOCKS, SIZE), axis=1))
    return steps.mean() / ((N + 1) / 3)


def measure(order):
    """A row of the table, over some epochs."""
    epochs = [order.indices(epoch) for epoch in range(EPOCHS)]
    row = [np.mean([spread(ids, batch) for ids in epochs]) for batch in BATCHES]
    row += [np.mean([distinct_blocks(ids, 256) for ids in epochs]), np.mean([distance(ids) for ids in epochs])]
    return row


def table(rows):
    """Prints the rows as markdown, what is expected in parentheses."""
    head = ["W", *(f"variance, B = {batch:,}" for batch in BATCHES), "blocks in 256", "distance of neighbours"]
    print("|", " | ".join(head), "|\n|", " | ".join("---" for _ in head), "|")
    for window, row in rows.items():
        laws = [spread_law(window, batch) for batch in BATCHES]
        cells = [f"{value:.2f} ({law:.2f})" for value, law in zip(row, laws, strict=False)]
        print(f"| {window:,} |", " | ".join([*cells, f"{row[3]:.1f}", f"{row[4]:.3f}"]), "|")


def svg(rows):
    """The variances over W, both on logarithmic axes: measured dots on the law's lines."""
    width, height, left, top = 640, 400, 70, 50

    def x(window):
        return left + math.log2(window) / 10 * width

    def y(value):
        return top + height * (1 - math.log2(value) / 10)

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 520" font-family="sans-serif" font-size="13">',
        '<rect width="740" height="520" fill="white"/>',
        f'<text x="{left}" y="30" font-size="15">Variance of the samples of a class in a batch of B, full: 1</text>',
    ]
    for k in range(11):
        at, up = x(1 << k), y(1 << k)
        parts.append(f'<path d="M{left} {up:.1f}h{width}M{at:.1f} {top}v{height}" stroke="#ddd" fill="none"/>')
        parts.append(f'<text x="{at:.1f}" y="{top + height + 20}" text-anchor="middle">{1 << k}</text>')
        parts.append(f'<text x="{left - 8}" y="{up + 4:.1f}" text-anchor="end">{1 << k}</text>')
    parts.append(
        f'<text x="{left + width / 2}" y="{top + height + 45}" text-anchor="middle">W, blocks in a window</text>'
    )
    for batch, colour, column in zip(BATCHES, COLOURS, range(3), strict=True):
        line = " ".join(f"{x(w):.1f},{y(spread_law(w, batch)):.1f}" for w in WINDOWS)
        parts.append(f'<polyline points="{line}" stroke="{colour}" fill="none"/>')
        for w in WINDOWS:
            parts.append(f'<circle cx="{x(w):.1f}" cy="{y(max(1, rows[w][column])):.1f}" r="4" fill="{colour}"/>')
        parts.append(
            f'<text x="{x(2):.1f}" y="{y(spread_law(2, batch)) - 12:.1f}" fill="{colour}">B = {batch:,}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main():
    """Measures, prints, draws."""
    rows = {w: measure(BlockShuffled([SIZE] * BLOCKS, 1, w)) for w in WINDOWS}
    table(rows)
    print("Shuffled:", *(f"{value:.3f}" for value in measure(Shuffled(N, 1))))
    print(f"blocks in 256 ids of a full shuffle, by law: {distinct_law(256):.1f}")
    Path(__file__).with_suffix(".svg").write_text(svg(rows))


if __name__ == "__main__":
    main()
