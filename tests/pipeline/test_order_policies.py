"""Whatever decides about the order, and however often it changes its mind: outputs and yields are those of the written program."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import check_cutflow, check_ledger, check_outputs, check_yields, oracle, run
from description import MemorySource, Step, build
from ordering import costing, cut_cheaply, eager, fickle, slow_first
from reference import StepRaisedError
from searching import examples, few_by_day
from strategies import analyses, filesets, ways
from windrow.core.records import RunRows
from windrow.errors import RedefinitionNote, StepError, UsageError
from windrow.pipeline.ordering.controller import OrderController
from windrow.pipeline.ordering.policies import POLICIES
from windrow.pipeline.ordering.summary import order_line, order_lines
from windrow.pipeline.run import worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from description import Analysis, Dataset, File
    from reference import Answer

PROFILE = settings(max_examples=examples(5), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def in_small_units(datasets: tuple[Dataset, ...], units: int) -> tuple[Dataset, ...]:
    """The same rows, in so many units of each file at least, as far as there are rows for them."""
    return tuple(
        replace(dataset, files=tuple(_in_small_units(file, units) for file in dataset.files)) for dataset in datasets
    )


def _in_small_units(file: File, units: int) -> File:
    return replace(file, borders=(*range(0, file.rows, max(file.rows // units, 1)), file.rows))


def with_a_strict_cut(analysis: Analysis) -> Analysis:
    """Written last and in every region: most policies want it first where it costs little."""
    strict = Step(kind="cut", name="strict", args="event", body="event % 3 == 0")
    regions = {name: (*cuts, strict.name) for name, cuts in analysis.regions.items()}
    return replace(analysis, steps=(*analysis.steps, strict), regions=regions)


def very_different(analysis: Analysis, seed: int) -> dict[str, float]:
    """Costs of steps, each ten times those of another; the last one's are the least, or not."""
    rng = np.random.default_rng(seed)
    powers = rng.permutation(len(analysis.steps)).tolist()
    if seed % 4:
        powers[-1] = len(powers)
    return {s.name: 10.0**-p for s, p in zip(analysis.steps, powers, strict=True)}


def answer_of(analysis: Analysis, datasets: tuple[Dataset, ...]) -> Answer | None:
    """What the written program says; None if it raises."""
    try:
        return oracle(analysis, datasets)
    except StepRaisedError:
        return None


@pytest.mark.parametrize("name", few_by_day(["adaptive", "fickle", *POLICIES], by_day=2))
def test_every_policy_gives_the_written_answer(name: str) -> None:
    moved: list[bool] = []

    @PROFILE
    @given(st.data())
    def check(data: st.DataObject) -> None:
        analysis = with_a_strict_cut(data.draw(analyses()))
        datasets = in_small_units(data.draw(filesets()), 8)
        way = replace(data.draw(ways(analysis)), order=None, chunk=1)  # each unit is a chunk
        seed = data.draw(st.integers(0, 1000))
        answer = answer_of(analysis, datasets)
        policy = fickle(seed) if name == "fickle" else name
        with eager(data.draw(st.sampled_from((7, 1000)))), costing(very_different(analysis, seed)):
            # A program that raises as written may run to its end in a moved order.
            with suppress(StepError) if answer is None else nullcontext():
                result = run(build(analysis), MemorySource(datasets), way, order=policy)
            if answer is None:
                return
        check_outputs(result, answer)
        check_yields(result, answer)
        check_ledger(result, datasets)
        moved.append(len({(dataset, order) for dataset, order, _ in result.order}) > len(datasets))

    check()
    assert sum(moved) > len(moved) / 4  # or little was shown


@settings(PROFILE, max_examples=examples(10))
@given(st.data())
def test_exact_tables_are_the_written_ones(data: st.DataObject) -> None:
    analysis = data.draw(analyses())
    datasets = data.draw(filesets())
    way = replace(data.draw(ways(analysis)), order=None)
    answer = answer_of(analysis, datasets)
    if answer is None:
        reject()
    with eager():
        policy = fickle(data.draw(st.integers(0, 1000)))
        result = run(build(analysis), MemorySource(datasets), way, order=policy, cutflow="exact")
    check_outputs(result, answer)
    check_cutflow(result, answer, "written")


# --- what a user sees -------------------------------------------------------------------------------

ROWS = 20_000


def rows(count: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {"x": rng.normal(size=count), "z": rng.random(count)}


def opened(count: int = ROWS) -> Any:
    return wr.data.open(rows(count), grid=200)


def run_eagerly(made: wr.Pipeline, **options: Any) -> Any:
    with eager(100), costing({"costly": 1e-4, "cheap": 1e-7}):
        return made.run(opened(), **{"chunk": 200, "engine": "inline", "progress": False, **options})


def test_the_cheap_cut_comes_first_and_it_is_said_why() -> None:
    result = run_eagerly(slow_first())
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
    run_eagerly(made)
    again = made.run(opened(), engine="inline", progress=False)
    assert again.order[0][1] == ("cheap", "costly")
    assert "earlier run" in again.order[0][2]

    with pytest.warns(RedefinitionNote):
        cut_cheaply(made, 0.95)
    changed = made.run(opened(), engine="inline", progress=False)
    assert changed.order[0][1] == ("costly", "cheap")


def test_a_run_directory_remembers(tmp_path: Any) -> None:
    first = run_eagerly(slow_first(), rundir=tmp_path / "run")
    again = slow_first().run(opened(), chunk=200, engine="inline", progress=False, rundir=tmp_path / "run")
    assert again.order[0][1] == first.order[-1][1] == ("cheap", "costly")
    other = slow_first()

    @other.cut
    def late(x: Any) -> Any:
        return x < 3

    fresh = other.run(opened(), engine="inline", progress=False, rundir=tmp_path / "run")
    assert fresh.order[0][1] == ("costly", "cheap", "late")


def test_an_order_is_frozen_and_repeated(tmp_path: Any) -> None:
    result = run_eagerly(slow_first())
    path = result.freeze(tmp_path / "plan.json")
    again = slow_first().run(opened(), order=path, engine="inline", progress=False)
    assert [order for _, order, _ in again.order] == [("cheap", "costly")]
    assert again["total"] == result["total"]


@pytest.mark.parametrize(
    ("content", "words"), [("{}", "no file that"), ("[", "cannot be read"), (None, "cannot be read")]
)
def test_a_file_that_is_no_frozen_order_is_refused(tmp_path: Any, content: str | None, words: str) -> None:
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


def test_a_policy_with_parameters_is_taken_and_says_what_it_made_of_them() -> None:
    written = slow_first().run(opened(), order="written", engine="inline", progress=False)
    for policy in (wr.order.HepFrame(filtering=0.9), wr.order.AGreedy(tolerance=1.0)):
        result = run_eagerly(slow_first(), order=policy)
        assert result.order[-1][1] == ("cheap", "costly")
        assert result["total"] == written["total"]
        assert f"as the policy {policy!r} says: " in result.order[-1][2]
    named = run_eagerly(slow_first(), order="hepframe")
    assert "weights of 70 % filtering and 30 % time" in str(named.explain())


def test_chunks_end_before_the_order_by_path_is_worked_out() -> None:
    """With as many workers as one likes: the chunks between two checkpoints have one order, then all have the next."""
    result = run_eagerly(slow_first(), order="path", workers=3, engine="threads")
    assert result.order[-1][1] == ("cheap", "costly")
    assert result["total"] == run_eagerly(slow_first(), order="written")["total"]


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
            result = made.run(opened(4000), order=fickle(seed), chunk=200, engine="inline", progress=False)
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
            result = made.run(opened(4000), order=fickle(seed), chunk=200, engine="inline", progress=False)
            for _, order, _ in result.order:
                assert order.index("w") < min(order.index("some"), order.index("more"))


def test_rows_that_are_left_out_and_n_minus_1_keep_the_written_order() -> None:
    for options in ({"on_error": "skip"}, {"nminus1": True}):
        with eager(100):
            result = slow_first().run(opened(), chunk=200, engine="inline", progress=False, **options)
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
    ask = OrderController.replan

    def replan(self: Any, job: Any) -> Any:
        told.append(job.run_s / (job.spent_s + job.left_s))
        return ask(self, job)

    monkeypatch.setattr(OrderController, "replan", replan)
    fileset = {f"d{number}": {"files": rows(2000)} for number in range(6)}
    slow_first().run(fileset, engine="inline", progress=False)
    assert max(told) > 1.5


# --- an order that uses too much ------------------------------------------------------------------


WRITTEN, MOVED = ("costly", "cheap"), ("cheap", "costly")


@contextmanager
def too_much_at(row: int) -> Iterator[list[Any]]:
    """In a moved order, the chunk with this row takes more memory than there is."""
    whole = worker.RowsSide.run
    failed: list[Any] = []

    def run_chunk(self: Any, job: Any) -> Any:
        payload = job.task.payload
        if isinstance(payload, RunRows) and job.plan.moved and any(r.start <= row < r.stop for r in payload.rows):
            failed.append(payload.rows)
            raise MemoryError
        return whole(self, job)

    with mock.patch.object(worker.RowsSide, "run", run_chunk):
        yield failed


@pytest.mark.parametrize("row", [ROWS - 3000, ROWS - 1])
def test_an_order_that_used_too_much_is_not_called_the_order_of_the_run(row: int, tmp_path: Any) -> None:
    """Whether a checkpoint follows, or it was the last chunk."""
    with too_much_at(row) as failed:
        result = run_eagerly(slow_first())
    assert len(failed) == 1
    assert [order for _, order, _ in result.order] == [WRITTEN, MOVED, WRITTEN]
    assert "too much memory" in result.order[-1][2]
    assert "too much memory" in result.ordering["data"]["fixed"]
    assert order_line(result.ordering).startswith("Order: a moved order used too much memory")
    assert not any("(written 2)" in line for line in order_lines(result.ordering, result.order))
    path = tmp_path / "plan.json"
    result.freeze(path)
    assert json.loads(path.read_text())["order"] == {"data": list(WRITTEN)}


def test_the_next_run_does_not_begin_with_an_order_that_used_too_much() -> None:
    made = slow_first()
    assert run_eagerly(made).order[-1][1] == MOVED
    with too_much_at(ROWS - 3000) as failed:
        again = run_eagerly(made)
    assert failed
    assert [order for _, order, _ in again.order] == [MOVED, WRITTEN]
    assert run_eagerly(made).order[0][1] == WRITTEN
