"""The runner's arithmetic, on cells whose values and durations are made up."""

import pytest

from bench import machine, runner
from bench.runner import Cell, Effort, Group, Row


class Machine:
    """A clock that only cells move, and the order in which they were measured."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def clock(self) -> float:
        return self.now

    def cell(self, peer: str, values: list[float], seconds: float = 1.0) -> Cell:
        left = iter(values)

        def measure() -> float:
            self.now += seconds
            self.log.append(peer)
            return next(left)

        return Cell(peer, measure)

    def rows(self, cells: list[Cell], effort: Effort, better: str = "less", on_step=lambda: None) -> dict[str, Row]:
        group = Group("case", 100, cells, cells[0].peer)
        return {row.peer: row for row in runner.measure(group, effort, better, clock=self.clock, on_step=on_step)}


COLD = Effort(repeats=3, seconds=1000, warm_up=False)


def test_a_row_has_the_median_and_the_extremes_of_its_values():
    here = Machine()
    row = here.rows([here.cell("a", [5.0, 1.0, 3.0])], COLD)["a"]
    assert row == Row("case", "a", "a", 100, (5.0, 1.0, 3.0), median=3.0, low=1.0, high=5.0, ratio=1.0)


@pytest.mark.parametrize(("better", "ratio"), [("less", 4.0), ("more", 0.25)])
def test_the_ratio_says_how_many_times_better_than_the_baseline(better, ratio):
    here = Machine()
    rows = here.rows([here.cell("base", [8.0] * 3), here.cell("other", [1.0, 2.0, 9.0])], COLD, better)
    assert rows["base"].ratio == 1.0
    assert rows["other"].ratio == ratio


def test_peers_take_turns_and_another_one_begins_each_repeat():
    here = Machine()
    here.rows([here.cell(peer, [1.0] * 3) for peer in "abc"], COLD)
    assert "".join(here.log) == "abc" + "bca" + "cab"


def test_the_warm_up_is_not_counted():
    here = Machine()
    row = here.rows([here.cell("a", [99.0, 1.0, 2.0, 3.0])], Effort(repeats=3, seconds=1000))["a"]
    assert row.values == (1.0, 2.0, 3.0)


def test_a_warm_up_of_more_than_a_quarter_of_the_budget_is_the_first_run():
    here = Machine()
    row = here.rows([here.cell("a", [99.0, 1.0], seconds=26)], Effort(repeats=2, seconds=100))["a"]
    assert row.values == (99.0, 1.0)


def test_a_slow_cell_is_measured_less_often_and_at_least_once():
    here = Machine()
    cells = [
        here.cell("fast", [1.0] * 7),
        here.cell("slow", [2.0] * 7, seconds=4),
        here.cell("slower than the budget", [3.0] * 7, seconds=50),
    ]
    rows = here.rows(cells, Effort(repeats=7, seconds=10, warm_up=False))
    assert [len(row.values) for row in rows.values()] == [7, 2, 1]
    assert rows["slower than the budget"].ratio == 1 / 3


def test_every_step_is_told_so_that_the_bar_fills_also_where_runs_are_left_out():
    here, steps = Machine(), []
    cells = [here.cell("fast", [1.0] * 9), here.cell("slow", [1.0] * 9, seconds=60)]
    here.rows(cells, Effort(repeats=4, seconds=100), on_step=lambda: steps.append(1))
    assert len(steps) == 2 * (4 + 1)


def test_a_baseline_that_is_not_measured_is_refused():
    with pytest.raises(ValueError, match="got baseline='b'"):
        runner.measure(Group("case", 1, [Cell("a", float)], "b"), COLD, "less")


def test_a_case_that_does_not_fit_in_memory_is_left_out_and_said_so(monkeypatch):
    monkeypatch.setattr(machine, "describe", dict)
    fits = Group("fits", 1, [Cell("a", lambda: 1.0)], "a")
    large = Group("large", 1, [Cell("a", lambda: 1.0)], "a", needs=2**60)
    question = runner.Question("q", "?", "s", "less", lambda _quick: runner.Plan([fits, large], ["a note"]))
    result = runner.answer(question, quick=True)
    assert [row.case for row in result.rows] == ["fits"]
    assert result.notes[0] == "a note"
    assert any(note.startswith("large left out: it needs 1,152,921,504,606,846,976 bytes") for note in result.notes)
