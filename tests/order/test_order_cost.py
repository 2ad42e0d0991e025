"""The cost of an order, against rows followed one by one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from order_situations import cuts_of, draw_legal, independent_window, make_situation, make_window, situations
from searching import examples
from windrow.order.cost import expected_cost, jackknifed_costs
from windrow.order.model import Column, Lane, Step
from windrow.order.survival import MOST_KINDS, sample_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.order.model import Situation


class Rows:
    """Every sampled row for itself, in plain Python."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.windows: list[list[dict[str, int]]] = []
        self.unit_rows: list[int] = []
        for window in situation.windows:
            rows = []
            for verdicts, count in zip(window.verdicts.tolist(), window.rows, strict=True):
                rows += [dict(zip(window.cuts, verdicts, strict=True))] * int(count)
            if rows:
                self.windows.append(rows)
                self.unit_rows.append(window.unit_rows)
        if not self.windows:
            self.windows, self.unit_rows = [[{}]], [1]
        self.total = sum(map(len, self.windows))

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
        return sum(self.alive(r, ran, lanes) for w in self.windows for r in w) / self.total

    def units(self, ran: Sequence[str], lanes: Sequence[int]) -> float:
        if not lanes:
            return 0.0
        pooled = min(1.0, (self.share(ran, lanes) * self.total + 0.5) / self.total)
        found = 0.0
        for rows, unit_rows in zip(self.windows, self.unit_rows, strict=True):
            if any(self.alive(row, ran, lanes) for row in rows):
                found += len(rows)
            else:
                p = 1 / (len(rows) + 1 / pooled)
                found += len(rows) * (1 - (1 - p) ** (unit_rows - len(rows)))
        return found / self.total


def plain_cost(situation: Situation, order: Sequence[str]) -> float:
    rows, total, ran = Rows(situation), 0.0, list[str]()
    units = situation.chunk_rows / situation.unit_rows if situation.unit_rows else 1.0
    covered: dict[str, set[int]] = {}
    for name in order:
        step = situation.steps[name]
        alive = rows.share(ran, step.lanes) * situation.chunk_rows
        calls = 1 - (1 - rows.units(ran, step.lanes)) ** units
        if step.block:
            calls *= max(1.0, alive / step.block)
        total += step.fixed_s * calls + step.row_s * alive
        for column in step.columns:
            had = covered.setdefault(column, set())
            more = rows.units(ran, sorted(had | set(step.lanes))) - rows.units(ran, sorted(had))
            total += more * situation.columns[column].row_s * situation.chunk_rows
            had |= set(step.lanes)
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
    situation = make_situation(steps, columns=[Column("x", 0.5, 8.0)], chunk_rows=10)
    expected = expected_cost(situation, ("a", "b"))
    assert expected.total == pytest.approx(2 + 10 + 30 + 5)
    assert expected.bytes == pytest.approx(80)
    assert [(step.alive, step.passes) for step in expected.steps] == [(1, 1), (1, 1)]


def test_whole_units_without_survivors_cost_no_column_and_no_call() -> None:
    windows = [make_window("a", {"f": 10}), make_window("a", {"f": 9, "p": 1})]
    steps = [Step("a", "cut", (0,)), Step("m", "column", (0,), 1.0, 0.0, 0, ("x",))]
    situation = make_situation(steps, windows=windows, columns=[Column("x", 1.0)], chunk_rows=20, unit_rows=10)
    m = expected_cost(situation, ("a", "m")).steps[1]
    assert m.column_s == pytest.approx(20 / 2)
    assert m.seconds == pytest.approx(1 - 0.5**2)  # two units in a chunk


def test_no_survivor_in_part_of_a_unit_is_no_certainty() -> None:
    steps = [Step("a", "cut", (0,)), Step("m", "column", (0,), columns=("x",))]
    windows = [make_window("a", {"f": 100}, unit_rows=1000)]
    situation = make_situation(steps, windows=windows, columns=[Column("x", 1.0)], chunk_rows=1)
    p = 1 / (100 + 100 / 0.5)
    read = expected_cost(situation, ("a", "m")).steps[1].column_s
    assert read == pytest.approx(1 - (1 - p) ** 900)
    assert 0.9 < read < 1


def test_a_column_is_charged_once_and_again_only_for_units_of_other_lanes() -> None:
    lanes = [Lane((("a", False),)), Lane((("b", False),))]
    steps = [
        Step("a", "cut", (0,)),
        Step("b", "cut", (1,)),
        Step("m", "column", (0,), columns=("x",)),
        Step("n", "column", (0, 1), columns=("x",)),
        Step("o", "column", (1,), columns=("x",)),
    ]
    windows = [make_window("ab", {w: 1}) for w in ("pp", "pf", "fp", "ff")]
    situation = make_situation(steps, lanes=lanes, windows=windows, columns=[Column("x", 1.0)], chunk_rows=4)
    expected = expected_cost(situation, situation.written)
    assert [step.column_s for step in expected.steps] == [0, 0, 2, 1, 0]


def test_many_kinds_of_windows_are_joined_into_few() -> None:
    windows = [make_window("a", {"p": n + 1, "f": 3}, unit_rows=100 + 10 * n) for n in range(40)]
    windows += [make_window("a", {"p": n + 1}) for n in range(9)]
    sample = sample_of(make_situation(cuts_of([1]), windows=windows))
    assert len(sample.kinds) <= MOST_KINDS + 1
    members = np.concatenate([kind.members for kind in sample.kinds])
    assert sorted(members) == list(range(49))
    assert [len(kind.members) for kind in sample.kinds if not kind.rest] == [9]


def test_leaving_out_windows_gives_the_costs_of_the_others() -> None:
    windows = [make_window(["c0", "c1"], {"pp": 9 - n, "fp": n}) for n in range(5)]
    situation = make_situation(cuts_of([1.0, 2.0]), windows=windows)
    order = ("c0", "c1")
    costs = jackknifed_costs(situation, order, sample_of(situation))
    others = [
        plain_cost(make_situation(cuts_of([1.0, 2.0]), windows=windows[:n] + windows[n + 1 :]), order) for n in range(5)
    ]
    assert sorted(costs) == pytest.approx(sorted(others))
    assert not math.isclose(costs.min(), costs.max())
