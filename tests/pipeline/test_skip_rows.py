"""on_error="skip" leaves out the rows on which a step raises, and no others: a loop over rows is the oracle."""

from __future__ import annotations

import warnings
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import bits
from description import Dataset, File, MemoryReader, MemorySource
from searching import examples
from windrow.blocks.failing import MOST_ROWS
from windrow.errors import CorruptFileError, StepError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TABLE = {0: True, 1: False, 2: True}
LABELS = {0: "zero", 1: "one", 2: "two"}
WRITTEN = ("heavy", "late", "root", "known")


# --- an analysis and its meaning ------------------------------------------------------------------


def written_analysis(each: bool = False) -> wr.Pipeline:
    """``root`` needs y >= 0, ``known`` a key of TABLE, ``labels`` a label of LABELS."""
    analysis = wr.Pipeline("careful")

    @analysis.weight
    def heavy(x: Any) -> Any:
        return 1.0 + x % 3

    @analysis.cut
    def late(x: Any) -> Any:
        return x % 7 != 0

    if each:

        @analysis.column(each=True)
        def root(y):  # type: ignore[no-untyped-def]
            if y < 0:
                raise ValueError("negative")
            return y**0.5

    else:

        @analysis.column
        def root(y):  # type: ignore[no-untyped-def]
            if (y < 0).any():
                raise ValueError("negative")
            return np.sqrt(y)

    @analysis.cut
    def known(key: Any) -> Any:
        return np.array([TABLE[k] for k in key.tolist()], dtype=bool)

    analysis.region("A", "late", "known")
    analysis.region("B", "late")

    @analysis.output(region=None)
    def everything(x: Any) -> Any:
        return x.tolist()

    @analysis.output(regions="*")
    def rows(x: Any) -> Any:
        return x.tolist()

    @analysis.output(regions="A")
    def roots(root: Any, weight: Any) -> Any:
        return float((root * weight).sum())

    @analysis.output(regions="B")
    def labels(label: Any) -> Any:
        return [LABELS[one] for one in label.tolist()]

    return analysis


def raises(order: Sequence[str], x: int, y: float, key: int, label: int) -> bool:
    """Whether anything raises on a row, step by step; ``late`` is in both regions, the others in A only."""
    in_a = in_b = True
    for step in order:
        if step == "late":
            in_a, in_b = in_a and x % 7 != 0, in_b and x % 7 != 0
        elif step == "root" and in_a and y < 0:
            return True
        elif step == "known" and in_a:
            if key not in TABLE:
                return True
            in_a = TABLE[key]
    return in_b and label not in LABELS


def columns(rows: int, seed: int, bad: float) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    y = numbers.exponential(2.0, rows)
    y[numbers.random(rows) < bad] *= -1
    key = numbers.integers(0, 3, rows)
    key[numbers.random(rows) < bad] = 7
    label = numbers.integers(0, 3, rows)
    label[numbers.random(rows) < bad] = 9
    return {"x": np.arange(rows), "y": y, "key": key, "label": label}


def per_row(data: dict[str, Any]) -> list[tuple[int, float, int, int]]:
    return list(zip(*(data[name].tolist() for name in ("x", "y", "key", "label")), strict=True))


def failing(order: Sequence[str], data: dict[str, Any]) -> set[int]:
    return {row[0] for row in per_row(data) if raises(order, *row)}


def source_of(data: dict[str, Any], unit: int) -> MemorySource:
    rows = len(data["x"])
    file = File(label="d.mem", columns=data, borders=(*range(0, rows, unit), rows))
    return MemorySource([Dataset(name="d", files=(file,))])


def failed_rows(result: Any) -> set[int]:
    return {row for entry in result.ledger.entries if entry.state == "failed" for row in range(entry.start, entry.stop)}


def run(analysis: wr.Pipeline, source: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unit")
        return analysis.run(source, progress=False, on_error="skip", **options)


def check(result: Any, data: dict[str, Any], gone: set[int]) -> None:
    """Everything is as if the rows had never been in the data."""
    left = [row for row in per_row(data) if row[0] not in gone]
    past = [row for row in left if row[0] % 7 != 0]
    kept = [row for row in past if TABLE[row[2]]]
    assert failed_rows(result) == gone
    ledger = result.ledger
    assert (ledger.done, ledger.failed, ledger.missing) == (len(left), len(gone), 0)
    assert result.exit_code == (2 if gone else 0)
    assert result["everything"] == [row[0] for row in left]
    assert result["rows", "A"] == [row[0] for row in kept]
    assert result["rows", "B"] == [row[0] for row in past]
    assert result["labels", "B"] == [LABELS[row[3]] for row in past]
    total = sum(row[1] ** 0.5 * (1 + row[0] % 3) for row in kept)
    assert abs(result["roots", "A"] - total) <= 1e-12 * (1 + total)


def check_lines(result: Any, data: dict[str, Any], gone: set[int]) -> None:
    """Counts and sums of whole numbers, in the order that was written."""
    left = [row for row in per_row(data) if row[0] not in gone]
    past = [row for row in left if row[0] % 7 != 0]
    kept = [row for row in past if TABLE[row[2]]]
    for region, stages in (("A", (left, past, kept)), ("B", (left, past))):
        lines = result.cutflow[region].executed
        assert [line.passed for line in lines] == [len(stage) for stage in stages]
        assert [line.sumw for line in lines] == [sum(1.0 + row[0] % 3 for row in stage) for stage in stages]


#: Orders in which no step runs too early; in some, ``known`` drops rows before ``root`` can raise.
GUARDED = [o for o in permutations(WRITTEN) if o.index("late") < min(map(o.index, WRITTEN[2:]))]

WAYS = st.fixed_dictionaries(
    {
        "chunk": st.just("auto") | st.integers(1, 200),
        "_block_rows": st.none() | st.integers(1, 40),
        "engine": st.sampled_from(("inline", "threads")),
        "workers": st.integers(1, 3),
    }
)
DATA = st.builds(columns, st.integers(1, 160), st.integers(0, 2**16), st.sampled_from((0.0, 0.01, 0.05, 0.3)))


# --- which rows -----------------------------------------------------------------------------------


@settings(max_examples=examples(20))
@given(data=DATA, unit=st.integers(1, 64), ways=st.tuples(WAYS, WAYS))
def test_exactly_the_rows_that_raise_are_gone(
    data: dict[str, Any], unit: int, ways: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    gone = failing(WRITTEN, data)
    found = [run(written_analysis(), source_of(data, unit), **way) for way in ways]
    for result in found:
        check(result, data, gone)
        check_lines(result, data, gone)
    one, other = found
    assert bits(one["roots", "A"]) == bits(other["roots", "A"])
    assert one.cutflow.as_dict() == other.cutflow.as_dict()


@pytest.mark.parametrize("order", [["late", "root"], {"data": ["late", "root"]}])
def test_an_order_of_ones_own_is_refused(order: Any) -> None:
    with pytest.raises(UsageError, match="order of your own"):
        run(written_analysis(), {"x": np.arange(3.0)}, order=order)


@settings(max_examples=examples(12))
@given(data=DATA, unit=st.integers(1, 64), chunk=st.integers(1, 200))
def test_compiled_steps(data: dict[str, Any], unit: int, chunk: int) -> None:
    result = run(EACH, source_of(data, unit), chunk=chunk, engine="inline")
    check(result, data, failing(WRITTEN, data))
    check_lines(result, data, failing(WRITTEN, data))


EACH = written_analysis(each=True)  # compiled once


def test_every_row_has_its_reason() -> None:
    data = columns(100, 1, 0.0)
    data["y"][[11, 12, 40]] = -1.0
    data["key"][55] = 7
    data["label"][[8, 9]] = (9, 10)
    result = run(written_analysis(), source_of(data, 25))
    found = {(e.start, e.stop): e.reason for e in result.ledger.problems}
    assert list(found) == [(8, 9), (9, 10), (11, 13), (40, 41), (55, 56)]
    assert found[8, 9] == "output 'labels' raised KeyError: 9 [d.mem, row 8; region B]"
    assert found[11, 13] == "column 'root' raised ValueError: negative [d.mem, rows 11-13; region A]"
    assert found[55, 56] == "cut 'known' raised KeyError: 7 [d.mem, row 55; region A]"
    assert "94 of 100 rows done, 6 failed" in str(result.ledger)


# --- the budget, and what is no matter of rows ----------------------------------------------------


def only_even(**options: Any) -> wr.Pipeline:
    analysis = wr.Pipeline("even")

    @analysis.column
    def half(x):  # type: ignore[no-untyped-def]
        if (x < 0).any():
            raise ValueError("less than nothing")
        return x // 2

    @analysis.output(region=None)
    def halves(half: Any, number: Any) -> Any:
        return number.tolist()

    return analysis


@pytest.mark.parametrize("chunk", [100, 300, 1000])
def test_a_unit_loses_its_rows_within_the_budget_and_all_beyond(chunk: int) -> None:
    x = np.arange(1000)
    x[100 : 100 + MOST_ROWS] = -1  # unit 1: just within
    x[500 : 501 + MOST_ROWS] = -1  # unit 5: one too many
    x[[3, 999]] = -1
    file = File(label="d.mem", columns={"x": x, "number": np.arange(1000)}, borders=tuple(range(0, 1001, 100)))
    source = MemorySource([Dataset(name="d", files=(file,))])
    result = run(only_even(), source, chunk=chunk)
    gone = {3, 999, *range(100, 100 + MOST_ROWS), *range(500, 600)}
    assert failed_rows(result) == gone
    assert result["halves"] == [n for n in range(1000) if n not in gone]


@pytest.mark.parametrize("chunk", [10, 40])
def test_a_unit_all_of_whose_rows_fail(chunk: int) -> None:
    x = np.arange(40)
    x[10:20] = -1
    file = File(label="d.mem", columns={"x": x, "number": np.arange(40)}, borders=(0, 10, 20, 30, 40))
    result = run(only_even(), MemorySource([Dataset(name="d", files=(file,))]), chunk=chunk)
    assert failed_rows(result) == set(range(10, 20))
    assert result["halves"] == [*range(10), *range(20, 40)]


def raising(what: type[BaseException], together: bool = False) -> wr.Pipeline:
    analysis = wr.Pipeline("odd")

    @analysis.column
    def odd(x):  # type: ignore[no-untyped-def]
        if (3 in x and 5 in x) if together else 5 in x:
            raise what("no")
        return x

    @analysis.output(region=None)
    def rows(odd: Any) -> Any:
        return odd.tolist()

    return analysis


def test_rows_that_fail_only_together_take_their_unit_along() -> None:
    result = run(raising(ValueError, together=True), wr.data.open({"x": np.arange(40)}, grid=10))
    assert failed_rows(result) == set(range(10))


def test_no_memory_is_no_matter_of_rows() -> None:
    result = run(raising(MemoryError), wr.data.open({"x": np.arange(40)}, grid=10))
    assert failed_rows(result) == set(range(10))


def test_a_wrong_answer_is_no_matter_of_rows() -> None:
    analysis = wr.Pipeline("short")

    @analysis.cut
    def short(x: Any) -> Any:
        return (x > 2)[: -1 if 5 in x else None]

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    result = run(analysis, wr.data.open({"x": np.arange(40)}, grid=10))
    assert failed_rows(result) == set(range(10))


def test_an_interrupt_passes() -> None:
    source = wr.data.open({"x": np.arange(40)}, grid=10)
    result = run(raising(KeyboardInterrupt), source, chunk=10, engine="inline")
    assert result.interrupted
    assert result.ledger.failed == 0


class Unreadable(MemorySource):
    """Column y cannot be read in some rows."""

    def open(self, index: int) -> MemoryReader:
        reader = super().open(index)
        plain = reader.read

        def read(names: Any, start: int, stop: int) -> dict[str, Any]:
            if "y" in names and start < 30 and stop > 20:
                raise CorruptFileError("d.mem: bad block")
            return plain(names, start, stop)

        reader.read = read  # type: ignore[method-assign,assignment]
        return reader


def test_what_cannot_be_read_is_left_out_by_units() -> None:
    data = columns(70, 3, 0.0)
    data["key"][44] = 7
    file = File(label="d.mem", columns=data, borders=tuple(range(0, 71, 10)))
    result = run(written_analysis(), Unreadable([Dataset(name="d", files=(file,))]))
    assert failed_rows(result) == {*range(20, 30), 44}


def test_by_default_the_first_row_stops_the_run() -> None:
    data = columns(70, 3, 0.0)
    data["key"][44] = 7
    with pytest.raises(StepError, match="row 44"):
        written_analysis().run(source_of(data, 10), progress=False)


# --- files, N-1 and kept rows ---------------------------------------------------------------------


@settings(max_examples=examples(15))
@given(data=DATA, unit=st.integers(1, 64), chunk=st.integers(1, 200))
def test_n_minus_one_counts_without_them(data: dict[str, Any], unit: int, chunk: int) -> None:
    result = run(written_analysis(), source_of(data, unit), chunk=chunk, nminus1=["A"])
    assume(not result.nminus1["A"].failures)  # a cut that protects a step cannot be left out
    gone = failing(WRITTEN, data)
    check(result, data, gone)
    left = [row for row in per_row(data) if row[0] not in gone]
    late = [row for row in left if row[0] % 7 != 0]
    known = [row for row in left if TABLE[row[2]]]
    both = [row for row in late if TABLE[row[2]]]
    assert result.nminus1["A"].nev == [len(rows) for rows in (left, known, late, both)]


def test_rows_that_only_a_cut_left_out_brings_are_not_skipped() -> None:
    data = columns(70, 3, 0.0)
    data["key"][[14, 33]] = 7  # row 14 reaches ``known`` only without ``late``
    result = run(written_analysis(), source_of(data, 10), nminus1=["A"])
    gone = failed_rows(result)
    assert gone == {33}
    assert "late" in result.nminus1["A"].failures
    assert result["rows", "A"] == [row[0] for row in per_row(data) if row[0] % 7 and row[0] != 33 and TABLE[row[2]]]


@settings(max_examples=examples(15))
@given(data=DATA, unit=st.integers(1, 64), chunk=st.integers(1, 200))
def test_files_and_kept_rows_do_not_have_them(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any], unit: int, chunk: int
) -> None:
    directory = tmp_path_factory.mktemp("skim")
    analysis = written_analysis()
    analysis.save(directory / "all.parquet", columns=["x"], region=None)
    analysis.save(directory / "A.parquet", columns=["x", "root"], region="A")
    gone = failing(WRITTEN, data)
    assume(len(gone) < len(data["x"]))
    result = run(analysis, source_of(data, unit), chunk=chunk)
    check(result, data, gone)
    assert pq.read_table(directory / "all.parquet")["x"].to_pylist() == result["everything"]
    saved = pq.read_table(directory / "A.parquet")
    assert saved["x"].to_pylist() == result["rows", "A"]
    assert saved["root"].to_pylist() == np.sqrt(data["y"][result["rows", "A"]]).tolist()


def test_nothing_is_read_twice(tmp_path: Path) -> None:
    data = columns(100, 3, 0.0)
    plain = run(written_analysis(), source_of(data, 50), chunk=100)
    data["y"][[11, 40]] = -1.0
    data["label"][9] = 9
    skipping = run(written_analysis(), source_of(data, 50), chunk=100)
    assert skipping.ledger.failed == 3
    assert sorted(skipping.reads) == sorted(plain.reads)


@pytest.mark.parametrize("order", ["written", "adaptive", {"data": "written"}])
def test_a_row_that_two_steps_fail_on_is_left_out_once(order: Any) -> None:
    """Both steps fail on row 5: one with an error of its own, the other with one of the random numbers."""
    analysis = wr.Pipeline("twice wrong")

    @analysis.cut
    def a(x: Any) -> Any:
        if (np.asarray(x) == 5).any():
            raise ValueError("five")
        return x >= 0

    @analysis.cut
    def b(x: Any, *, rng: Any) -> Any:
        return rng("few").poisson(np.where(x == 5, -1.0, 1.0)) >= 0

    @analysis.output
    def rows(x: Any) -> list[int]:
        return [int(one) for one in x]

    source = wr.data.open({"x": np.arange(100)}, grid=20)
    result = run(analysis, source, order=order, engine="inline")
    assert failed_rows(result) == {5}
    assert result["rows"] == [row for row in range(100) if row != 5]
