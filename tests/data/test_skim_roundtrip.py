"""Skims: what is read back is what was saved, in every format, however the rows were cut."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow.data
from searching import examples
from windrow.data.skim import write as skim
from windrow.data.skim.fragments import Fragment, write_fragment
from windrow.data.skim.write import write_skim
from windrow.errors import UsageError

FORMATS = ("parquet", "rntuple", "ttree")
NUMBERS = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
TEXT = st.text(alphabet="ab é\N{SNOWMAN}", max_size=4)

Columns = dict[str, Any]


def numbers(seed: int, kind: str, count: int) -> np.ndarray[Any, Any]:
    """Any bits there are, among them not-a-number and infinities."""
    rng = np.random.default_rng(seed)
    if kind == "?":
        return rng.integers(0, 2, count).astype(bool)
    return np.frombuffer(rng.bytes(count * np.dtype(kind).itemsize), kind)


def lists(counts: np.ndarray[Any, Any], content: Any) -> ak.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), ak.to_layout(content)))


@st.composite
def tables(draw: st.DrawFn, *, nested: bool) -> tuple[Columns, int]:
    rows = draw(st.integers(0, 12))
    seeds = st.integers(0, 2**32)
    columns: Columns = {}
    for number, kind in enumerate(draw(st.lists(st.sampled_from(NUMBERS), max_size=4))):
        columns[f"x{number}"] = numbers(draw(seeds), kind, rows)
    for prefix in draw(st.lists(st.sampled_from(["Muon", "boosted_tau", "_odd"]), unique=True)):
        counts = np.array(draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), int)
        if draw(st.booleans()):
            columns[f"n{prefix}"] = counts.astype("u4")
        for name in draw(st.lists(st.sampled_from(["pt", "q", "a_b", "_c", "1"]), unique=True)):
            kind = draw(st.sampled_from(NUMBERS))
            columns[f"{prefix}_{name}"] = lists(counts, numbers(draw(seeds), kind, int(counts.sum())))
    if draw(st.booleans()):
        columns["text"] = typed(draw(st.lists(TEXT, min_size=rows, max_size=rows)), [""])
    if draw(st.booleans()):
        columns["fixed"] = ak.from_numpy(numbers(draw(seeds), "i4", 2 * rows).reshape(rows, 2))
    if nested and draw(st.booleans()):
        values = st.lists(st.lists(st.integers(-9, 9), max_size=2), max_size=2)
        columns["nested"] = typed(draw(st.lists(values, min_size=rows, max_size=rows)), [[[1]]])
    if nested and draw(st.booleans()):
        words = st.lists(TEXT, max_size=2)
        columns["words"] = typed(draw(st.lists(words, min_size=rows, max_size=rows)), [["a"]])
    if nested and draw(st.booleans()):
        maybe = st.one_of(st.none(), st.integers(-9, 9))
        columns["maybe"] = typed(draw(st.lists(maybe, min_size=rows, max_size=rows)), [None, 1])
    if not columns:
        columns["x"] = numbers(1, "f8", rows)
    return columns, rows


def typed(values: list[Any], examples: list[Any]) -> ak.Array:
    """An array of the type of ``examples``, though there may be no values to show it."""
    return ak.Array(values + examples)[: len(values)]


def write(directory: Path, columns: Columns, cuts: list[int], form: Any, **more: Any) -> Path:
    borders = [0, *sorted(cuts), len(next(iter(columns.values())))]
    fragments = [
        part(directory, number, columns, borders[number], borders[number + 1]) for number in range(len(borders) - 1)
    ]
    target = directory / ("skim.parquet" if form == "parquet" else "skim.root")
    empty = {name: column[:0] for name, column in columns.items()}
    options = {"record": {"dataset": "d"}, "empty": empty, **more}
    written = write_skim(target, fragments, format=form, **options)
    assert written == (borders[-1], target.stat().st_size)
    return target


def part(directory: Path, number: int, columns: Columns, start: int, stop: int) -> Fragment:
    cut = {name: column[start:stop] for name, column in columns.items()}
    return write_fragment(directory / f"{number}.part", cut, stop - start)


def assert_same(expected: Any, found: Any, what: str) -> None:
    """Equal to the last bit, types included."""
    if isinstance(expected, np.ndarray):
        found = np.asarray(found)
        assert found.dtype == expected.dtype, what
        assert found.tobytes() == expected.tobytes(), what
        return
    expected, found = ak.Array(expected), ak.Array(found)
    # Whether values may be missing is known where some are: Parquet's reader shows no more.
    assert what == "maybe" or found.type == expected.type, what
    if expected.layout.is_list and expected.layout.content.is_numpy and "text" not in what:
        assert ak.num(found).tolist() == ak.num(expected).tolist(), what
        flat = [np.asarray(ak.flatten(one, axis=1)) for one in (expected, found)]
        assert flat[0].tobytes() == flat[1].tobytes(), what
    else:
        assert found.to_list() == expected.to_list(), what


def counters_are_int32(columns: Columns, form: str) -> Columns:
    """What a TTree cannot keep: the counter of lists is an int32, whatever it was."""
    if form != "ttree":
        return columns
    lists_of = [n for n, c in columns.items() if isinstance(c, ak.Array) and c.ndim == 2]
    return {
        name: column.astype("i4") if any(re.fullmatch(f"{name[1:]}_[a-z]\\w*", one) for one in lists_of) else column
        for name, column in columns.items()
    }


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_what_is_read_is_what_was_saved(form: str, data: st.DataObject) -> None:
    columns, rows = data.draw(tables(nested=form != "ttree"))
    cuts = data.draw(st.lists(st.integers(0, rows), max_size=3))
    with tempfile.TemporaryDirectory() as name:
        path = write(Path(name), columns, cuts, form)
        expected = counters_are_int32(columns, form)
        reader = windrow.data.open(path).open(0)
        extra = set(reader.info.columns) - set(columns)
        assert all(form == "ttree" and one.startswith("n") for one in extra)
        assert reader.info.rows == rows
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, rows)] * 2)))
        found = reader.read(list(columns), start, stop)
        reader.close()
        for one, column in expected.items():
            assert_same(column[start:stop], found[one], one)
        for one, column in plainly(path, form, columns).items():
            assert_same(expected[one], column, one)


def plainly(path: Path, form: str, columns: Columns) -> Columns:
    """Read without Windrow, as a user of the file would."""
    if form == "parquet":
        table = ak.from_arrow(pq.read_table(path))
        arrays = {name: table[name] for name in columns}
        return {
            name: array if isinstance(columns[name], ak.Array) else np.asarray(array) for name, array in arrays.items()
        }
    with uproot.open(path) as file:
        tree = file["Events"]
        assert tree.num_entries == len(next(iter(columns.values())))
        whole = tree.arrays()
    out = {}
    for name in columns:
        if name in whole.fields:
            out[name] = whole[name]
        else:
            (prefix,) = (f for f in whole.fields if name.startswith(f"{f}_") and name[len(f) + 1 :] in whole[f].fields)
            out[name] = whole[prefix][name[len(prefix) + 1 :]]
        if isinstance(columns[name], np.ndarray):
            out[name] = np.asarray(out[name])
    return out


@pytest.mark.parametrize("form", FORMATS)
@given(data=st.data())
@settings(max_examples=examples(10))
def test_rows_are_put_together(form: str, data: st.DataObject) -> None:
    """However many fragments there are, pieces have the rows they should have."""
    rows = data.draw(st.integers(1, 40))
    size = data.draw(st.integers(1, 12))
    columns = {"x": np.arange(rows), "l": lists(np.arange(rows) % 3, np.arange(rows * 3.0))}
    cuts = data.draw(st.lists(st.integers(0, rows), max_size=6))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(skim, "PIECE_ROWS", size)
        path = write(Path(name), columns, cuts, form)
        borders = [*range(0, rows, size), rows]
        if form == "parquet":
            metadata = pq.read_metadata(path)
            sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
            assert np.cumsum([0, *sizes]).tolist() == borders
        else:
            with uproot.open(path) as file:
                if form == "ttree":
                    assert file["Events"]["x"].entry_offsets == borders
                else:
                    starts = [s.num_first_entry for s in file["Events"].cluster_summaries]
                    assert starts == borders[:-1]
        for one, column in plainly(path, form, columns).items():
            assert_same(columns[one], column, one)


def test_pieces_are_bounded_by_memory() -> None:
    assert skim.piece_rows(0, 0) == skim.PIECE_ROWS
    assert skim.piece_rows(10**6, 10**6) == skim.PIECE_ROWS >= 100_000
    for rows, width in ((1000, 9_000), (10**6, 50_000), (10, 10**9), (3, 10**12)):
        piece = skim.piece_rows(rows, rows * width)
        assert piece == 1 or piece * width <= skim.PIECE_BYTES
        assert piece == 1 or 2 * piece * width > skim.PIECE_BYTES
        assert piece.bit_count() == 1


# -- files that differ ----------------------------------------------------------------------------


def join(directory: Path, form: Any, *parts: Columns) -> Path:
    fragments = [
        write_fragment(directory / f"{n}.part", one, len(next(iter(one.values()))), origin=f"f{n}")
        for n, one in enumerate(parts)
    ]
    target = directory / ("x.parquet" if form == "parquet" else "x.root")
    write_skim(target, fragments, format=form, record={"dataset": "d"})
    return target


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("one", "other", "common"),
    [("i4", "i8", "i8"), ("u1", "i1", "i2"), ("f4", "f8", "f8"), ("i4", "f4", "f8"), ("u4", "f8", "f8")],
)
def test_types_are_widened(tmp_path: Path, form: str, one: str, other: str, common: str) -> None:
    left, right = numbers(1, one, 3), np.arange(5).astype(other)
    path = join(
        tmp_path, form,
        {"x": left, "l": lists(np.array([1, 0, 2]), left)},
        {"l": lists(np.array([5, 0, 0, 0, 0]), right), "x": right},
    )  # fmt: skip
    found = windrow.data.open(path).open(0).read(["x", "l"], 0, 8)
    with np.errstate(invalid="ignore"):
        expected = np.concatenate([left, right]).astype(common)
    assert_same(expected, found["x"], "x")
    assert_same(lists(np.array([1, 0, 2, 5, 0, 0, 0, 0]), expected), found["l"], "l")


@pytest.mark.parametrize(("one", "other"), [("i8", "f8"), ("u8", "i8"), ("?", "u1"), ("u8", "f4"), ("?", "f4")])
def test_types_no_type_holds_are_refused(tmp_path: Path, one: str, other: str) -> None:
    with pytest.raises(UsageError, match=r"'x' is .* in f0 and .* in f1.*\"-x\""):
        join(tmp_path, "parquet", {"x": np.zeros(2, one)}, {"x": np.zeros(2, other)})
    assert [p.name for p in tmp_path.iterdir() if "x.parquet" in p.name] == []


def test_lists_and_numbers_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'x' is double in f0 and list<item: double> in f1"):
        join(tmp_path, "parquet", {"x": np.zeros(1)}, {"x": ak.Array([[1.0]])})


@pytest.mark.parametrize("there", [0, 1])
def test_columns_are_not_invented(tmp_path: Path, there: int) -> None:
    parts = [{"x": np.zeros(1)}, {"x": np.zeros(1)}]
    parts[there]["y"] = np.zeros(1)
    with pytest.raises(UsageError, match=f"'y' is in f{there} but not in f{1 - there}.*\"-y\""):
        join(tmp_path, "rntuple", *parts)


@pytest.mark.parametrize("form", FORMATS)
def test_types_that_no_row_shows(tmp_path: Path, form: str) -> None:
    """An empty list says nothing about numbers; other files, or none of them, do."""
    parts = [{"l": ak.Array([[], []])}, {"l": ak.Array([[1], [2, 3]])}]
    for number, order in enumerate((parts, parts[::-1])):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = join(directory, form, *order)
        found = windrow.data.open(path).open(0).read(["l"], 0, 4)["l"]
        assert_same(ak.concatenate([one["l"] for one in order]), found, "l")
    path = join(tmp_path, form, parts[0])
    found = windrow.data.open(path).open(0).read(["l"], 0, 2)["l"]
    assert str(found.type) == "2 * var * float64"


def test_missing_values_anywhere_are_kept(tmp_path: Path) -> None:
    some, none = ak.Array([1, None])[[0, 0]], ak.Array([None, None])
    for number, form in enumerate(("parquet", "rntuple")):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = join(directory, form, {"x": np.array([7, 8])}, {"x": none}, {"x": some})
        found = windrow.data.open(path).open(0).read(["x"], 0, 6)["x"]
        assert found.to_list() == [7, 8, None, None, 1, 1]


# -- what a format cannot hold --------------------------------------------------------------------

HALF = np.arange(2, dtype="f2")
REFUSED = [
    ("ttree", {"x": ak.Array([[[1.0]], []])}),
    ("ttree", {"x": ak.Array([["a"], []])}),
    ("ttree", {"x": ak.Array([1, None])}),
    ("ttree", {"x": ak.Array([[1, None], []])}),
    ("ttree", {"x": HALF}),
    ("ttree", {"x_y": lists(np.array([1, 1]), HALF)}),
    ("rntuple", {"x": HALF}),
    ("rntuple", {"x": ak.Array([b"a", b"b"])}),
]


@pytest.mark.parametrize(("form", "columns"), REFUSED)
def test_what_cannot_be_written_is_named(tmp_path: Path, form: str, columns: Columns) -> None:
    (name,) = columns
    with pytest.raises(UsageError, match=f"column '{name}' cannot be saved in .*\"-{name}\""):
        write(tmp_path, columns, [], form)
    assert [p.name for p in tmp_path.iterdir()] == ["0.part"]


def test_half_precision_is_kept_by_parquet(tmp_path: Path) -> None:
    path = write(tmp_path, {"x": HALF}, [], "parquet")
    assert_same(HALF, windrow.data.open(path).open(0).read(["x"], 0, 2)["x"], "x")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not as 'parket'; did you mean 'parquet'\?"):
        write(tmp_path, {"x": np.zeros(1)}, [], "parket")


def test_nothing_needs_types(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`empty`"):
        write_skim(tmp_path / "x.parquet", [], format="parquet", record={})


# -- collections ----------------------------------------------------------------------------------


def test_a_tree_counts_each_collection_once(tmp_path: Path) -> None:
    counts = np.array([2, 0, 1])
    columns = {
        "nMuon": counts.astype("u4"),
        "Muon_pt": lists(counts, np.arange(3.0)),
        "Muon_charge": lists(counts, np.arange(3, dtype="i1")),
        "NJet": counts[::-1].astype("i4"),
        "Jet_pt": lists(counts[::-1], np.arange(3.0)),
        "tau": ak.Array([[{"pt": 1.0, "id": 3}], [], [{"pt": 2.0, "id": 4}]]),
        "nlep": np.array([9, 9, 9]),  # counts nothing
        "lep_pt": lists(counts, np.arange(3.0)),
        "weights": lists(counts, np.arange(3.0)),
    }
    path = write(tmp_path, columns, [1], "ttree")
    with uproot.open(path) as file:
        tree = file["Events"]
        counter = {b.name: b.count_branch.name for b in tree.branches if b.count_branch is not None}
        assert counter == {
            "Muon_pt": "nMuon", "Muon_charge": "nMuon", "Jet_pt": "NJet", "tau_pt": "ntau",
            "tau_id": "ntau", "lep_pt": "nlep_saved", "weights": "nweights",
        }  # fmt: skip
        assert set(tree.keys()) == {
            "nMuon", "NJet", "nlep", "ntau", "nlep_saved", "nweights", *counter
        }  # fmt: skip
        assert tree["nlep"].array().to_list() == [9, 9, 9]
        assert tree["NJet"].array().to_list() == [1, 0, 2]


@pytest.mark.parametrize("form", ["parquet", "rntuple"])
def test_collections_are_those_of_the_source(tmp_path: Path, form: str) -> None:
    counts, others = np.array([2, 0, 1]), np.array([1, 1, 1])
    columns = {
        "nboosted_tau": counts.astype("u4"),
        "boosted_tau_pt": lists(counts, np.arange(3.0)),
        "boosted_tau_id": lists(counts, np.arange(3)),
        "nMuon": counts.astype("u4"),
        "Muon_pt": lists(counts, np.arange(3.0)),
        "nMuon_p4": others.astype("u4"),
        "Muon_p4_x": lists(others, np.arange(3.0)),
        "muons": ak.Array([[{"pt": 1.0}], [], [{"pt": 2.0}]]),
        "met": ak.Array([{"pt": 1.0, "phi": 2.0}] * 3),
    }
    info = windrow.data.open(write(tmp_path, columns, [2], form)).open(0).info
    assert info.columns["boosted_tau_pt"].counter == "nboosted_tau"
    assert info.columns["Muon_p4_x"].counter == "nMuon_p4"
    assert info.collections["boosted_tau"] == ("boosted_tau_pt", "boosted_tau_id")
    assert info.collections["Muon"] == ("Muon_pt",)
    assert info.collections["muons"] == ("muons_pt",)
    assert info.collections["met"] == ("met_pt", "met_phi")


def test_equal_lengths_by_chance_make_no_collection(tmp_path: Path) -> None:
    """Lists that agree in one fragment and differ in another keep their own lengths."""
    equal = {"Jet_a": ak.Array([[1.0]]), "Jet_b": ak.Array([[2.0]])}
    unlike = {"Jet_a": ak.Array([[1.0, 2.0]]), "Jet_b": ak.Array([[]]) + 1.0}
    for number, form in enumerate(FORMATS):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = join(directory, form, equal, unlike)
        found = windrow.data.open(path).open(0).read(["Jet_a", "Jet_b"], 0, 2)
        assert found["Jet_a"].to_list() == [[1.0], [1.0, 2.0]]
        assert found["Jet_b"].to_list() == [[2.0], []]
