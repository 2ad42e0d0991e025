"""Loops against the plain one: every row once, whatever cuts and runs it; and what wrong ones are told."""

from __future__ import annotations

import json
import operator
import threading
import time
from pathlib import Path
from typing import Any, cast

import awkward as ak
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import MergeError, StepResultError, TaskError, UnknownNameError, UsageError
from windrow.loops import loop as loops
from windrow.loops import team
from windrow.place.queues import LAYOUTS, VICTIMS
from windrow.shape.partition.schemes import names


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long rows take is no test result."""
    monkeypatch.setattr(loops, "SMALL_S", -1.0)
    monkeypatch.setattr(team, "JUDGED_S", 1e9)


def counts(n: int, **options: Any) -> tuple[np.ndarray, wr.LoopReport]:
    seen = np.zeros(n, dtype=np.int64)
    report = wr.LoopReport()

    def kernel(start: int, stop: int) -> None:
        seen[start:stop] += 1

    assert wr.parallel_for(kernel, n, report=report, **options) is None
    return seen, report


@given(
    n=st.integers(0, 300),
    partition=st.sampled_from(names()),
    queues=st.sampled_from(LAYOUTS),
    victims=st.sampled_from(VICTIMS),
    workers=st.integers(1, 4),
    grain=st.integers(1, 20),
)
def test_every_row_is_run_once(n: int, partition: str, queues: str, victims: str, workers: int, grain: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loops, "SMALL_S", -1.0)
        patched.setattr(team, "JUDGED_S", 1e9)
        seen, report = counts(
            n, partition=partition, queues=queues, victims=victims, workers=workers, grain=grain, engine="threads"
        )
    assert seen.tolist() == [1] * n
    assert sum(report.chunks) == n


def test_a_kernel_of_one_row() -> None:
    out = np.zeros(100)

    def kernel(row: int) -> None:
        out[row] = row * row

    wr.parallel_for(kernel, 100, workers=2)
    assert out.tolist() == [row * row for row in range(100)]


def test_several_threads_run_chunks_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)

    def kernel(start: int, stop: int) -> None:
        if start < 2:
            both.wait()

    wr.parallel_for(kernel, 4, "SS", workers=2)


def test_compiled_kernels_let_go_of_the_lock_and_are_compiled_once() -> None:
    numba = pytest.importorskip("numba")
    out = np.zeros(1000)

    def plain(start: int, stop: int, out: np.ndarray) -> None:
        for row in range(start, stop):
            out[row] = out[row] + row

    def each(row: int, out: np.ndarray) -> None:
        out[row] = out[row] + row

    report = wr.LoopReport()
    wr.parallel_for(numba.njit(plain), 1000, "GSS", args=(out,), workers=2, report=report)
    assert report.engine == "threads"
    wr.parallel_for(numba.njit(each), 1000, "GSS", args=(out,), workers=2)
    assert out.tolist() == [2 * row for row in range(1000)]


# --- reductions ---------------------------------------------------------------------------------------


def test_reductions_have_the_same_bits_for_any_number_of_workers_and_any_scheme() -> None:
    values = np.random.default_rng(1).normal(size=10_007)

    def total(start: int, stop: int) -> float:
        return float(values[start:stop].sum())

    found = {
        wr.parallel_for(total, len(values), partition, reduce=operator.add, workers=workers, engine=engine)
        for partition in ("auto", "GSS", "SS", "AWF-C", "STATIC-STEAL")
        for workers, engine in ((1, "auto"), (2, "threads"), (3, "threads"), (2, "inline"))
    }
    assert len(found) == 1
    assert found.pop() == pytest.approx(values.sum())
    assert wr.parallel_for(total, 0, reduce=operator.add) is None


def test_reductions_in_processes() -> None:
    values = np.arange(1000.0)

    def total(start: int, stop: int) -> float:
        return float(values[start:stop].sum())

    report = wr.LoopReport()
    found = wr.parallel_for(total, 1000, "FAC2", reduce=operator.add, workers=2, engine="processes", report=report)
    assert found == values.sum()
    assert report.engine == "processes"
    assert sum(report.chunks) == 1000


# --- blocks of arrays ---------------------------------------------------------------------------------


ARRAYS: dict[str, Any] = {
    "numpy": np.arange(3000.0).reshape(1000, 3),
    "awkward": ak.Array([[float(row)] * (row % 4) for row in range(1000)]),
    "csr": scipy.sparse.random(1000, 50, 0.1, format="csr", random_state=1),
}


def twice(block: Any) -> Any:
    return block * 2


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("engine", ["inline", "threads", "processes", "auto"])
def test_blocks_are_put_together_in_their_order(kind: str, engine: str) -> None:
    array = ARRAYS[kind]
    found = wr.map_blocks(twice, array, "FAC2", workers=2, engine=engine)
    expected = array * 2
    assert type(found) is type(expected)
    if kind == "csr":
        assert (found != expected).nnz == 0
        assert found.shape == expected.shape
    elif kind == "awkward":
        assert found.to_list() == expected.to_list()
    else:
        assert found.tobytes() == expected.tobytes()


def test_a_block_of_a_sparse_matrix_is_a_matrix_of_these_rows() -> None:
    matrix = ARRAYS["csr"]
    vector = np.arange(50.0)
    found = wr.map_blocks(lambda block: block @ vector, matrix, "MFSC", workers=2)
    assert found.tobytes() == (matrix @ vector).tobytes()


def test_blocks_that_are_reduced() -> None:
    values = np.random.default_rng(2).normal(size=(5000, 2))
    found = [
        wr.map_blocks(
            lambda block: block.sum(axis=0), values, reduce=operator.add, workers=workers, engine=engine
        ).tobytes()
        for workers, engine in ((1, "inline"), (2, "threads"), (2, "processes"))
    ]
    assert len(set(found)) == 1


def test_no_rows_give_what_the_function_gives_for_none() -> None:
    assert wr.map_blocks(twice, np.zeros((0, 3))).shape == (0, 3)


def test_python_functions_go_to_processes_when_threads_wait_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team.Team, "_judge", _found_held)
    monkeypatch.setattr(loops, "PROCESSES_S", 0.0)
    report = wr.LoopReport()
    found = wr.map_blocks(twice, ARRAYS["numpy"], "SS", workers=2, grain=10, report=report)
    assert found.tobytes() == (ARRAYS["numpy"] * 2).tobytes()
    assert report.engine == "threads, then processes"
    assert "holds the interpreter's lock" in report.explain()
    assert sum(report.chunks) == 1000


def test_kernels_that_hold_the_lock_go_on_alone_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team.Team, "_judge", _found_held)
    seen, report = counts(1000, partition="SS", grain=10, workers=2)
    assert seen.tolist() == [1] * 1000
    assert report.engine == "threads, then inline"
    assert "reduce=" in report.explain()


def _found_held(self: team.Team) -> bool:
    if len(self.trace.chunks) >= 4:
        self.held = self._over = True
    return self.held


@pytest.mark.parametrize(("used", "held"), [(0.5, True), (1.0, False)])
def test_threads_wait_for_the_lock_if_they_hardly_compute(
    used: float, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team, "JUDGED_S", 0.0)
    monkeypatch.setattr(team, "thread_time", lambda: used * time.perf_counter())
    report = wr.LoopReport()
    wr.parallel_for(lambda start, stop: time.sleep(0.005), 40, "SS", workers=2, report=report)
    assert sum(report.chunks) == 40
    assert ("inline" in report.engine) == held


# --- what is told ---------------------------------------------------------------------------------------


def test_what_is_too_small_stays_in_the_calling_thread_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "SMALL_S", 1e9)
    seen, report = counts(1000, workers=2)
    assert seen.tolist() == [1] * 1000
    assert {one.worker for one in report.trace.chunks} == {0}
    assert "not worth waking others for" in report.explain()


def test_phases_are_printed_as_daphne_does(capsys: pytest.CaptureFixture[str]) -> None:
    wr.parallel_for(lambda start, stop: None, 10, timing=True)
    told = json.loads(capsys.readouterr().err)
    assert set(told) == {"startup_seconds", "compilation_seconds", "execution_seconds", "total_seconds"}


def test_a_report_tells_idle_workers_and_steals_and_draws_them(tmp_path: Path) -> None:
    _, report = counts(1000, partition="GSS", queues="percpu", workers=2, engine="threads")
    told = report.to_json()
    assert sum(one["stop"] - one["start"] for one in told["chunks"]) == 1000
    assert len(told["idle_s"]) == 2
    assert "worker 1" in report.explain()
    report.plot(tmp_path / "loop.svg")
    assert (tmp_path / "loop.svg").read_text().count("<rect") > len(told["chunks"])


def test_a_grain_above_the_rows_is_one_chunk_and_told() -> None:
    seen, report = counts(10, grain=50, workers=2)
    assert seen.tolist() == [1] * 10
    assert "grain=50 is more than the 10 rows" in report.explain()


def test_no_rows_are_told() -> None:
    _, report = counts(0, workers=2)
    assert "there were no rows" in report.explain()


def _in_a_task() -> int:
    report = wr.LoopReport()
    wr.parallel_for(lambda start, stop: None, 100, report=report)
    return report.workers


def test_a_loop_in_a_task_has_the_core_of_the_task() -> None:
    with wr.Session(workers=2, progress=False, store=False):
        assert wr.task(_in_a_task)().result() == 1


# --- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_a_row_that_raises_is_named_and_nothing_is_run_twice(engine: str) -> None:
    seen = np.zeros(100, dtype=int)

    def kernel(row: int) -> None:
        seen[row] += 1
        if row == 17:
            raise ValueError("seventeen")

    with pytest.raises(TaskError, match="kernel raised ValueError at row 17: seventeen") as caught:
        wr.parallel_for(kernel, 100, "GSS", workers=2, engine=engine)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.facts["start"] == 17
    assert seen.max() == 1


def test_after_a_row_that_raises_no_more_are_begun() -> None:
    seen = np.zeros(100, dtype=int)
    begun, raising = threading.Event(), threading.Event()

    def first(row: int) -> None:
        seen[row] += 1
        raise ValueError("at once")

    def with_another(row: int) -> None:
        seen[row] += 1
        if row == 0:
            assert begun.wait(30)
            raising.set()
            raise ValueError("while another runs")
        begun.set()
        assert raising.wait(30)
        time.sleep(0.3)

    with pytest.raises(TaskError, match="at row 0: at once"):
        wr.parallel_for(first, 100, workers=2)
    assert seen.sum() == 1
    seen[:] = 0
    with pytest.raises(TaskError, match="at row 0: while another runs"):
        wr.parallel_for(with_another, 100, "SS", workers=2)
    assert seen.tolist() == [1, 1, *[0] * 98]


@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_blocks_that_raise_are_named(engine: str) -> None:
    def function(block: Any) -> Any:
        if block.max() >= 1500:
            raise ValueError("too far")
        return block

    with pytest.raises(TaskError, match=r"function raised ValueError at rows .*too far"):
        wr.map_blocks(function, ARRAYS["numpy"], "MSTATIC", workers=2, engine=engine)


def test_functions_have_to_give_a_row_for_each() -> None:
    with pytest.raises(StepResultError, match="has to return a row for each row of its block, and gave 1 rows"):
        wr.map_blocks(lambda block: block[:1], np.zeros(100), "GSS", workers=2)
    with pytest.raises(StepResultError, match="reduce="):
        wr.map_blocks(lambda block: float(block.sum()), np.zeros(100))


def test_rows_that_depend_on_each_other_are_refused() -> None:
    values = np.zeros(10)
    total = np.zeros(1)
    added = 0.0

    def sums(row: int) -> None:
        values[row] = values[row - 1] + 1

    def ranged(start: int, stop: int) -> None:
        for row in range(start, stop):
            values[row] = values[row + 1] * 2

    def collects(row: int) -> None:
        total[0] += values[row]

    def counts_up(row: int) -> None:
        nonlocal added
        added += values[row]

    for kernel in (sums, ranged):
        with pytest.raises(UsageError, match="a row needs what another one wrote"):
            wr.parallel_for(kernel, 10)
    with pytest.raises(UsageError, match="the same place for all rows"):
        wr.parallel_for(collects, 10)
    with pytest.raises(UsageError, match="'added', which all rows share"):
        wr.parallel_for(counts_up, 10)
    assert (values == 0).all()


def test_rows_that_only_read_others_are_not_refused() -> None:
    values, out = np.arange(12.0), np.zeros(10)

    def kernel(row: int) -> None:
        window = values[row : row + 3]
        out[row] = window.sum() + values[row + 1]

    wr.parallel_for(kernel, 10, workers=2)
    assert out[0] == 0 + 1 + 2 + 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: wr.parallel_for(print, 10, "GSSS"), "did you mean 'GSS'"),
        (lambda: wr.parallel_for(print, 10, queues="perccpu"), "did you mean 'percpu'"),
        (lambda: wr.parallel_for(print, 10, victims="seqq"), "did you mean 'seq"),
        (lambda: wr.parallel_for(print, 10, engine="thread"), "did you mean 'threads'"),
        (lambda: wr.parallel_for(print, 10, grians=3), "did you mean 'grain'"),
        (lambda: wr.parallel_for(print, 10, grain=0), "grain= is a whole number"),
        (lambda: wr.parallel_for(print, -1), "a whole number of rows"),
        (lambda: wr.parallel_for(cast("Any", 3), 10), "the kernel of a loop is a function"),
        (lambda: wr.parallel_for(lambda: None, 10), "takes 0 arguments"),
        (lambda: wr.parallel_for(lambda row: None, 10, reduce=operator.add), "takes one row"),
        (
            lambda: wr.parallel_for(lambda a, b: None, 10, engine="processes"),
            "what it writes in another process is lost",
        ),
        (lambda: wr.parallel_for(lambda a, b: None, 10, topology="20x20"), "cores are granted here"),
        (lambda: wr.map_blocks(twice, [1, 2]), "got list"),
        (lambda: wr.map_blocks(twice, np.float64(3)), "got float64"),
        (lambda: wr.map_blocks(twice, ARRAYS["csr"].tocsc()), "give matrix.tocsr"),
        (lambda: wr.map_blocks(cast("Any", 3), np.zeros(3)), "got int"),
    ],
)
def test_mistakes_are_told(call: Any, says: str) -> None:
    with pytest.raises((UsageError, UnknownNameError), match=says):
        call()


def test_a_scheme_that_answers_nonsense_ends_the_loop_and_not_the_program() -> None:
    seen = np.zeros(100, dtype=int)

    def scheme(state: Any) -> int:
        return 5 if state.step < 4 else 0

    def kernel(start: int, stop: int) -> None:
        seen[start:stop] += 1

    with pytest.raises(UsageError, match="gave 0 rows for chunk 4"):
        wr.parallel_for(kernel, 100, scheme, workers=2)
    assert seen.max() == 1


def test_what_cannot_be_put_together_is_named() -> None:
    with pytest.raises(UsageError, match=r"reduce= is a function of two values, such as operator.add; got 'sum'"):
        wr.parallel_for(lambda start, stop: 1, 10, reduce="sum")  # type: ignore[arg-type]
    with pytest.raises(
        MergeError, match=r"what <lambda> gave for the rows before \d+, None, and .*unsupported operand"
    ):
        wr.parallel_for(lambda start, stop: None, 1_000, reduce=operator.add)
    x = np.arange(1_000.0)
    with pytest.raises(StepResultError, match=r"<lambda> gave blocks that are no parts of one array: .*dimension"):
        wr.map_blocks(lambda block: np.ones((len(block), 1 + int(block[0] < 1))), x, "GSS", workers=2)


def test_masks_are_refused_or_kept() -> None:
    x = np.arange(1_000.0)
    with pytest.raises(UsageError, match="blocks are not cut from masked arrays"):
        wr.map_blocks(np.sqrt, np.ma.masked_greater(x, 700.0))
    got = wr.map_blocks(lambda block: np.ma.masked_greater(block, 700.0), x)
    assert got.sum() == x[:701].sum()
