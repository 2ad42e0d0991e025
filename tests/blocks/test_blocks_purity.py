"""A step that looks at other rows is found; one that does not is left in peace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.pilot import take_pilot
from windrow.blocks.purity import first_difference, sample_halves
from windrow.blocks.results import UpDown, Verdict
from windrow.blocks.selection import everything
from windrow.errors import RowPurityError
from windrow.pipeline.binding.bind import bind

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 60
GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=ROWS)
COUNTS = GENERATOR.integers(0, 4, ROWS)
J = ak.unflatten(GENERATOR.normal(size=COUNTS.sum()), COUNTS)
NESTED = ak.unflatten(J, [20] * 3)  # lists of lists
TIMES = np.array(["NaT", "2020-01-01", "2021-01-01"] * 20, dtype="M8[s]")


def check(step: Callable[..., Any], *columns: Any, size: int = 64) -> int | None:
    rows = len(columns[0])
    return first_difference(step(*columns), rows, lambda positions: step(*[c[positions] for c in columns]), size)


PURE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "floats": (lambda x: np.sqrt(np.abs(x)), (X,)),
    "nan": (lambda x: np.where(x > 0, x, np.nan), (X,)),
    "infinite": (lambda x: np.where(x > 0, np.inf, x), (X,)),
    "float32": (lambda x: x.astype(np.float32) ** 3, (X,)),
    "complex64": (lambda x: (x + 1j).astype(np.complex64), (X,)),
    "verdict": (lambda x: Verdict(x > 0), (X,)),
    "undefined": (lambda x: Verdict(x > 0, x < -1), (X,)),
    "updown": (lambda x: UpDown(x, x + 1, x - 1), (X,)),
    "matrix": (lambda x: np.stack([x, x * 2], axis=1), (X,)),
    "text": (lambda x: np.where(x > 0, "up", "down"), (X,)),
    "times": (lambda t: t, (TIMES,)),
    "lists": (lambda j: j[j > 0], (J,)),
    "firsts": (ak.firsts, (J,)),
    "lists with None": (lambda j: ak.mask(j, j > 0), (J,)),
    "None for lists": (lambda j: ak.mask(j, ak.num(j) > 1), (J,)),
    "lists of lists": (lambda n: n, (NESTED,)),
    "records": (lambda j: ak.zip({"a": j, "b": j * 2}), (J,)),
    "record of lists": (lambda j: ak.zip({"a": j, "n": ak.num(j)}, depth_limit=1), (J,)),
    "field called parts": (lambda x: ak.zip({"parts": x, "other": x}), (X,)),
    "times with None": (lambda t: ak.mask(ak.Array(t), ~np.isnat(t)), (TIMES,)),
    "nothing but None": (lambda x: ak.Array([None] * len(x)), (X,)),
    "strings": (lambda x: ak.Array([str(v) for v in x]), (X,)),
    "numbers and strings": (lambda x: ak.Array([v if v > 0 else str(v) for v in x.tolist()]), (X,)),
    "float32 as float64": (lambda x: (x.astype("f4") * 3 + np.float32(len(x) * 1e-9)).astype("f8"), (X,)),
}


@pytest.mark.parametrize("name", PURE)
def test_row_pure_steps_pass(name: str) -> None:
    step, columns = PURE[name]
    assert check(step, *columns) is None


IMPURE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mean": (lambda x: Verdict(x > x.mean()), (X,)),
    "maximum": (lambda x: x / x.max(), (X,)),
    "length": (lambda x: x + len(x), (X,)),
    "position": (lambda x: np.arange(len(x)), (X,)),
    "neighbour": (lambda x: np.roll(x, 1), (X,)),
    "sort": (np.sort, (X,)),
    "one variation": (lambda x: UpDown(x, x, x - x.min()), (X,)),
    "undefined by rank": (lambda x: Verdict(x > 0, x == x.max()), (-np.abs(X),)),
    "numbers in lists": (lambda j: j - ak.mean(j), (J,)),
    "which is None": (lambda x: ak.mask(ak.Array(x), x < np.median(x)), (X,)),
    "records": (lambda j: ak.zip({"a": j, "b": j - ak.sum(j)}), (J,)),
    "matrix": (lambda x: np.stack([x, x - x.mean()], axis=1), (X,)),
    "dates": (lambda t: t + len(t), (TIMES,)),
}


@pytest.mark.parametrize("name", IMPURE)
def test_steps_that_look_at_other_rows_are_found(name: str) -> None:
    step, columns = IMPURE[name]
    found = check(step, *columns)
    assert found is not None
    assert 0 <= found < len(columns[0])


def test_lists_that_change_length_inside_records_are_found() -> None:
    """All numbers are the same and so is how many there are, so that just the lengths tell."""

    def records(counts: Any) -> Any:
        lists = ak.unflatten(np.zeros(counts.sum()), counts)
        return ak.zip({"lists": lists, "x": np.zeros(len(counts))}, depth_limit=1)

    def ask(positions: Any) -> Any:
        counts = np.ones(len(positions), dtype=np.int64)
        counts[0], counts[-1] = 2, 0
        return records(counts)

    assert first_difference(records(np.ones(ROWS, dtype=np.int64)), ROWS, ask, ROWS) is not None


def test_the_row_that_is_named_is_one_that_changed() -> None:
    answer = np.arange(10.0)

    def ask(positions: Any) -> Any:
        again = answer[positions]
        again[positions == 6] += 1
        return again

    assert first_difference(answer, 10, ask, 10) == 6


@pytest.mark.parametrize(
    ("row_s", "said", "again"), [(0.0, None, 256), (1e-3, None, 30), (1.0, None, 16), (1.0, 300, 300)]
)
def test_fewer_rows_that_take_long_are_asked_about_again(row_s: float, said: int | None, again: int) -> None:
    asked: list[int] = []
    made = wr.Pipeline("again")

    @made.column
    def twice(x: Any) -> Any:
        asked.append(len(x))
        return 2 * x

    made.output(lambda twice: float(np.sum(twice)), name="sum")
    reader = wr.data.open({"x": np.arange(1000.0)}).open(0)
    definition = made.definition(0, sample_rows=said)
    program = bind(definition, "data", {}, reader.info, "data")
    program.row_s = {"twice": row_s}
    run = ChunkRun(program, reader, Chunk(0, "data", 0, (0, 1000), (0, 1000)), definition.written, {})
    run.evaluate(program.steps["twice"], everything(1000))
    assert asked[0] == 1000
    assert sum(asked[1:]) == again


SCATTERED: dict[str, Callable[[Any], Any]] = {
    "pure": lambda x: x * 2,
    "mean": lambda x: x - x.mean(),
    "above the mean": lambda x: (x > x.mean()) * 1.0,
    "maximum": lambda x: (x == x.max()) * 1.0,
    "position": lambda x: np.arange(len(x)) * 1.0,
    "neighbour": lambda x: x - np.roll(x, 1),
    "length": lambda x: x / len(x),
}


@pytest.mark.parametrize("name", SCATTERED)
def test_what_was_answered_for_scattered_rows_is_not_asked_again(name: str) -> None:
    asked: list[int] = []
    made = wr.Pipeline("again")

    @made.column
    def step(x: Any) -> Any:
        asked.append(len(x))
        return SCATTERED[name](x)

    made.output(lambda step: float(np.sum(step)), name="sum")
    reader = wr.data.open({"x": np.random.default_rng(5).normal(size=50_000)}).open(0)
    definition = made.definition(0)
    program = bind(definition, "data", {}, reader.info, "data")
    run = ChunkRun(program, reader, Chunk(0, "data", 0, (0, 50_000), (0, 50_000)), definition.written, {})
    pilot = take_pilot(run, (), 50_000, above=())
    assert pilot is not None
    run.samples = pilot.look.answers
    few = asked[-1]
    assert few < 2500
    asked.clear()
    if name == "pure":
        run.evaluate(program.steps["step"], everything(50_000))
        assert program.unchecked == {"output sum"}
    else:
        with pytest.raises(RowPurityError, match="not a function of its own row"):
            run.evaluate(program.steps["step"], everything(50_000))
    assert asked == [50_000]


def test_one_row_has_no_company() -> None:
    def never(positions: Any) -> Any:
        raise AssertionError("asked")

    assert first_difference(np.zeros(1), 1, never, 10) is None
    assert first_difference(np.zeros(0), 0, never, 10) is None


def test_fields_nobody_read_are_not_read_for_the_check() -> None:
    read: list[str] = []

    def load() -> Any:
        read.append("x")
        return np.arange(4.0)

    form = ak.forms.RecordForm([ak.forms.NumpyForm("float64", form_key="x")], ["x"], form_key="r")
    records = ak.from_buffers(form, 4, {"x-data": load})
    assert first_difference(records, 4, lambda positions: records[positions], 4) is None
    assert read == []


@given(st.integers(2, 40), st.integers(1, 50), st.integers(0, 5), st.sampled_from("bfj"))
def test_halves_are_disjoint_rows_of_the_block(rows: int, size: int, seed: int, kind: str) -> None:
    generator = np.random.default_rng(seed)
    answer: Any = generator.normal(size=rows)
    if kind == "b":
        answer = Verdict(answer > 1)
    elif kind == "j":
        answer = ak.unflatten(np.arange(2 * rows), np.full(rows, 2))
    halves = sample_halves(answer, rows, size, seed)
    chosen = np.concatenate(halves).tolist()
    assert len(chosen) == len(set(chosen)) == min(rows, size)
    assert all(0 <= row < rows for row in chosen)
    assert all(len(half) for half in halves)


def test_halves_of_a_cut_are_those_that_pass_and_the_others() -> None:
    passed = X > 0.8
    halves = sample_halves(Verdict(passed), ROWS, ROWS, 0)
    assert [set(passed[half].tolist()) for half in halves] == [{False}, {True}]
