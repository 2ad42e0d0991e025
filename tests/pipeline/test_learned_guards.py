"""Guards that are learned in a moved order: the cut that removes the failing row as written, not all cuts overtaken."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

import windrow as wr
from comparing import check_ledger, check_outputs, check_yields, oracle, run
from description import Analysis, Dataset, MemorySource, Output, Step, build, jets
from row_jobs import open_input, run_rows
from strategies import Way
from windrow.blocks import failing
from windrow.core.records import Plan, Rows
from windrow.pipeline.run.workload import PipelineWorkload

if TYPE_CHECKING:
    from collections.abc import Mapping


def analysis_of(*steps: Step, regions: Mapping[str, tuple[str, ...]]) -> Analysis:
    always = Output(name="always", args="x", body="x.tolist()")
    return Analysis(steps=steps, regions=regions, outputs=(always,), identity=("event",))


IDLE = Step(kind="cut", name="idle", args="x", body="x >= 0")
BIG = Step(kind="cut", name="big", args="x", body="x > 3")
TWO = Step(kind="cut", name="two", args="Jet_pt", body="ak.num(Jet_pt) >= 2")
ODD = Step(kind="cut", name="odd", args="x", body="x % 2 == 1")
SECOND = Step(kind="cut", name="second", args="Jet_pt", body="Jet_pt[:, 1] > 1")


def learned(
    analysis: Analysis, order: tuple[str, ...], dataset: Dataset | None = None, **how: Any
) -> set[tuple[str, str]]:
    """The guards after a run in an order; the answer is that of the oracle."""
    dataset = dataset or jets()
    pipeline = build(analysis)
    answer = oracle(analysis, [dataset])
    way = Way(order, how.pop("chunk", 50), None, how.pop("engine", "inline"), how.pop("workers", 1))
    result = run(pipeline, MemorySource([dataset]), way, **how)
    check_outputs(result, answer)
    check_yields(result, answer)
    check_ledger(result, [dataset])
    return set(pipeline.guards)


@pytest.mark.parametrize("engine", ["inline", "threads"])
@pytest.mark.parametrize("chunk", [25, 70, "auto"])
def test_only_the_cut_that_protects_is_learned(engine: str, chunk: Any) -> None:
    regions = {"A": ("idle", "two", "odd", "second")}
    analysis = analysis_of(IDLE, TWO, ODD, SECOND, regions=regions)
    found = learned(analysis, ("second", "idle", "two", "odd"), chunk=chunk, engine=engine, workers=3)
    assert found == {("second", "two")}


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_a_second_row_teaches_a_second_guard(engine: str) -> None:
    """Rows that fail and are removed by another cut first blame that one: more than needed, and safe."""
    regions = {"A": ("idle", "big", "two", "odd", "second")}
    analysis = analysis_of(IDLE, BIG, TWO, ODD, SECOND, regions=regions)
    found = learned(analysis, ("second", "idle", "big", "two", "odd"), chunk=25, engine=engine, workers=3)
    assert ("second", "two") in found
    assert found <= {("second", "two"), ("second", "big")}


def test_cuts_that_ran_before_are_not_blamed() -> None:
    regions = {"A": ("big", "two", "second")}
    found = learned(analysis_of(BIG, TWO, SECOND, regions=regions), ("big", "second", "two"))
    assert found == {("second", "two")}


def test_a_column_that_a_cut_reads_is_what_is_protected() -> None:
    column = Step(kind="column", name="pt2", args="Jet_pt", body="Jet_pt[:, 1]")
    hard = Step(kind="cut", name="hard", args="pt2", body="pt2 > 1")
    analysis = analysis_of(BIG, TWO, ODD, column, hard, regions={"A": ("big", "two", "odd", "hard"), "B": ("odd",)})
    found = learned(analysis, ("pt2", "hard", "odd", "big", "two"))
    # Rows that two cuts remove blame the first of them; whether such a row was met before the guard was is a matter of luck.
    assert {("pt2", "two")} <= found <= {("pt2", "two"), ("pt2", "big")}


def test_regions_may_be_protected_by_different_cuts() -> None:
    three = Step(kind="cut", name="three", args="Jet_pt", body="ak.num(Jet_pt) >= 3")
    regions = {"A": ("two", "odd", "second"), "B": ("three", "big", "second")}
    analysis = analysis_of(IDLE, BIG, TWO, three, ODD, SECOND, regions=regions)
    order = ("second", "odd", "big", "three", "two", "idle")
    found = learned(analysis, order)
    assert {("second", "two"), ("second", "three")} <= found <= {("second", name) for name in ("two", "three", "big")}


def test_the_other_side_of_a_cut_protects_too() -> None:
    few = Step(kind="cut", name="few", args="Jet_pt", body="ak.num(Jet_pt) < 2")
    analysis = analysis_of(IDLE, few, ODD, SECOND, regions={"A": ("idle", "!few", "odd", "second")})
    assert learned(analysis, ("second", "odd", "few", "idle")) == {("second", "few")}


def test_two_cuts_that_protect_together() -> None:
    body = "np.array([[9, 8, 7, 6, 5][v - 2] if v > 1 else [][0] for v in x.tolist()]) > 6"
    fragile = Step(kind="cut", name="fragile", args="x", body=body)  # from 2 to 6 it is fine
    small = Step(kind="cut", name="small", args="x", body="x < 7")
    regions = {"A": ("big", "odd", "small", "fragile")}
    analysis = analysis_of(BIG, ODD, small, fragile, regions=regions)
    found = learned(analysis, ("fragile", "big", "odd", "small"))
    assert found == {("fragile", "big"), ("fragile", "small")}


def test_a_step_with_random_numbers() -> None:
    lucky = Step(
        kind="cut", name="lucky", args="x, *, rng",
        body="np.array([1 / (v > 3) for v in x.tolist()]) * rng('luck').uniform() < 0.5",
    )  # fmt: skip
    analysis = analysis_of(IDLE, BIG, ODD, lucky, regions={"A": ("idle", "big", "odd", "lucky")})
    assert learned(analysis, ("lucky", "odd", "idle", "big")) == {("lucky", "big")}


def test_what_raises_only_for_many_rows_together_is_kept_below_all() -> None:
    def whole(x: Any) -> Any:
        if len(x) > 20 and x.min() < 4:
            raise ValueError("not so many small ones")
        return x > 5

    analysis = analysis_of(
        IDLE, BIG, ODD, Step(kind="cut", name="whole", function=whole),
        regions={"A": ("idle", "big", "odd", "whole")},
    )  # fmt: skip
    found = learned(analysis, ("whole", "idle", "big", "odd"))
    assert found == {("whole", "idle"), ("whole", "big"), ("whole", "odd")}


def test_floating_point_warnings_of_the_search_are_not_heard() -> None:
    def fragile(x: Any) -> Any:
        ratio = 1 / (x - 1)
        if (x < 2).any():
            raise ValueError("too small")
        return ratio > 0.1

    analysis = analysis_of(
        IDLE, BIG, ODD, Step(kind="cut", name="fragile", function=fragile),
        regions={"A": ("idle", "big", "odd", "fragile")},
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = learned(analysis, ("fragile", "idle", "odd", "big"))
    assert found == {("fragile", "big")}
    assert not heard


# --- what a worker says ---------------------------------------------------------------------------


def outcomes(analysis: Analysis, order: tuple[str, ...], guards: Any, dataset: Dataset) -> Any:
    """What a worker says of each unit of a file, under one plan."""
    source = MemorySource([dataset])
    definition = build(analysis).definition(0)
    workload = PipelineWorkload(definition, source)
    side = workload.open_worker(0)
    borders = open_input(side, 0).borders
    plan = Plan(id=0, category="jets", order=order, written=definition.written, guards=tuple(guards))
    return [run_rows(side, Rows(0, start, stop), plan).report for start, stop in pairwise(borders)]


def test_a_step_that_raises_again_teaches_another_guard() -> None:
    analysis = analysis_of(IDLE, TWO, ODD, SECOND, regions={"A": ("idle", "two", "odd", "second")})
    dataset = jets()
    order = ("odd", "second", "idle", "two")
    # Whatever was learned before - here a cut that does not protect it.
    for guards in ((), (("second", "odd"),)):
        for outcome in outcomes(analysis, order, guards, dataset):
            assert outcome.evidence.guards == (("second", "two"),)


def test_a_search_that_fails_keeps_all_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "failing_rows", lambda *_: ({}, False))
    analysis = analysis_of(IDLE, TWO, ODD, SECOND, regions={"A": ("idle", "two", "odd", "second")})
    found = learned(analysis, ("second", "odd", "two", "idle"))
    assert found == {("second", "idle"), ("second", "two"), ("second", "odd")}


def test_evidence_of_a_chunk_that_was_done_again_is_that_of_the_written_order() -> None:
    analysis = analysis_of(TWO, ODD, SECOND, regions={"A": ("two", "odd", "second")})
    dataset = jets()
    counts = ak.to_numpy(ak.num(dataset.files[0].columns["Jet_pt"]))
    for number, outcome in enumerate(outcomes(analysis, ("second", "two", "odd"), (), dataset)):
        part = slice(25 * number, 25 * number + 25)
        x = dataset.files[0].columns["x"][part]
        costs = dict(outcome.evidence.steps)
        assert costs["two"].rows_in == 25
        assert costs["second"].rows_in == ((counts[part] >= 2) & (x % 2 == 1)).sum()
        assert isinstance(outcome.evidence.guards, tuple)


def test_attempts_know_the_guards_that_the_user_declared() -> None:
    after = Step(kind="cut", name="second", args="x", body="x < 9", after="big")
    definition = build(analysis_of(BIG, after, regions={"A": ("big", "second")})).definition(0)
    source = MemorySource([jets()])
    side = PipelineWorkload(definition, source).open_worker(0)
    open_input(side, 0)
    plan = Plan(id=0, category="jets", order=definition.written, sample=1.0, sample_rows=10)
    outcome = run_rows(side, Rows(0, 0, 200), plan).report
    assert outcome.evidence is not None
    assert len(outcome.evidence.windows) == 8
    for window in outcome.evidence.windows:
        big = window.verdicts[:, 0] == 1
        assert (window.verdicts[~big, 1] == -2).all()
        assert (window.verdicts[big, 1] >= 0).all()


def test_what_windrow_raises_inside_a_moved_step_is_a_reason_to_go_back_too() -> None:
    """A mean below zero is refused by the random numbers themselves, not by the user's code."""
    analysis = wr.Pipeline("refused")
    analysis.cut(lambda lam: lam >= 0, name="good")
    analysis.column(lambda lam, *, rng: rng("a").poisson(lam), name="k")
    analysis.cut(lambda k: k > 2, name="many")
    analysis.output(lambda k: int(k.sum()), name="total")
    lam = np.full(4000, 3.0)
    lam[3123] = -1.0
    how: Any = {"engine": "inline", "chunk": 500, "progress": False}
    opened = wr.data.open({"lam": lam}, grid=500)
    expected = analysis.run(opened, order="written", **how)
    moved = analysis.run(opened, order=["many", "good"], **how)
    assert moved["total"] == expected["total"]
    assert moved.guards == (("k", "good"),)
