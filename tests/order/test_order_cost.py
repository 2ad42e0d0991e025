"""The cost of an order, against rows followed one by one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from order_situations import cuts_of, draw_legal, independent_window, make_situation, make_window, situations
from searching import examples
from windrow.order.cost import MOST_GROUPS, expected_cost, jackknifed_costs, sampled_rows
from windrow.order.model import Column, Lane, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.order.model import Situation


class Rows:
    """Every sampled row for itself, in plain Python."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.rows: list[dict[str, int]] = []
        for window in situation.windows:
            for verdicts, count in zip(window.verdicts.tolist(), window.rows, strict=True):
                self.rows += [dict(zip(window.cuts, verdicts, strict=True))] * int(count)
        self.rows = self.rows or [{}]

    def alive(self, row: dict[str, int], ran: Sequence[str], lanes: Sequence[int]) -> bool:
        return any(
            all(
                row.get(cut, 9) in ((0, 9) if inverted else (1, 9))
                for cut, inverted in self.situation.lanes[lane].cuts
                if cut in ran
            )
            for lane in lanes
        )

    def share(self, ran: Sequence[str], lanes: Sequence[int]) -> float:
        return sum(self.alive(row, ran, lanes) for row in self.rows) / len(self.rows)

    def any_among(self, number: float, ran: Sequence[str], lanes: Sequence[int]) -> float:
        """The share of parts of so many rows with one that is alive."""
        if not lanes:
            return 0.0
        return 1 - math.exp(-number * min(1.0, self.share(ran, lanes) + 0.5 / len(self.rows)))


def plain_cost(situation: Situation, order: Sequence[str]) -> float:
    rows, total, ran = Rows(situation), 0.0, list[str]()
    chunk_rows, unit_rows = situation.chunk_rows, situation.unit_rows or situation.chunk_rows
    read: set[str] = set()
    for name in order:
        step = situation.steps[name]
        alive = rows.share(ran, step.lanes) * chunk_rows
        calls = rows.any_among(chunk_rows, ran, step.lanes)
        if step.block:
            calls *= max(1.0, alive / step.block)
        total += step.fixed_s * calls + step.row_s * alive
        for column in set(step.columns) - read:
            readers = [lane for other in situation.steps.values() if column in other.columns for lane in other.lanes]
            total += situation.columns[column].row_s * chunk_rows * rows.any_among(unit_rows, ran, readers)
        read.update(step.columns)
        if step.kind == "cut":
            ran.append(name)
    return total


@given(situations(), st.data())
@settings(max_examples=examples(80))
def test_the_cost_is_that_of_rows_followed_one_by_one(situation: Situation, data: st.DataObject) -> None:
    order = draw_legal(data.draw, situation.written, situation.needs)
    expected = expected_cost(situation, order)
    assert expected.total == pytest.approx(plain_cost(situation, order), rel=1e-9, abs=1e-15)
    assert [step.name for step in expected.steps] == list(order)
    parts = sum(step.seconds + step.column_s for step in expected.steps)
    assert expected.total == pytest.approx(parts)
    rows, ran = Rows(situation), list[str]()
    for step in expected.steps:
        lanes = situation.steps[step.name].lanes
        assert step.alive == pytest.approx(rows.share(ran, lanes))
        ran += [step.name]
        assert step.alive * step.passes == pytest.approx(rows.share(ran, lanes))
        assert step.column_s >= 0


@pytest.mark.parametrize(("order", "cost"), [((2, 1, 0, 3), 10.2725), ((0, 1, 2, 3), 7.3225), ((1, 0, 2, 3), 7.0225)])
def test_independent_cuts_cost_what_the_formula_says(order: tuple[int, ...], cost: float) -> None:
    window = independent_window(["c0", "c1", "c2", "c3"], [0.9, 0.5, 0.1, 0.99], 100_000)
    situation = make_situation(cuts_of([1, 2, 10, 0.5]), windows=[window])
    assert expected_cost(situation, [f"c{n}" for n in order]).total == pytest.approx(cost)


def test_without_windows_everything_stays_alive() -> None:
    steps = [Step("a", "cut", (0,), 2.0, 1.0), Step("b", "cut", (0,), 0.0, 3.0, 0, ("x",))]
    situation = make_situation(steps, columns=[Column("x", 0.5, 8.0)], chunk_rows=100)
    expected = expected_cost(situation, ("a", "b"))
    assert expected.total == pytest.approx(2 + 100 + 300 + 50)
    assert sum(step.column_bytes for step in expected.steps) == pytest.approx(800)
    assert [(step.alive, step.passes) for step in expected.steps] == [(1, 1), (1, 1)]


def test_a_column_is_read_for_the_units_with_a_row_left() -> None:
    """One row in a hundred is left, and a unit has fifty: about two units of five have one."""
    steps = [Step("a", "cut", (0,)), Step("m", "column", (0,), 1.0, 0.0, 0, ("x",))]
    windows = [make_window("a", {"f": 9900, "p": 100})]
    situation = make_situation(steps, windows=windows, columns=[Column("x", 1.0)], chunk_rows=200, unit_rows=50)
    m = expected_cost(situation, ("a", "m")).steps[1]
    assert m.column_s == pytest.approx(200 * (1 - math.exp(-0.5)), rel=0.01)
    assert m.seconds == pytest.approx(1 - math.exp(-2), rel=0.01)  # four units in a chunk


def test_no_survivor_in_part_of_a_unit_is_no_certainty() -> None:
    steps = [Step("a", "cut", (0,)), Step("m", "column", (0,), columns=("x",))]
    windows = [make_window("a", {"f": 100}, unit_rows=1000)]
    situation = make_situation(steps, windows=windows, columns=[Column("x", 1.0)], chunk_rows=1000, unit_rows=1000)
    read = expected_cost(situation, ("a", "m")).steps[1].column_s / 1000
    assert read == pytest.approx(1 - math.exp(-1000 * 0.5 / 100))


def test_a_column_is_charged_once_for_all_lanes_that_read_it() -> None:
    lanes = [Lane((("a", False),)), Lane((("b", False),))]
    steps = [
        Step("a", "cut", (0,)),
        Step("b", "cut", (1,)),
        Step("m", "column", (0,), columns=("x",)),
        Step("n", "column", (0, 1), columns=("x",)),
        Step("o", "column", (1,), columns=("x",)),
    ]
    windows = [make_window("ab", dict.fromkeys(("pp", "pf", "fp", "ff"), 1000))]
    situation = make_situation(
        steps, lanes=lanes, windows=windows, columns=[Column("x", 1.0)], chunk_rows=400, unit_rows=1
    )
    expected = expected_cost(situation, situation.written)
    read = 400 * (1 - math.exp(-0.75))  # three rows of four are alive in one lane or the other
    assert [step.column_s for step in expected.steps] == pytest.approx([0, 0, read, 0, 0], rel=1e-3)


def test_windows_are_left_out_in_few_groups() -> None:
    windows = [make_window("a", {"p": n + 1, "f": 3}) for n in range(100)]
    sampled = sampled_rows(make_situation(cuts_of([1]), windows=windows))
    assert len(sampled.counts) == MOST_GROUPS
    assert sampled.counts.sum() == sum(window.size for window in windows)


def test_leaving_out_windows_gives_the_costs_of_the_others() -> None:
    windows = [make_window(["c0", "c1"], {"pp": 9 - n, "fp": n}) for n in range(5)]
    situation = make_situation(cuts_of([1.0, 2.0]), windows=windows)
    order = ("c0", "c1")
    costs = jackknifed_costs(situation, order, sampled_rows(situation))
    others = [
        plain_cost(make_situation(cuts_of([1.0, 2.0]), windows=windows[:n] + windows[n + 1 :]), order) for n in range(5)
    ]
    assert sorted(costs) == pytest.approx(sorted(others))
    assert not math.isclose(costs.min(), costs.max())
