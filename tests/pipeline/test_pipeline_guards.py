"""Legal orders that move a step above what guards it: learned, kept, never a wrong answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import windrow as wr
from comparing import check_ledger, check_lines, check_outputs, check_yields, run
from description import Analysis, MemorySource, Output, Step, build, jets
from reference import StepRaisedError, reference
from strategies import Way
from windrow.errors import RedefinitionNote, StepError, UsageError


def guarded() -> Analysis:
    return Analysis(
        steps=(
            Step(kind="cut", name="two", args="Jet_pt", body="ak.num(Jet_pt) >= 2"),
            Step(kind="cut", name="big", args="x", body="x > 3"),
            Step(kind="column", name="second", args="Jet_pt", body="Jet_pt[:, 1]"),
            Step(kind="cut", name="hard", args="second", body="second > 1"),
        ),
        regions={"A": ("two", "big", "hard"), "B": ("two", "!big", "hard"), "C": ("big",)},
        outputs=(
            Output(name="always", args="x", body="x.tolist()"),
            Output(name="sum", args="second", body="float(ak.sum(second))", regions=("A", "B")),
        ),
    )


class TestGuards:
    MOVED = ("second", "big", "hard", "two")

    @pytest.mark.parametrize("engine", ["inline", "threads"])
    @pytest.mark.parametrize("chunk", [1, 40, "auto"])
    def test_a_guard_is_learned(self, engine: str, chunk: int | str) -> None:
        analysis, dataset = guarded(), jets(200, 8)
        answer = reference(analysis, [dataset])
        pipeline = build(analysis)
        assert not pipeline.guards
        way = Way(order=self.MOVED, chunk=chunk, block=5, engine=engine, workers=3)
        for _ in range(2):
            result = run(pipeline, MemorySource([dataset]), way)
            check_outputs(result, answer)
            check_yields(result, answer)
            check_ledger(result, [dataset])
            assert ("second", "two") in pipeline.guards
        # Only cuts that are written above the step and ran after it can have guarded it.
        assert set(pipeline.guards) <= {("second", "two"), ("second", "big")}

    def test_no_guard_is_learned_where_nothing_raised(self) -> None:
        analysis, dataset = guarded(), jets(200, 8)
        pipeline = build(analysis)
        order = ("two", "second", "hard", "big")
        run(pipeline, MemorySource([dataset]), Way(order, 30, 7, "inline", 1))
        assert not pipeline.guards

    def test_a_cut_outside_the_region_does_not_guard(self) -> None:
        analysis = guarded()
        broken = Analysis(
            steps=analysis.steps, regions={**analysis.regions, "D": ("big", "hard")}, outputs=analysis.outputs
        )
        with pytest.raises(StepRaisedError):
            reference(broken, [jets(200, 8)])
        for order in (None, self.MOVED):
            with pytest.raises(StepError, match="second") as info:
                run(build(broken), MemorySource([jets(200, 8)]), Way(order, 30, 7, "inline", 1))
            assert info.value.facts["step"] == "second"
            assert "D" in str(info.value)

    @pytest.mark.parametrize(
        "order",
        [
            ["two", "big", "hard", "second"],
            ["two", "big", "second", "hard", "big"],
            ["two", "big", "second", "hard", "nonsense"],
        ],
        ids=["reader-first", "twice", "unknown"],
    )
    def test_an_illegal_order_is_refused(self, order: list[str]) -> None:
        with pytest.raises(UsageError):
            build(guarded()).run(MemorySource([jets(20, 8)]), order=order, progress=False)

    def test_the_written_table_is_exact_or_absent(self) -> None:
        """Region B has one cut, which cannot move against itself; the weight above it can."""
        analysis = Analysis(
            steps=(
                Step(kind="cut", name="first", args="x", body="x > 3"),
                Step(kind="weight", name="w", args="x", body="x / 8"),
                Step(kind="cut", name="second", args="x", body="x < 9"),
            ),
            regions={"A": ("first",), "B": ("second",)},
            outputs=(Output(name="always", args="x", body="x.tolist()"),),
        )
        dataset = jets(50, 8)
        answer = reference(analysis, [dataset])
        for order in (None, ("w", "second", "first"), ("w", "first", "second")):
            result = run(build(analysis), MemorySource([dataset]), Way(order, 20, 7, "inline", 1))
            for region in "AB":
                table = result.cutflow[region, "jets"]
                if table.written is None:
                    assert table.why
                else:
                    check_lines(table.written, answer.cutflow[region, "jets"], (order, region))

    def test_after_is_an_order(self) -> None:
        first = Step(kind="cut", name="first", args="x", body="x > 3")
        second = Step(kind="cut", name="second", args="x", body="x < 9", after="first")
        analysis = Analysis(
            steps=(first, second),
            regions={"A": ("first", "second")},
            outputs=(Output(name="always", args="x", body="x.tolist()"),),
        )
        with pytest.raises(UsageError, match="first"):
            build(analysis).run(MemorySource([jets(20, 8)]), order=["second", "first"], progress=False)


def test_a_guard_that_no_longer_fits_is_let_go() -> None:
    """Steps are written anew in a notebook, and what was learned of the old ones may contradict them."""
    made = wr.Pipeline("redefined")
    fails = [5]

    @made.cut
    def a(x: Any) -> Any:
        return x > 1

    @made.cut(after="a")
    def c(x: Any) -> Any:
        return x != 5

    @made.column
    def col(x: Any) -> Any:
        if np.isin(x, fails).any():
            raise ValueError("five")
        return x * 2

    @made.cut
    def last(col: Any) -> Any:
        return col < 100

    @made.output
    def rows(x: Any) -> list[int]:
        return [int(one) for one in x]

    data = {"x": np.arange(20)}
    first = made.run(data, order=["a", "col", "last", "c"], engine="inline", progress=False)
    assert first.guards == (("col", "c"),)
    fails.clear()
    with pytest.warns(RedefinitionNote):
        made.cut(lambda col: col > 2, name="a")
    for order in ("adaptive", ["col", "a", "last", "c"]):
        result = made.run(data, order=order, engine="inline", progress=False)
        assert result["rows"] == [row for row in range(2, 20) if row != 5]
        assert result.guards == ()
