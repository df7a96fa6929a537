"""The command: `python -m bench NAME [--quick]`, `python -m bench all`, `python -m bench --list`."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import report, runner
from bench.questions import QUESTIONS

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers the questions that the command line names; returns its exit status. A wrong command line exits 2."""
    parser = argparse.ArgumentParser("python -m bench", description="Measures fastshard beside its peers.")
    parser.add_argument("name", nargs="?", choices=[*QUESTIONS, "all"], metavar="NAME", help="a question, or all")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of NAME.json and NAME.md (bench/results)")
    parser.add_argument("--list", action="store_true", help="print the questions and stop")
    given = parser.parse_args(arguments)
    if given.list:
        for question in QUESTIONS.values():
            print(f"{question.name:18} {question.asks}")
        return 0
    if given.name is None:
        parser.error(f"NAME must be one of {', '.join([*QUESTIONS, 'all'])}")
    gc.freeze()  # the collection before each measurement need not look at what the imports made: 0.1 s each
    for name in QUESTIONS if given.name == "all" else [given.name]:
        result = runner.answer(QUESTIONS[name], quick=given.quick)
        report.write(result, given.out)
        print(report.to_markdown(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
