"""What the reports say of one result: numbers as people read them, and the same in JSON and in markdown."""

import json

import pytest

from bench import report
from bench.runner import Plan, Question, Result, Row


@pytest.fixture
def result():
    question = Question("sizes", "How much?", "B", "less", lambda _quick: Plan([]), per_sample=True)
    rows = [
        Row("N = 1e6", "base", "base", 10**6, (4.8e7, 5e7, 5.2e7), 5e7, 4.8e7, 5.2e7, 1.0),
        Row("N = 1e6", "worse", "base", 10**6, (2e8,), 2e8, 2e8, 2e8, 0.25),
    ]
    return Result(question, True, rows, ["a note"], {"CPU": "abacus"}, 12.3)


def tables(markdown):
    """The cells of all table lines below the heads."""
    return [
        line.strip("| ").split(" | ")
        for line in markdown.splitlines()
        if line.startswith("|") and not line.startswith(("| ---", "| case", "| machine"))
    ]


def test_markdown_shows_wins_losses_runs_notes_and_the_machine(result):
    assert tables(report.to_markdown(result)) == [
        ["N = 1e6", "base", "50.0 MB", "48.0 MB .. 52.0 MB", "3", "50.0", "1.00x (baseline)"],
        ["N = 1e6", "worse", "200 MB", "200 MB .. 200 MB", "1", "200", "0.25x"],
        ["CPU", "abacus"],
    ]
    assert "- a note\n" in report.to_markdown(result)
    assert "A quick run: not for quoting" in report.to_markdown(result)


def test_json_has_every_row_unrounded_and_reads_back(result, tmp_path):
    as_json, as_markdown = report.write(result, tmp_path / "new" / "folder")
    assert (as_json.name, as_markdown.name) == ("sizes.json", "sizes.md")
    read = json.loads(as_json.read_text(encoding="utf-8"))
    assert read == report.to_json(result)
    assert [row["values"] for row in read["rows"]] == [[4.8e7, 5e7, 5.2e7], [2e8]]
    assert (read["unit"], read["better"], read["quick"], read["machine"]) == ("B", "less", True, {"CPU": "abacus"})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "s", "12.3 ms"),
        (99.96e-6, "s", "100 µs"),
        (0.9996, "s", "1.00 s"),
        (7.5e-8, "s", "75.0 ns"),
        (20.0, "s", "20.0 s"),
        (4096, "B", "4.10 kB"),
        (999_600, "B", "1.00 MB"),
        (999, "B", "999 B"),
        (43_210_000, "ids/s", "43.2 M ids/s"),
        (0.0, "s", "0 ns"),
    ],
)
def test_a_quantity_has_three_digits_and_a_decimal_prefix(value, unit, text):
    assert report.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0269, "0.0269x"),
        (4.1e-5, "4.1e-05x"),
        (0.807, "0.81x"),
        (12.34, "12.3x"),
        (99.96, "100x"),
        (1234.4, "1,234x"),
    ],
)
def test_a_ratio_is_written_to_three_digits_or_the_unit(ratio, text):
    assert report.times(ratio) == text
