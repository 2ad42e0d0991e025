"""Steps of one chunk that run at once give what they give one after the other, and only where time is saved."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from unittest import mock

import hypothesis
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import check_cutflow, check_ledger, check_outputs, check_yields, oracle, run
from description import MemorySource, build
from reference import StepRaisedError
from searching import examples
from strategies import analyses, filesets, ways
from windrow.blocks import side_by_side
from windrow.blocks.side_by_side import LEAST_S, ExpectedStep, steps_at_once
from windrow.core.rows import RowFeeder

STEPS = st.lists(st.builds(ExpectedStep, st.floats(0, 1), st.floats(0, 1)), max_size=6)


def one_by_one(steps: list[ExpectedStep]) -> float:
    reaching = accumulate((step.passing for step in steps[:-1]), mul, initial=1.0)
    return sum(share * step.seconds for share, step in zip(reaching, steps, strict=True))


@given(STEPS, st.integers(1, 5))
def test_steps_run_at_once_only_where_that_is_expected_to_be_faster(steps: list[ExpectedStep], threads: int) -> None:
    count = steps_at_once(steps, threads)
    assert 1 <= count <= max(min(len(steps), threads), 1)
    if count > 1:
        gain = one_by_one(steps[:count]) - max(step.seconds for step in steps[:count])
        assert gain > LEAST_S
        for other in range(2, min(len(steps), threads) + 1):
            assert gain >= one_by_one(steps[:other]) - max(step.seconds for step in steps[:other])


def test_a_step_behind_a_cut_that_drops_nearly_all_waits_for_it() -> None:
    cut, heavy = ExpectedStep(0.1, 0.01), ExpectedStep(1.0, 1.0)
    assert steps_at_once([cut, heavy], 2) == 1
    assert steps_at_once([cut._replace(passing=1.0), heavy._replace(seconds=0.1)], 2) == 2
    assert steps_at_once([cut._replace(passing=1.0), heavy._replace(seconds=0.1)], 1) == 1


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), spare=st.integers(1, 3))
def test_random_analyses_give_the_plain_answer(data: st.DataObject, spare: int) -> None:
    analysis, datasets = data.draw(analyses()), data.draw(filesets())
    way = data.draw(ways(analysis))
    with (
        mock.patch.object(RowFeeder, "_spare", return_value=spare),
        mock.patch.object(side_by_side, "steps_at_once", lambda steps, threads: max(min(len(steps), threads), 1)),
        mock.patch.object(side_by_side, "HELD", float("inf")),
    ):
        try:
            answer = oracle(analysis, datasets)
        except StepRaisedError:
            hypothesis.reject()  # one after the other they raise as well
        result = run(build(analysis), MemorySource(datasets), way)
    check_outputs(result, answer)
    check_yields(result, answer)
    check_ledger(result, datasets)
    if way.order is None:
        check_cutflow(result, answer, "executed")


def test_steps_that_hold_the_lock_are_not_run_at_once_again() -> None:
    analysis = wr.Pipeline("two")
    seen: list[int] = []

    @analysis.column
    def one(x: np.ndarray) -> np.ndarray:
        return x + 1

    @analysis.column
    def two(x: np.ndarray) -> np.ndarray:
        return x + 2

    @analysis.output
    def total(one: np.ndarray, two: np.ndarray) -> float:
        return float(one.sum() + two.sum())

    def asked(steps: list[ExpectedStep], most: int) -> int:
        seen.append(len(steps))
        return min(len(steps), most) or 1

    with (
        mock.patch.object(RowFeeder, "_spare", return_value=1),
        mock.patch.object(side_by_side, "steps_at_once", asked),
        mock.patch.object(side_by_side, "HELD", 0.0),
    ):
        result = analysis.run({"x": np.arange(50.0)}, engine="inline", chunk=10, progress=False)
    assert result["total"] == 2 * np.arange(50.0).sum() + 150
    assert seen.count(2) == 1
