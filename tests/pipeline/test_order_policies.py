"""Whatever decides about the order, and however often it changes its mind: outputs and yields are those of the written program."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import check_cutflow, check_ledger, check_outputs, check_yields, oracle, run
from description import MemorySource, build
from strategies import analyses, filesets, ways
from windrow.errors import RedefinitionNote, StepError, UsageError
from windrow.order.sampling import Sampling
from windrow.pipeline import adapting
from windrow.pipeline.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.order.model import Situation

EXAMPLES = 500 if os.environ.get("WINDROW_PROFILE") == "nightly" else 40
PROFILE = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@contextmanager
def eager(rows: int = 7) -> Iterator[None]:
    """Think after every chunk, and look into every unit, however small the run is."""
    with (
        mock.patch.object(adapting, "STAY_OUT_S", -1.0),
        mock.patch.object(adapting, "PERIOD", 0.0),
        mock.patch.object(adapting, "SHORTEST_S", 0.0),
        mock.patch.object(adapting, "how_much", return_value=Sampling(1.0, rows)),
    ):
        yield


def fickle(seed: int) -> Any:
    """Make a policy that wants another legal order every time."""
    rng = np.random.default_rng(seed)

    def policy(situation: Situation) -> tuple[str, ...]:
        left = list(situation.written)
        found: list[str] = []
        while left:
            free = [name for name in left if not set(situation.needs[name]) & set(left)]
            found.append(free[int(rng.integers(len(free)))])
            left.remove(found[-1])
        return tuple(found)

    return policy


@PROFILE
@given(st.data())
def test_every_policy_gives_the_written_answer(data: st.DataObject) -> None:
    analysis = data.draw(analyses())
    datasets = data.draw(filesets())
    way = replace(data.draw(ways(analysis)), order=None)
    names = ("adaptive", *POLICIES)
    policy = data.draw(st.sampled_from(names) | st.integers(0, 1000).map(fickle))
    answer = oracle(analysis, datasets)
    with eager(data.draw(st.sampled_from((1, 7, 1000)))):
        result = run(build(analysis), MemorySource(datasets), way, order=policy)
    check_outputs(result, answer)
    check_yields(result, answer)
    check_ledger(result, datasets)


@PROFILE
@given(st.data())
def test_exact_tables_are_the_written_ones(data: st.DataObject) -> None:
    analysis = data.draw(analyses())
    datasets = data.draw(filesets())
    way = replace(data.draw(ways(analysis)), order=None)
    answer = oracle(analysis, datasets)
    with eager():
        policy = fickle(data.draw(st.integers(0, 1000)))
        result = run(build(analysis), MemorySource(datasets), way, order=policy, cutflow="exact")
    check_outputs(result, answer)
    check_cutflow(result, answer, "written")


# --- what a user sees -------------------------------------------------------------------------------

ROWS = 40_000


def slow_first() -> wr.Pipeline:
    """A costly cut that drops little is written above a cheap one that drops much."""
    made = wr.Pipeline("slow first")

    @made.cut
    def costly(x: Any) -> Any:
        y = x
        for _ in range(200):
            y = np.sin(y + x)
        return y > -0.99

    @made.cut
    def cheap(z: Any) -> Any:
        return z > 0.9

    @made.output
    def total(x: Any) -> Any:
        return x.sum()

    return made


def rows(count: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {"x": rng.normal(size=count), "z": rng.random(count)}


def opened(count: int = ROWS) -> Any:
    return wr.data.open(rows(count), grid=200)


def test_the_cheap_cut_comes_first_and_it_is_said_why() -> None:
    with eager(100):
        result = slow_first().run(opened(), chunk=200, engine="inline", progress=False)
    assert result["total"] == slow_first().run(opened(), order="written", engine="inline")["total"]
    dataset, order, why = result.order[-1]
    assert (dataset, order) == ("data", ("cheap", "costly"))
    assert why
    assert result.steps["costly"].rows_in < 0.8 * ROWS
    words = result.explain()
    assert "order of data, decided" in words
    assert "of the written order's cost" in words
    assert "saved against the written order" in words
    told = result.ordering["data"]
    assert [step["name"] for step in told["steps"]] == ["cheap", "costly"]
    assert told["checkpoints"][0]["changed"]
    assert told["saved"]["evaluations"] > 0


def test_a_short_run_is_left_alone() -> None:
    result = slow_first().run(opened(4000), chunk=200, engine="inline", progress=False)
    assert [order for _, order, _ in result.order] == [("costly", "cheap")]
    assert "steps" not in result.ordering["data"]
    assert result.cutflow["all"].written is not None


def test_the_next_run_begins_with_what_was_learned() -> None:
    made = slow_first()
    with eager(100):
        made.run(opened(), chunk=200, engine="inline", progress=False)
    again = made.run(opened(), engine="inline", progress=False)
    assert again.order[0][1] == ("cheap", "costly")
    assert "earlier run" in again.order[0][2]

    with pytest.warns(RedefinitionNote):

        @made.cut
        def cheap(z: Any) -> Any:
            return z > 0.95

    changed = made.run(opened(), engine="inline", progress=False)
    assert changed.order[0][1] == ("costly", "cheap")


def test_a_run_directory_remembers(tmp_path: Any) -> None:
    with eager(100):
        first = slow_first().run(
            opened(), chunk=200, engine="inline", progress=False, rundir=tmp_path / "run"
        )
    again = slow_first().run(
        opened(), chunk=200, engine="inline", progress=False, rundir=tmp_path / "run"
    )
    assert again.order[0][1] == first.order[-1][1] == ("cheap", "costly")
    other = slow_first()

    @other.cut
    def late(x: Any) -> Any:
        return x < 3

    fresh = other.run(opened(), engine="inline", progress=False, rundir=tmp_path / "run")
    assert fresh.order[0][1] == ("costly", "cheap", "late")


def test_an_order_is_frozen_and_repeated(tmp_path: Any) -> None:
    with eager(100):
        result = slow_first().run(opened(), chunk=200, engine="inline", progress=False)
    path = result.freeze(tmp_path / "plan.json")
    again = slow_first().run(opened(), order=path, engine="inline", progress=False)
    assert [order for _, order, _ in again.order] == [("cheap", "costly")]
    assert again["total"] == result["total"]


@pytest.mark.parametrize(
    ("content", "words"),
    [("{}", "no file that"), ("[", "cannot be read"), (None, "cannot be read")],
)
def test_a_file_that_is_no_frozen_order_is_refused(
    tmp_path: Any, content: str | None, words: str
) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=words):
        slow_first().run(opened(), order=path)


def test_orders_that_mean_nothing_are_refused() -> None:
    for order in ("fastest", 3, [1, 2]):
        with pytest.raises(UsageError, match="order="):
            slow_first().run(opened(), order=order)
    with eager(), pytest.raises(UsageError, match="list of step names"):
        slow_first().run(opened(), order=lambda _: 7, chunk=200, engine="inline", progress=False)


def test_a_barrier_stays_where_it_is() -> None:
    made = wr.Pipeline("barrier")

    @made.cut
    def costly(x: Any) -> Any:
        return np.sin(np.sin(x)) > -2

    @made.cut(barrier=True)
    def wall(x: Any) -> Any:
        return x > -10

    @made.cut
    def cheap(z: Any) -> Any:
        return z > 0.9

    @made.output
    def count(x: Any) -> Any:
        return len(x)

    with eager(100):
        for seed in range(5):
            result = made.run(
                opened(4000), order=fickle(seed), chunk=200, engine="inline", progress=False
            )
            assert {order for _, order, _ in result.order} == {("costly", "wall", "cheap")}


def test_weights_above_the_first_cut_weigh_what_there_was_before_it() -> None:
    made = wr.Pipeline("weighted")

    @made.weight
    def w(x: Any) -> Any:
        return 1 + 0 * x

    @made.cut
    def some(x: Any) -> Any:
        return x > 0

    @made.weight
    def later(z: Any) -> Any:
        return z

    @made.cut
    def more(z: Any) -> Any:
        return z > 0.5

    @made.output
    def total(x: Any, weight: Any) -> Any:
        return weight.sum()

    with eager(100):
        for seed in range(6):
            result = made.run(
                opened(4000), order=fickle(seed), chunk=200, engine="inline", progress=False
            )
            for _, order, _ in result.order:
                assert order.index("w") < min(order.index("some"), order.index("more"))


def test_rows_that_are_left_out_and_n_minus_1_keep_the_written_order() -> None:
    for options in ({"on_error": "skip"}, {"nminus1": True}):
        with eager(100):
            result = slow_first().run(
                opened(), chunk=200, engine="inline", progress=False, **options
            )
        assert [order for _, order, _ in result.order] == [("costly", "cheap")]
        assert any("written order, because" in decision for decision in result.decisions)


def test_what_was_learned_of_another_written_order_is_not_taken_over(tmp_path: Any) -> None:
    def made(*, guarded_first: bool) -> wr.Pipeline:
        analysis = wr.Pipeline("swapped")
        steps: list[tuple[str, Any]] = [
            ("nz", lambda k: k != 0),
            ("t", lambda k: np.array([1 // int(one) >= 0 for one in k])),
        ]
        for name, function in reversed(steps) if guarded_first else steps:
            analysis.cut(function, name=name)
        analysis.output(lambda k: len(k), name="rows")
        return analysis

    data = {"k": np.arange(4000) % 7}
    options: Any = {"engine": "inline", "progress": False, "rundir": tmp_path / "run"}
    first = made(guarded_first=False).run(data, order=["t", "nz"], **options)
    assert first.guards == (("t", "nz"),)
    with pytest.raises(StepError):
        made(guarded_first=True).run(data, **options)


def test_many_small_datasets_are_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is how long the run takes, not each dataset of it."""
    told: list[float] = []
    ask = adapting.Adapting.replan

    def replan(self: Any, job: Any) -> Any:
        told.append(job.run_s / (job.spent_s + job.left_s))
        return ask(self, job)

    monkeypatch.setattr(adapting.Adapting, "replan", replan)
    fileset = {f"d{number}": {"files": rows(2000)} for number in range(6)}
    slow_first().run(fileset, engine="inline", progress=False)
    assert max(told) > 1.5
