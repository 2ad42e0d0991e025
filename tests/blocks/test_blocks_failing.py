"""Finding the rows that a call is to be held against."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.blocks.chunk import Chunk, ChunkRun, Stopped
from windrow.blocks.failing import (
    KEPT_EXCEPTIONS,
    MOST_CALLS,
    MOST_ROWS,
    LeftOut,
    RowSearch,
    RowsFailed,
    failing_rows,
    skipped,
)
from windrow.blocks.selection import Selection, everything
from windrow.core.records import FailureKind, Rows
from windrow.errors import StepError, UsageError, WindrowError
from windrow.pipeline.binding.bind import bind

START = 1000


def chunk_run(analysis: wr.Pipeline, length: int, **options: Any) -> ChunkRun:
    """A chunk of rows 1000 and on of a file, in units of ten."""
    reader = wr.data.open({"x": np.arange(START + length)}).open(0)
    definition = analysis.definition(0)
    program = bind(definition, "data", {}, reader.info, "file.root")
    borders = (*range(START, START + length, 10), START + length)
    chunk = Chunk(0, "file.root", START // 10, borders, borders)
    return ChunkRun(program, reader, chunk, definition.written, {}, **options)


class Asked:
    """A function that raises on some rows, and counts how often it is asked."""

    def __init__(self, bad: set[int], together: frozenset[int] | None = None) -> None:
        self.bad, self.together = bad, together
        self.times = 0

    def __call__(self, index: Any) -> Exception | None:
        self.times += 1
        rows = set(index.tolist())
        if rows & self.bad or (self.together is not None and self.together <= rows):
            return ValueError("bad")
        return None


def plain() -> wr.Pipeline:
    analysis = wr.Pipeline("plain")

    @analysis.column
    def same(x: Any) -> Any:
        return x

    @analysis.output(region=None)
    def rows(same: Any) -> Any:
        return same.tolist()

    return analysis


RUN = chunk_run(plain(), 20)
STEP = RUN.program.steps["same"]


def found_by(search: RowSearch, ask: Any, rows: int, error: Exception | None = None) -> Any:
    return [one.row - START for one in search.find(RUN, STEP, np.arange(rows), ask, error)]


# --- the search -----------------------------------------------------------------------------------


@given(rows=st.integers(1, 300_000), data=st.data())
def test_all_rows_that_fail_are_found_in_few_calls(rows: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, rows - 1), max_size=MOST_ROWS))
    ask = Asked(bad)
    assert found_by(RowSearch(), ask, rows) == sorted(bad)
    assert ask.times <= 1 + 2 * len(bad) * max(1, rows.bit_length())
    assert ask.times < MOST_CALLS


@given(rows=st.integers(MOST_ROWS + 1, 5000), data=st.data())
def test_too_many_rows_are_given_up_soon(rows: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, rows - 1), min_size=MOST_ROWS + 1, max_size=200))
    assert found_by(RowSearch(), Asked(bad), rows) == []
    everywhere = Asked(set(range(rows)))
    assert found_by(RowSearch(), everywhere, rows) == []
    assert everywhere.times < 4 * MOST_ROWS + 40


def test_the_budget_is_for_all_searches_together() -> None:
    search = RowSearch(rows=5)
    assert found_by(search, Asked({1, 2}), 100) == [1, 2]
    assert found_by(search, Asked({3, 4, 5}), 100) == [3, 4, 5]
    assert found_by(search, Asked({6}), 100) == []
    tired = RowSearch(calls=10)
    assert found_by(tired, Asked({17}), 1000) == []
    assert found_by(tired, Asked(set()), 1) == []


@given(rows=st.integers(2, 500), data=st.data())
def test_rows_that_fail_only_together_are_not_found(rows: int, data: st.DataObject) -> None:
    pair = data.draw(st.sets(st.integers(0, rows - 1), min_size=2, max_size=2))
    assert found_by(RowSearch(), Asked(set(), frozenset(pair)), rows) == []


@pytest.mark.parametrize("error", [MemoryError("full"), UsageError("not like that")])
def test_what_is_no_matter_of_rows_ends_the_search(error: Exception) -> None:
    assert found_by(RowSearch(), lambda index: error, 10) == []


def test_an_interrupt_passes() -> None:
    def ask(index: Any) -> Exception | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found_by(RowSearch(), ask, 10)


def test_a_run_that_ends_does_not_wait_for_it() -> None:
    run = chunk_run(plain(), 20, stopping=lambda: True)
    with pytest.raises(Stopped):
        run.asking(STEP)(np.arange(5))


def test_few_exceptions_are_kept_and_without_their_frames() -> None:
    def ask(index: Any) -> Exception | None:
        try:
            raise ValueError("bad")
        except ValueError as error:
            return error

    found = RowSearch().find(RUN, STEP, np.arange(10), ask, None)
    assert [one.cause is not None for one in found] == [n < KEPT_EXCEPTIONS for n in range(10)]
    assert all(one.cause is None or one.cause.__traceback__ is None for one in found)


@given(rows=st.integers(1, 20_000), most=st.integers(1, 9), calls=st.integers(0, 400), data=st.data())
def test_no_more_rows_and_calls_than_asked_for(rows: int, most: int, calls: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, rows - 1), max_size=30))
    ask = Asked(bad)
    found, complete = failing_rows(ask, np.arange(rows), most, calls)
    assert set(found) <= bad
    assert len(found) <= most
    assert ask.times <= calls
    assert set(found) == bad or not complete
    if calls >= 2 * 16 * most + 1 and bad:
        assert len(found) >= min(most, len(bad))


# --- what is said ---------------------------------------------------------------------------------


def test_neighbours_with_one_reason_are_told_together() -> None:
    cause = ValueError("no")
    rows = [
        LeftOut(7, "cut", "cut 'cut' raised ValueError: no", "SR"),
        LeftOut(5, "cut", "cut 'cut' raised ValueError: no", "SR", cause),
        LeftOut(6, "cut", "cut 'cut' raised ValueError: no", "SR"),
        LeftOut(8, "cut", "cut 'cut' raised KeyError: 1", "SR"),
        LeftOut(9, "cut", "cut 'cut' raised KeyError: 1", "SR, CR"),
        LeftOut(11, "other", "cut 'other' raised KeyError: 1", "SR"),
    ]
    found = skipped(rows, 4, "file.root")
    assert [part for part, _ in found] == [
        Rows(4, 5, 8), Rows(4, 8, 9), Rows(4, 9, 10), Rows(4, 11, 12),
    ]  # fmt: skip
    first = found[0][1]
    assert first.kind is FailureKind.USER
    assert first.message == "cut 'cut' raised ValueError: no [file.root, rows 5-8; region SR]"
    assert first.place == "cut, file.root"
    assert isinstance(first.exception, StepError)
    assert first.exception.__cause__ is cause
    assert first.exception.facts["start"] == 5
    assert found[1][1].message == "cut 'cut' raised KeyError: 1 [file.root, row 8; region SR]"
    assert found[1][1].exception is None
    assert skipped([], 0, "file.root") == ()


# --- in a chunk -----------------------------------------------------------------------------------


def negative(kind: str, bad: set[int], each: bool) -> wr.Pipeline:
    analysis = wr.Pipeline("negative")
    rows = np.array(sorted(bad))

    def whole(x: Any) -> Any:
        if np.isin(x, rows).any():
            raise ValueError("bad row")
        return x > 0 if kind == "cut" else x

    def single(x: Any) -> Any:
        for row in rows:
            if row == x:
                raise ValueError("bad row")
        return x > 0 if kind == "cut" else x

    getattr(analysis, kind)(single if each else whole, name="step", each=each)
    analysis.region("SR", *(["step"] if kind == "cut" else []))

    @analysis.output(region="SR")
    def out(x: Any) -> Any:
        return x.tolist()

    if kind == "column":
        analysis.output(lambda step: len(step), name="reader", region="SR")
    return analysis


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("kind", ["cut", "column", "weight"])
def test_a_step_names_its_rows(kind: str, each: bool) -> None:
    bad = {START + 3, START + 4, START + 37}
    run = chunk_run(negative(kind, bad, each), 50)
    run.search = RowSearch()
    with pytest.raises(RowsFailed) as info:
        run.run()
    assert {one.row for one in info.value.rows} == bad
    assert {one.step for one in info.value.rows} == {"step"}
    assert "ValueError" in info.value.rows[0].what
    again = run.again(run.order, Selection(50, np.array([0, 1, 2, 5, 49])))
    partial = again.run()
    values = [value for leaf in partial.nodes.values.values() for value in leaf.outputs.values()]
    lists = [value.value for value in values if isinstance(value.value, list)]
    assert sorted(functools.reduce(operator.iadd, lists, [])) == [START + n for n in (0, 1, 2, 5, 49)]


@settings(max_examples=examples(40))
@given(bad=st.sets(st.integers(0, 49), max_size=20), keep=st.sets(st.integers(0, 49)))
def test_an_output_names_its_rows_in_all_units_at_once(bad: set[int], keep: set[int]) -> None:
    analysis = plain()
    rows = [START + row for row in bad]

    @analysis.output(region=None)
    def odd(x: Any) -> Any:
        if np.isin(x, rows).any():
            raise KeyError("odd")
        return len(x)

    run = chunk_run(analysis, 50)
    run = run.again(run.order, Selection(50, np.array(sorted(keep), dtype=np.int64)))
    run.search = RowSearch()
    if not bad & keep:
        run.run()
        return
    with pytest.raises(RowsFailed) as info:
        run.run()
    assert [one.row for one in info.value.rows] == sorted(START + row for row in bad & keep)
    assert info.value.rows[0].what == "output 'odd' raised KeyError: 'odd'"
    assert info.value.rows[0].region == "None"


def test_without_a_search_the_call_fails() -> None:
    with pytest.raises(StepError, match=f"row {START + 3}"):
        chunk_run(negative("cut", {START + 3}, False), 50).run()


def test_another_attempt_reads_nothing_again_and_keeps_what_reading_cost() -> None:
    run = chunk_run(plain(), 50)
    run.run()
    before = run.store.reader.bytes_read
    again = run.again(run.order, everything(50))
    again.run()
    assert run.store.reader.bytes_read == before
    assert again.meters["same"].bytes_read == run.meters["same"].bytes_read > 0
    assert again.meters["same"].calls == 1


def test_an_exception_is_told_and_nothing_is_kept_of_the_call() -> None:
    run = chunk_run(negative("cut", {START + 3}, False), 50)
    step = run.program.steps["step"]
    assert isinstance(run.asking(step)(np.arange(50)), ValueError)
    assert run.asking(step)(np.array([2])) is None
    assert "step" not in run.meters


# --- errors that are hard to tell -----------------------------------------------------------------


class Speechless(Exception):
    def __str__(self) -> str:
        raise TypeError("no words")


class OwnBase(BaseException):
    """No ``Exception``: what a library ends a thread with."""


def raising(what: str, x: Any) -> Any:
    if what == "speechless":
        raise Speechless
    if what == "generator":
        raise GeneratorExit
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "own":
        raise OwnBase("of a library")
    if what == "windrow":
        raise UsageError("not like that")
    error = ValueError("again")
    if what == "itself":
        raise error from error
    error.__cause__ = KeyError("first")
    error.__cause__.__cause__ = error
    raise error


@pytest.mark.parametrize("place", ["cut", "column", "weight", "output"])
@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("speechless", "raised Speechless: .its text raised TypeError"),
        ("generator", "a step raised GeneratorExit"),
        ("interrupt", "a step raised KeyboardInterrupt"),
        ("own", "a step raised OwnBase: of a library"),
        ("windrow", "not like that"),
        ("itself", "raised ValueError: again"),
        ("circle", "raised ValueError: again"),
    ],
)
def test_whatever_a_step_raises_is_the_error_of_that_step_and_its_causes_end(place: str, what: str, told: str) -> None:
    analysis = wr.Pipeline("raising")

    def bad(x: Any) -> Any:
        return raising(what, x)

    getattr(analysis, place)(bad, name="bad")
    if place != "output":
        analysis.region("SR", *(["bad"] if place == "cut" else []))
        reads = "bad" if place == "column" else "x"
        analysis.output(lambda x, weight: len(x), name="out", region="SR", reads={"x": reads})
    # A cut also on processes: the others fail in the same place.
    engine = "processes" if place == "cut" else "threads"
    with pytest.raises(WindrowError, match=told) as info:
        analysis.run({"x": np.arange(20)}, engine=engine, workers=2, progress=False)
    assert info.value.facts["step"] == "bad"
    seen = set()
    error: BaseException | None = info.value
    while error is not None:
        assert id(error) not in seen
        seen.add(id(error))
        error = error.__cause__
