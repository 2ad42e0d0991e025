"""When a run looks for an order, from how much it decides, and what of it is remembered: questions made by hand."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest

import windrow as wr
from order_situations import make_window
from ordering import costing, eager, slow_first
from windrow.core.records import Evidence, Plan, PlanJob, StepCost, StepFacts, Terrain
from windrow.pipeline.ordering import controller
from windrow.pipeline.ordering.controller import OrderController

WRITTEN, MOVED = ("costly", "cheap"), ("cheap", "costly")
COSTS = {"costly": 1e-5, "cheap": 1e-8}  #: seconds per row
TERRAIN = Terrain(tuple(StepFacts(name, "cut", (0,)) for name in WRITTEN), (tuple((name, False) for name in WRITTEN),))

pytestmark = pytest.mark.usefixtures("as_in_production")


def decision() -> OrderController:
    return OrderController(slow_first().definition(0), "adaptive", fixed={}, unit_rows=lambda _: 1000.0, workers=1)


def question(windows: int, *, run_s: float = 100.0, left_s: float = 50.0, looked_s: float = 0.0) -> PlanJob:
    """Ask with so many windows, of which each says that the cheap cut drops nine rows of ten."""
    seen = [make_window(WRITTEN, {"pf": 90, "pp": 10}, unit=number) for number in range(windows)]
    evidence = Evidence(
        steps=tuple((name, StepCost.of_call(10_000, 5000, 10_000 * s)) for name, s in COSTS.items()),
        windows=tuple(seen),
        terrain=TERRAIN if seen else None,
        looked=(windows, 100 * windows, looked_s),
    )
    return PlanJob(
        category="data",
        plan=Plan(id=1, category="data", order=WRITTEN, written=WRITTEN),
        guards=(),
        evidence=evidence,
        costs=StepCost.of_call(10_000, 10_000, 0.2),
        spent_s=run_s - left_s,
        run_s=run_s,
        left_s=left_s,
    )


# --- whether to look --------------------------------------------------------------------------------


def test_a_run_of_less_than_half_a_second_keeps_its_order() -> None:
    short = decision()
    plan = short.replan(question(4, run_s=0.49, left_s=0.09))
    assert (plan.order, plan.sample) == (WRITTEN, 0)
    assert not short.dataset("data").told
    # It is asked again when twice as much is done: by then it may be a long run.
    assert not short.due("data", 0.79, 0)
    assert short.due("data", 0.81, 0)


@pytest.mark.parametrize("ran", [True, False])
def test_a_run_of_less_than_two_seconds_decides_from_what_ran_and_does_not_look(ran: bool) -> None:
    short = decision()
    job = question(0, run_s=1.9, left_s=1.5)
    if ran:
        costs = tuple(zip(WRITTEN, (StepCost.of_call(400, 390, 4e-3), StepCost.of_call(390, 39, 4e-6)), strict=True))
        evidence = dataclasses.replace(job.evidence, terrain=TERRAIN, steps=costs, ran=((WRITTEN, costs),))
        job = dataclasses.replace(job, evidence=evidence)
    plan = short.replan(job)
    assert plan.order == (MOVED if ran else WRITTEN)
    assert (plan.sample, plan.sample_rows) == (0, 0)
    assert short.most_s("data") is None  # the rest is cut as if nothing were to be found out
    assert bool(short.dataset("data").why) != ran


def test_a_run_of_more_than_two_seconds_looks_and_decides() -> None:
    long = decision()
    plan = long.replan(question(0, run_s=2.1, left_s=1.5))
    assert plan.order == WRITTEN
    assert plan.sample > 0
    assert plan.sample_rows > 0
    assert long.due("data", 0.6, 1)  # as soon as there is a window
    assert long.replan(question(4, run_s=2.1, left_s=1.5)).order == MOVED


def test_a_run_with_very_many_cuts_and_regions_is_not_thought_about() -> None:
    many = wr.Pipeline("many")
    for number in range(400):
        many.cut(lambda x, *, t=number: x > t, name=f"c{number}")
        many.region(f"r{number}", f"c{number}")
    many.output(len, name="rows", reads=["x"])
    asked = OrderController(many.definition(0), "adaptive", fixed={}, unit_rows=lambda _: 1000.0, workers=1)
    plan = asked.replan(
        dataclasses.replace(question(4, run_s=10.0), plan=Plan(id=1, category="data", order=(), written=()))
    )
    assert (plan.sample, plan.sample_rows) == (0, 0)
    assert not asked.dataset("data").told
    assert "thinking about another order would take 25.6 s" in asked.dataset("data").why


# --- from how much to decide ------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [0, 1, 2, 5])
def test_without_any_window_the_written_order_stays(windows: int) -> None:
    asked = decision()
    plan = asked.replan(question(windows))
    assert plan.order == (MOVED if windows else WRITTEN)
    assert len(asked.dataset("data").told) == bool(windows)


# --- how often to think -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "windows", "thinks"),
    [
        (11.0, 5, True),
        (3.3, 7, False),  # for four more it does not suffice, and not twice as much is known
        (3.3, 8, True),
        (0.5, 100, False),  # not even for one
    ],
)
def test_thinking_that_takes_long_waits(allowed: float, windows: int, thinks: bool) -> None:
    """The first decision took a second."""
    run_s = (1 + allowed) / controller.THINKING
    asked = decision()
    asked.decide(question(4, run_s=run_s), thought_s=0.0)
    checkpoints = asked.dataset("data").checkpoints
    period_s = checkpoints.period_s
    job = question(windows, run_s=run_s, left_s=40.0)
    asked.decide(job, thought_s=1.0)
    assert len(asked.dataset("data").told) == 1 + thinks
    if not thinks:
        assert checkpoints.period_s == period_s
        assert not asked.due("data", job.spent_s + 0.99 * period_s, 0)
        assert asked.due("data", job.spent_s + 1.01 * period_s, 0)


def test_time_spent_thinking_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(controller, "thread_time", lambda: float(next(clock)))
    asked = decision()
    asked.replan(question(4))
    asked.replan(question(5))
    assert asked.planning_s == 2


def test_equal_evidence_after_as_much_thinking_gives_equal_plans() -> None:
    one, other = decision(), decision()
    for windows, thought_s in ((0, 0.0), (4, 0.001), (9, 0.1)):
        job = question(windows)
        assert one.decide(job, thought_s) == other.decide(job, thought_s)


# --- what the next run begins with --------------------------------------------------------------------


def data() -> Any:
    rng = np.random.default_rng(5)
    return wr.data.open({"x": rng.normal(size=4000), "z": rng.random(4000)}, grid=200)


def begins_with(made: wr.Pipeline) -> tuple[str, ...]:
    """The order of a run that is too short to look for one."""
    with mock.patch.object(controller, "STAY_OUT_S", 1e9):
        orders = made.run(data(), engine="inline", progress=False).order
    assert len(orders) == 1
    order: tuple[str, ...] = orders[0][1]
    return order


def run_once(made: wr.Pipeline, order: Any, cheap_s: float = 1e-8) -> tuple[str, ...]:
    """The last order of a run that thinks all the time."""
    with eager(50), costing({"costly": 1e-5, "cheap": cheap_s}):
        result = made.run(data(), order=order, chunk=200, engine="inline", progress=False)
    last: tuple[str, ...] = result.order[-1][1]
    assert result.ordering["data"]["looked"]["windows"] > 0
    return last


@pytest.mark.parametrize("order", [list(MOVED), "heft"])
def test_an_order_that_was_asked_for_or_chosen_by_another_rule_is_not_kept(order: Any) -> None:
    made = slow_first()
    # That rule puts what costs most first.
    assert run_once(made, order, cheap_s=1.0) == MOVED
    assert begins_with(made) == WRITTEN


def test_what_was_found_best_outlives_an_order_that_was_asked_for() -> None:
    made = slow_first()
    assert run_once(made, "adaptive") == MOVED
    assert run_once(made, list(WRITTEN)) == WRITTEN
    assert begins_with(made) == MOVED


# --- while it is not sure -------------------------------------------------------------------------------


def unsure(spent_s: float) -> PlanJob:
    """Ask with windows that say of both cuts now this and now that."""
    one, other = {"fp": 90, "pp": 10}, {"pf": 90, "pp": 10}
    seen = tuple(make_window(WRITTEN, said, unit=unit) for unit, said in enumerate((one, other, other, one, other)))
    job = question(4, run_s=50.0 + spent_s, left_s=50.0)
    costs = tuple((name, StepCost.of_call(10_000, 5000, 0.1)) for name in WRITTEN)
    return dataclasses.replace(job, evidence=dataclasses.replace(job.evidence, windows=seen, steps=costs))


def test_until_it_is_sure_chunks_are_short_and_each_is_a_checkpoint_for_a_while() -> None:
    asked = decision()
    assert asked.replan(unsure(0.1)).order == WRITTEN
    assert asked.most_s("data") is not None
    assert asked.due("data", 0.1, 0)
    asked.replan(unsure(10.0))
    assert asked.most_s("data") is None  # no more than the pilot runs like that
    assert not asked.due("data", 10.0, 0)
    sure = decision()
    assert sure.replan(question(4)).order == MOVED
    assert sure.most_s("data") is None


def test_few_rows_that_all_cuts_saw_say_less_than_what_passed_in_the_run() -> None:
    """The window says that the cheap cut drops nothing, the rows that ran that it drops half of them."""
    job = question(1)
    windows = (make_window(WRITTEN, {"pp": 8}),)
    for rows, order in ((8, MOVED), (4000, WRITTEN)):
        evidence = dataclasses.replace(job.evidence, windows=windows, looked=(1, rows, 0.0))
        asked = decision()
        assert asked.decide(dataclasses.replace(job, evidence=evidence), 0.0).order == order
        assert asked.dataset("data").told[0]["assumed"] == (rows == 8)
