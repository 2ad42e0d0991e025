"""What workers bring home about orders: sampled rows, whatever the chunks and engines, at no change of the answer."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import bits, check_outputs, check_yields, numbers, oracle, run
from description import Analysis, Dataset, File, MemorySource, Output, Step, build, jets, signature
from range_server import RangeServer
from reference import Execution, StepRaisedError
from reference import Plan as WrittenPlan
from row_jobs import open_input
from searching import examples
from strategies import Way, analyses, filesets, ways
from windrow.blocks import probe as probing
from windrow.blocks.attempts import Attempts
from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.probe import Look, places
from windrow.core.accounts import MAX_WINDOWS, Learned
from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED, Evidence, StepCost, Window
from windrow.pipeline.binding.bind import bind
from windrow.pipeline.run.facts import RunFacts
from windrow.pipeline.run.workload import PipelineWorkload

if TYPE_CHECKING:
    from pathlib import Path

# --- against the oracle, row by row ---------------------------------------------------------------


class Alone(Execution):
    """Every step on every row by itself, whatever any cut says."""

    def run(self) -> None:
        self.says: dict[str, dict[int, int | None]] = {}

    def ask(self, row: int) -> None:
        """Ask all steps about a row; None is noted where one raises or lacks what it reads."""
        self.made = {}
        rows = np.array([row])
        for name in self.plan.order:
            step = self.plan.analysis.step(name)
            lanes = [lane for lane in self.alive if name in self.plan.needed(lane)]
            if not lanes or not self.plan.applies(step):
                continue
            try:
                value = self.call(step, self.arguments(step, rows), rows, None, "nominal")
                self.made[name] = (rows, value)
                if step.kind == "cut":
                    none = isinstance(value, ak.Array) and value[0] is None
                    said = UNDEFINED if none else PASSED if value[0] else FAILED
            except (StepRaisedError, AssertionError):
                said = None
            if step.kind == "cut":
                self.says.setdefault(name, {})[row] = said


def makers(analysis: Analysis, name: str) -> set[str]:
    """A step and the steps whose columns it reads, and theirs."""
    known = {step.name for step in analysis.steps if step.kind == "column"}
    found: set[str] = set()
    todo = [name]
    while todo:
        one = todo.pop()
        found.add(one)
        todo += [read for read in signature(analysis.step(one))[0] if read in known - found]
    return found


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(analyses(), filesets(), st.data())
def test_all_cuts_say_of_shown_rows_what_they_say_of_each_alone(
    analysis: Analysis, datasets: tuple[Dataset, ...], data: st.DataObject
) -> None:
    dataset = datasets[0]
    file = next((one for one in dataset.files if one.rows), None)
    if file is None:
        reject()
    try:
        oracle(analysis, datasets)
    except StepRaisedError:
        reject()  # it raises as it is written
    start = data.draw(st.integers(0, file.rows - 1))
    rows = np.arange(start, min(start + 10, file.rows))
    definition = build(analysis).definition(0)
    reader = MemorySource([Dataset(name="one", files=(file,))]).open(0)
    program = bind(definition, dataset.name, dataset.metadata, reader.info, file.label)
    chunk = Chunk(0, file.label, 0, file.borders, file.borders)
    chunk_run = ChunkRun(program, reader, chunk, definition.written, {})
    after = [(s.name, cut) for s in definition.steps.values() for cut in s.after]
    look = Look(chunk_run, chunk_run.store.fork(), rows, after)
    look.show({})

    alone = Alone(WrittenPlan(analysis, dataset, definition.written), file, numbers())
    for number in rows.tolist():
        alone.ask(number)
    assert set(look.verdicts) == set(alone.says)
    guards = {*after, *look.learned}

    def rejected(cut: str, row: int) -> bool:
        """Whether guards of a cut, or of what it reads, keep a row from it in every lane."""
        steps = makers(analysis, cut)
        mine = [guard for step, guard in guards if step in steps]
        for lane in program.steps[cut].lanes:
            sides = program.lanes[lane].cuts
            wanted = {g: FAILED if sides[g] else PASSED for g in mine if g in sides}
            if all(alone.says[g][row] == side for g, side in wanted.items()):
                return False
        return True

    for cut, said in look.verdicts.items():
        for row, one in zip(rows.tolist(), said.tolist(), strict=True):
            expected = alone.says[cut][row]
            if one == NOT_ASKED:
                assert expected is None or rejected(cut, row), (cut, row, guards)
            else:
                assert one == expected, (cut, row)


# --- the same windows, and the same answers -------------------------------------------------------


class Looking:
    """Has runs look at units, and keeps what they bring home."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
        self.seen: list[Evidence] = []
        self.rows = rows
        lock = threading.Lock()
        tell = Attempts.evidence

        def evidence(attempts: Attempts, **options: Any) -> Evidence:
            found = tell(attempts, **options)
            with lock:
                self.seen.append(found)
            return found

        def choose(chunk: Any, units: Any, seed: int, identity: str, *_: Any) -> Any:
            return places(chunk, units, seed, identity, 1.0, self.rows)

        monkeypatch.setattr(Attempts, "evidence", evidence)
        monkeypatch.setattr(probing, "places", choose)

    def windows(self) -> Any:
        """All windows so far, in a form that can be compared."""
        found = {
            (w.input, w.unit, w.start, w.stop, w.unit_rows, w.cuts, w.weights): (
                bits(w.verdicts), bits(w.rows), bits(w.sums),
            )
            for evidence in self.seen
            for w in evidence.windows
        }  # fmt: skip
        self.seen.clear()
        return found


def as_written(way: Way) -> dict[str, str]:
    return {"order": "written"} if way.order is None else {}


def has_cuts(analysis: Analysis, dataset: Dataset) -> bool:
    """Whether any region has a cut that exists in a dataset."""
    plan = WrittenPlan(analysis, dataset, ())
    return any(plan.applies(analysis.step(c)) for r in analysis.regions for c in plan.cuts(r))


def plain() -> Analysis:
    return Analysis(
        steps=(
            Step(kind="weight", name="w", args="x", body="1 + x / 8"),
            Step(kind="cut", name="big", args="x", body="x > 3"),
            Step(kind="column", name="total", args="Jet_pt", body="ak.to_numpy(ak.sum(Jet_pt, axis=1))"),
            Step(kind="cut", name="hard", args="total", body="total > 4"),
            Step(kind="cut", name="lucky", args="x, *, rng", body="rng('luck').uniform() < 0.6"),
            Step(kind="cut", name="first", args="Jet_pt", body="ak.firsts(Jet_pt) > 1", after="hard"),
        ),
        regions={"A": ("big", "hard", "lucky", "first"), "B": ("!big", "lucky")},
        outputs=(
            Output(name="sum", args="x, weight", body="float((x * weight).sum())"),
            Output(name="always", args="event", body="event.tolist()"),
        ),
        identity=("event",),
    )  # fmt: skip


def test_windows_are_the_same_however_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = jets(150, 16, files=2)
    answer = oracle(plain(), [dataset])
    looking = Looking(monkeypatch, 9)
    expected = None
    for way in (
        Way(None, "auto", None, "inline", 1),
        Way(None, 16, 5, "inline", 1),
        Way(None, 40, 7, "threads", 3),
        Way(("lucky", "big", "total", "w", "hard", "first"), 33, None, "threads", 2),
    ):
        result = run(build(plain()), MemorySource([dataset]), way, **as_written(way))
        check_outputs(result, answer)
        check_yields(result, answer)
        windows = looking.windows()
        assert len(windows) == 20
        assert windows == (expected or windows)
        expected = windows


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(analyses(), filesets(), st.data())
def test_looking_does_not_change_the_answer(
    analysis: Analysis, datasets: tuple[Dataset, ...], data: st.DataObject
) -> None:
    way = data.draw(ways(analysis))
    rows = data.draw(st.sampled_from((1, 7, 10_000)))
    with pytest.MonkeyPatch.context() as patch:
        looking = Looking(patch, rows)
        try:
            answer = oracle(analysis, datasets)
        except StepRaisedError:
            reject()
        result = run(build(analysis), MemorySource(datasets), way, **as_written(way))
        check_outputs(result, answer)
        check_yields(result, answer)
        units = sum(len(file.borders) - 1 for one in datasets if has_cuts(analysis, one) for file in one.files)
        assert len({k[:2] for k in looking.windows()}) == units


def test_what_comes_home_is_kept_and_added_up() -> None:
    learned = Learned()
    none = np.empty((0, 0), np.int8)
    cost = StepCost.of_call(10, 5, 0.5, 100)
    for number in range(MAX_WINDOWS + 88):
        window = Window(0, 0, 1, number, 1, (), none, np.empty(0, np.int64))
        learned.add(
            Evidence(
                steps=(("a", cost),), windows=(window,), probed=(("a", cost), ("b", cost)),
            )
        )  # fmt: skip
    found = learned.evidence([("a", "cut")])
    assert [w.unit for w in found.windows] == list(range(88, MAX_WINDOWS + 88))
    assert dict(found.steps)["a"].calls == MAX_WINDOWS + 88
    assert dict(found.probed)["b"].rows_in == 10 * (MAX_WINDOWS + 88)
    assert found.guards == (("a", "cut"),)


@pytest.mark.filterwarnings("always")
def test_evidence_tells_terrain_and_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = Analysis(
        steps=(
            Step(kind="cut", name="positive", args="x", body="x > 0"),
            Step(kind="cut", name="inverse", function=lambda x: 1 / x > 0.2),
        ),
        regions={"A": ("positive", "inverse")},
        outputs=(Output(name="rows", args="event", body="event.tolist()"),),
    )
    dataset = jets(64, 16, files=1)
    looking = Looking(monkeypatch, 8)
    order = ("inverse", "positive")
    result = run(build(analysis), MemorySource([dataset]), Way(order, 16, None, "inline", 1))
    check_outputs(result, oracle(analysis, [dataset]))
    assert len(looking.seen) == 4
    for evidence in looking.seen:
        assert evidence.terrain is not None
        assert [step.name for step in evidence.terrain.steps] == ["positive", "inverse"]
        assert dict(evidence.probed).keys() == {"positive", "inverse"}
        assert dict(evidence.probed)["inverse"].rows_in == 8
        assert dict(evidence.steps)["inverse"].rows_in == 16


def test_a_lane_that_has_rows_without_the_guard_is_given_up_for_the_look() -> None:
    """N-1 lanes show a step rows that the cut they leave out protects it from."""
    analysis = wr.Pipeline("nminus1")
    analysis.cut(lambda x: x > 3, name="big")
    analysis.cut(lambda Jet_pt: ak.num(Jet_pt) >= 2, name="two")
    analysis.cut(lambda Jet_pt: Jet_pt[:, 1] > 1, name="second")
    analysis.region("SR", "big", "two", "second")
    analysis.output(lambda event: event.tolist(), name="rows")
    dataset = jets(150, 16, files=2)
    how: Any = {"progress": False, "nminus1": True, "order": "written", "engine": "inline"}
    expected = analysis.run(MemorySource([dataset]), **how)
    with pytest.MonkeyPatch.context() as patch:
        looking = Looking(patch, 16)
        result = analysis.run(MemorySource([dataset]), **how)
        assert result["rows"] == expected["rows"]
        # What awkward says of rows that raise has the length of the chunk in it.
        told = [re.sub("length [0-9]+", "", repr(r.nminus1["SR"])) for r in (result, expected)]
        assert told[0] == told[1]
        for evidence in looking.seen:
            assert set(evidence.guards) <= {("second", "two")}
            for window in evidence.windows:
                two, second = window.verdicts[:, 1], window.verdicts[:, 2]
                assert (second[two == FAILED] == NOT_ASKED).all()
                assert (second[two == PASSED] != NOT_ASKED).all()


def test_over_a_link_what_shown_rows_need_comes_in_one_request(tmp_path: Path) -> None:
    rows, unit = 8_000, 2_000
    random = np.random.default_rng(2)
    names = [f"c{number}" for number in range(12)]
    table = {name: random.random(rows) for name in names}
    pq.write_table(pa.table(table), tmp_path / "p.parquet", row_group_size=unit)
    analysis = wr.Pipeline("link")
    for name in names:
        analysis.cut(lambda c: c > 0.2, name=f"cut_{name}", reads={"c": name})
    analysis.output(lambda c0: len(c0), name="count")
    web = RangeServer(tmp_path, latency_s=0.001)
    try:
        source = wr.data.open({"data": f"{web.url}/p.parquet"}, grid=unit)
        with pytest.MonkeyPatch.context() as patch:
            looking = Looking(patch, 64)
            how: Any = {"progress": False, "order": "written", "engine": "inline", "chunk": unit}
            result = analysis.run(source, **how)
    finally:
        web.close()
    passed = np.logical_and.reduce([table[name] > 0.2 for name in names])
    assert result["count"] == passed.sum()
    windows = [window for evidence in looking.seen for window in evidence.windows]
    assert len(windows) == 4
    for window in windows:
        part = slice(window.start, window.stop)
        kept = (window.verdicts == PASSED).all(axis=1)
        assert window.rows[kept].sum() == passed[part].sum()
    # The file's end, and one request for each chunk: all cuts of its window need all columns.
    assert len(web.requests) <= 3 + 4


def test_rows_of_units_are_known_without_looking_at_every_input() -> None:
    """A checkpoint of every dataset asks; there may be thousands of files."""
    made = wr.Pipeline("units")
    made.output(lambda x: len(x), name="n")
    sizes = {"one": [(100, 30), (70, 30), (10, 30)], "two": [(8, 8)]}
    datasets = [
        Dataset(
            name=name,
            files=tuple(
                File(label=f"{name}{number}.mem", columns={"x": np.arange(rows)}, borders=(*range(0, rows, unit), rows))
                for number, (rows, unit) in enumerate(files)
            ),
        )
        for name, files in sizes.items()
    ]
    source = MemorySource(datasets)

    class Unwalked(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("all inputs are walked over")

    source.inputs = Unwalked(source.inputs)  # type: ignore[assignment]
    workload = PipelineWorkload(made.definition(0), source)
    assert workload.unit_rows("one") == 0
    worker = workload.open_worker(0)
    open_input(worker, 0)
    assert workload.unit_rows("one") == 100 / 4
    open_input(worker, 1)
    open_input(worker, 1)
    workload.learn(RunFacts(borders={3: (0, 8)}))
    assert workload.unit_rows("one") == 170 / 7
    assert workload.unit_rows("two") == 8
    workload.learn(RunFacts(borders={3: (0, 4, 8)}))
    assert workload.unit_rows("two") == 4
    worker.close()
