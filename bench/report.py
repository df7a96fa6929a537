"""Reports: a result as JSON for programs and as markdown for people. Both show every row, losses like wins."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.runner import Result, Row

PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def write(result: Result, folder: Path) -> tuple[Path, Path]:
    """Writes NAME.json and NAME.md, and returns their paths. The folder is made if it isn't there."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_markdown = (folder / f"{result.question.name}{suffix}" for suffix in (".json", ".md"))
    as_json.write_text(json.dumps(to_json(result), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    as_markdown.write_text(to_markdown(result), encoding="utf-8")
    return as_json, as_markdown


def to_json(result: Result) -> dict[str, Any]:
    """The result as plain dicts and lists; numbers are in `unit`, unrounded."""
    question = result.question
    return {
        "question": question.name,
        "asks": question.asks,
        "unit": question.unit,
        "better": question.better,
        "quick": result.quick,
        "seconds": round(result.seconds, 1),
        "machine": result.machine,
        "notes": list(result.notes),
        "rows": [
            {
                "case": row.case,
                "samples": row.samples,
                "peer": row.peer,
                "median": row.median,
                "low": row.low,
                "high": row.high,
                "values": list(row.values),
                "baseline": row.baseline,
                "ratio": row.ratio,
            }
            for row in result.rows
        ],
    }


def to_markdown(result: Result) -> str:
    """The result as a page: the question, the table, what to know about it, and the machine."""
    question = result.question
    head = ["case", "peer", "median", "min .. max", "runs"]
    if question.per_sample:
        head.append("bytes a sample of N")
    head.append("times better than the baseline")
    notes = [
        f"{'Less' if question.better == 'less' else 'More'} is better; a ratio below 1 is a loss.",
        *result.notes,
        f"{'A quick run: not for quoting. ' if result.quick else ''}Took {result.seconds:.0f} s.",
    ]
    return "\n".join(
        [
            f"# {question.name}: {question.asks}",
            "",
            *_table(head, (_cells(row, question.unit, question.per_sample) for row in result.rows)),
            "",
            *(f"- {note}" for note in notes),
            "",
            *_table(["machine", ""], ([name, value] for name, value in result.machine.items())),
            "",
        ]
    )


def quantity(value: float, unit: str) -> str:
    """Writes a value in three digits with a decimal prefix, such as "12.3 ms" or "12.3 M ids/s"."""
    factor, prefix = next((row for row in PREFIXES if value >= 0.9995 * row[0]), PREFIXES[-1])
    return f"{_digits(value / factor)} {prefix}{' ' if prefix and len(unit) > 1 else ''}{unit}"


def times(ratio: float) -> str:
    """Writes a ratio in three digits, or to the unit where it has more, such as "0.81x" or "1,234x"."""
    return f"{ratio:,.0f}x" if ratio >= 99.95 else f"{_digits(ratio)}x"


def _digits(value: float) -> str:
    """Three significant digits below 1,000, or two where they are enough: 0.81."""
    if value < 0.0995:
        return f"{value:.3g}"
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def _cells(row: Row, unit: str, per_sample: bool) -> list[str]:
    cells = [
        row.case,
        row.peer,
        quantity(row.median, unit),
        f"{quantity(row.low, unit)} .. {quantity(row.high, unit)}",
        str(len(row.values)),
    ]
    if per_sample:
        cells.append(_digits(row.median / row.samples))
    return [*cells, times(row.ratio) + (" (baseline)" if row.peer == row.baseline else "")]


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
