"""Two results side by side: which outputs, cutflow lines and rows are not the same, and who the rows are."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import awkward as ak
import hist
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small_analysis as small
import windrow as wr
from searching import examples
from windrow.errors import UsageError
from windrow.pipeline.results.compare import difference
from windrow.pipeline.results.load import keep, load

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 500


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small.write_root(tmp_path_factory.mktemp("compare") / "a.root", small.columns(5, ROWS))


def source(file: str) -> Any:
    return wr.data.open(file, metadata={"is_mc": False})


def signal(high: float) -> Any:
    data = small.columns(5, ROWS)
    return set(np.flatnonzero((data["y"] > 0.2) & (data["x"] > high)).tolist())


def control(high: float) -> Any:
    data = small.columns(5, ROWS)
    return set(np.flatnonzero((data["y"] > 0.2) & (data["x"] <= high)).tolist())


def test_the_same_run_twice_is_the_same(file: str) -> None:
    found = small.run(data=source(file)).compare(small.run(data=source(file)))
    assert found.same
    assert (found.outputs, found.cutflow, found.rows, found.changed) == ((), (), (), 0)
    assert str(found) == "the results are the same\nno row changed side"


@settings(max_examples=examples(20))
@given(st.floats(0.1, 0.9), st.floats(0.1, 0.9))
def test_rows_that_change_side_are_those_numpy_finds(file: str, one: float, two: float) -> None:
    first, second = (small.run(small.analysis(high=high), source(file)) for high in (one, two))
    found = first.compare(second, rows=10_000)
    left = {(row.region, row.row) for row in found.rows if row.left}
    entered = {(row.region, row.row) for row in found.rows if not row.left}
    expected_left = {("SR", n) for n in signal(one) - signal(two)}
    expected_left |= {("CR", n) for n in control(one) - control(two)}
    expected_entered = {("SR", n) for n in signal(two) - signal(one)}
    expected_entered |= {("CR", n) for n in control(two) - control(one)}
    assert (left, entered) == (expected_left, expected_entered)
    assert found.changed == len(left) + len(entered) == len(found.rows)
    assert found.same == (not found.changed)


def test_changed_rows_say_who_they_are(file: str) -> None:
    first, second = (small.run(small.analysis(high=h), source(file)) for h in (0.5, 0.6))
    found = first.compare(second, rows=3)
    data = small.columns(5, ROWS)
    gone = sorted(signal(0.5) - signal(0.6))
    assert [row.row for row in found.rows] == gone[:3]
    for row in found.rows:
        assert str(row).startswith("SR -> out: ")
        assert row.identity == {name: data[name][row.row] for name in small.IDENTITY}
    assert found.changed == 2 * len(gone)
    assert found.by_region == {"SR": (len(gone), 0), "CR": (0, len(gone))}
    text = str(found)
    assert f"SR: {len(gone)} left, 0 entered" in text
    assert f"and {found.changed - 3} more" in text
    assert f"row {gone[0]} run={data['run'][gone[0]]} " in text


def test_outputs_and_cutflows_that_differ_are_listed(file: str) -> None:
    first, second = (small.run(small.analysis(high=h), source(file)) for h in (0.5, 0.6))
    found = first.compare(second)
    assert {(d.output, d.region) for d in found.outputs} == {
        ("spectrum", "SR"), ("spectrum", "CR"), ("count", "SR"), ("count", "CR"),
    }  # fmt: skip
    (count,) = [d for d in found.outputs if (d.output, d.region) == ("count", "SR")]
    gone = len(signal(0.5)) - len(signal(0.6))
    assert count.absolute == gone
    assert count.relative == pytest.approx(gone / len(signal(0.5)))
    lines = {(line.region, line.cut): (line.first, line.second) for line in found.cutflow}
    assert lines == {
        ("SR", "many"): (len(signal(0.5)), len(signal(0.6))),
        ("CR", "!many"): (len(control(0.5)), len(control(0.6))),
    }


def test_another_order_of_cuts_is_no_difference(file: str) -> None:
    first = small.run(data=source(file))
    second = small.run(data=source(file), order=["many", "some"])
    assert first.compare(second).cutflow == ()
    assert first.compare(second).changed == 0


def test_scaled_cutflows_differ_in_their_weights(file: str) -> None:
    first = small.run(data=source(file))
    found = first.compare(first.scale(2.0))
    assert {line.cut for line in found.cutflow} == {"initial", "some", "many", "!many"}
    assert all(line.first == line.second for line in found.cutflow)
    assert not found.same
    assert "weighted" in str(found.cutflow[0])


def test_rows_only_one_run_looked_at_have_not_changed(file: str) -> None:
    first, second = small.run(data=source(file)), small.run(data=source(file), max_rows=100)
    found = first.compare(second)
    assert found.changed == 0
    assert not found.same
    beyond = sum(n >= 100 for n in signal(0.5) | control(0.5))
    assert f"{beyond} rows of regions of the first run are not compared" in found.notes[0]


def test_a_skim_is_compared_by_identity(file: str, tmp_path: Path) -> None:
    data = small.columns(5, ROWS)
    mask = data["y"] > 0.3  # drops rows that the analysis selects
    skim = small.write_root(tmp_path / "skim.root", {n: v[mask] for n, v in data.items()})
    first = small.run(data=source(file))
    second = small.run(small.analysis(high=0.6), source(skim))
    found = first.compare(second, rows=1000)
    moved = mask & (data["y"] > 0.2) & (data["x"] > 0.5) & (data["x"] <= 0.6)
    for region, gone in (("SR", True), ("CR", False)):
        rows = [row for row in found.rows if row.region == region]
        events = {row.identity["event"] for row in rows}
        assert events == set(data["event"][moved].tolist())
        assert {row.left for row in rows} == {gone}
        assert {row.file for row in rows} == {(file if gone else skim).rpartition(":")[0]}
    assert found.by_region == {"SR": (moved.sum(), 0), "CR": (0, moved.sum())}
    assert second.compare(first).by_region == {"SR": (0, moved.sum()), "CR": (moved.sum(), 0)}


def test_rows_that_another_file_does_not_have_have_not_changed(file: str, tmp_path: Path) -> None:
    data = small.columns(5, ROWS)
    mask = data["y"] > 0.3  # drops rows that the analysis selects
    skim = small.write_root(tmp_path / "skim.root", {n: v[mask] for n, v in data.items()})
    first, second = small.run(data=source(file)), small.run(data=source(skim))
    absent = int(((data["y"] > 0.2) & ~mask).sum())
    assert absent
    for one, two, which in ((first, second, "first"), (second, first, "second")):
        found = one.compare(two)
        assert found.changed == 0
        (note,) = found.notes
        assert note.startswith(f"{absent} rows of regions of the {which} run are not compared")


@settings(max_examples=examples(20))
@given(st.floats(0.1, 0.9), st.floats(0.1, 0.9), st.integers(0, 60), st.integers(0, 60))
def test_rows_of_other_files_are_compared_where_both_runs_saw_them(
    one: float, two: float, limit: int, other: int
) -> None:
    """Arrays of other names are other files; the second has the rows in another order."""
    data = small.columns(5, 60)
    turned = {name: values[::-1].copy() for name, values in data.items()}
    sources = [wr.data.open({"d": v}, metadata={"is_mc": False}) for v in (data, turned)]
    first, second = (
        small.run(small.analysis(high=high), opened, max_rows=rows or None)
        for high, opened, rows in zip((one, two), sources, (limit, other), strict=True)
    )
    second.kept = replace(second.kept, files=tuple(replace(f, identity="turned") for f in second.kept.files))
    found = first.compare(second, rows=1000)
    events = data["event"].tolist()
    seen = set(events[: limit or 60]) & set(events[::-1][: other or 60])

    def side(high: float) -> dict[str, set[int]]:
        chosen = data["y"] > 0.2
        return {
            "SR": set(data["event"][chosen & (data["x"] > high)].tolist()) & seen,
            "CR": set(data["event"][chosen & (data["x"] <= high)].tolist()) & seen,
        }

    for region in ("SR", "CR"):
        mine, theirs = side(one)[region], side(two)[region]
        assert found.by_region[region] == (len(mine - theirs), len(theirs - mine))
        for left, expected in ((True, mine - theirs), (False, theirs - mine)):
            rows = [row for row in found.rows if row.region == region and row.left is left]
            assert {row.identity["event"] for row in rows} == expected


def test_a_skim_of_one_region_has_not_changed_the_others(tmp_path: Path) -> None:
    file = small.write_root(tmp_path / "a.root", small.columns(5, 100))
    made = small.analysis()
    made.save(str(tmp_path / "skim.parquet"), region="SR")
    first = small.run(made, source(file))
    second = small.run(small.analysis(), str(tmp_path / "skim.parquet"))
    found = first.compare(second)
    assert found.changed == 0
    control = len(first.kept.rows("CR", 0))
    assert f"{control} rows of regions of the first run" in found.notes[0]
    assert "perhaps a skim" in found.notes[0]


def test_other_files_without_identity_cannot_be_compared(file: str, tmp_path: Path) -> None:
    other = small.write_root(tmp_path / "b.root", small.columns(6, 50))
    first, second = (small.run(small.analysis(identity=None), source(name)) for name in (file, other))
    found = first.compare(second)
    assert found.changed is None
    assert "declare the same identity columns" in str(found)


def test_repeated_identities_are_said(file: str, tmp_path: Path) -> None:
    data = small.columns(5, 50)
    data["event"] = np.zeros(50, dtype=np.int64)
    data["luminosityBlock"] = np.ones(50, dtype=np.int64)
    other = small.write_root(tmp_path / "same.root", data)
    found = small.run(data=source(file)).compare(small.run(data=source(other)))
    assert any("several rows have the same" in note for note in found.notes)


def test_a_file_that_is_gone_still_compares_by_number(file: str, tmp_path: Path) -> None:
    import shutil

    path = tmp_path / "moving.root"
    shutil.copy(file.rpartition(":")[0], path)
    spec = f"{path}:Events"
    first, second = (small.run(small.analysis(high=h), source(spec)) for h in (0.5, 0.6))
    keep(first, tmp_path / "run")
    path.unlink()
    found = load(tmp_path / "run").compare(second)
    assert found.changed == 2 * len(signal(0.5) - signal(0.6))
    assert found.rows[0].identity == {}
    assert any("cannot be read" in note for note in found.notes)


def test_results_without_kept_rows_say_so(file: str) -> None:
    result = small.run(data=source(file))
    found = result.compare(replace(result, kept=None))
    assert found.changed is None
    assert found.same
    assert "the second result did not keep" in str(found)


def test_wrong_arguments_are_refused(file: str) -> None:
    result = small.run(data=source(file))
    with pytest.raises(UsageError, match="another result, got dict"):
        result.compare({})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="how many changed rows"):
        result.compare(result, rows=-1)


# --- values ---------------------------------------------------------------------------------------


def histogram(*xs: float, bins: int = 2, weight: float | None = None) -> Any:
    made = hist.Hist(hist.axis.Regular(bins, 0, 1), storage=hist.storage.Weight())
    return made.fill(xs, weight=None if weight is None else np.full(len(xs), weight))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1),
        (math.nan, math.nan),
        (np.arange(3), np.arange(3)),
        ({"a": [1.5]}, {"a": [1.5]}),
        ({1, 2}, {2, 1}),
        (histogram(0.1), histogram(0.1)),
        (ak.Array([[1], []]), ak.Array([[1], []])),
        (Counter("aab"), Counter("aba")),
        ("x", "x"),
    ],
)
def test_equal_values_do_not_differ(left: Any, right: Any) -> None:
    assert difference(left, right) is None


@pytest.mark.parametrize(
    ("left", "right", "words", "absolute"),
    [
        (1, 2, "1 and 2", 1.0),
        (1.0, math.nan, "1.0 and nan", None),
        ([1.0, 2.0], [1.0, 2.5], "1 of 2 numbers differ, by up to 0.5 (20%)", 0.5),
        (np.zeros(2), np.zeros(3), "shapes (2,) and (3,)", None),
        ({"a": 1, "b": 2}, {"a": 4, "b": 2}, "'a': 1 and 4", 3.0),
        ({"a": 1}, {"b": 1}, "'a' only in the first; 'b' only in the second", None),
        ({1, 2}, {2, 3, 4}, "1 items gone, 2 new", None),
        (histogram(0.1), histogram(0.1, 0.2), "1 of 4 bins differ", 1.0),
        (histogram(0.1, weight=2.0), histogram(0.1, 0.1), "1 of 4 variances differ", 2.0),
        (histogram(0.1), histogram(0.1, bins=3), "other axes", None),
        ([[1], [2, 3]], [[1], [2, 4]], "differ", None),
        (ak.Array([[1], []]), ak.Array([[1], [2]]), "differ", None),
        ("a", 1, "str and int", None),
    ],
)
def test_differences_say_how_much(left: Any, right: Any, words: str, absolute: float | None) -> None:
    found = difference(left, right)
    assert found is not None
    assert words in found[0]
    if absolute is not None:
        assert found[1] == pytest.approx(absolute)


@given(st.lists(st.floats(allow_nan=True, width=32), max_size=6), st.data())
def test_any_changed_number_is_seen(values: list[float], data: st.DataObject) -> None:
    assert difference(np.array(values), np.array(values)) is None
    if values:
        at = data.draw(st.integers(0, len(values) - 1))
        other = list(values)
        other[at] = data.draw(st.floats(width=32, allow_nan=False))
        same = other[at] == values[at]
        assert (difference(np.array(values), np.array(other)) is None) == same


def test_rounding_is_called_rounding(file: str) -> None:
    result = small.run(data=source(file))
    key = ("sums", None, "nominal")
    (dataset,) = result.outputs
    value = result.outputs[dataset][key]
    moved = dict(value, sumw=np.nextafter(value["sumw"], math.inf))
    other = replace(result, outputs={dataset: {**result.outputs[dataset], key: moved}})
    (found,) = result.compare(other).outputs
    assert found.rounding
    assert str(found).endswith("(rounding)")
