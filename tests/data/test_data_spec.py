"""Every form in which data may be named, and what is said about the others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow.data
from windrow.data.paths import split_tree
from windrow.errors import MissingFileError, SpecError

if TYPE_CHECKING:
    from windrow.data.base import Input, Source


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with a few files; nothing in these tests opens them."""
    for name in ("a.root", "b.root", "c.parquet", "odd", "Events"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "d.root").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(spec: Any, **options: Any) -> list[tuple[str, str, str | None]]:
    return [(i.dataset, i.label, i.tree) for i in windrow.data.open(spec, **options).inputs]


def only(spec: Any, **options: Any) -> Input:
    (found,) = windrow.data.open(spec, **options).inputs
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.root", ("a.root", None)),
        ("a.root:Events", ("a.root", "Events")),
        ("a.root:dir/tree;2", ("a.root", "dir/tree;2")),
        ("x/*.root:Events", ("x/*.root", "Events")),
        ("file:Events", ("file", "Events")),
        ("root://host//store/a.root", ("root://host//store/a.root", None)),
        ("root://host:1094//store/a.root", ("root://host:1094//store/a.root", None)),
        ("root://host:1094//a.root:Events", ("root://host:1094//a.root", "Events")),
        ("https://h:80/a.root:T", ("https://h:80/a.root", "T")),
        ("https://h/a?x=1:2", ("https://h/a?x=1:2", None)),
    ],
)
def test_a_tree_is_split_from_its_file(text: str, expected: tuple[str, str | None]) -> None:
    assert split_tree(text) == expected


@given(
    st.sampled_from(["", "dir/", "root://host//", "root://h:1094//x/", "https://h:8/"]),
    st.from_regex(r"[a-z]{1,8}\.(root|parquet)", fullmatch=True),
    st.none() | st.from_regex(r"[A-Za-z]{1,5}(/[a-z]{1,5})?", fullmatch=True),
)
def test_joining_file_and_tree_is_undone(directory: str, name: str, tree: str | None) -> None:
    text = directory + name + (f":{tree}" if tree else "")
    assert split_tree(text) == (directory + name, tree)


def test_an_existing_file_with_a_colon_is_that_file(here: Path) -> None:
    (here / "x.root:y").touch()
    assert told("x.root:y") == [("data", "x.root:y", None)]


def test_paths_globs_and_lists(here: Path) -> None:
    assert told("a.root") == [("data", "a.root", None)]
    assert told(Path("a.root")) == [("data", "a.root", None)]
    assert told("*.root:T") == [("data", "a.root", "T"), ("data", "b.root", "T")]
    assert told(["b.root", Path("a.root")]) == [("data", "b.root", None), ("data", "a.root", None)]
    assert told(("a.root:X", "b.root"), tree="Y") == [("data", "a.root", "X"), ("data", "b.root", "Y")]
    assert told("**/*.root")[-1] == ("data", "sub/d.root", None)
    assert told(str(here / "a.root")) == [("data", str(here / "a.root"), None)]
    assert only(f"file://{here}/a.root").label == f"{here}/a.root"
    assert [i.index for i in windrow.data.open("*.root").inputs] == [0, 1]


def test_formats_follow_the_suffix(here: Path) -> None:
    for suffix in ("parquet", "parq", "pq", "PARQUET"):
        (here / f"x.{suffix}").touch()
        assert only(f"x.{suffix}").format == "parquet"
    assert only("a.root").format == "root"
    assert only("odd").format == "root"
    assert only({"ds": {"files": {"odd": {"format": "parquet"}}}}).format == "parquet"


def test_uproot_dictionaries(here: Path) -> None:
    assert told({"a.root": "T"}) == [("data", "a.root", "T")]
    assert told({Path("a.root"): None, "b.root": "U"}, tree="T") == [("data", "a.root", "T"), ("data", "b.root", "U")]
    assert told({"*.root": "T"}) == [("data", "a.root", "T"), ("data", "b.root", "T")]
    assert told({"odd": "T"}) == [("data", "odd", "T")]
    # A file called like the tree does not turn the mapping round.
    assert told({"a.root": "Events"}) == [("data", "a.root", "Events")]
    entry = only({"a.root": {"object_path": "T", "steps": [0, 5, 9]}})
    assert (entry.tree, entry.steps) == ("T", ((0, 5), (5, 9)))


def test_a_dataset_may_be_called_like_a_file(here: Path) -> None:
    assert told({"odd": "a.root"}) == [("odd", "a.root", None)]
    assert told({"a.root": ["b.root"]}) == [("a.root", "b.root", None)]
    assert told({"sub": "a.root"}) == [("sub", "a.root", None)]


def test_fileset_forms_of_coffea(here: Path) -> None:
    expected = [("DY", "a.root", "T"), ("DY", "b.root", "T")]
    assert told({"DY": ["a.root", "b.root"]}, tree="T") == expected
    assert told({"DY": ["a.root:T", "b.root:T"]}) == expected
    assert told({"DY": {"a.root": "T", "b.root": "T"}}) == expected
    assert told({"DY": {"treename": "T", "files": ["a.root", "b.root"]}}) == expected
    assert told({"DY": {"files": {"a.root": "T", "b.root": "T"}}}) == expected
    assert told({"DY": {"files": "*.root"}}, tree="T") == expected
    assert told({"DY": "*.root:T"}) == expected
    assert told({"DY": "a.root", "TT": "a.root"}) == [("DY", "a.root", None), ("TT", "a.root", None)]


def test_preprocessed_filesets(here: Path) -> None:
    facts = {
        "object_path": "T",
        "steps": [[5, 9], [0, 3]],
        "num_entries": 10,
        "uuid": "ab-cd",
        "format": "root",
        "compressed_form": None,
    }
    source = windrow.data.open({"DY": {"files": {"a.root": facts}, "form": "zip", "metadata": {"xsec": 2.5}}})
    (entry,) = source.inputs
    assert (entry.tree, entry.rows, entry.uuid) == ("T", 10, "ab-cd")
    assert entry.steps == ((0, 3), (5, 9))
    assert source.datasets == {"DY": {"dataset": "DY", "xsec": 2.5}}


def test_objects_with_files_and_metadata(here: Path) -> None:
    dataset = SimpleNamespace(files={"a.root": "T"}, metadata={"year": 2018})
    source = windrow.data.open({"DY": dataset})
    assert source.inputs[0].tree == "T"
    assert source.datasets["DY"]["year"] == 2018

    class Model:
        def model_dump(self) -> dict[str, Any]:
            return {"TT": {"files": ["a.root"], "metadata": None}}

    assert told(Model()) == [("TT", "a.root", None)]


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_filesets_in_json(here: Path, suffix: str) -> None:
    raw = json.dumps({"DY": {"files": {"a.root": "T"}, "metadata": {"is_mc": True}}}).encode()
    path = here / f"fileset.{suffix}"
    path.write_bytes(gzip.compress(raw) if suffix.endswith("gz") else raw)
    source = windrow.data.open(str(path))
    assert source.datasets["DY"]["is_mc"] is True
    assert told(path) == [("DY", "a.root", "T")]


def test_json_that_is_no_fileset(here: Path) -> None:
    (here / "x.json").write_text("[1]")
    (here / "y.json").write_text("{")
    with pytest.raises(SpecError, match=r"x\.json holds a JSON list"):
        windrow.data.open("x.json")
    with pytest.raises(SpecError, match=r"y\.json is not a JSON fileset"):
        windrow.data.open("y.json")
    with pytest.raises(MissingFileError, match=r"z\.json"):
        windrow.data.open("z.json")


def test_arrays_in_every_form() -> None:
    x, y = np.arange(3), ak.Array([[1.0], [], [2.0, 3.0]])
    records = ak.zip({"x": x, "y": y}, depth_limit=1)
    for spec in ({"x": x, "y": y}, records, {"x": [0, 1, 2], "y": [[1.0], [], [2.0, 3.0]]}):
        entry = only(spec)
        assert (entry.dataset, entry.label, entry.format, entry.rows) == ("data", "data", "arrays", 3)
    for spec in ({"A": {"x": x}, "B": records}, {"A": records, "B": records[:2]}):
        source = windrow.data.open(spec)
        assert list(source.datasets) == ["A", "B"]
        assert [i.dataset for i in source.inputs] == ["A", "B"]
    source = windrow.data.open({"A": {"files": {"x": x}, "metadata": {"is_mc": False}}})
    assert source.datasets["A"] == {"dataset": "A", "is_mc": False}
    assert windrow.data.open({"A": {"files": records}}).inputs[0].rows == 3
    structured = np.array([(1, 2.0)], dtype=[("i", "i4"), ("f", "f8")])
    assert set(windrow.data.open(structured).open(0).info.columns) == {"i", "f"}


def test_a_collection_may_be_a_column_of_a_mapping() -> None:
    muons = ak.Array([[{"pt": 1.0}], []])
    assert only({"Muon": muons, "x": [1, 2]}).dataset == "data"
    assert set(windrow.data.open({"Muon": muons}).open(0).info.columns) == {"Muon.pt"}


def test_a_source_is_returned_as_it_is() -> None:
    source: Source = windrow.data.open({"x": [1]})
    assert windrow.data.open(source) is source
    with pytest.raises(SpecError, match="where it is opened"):
        windrow.data.open(source, grid=3)


def test_metadata_by_dataset(here: Path) -> None:
    spec = {"A": "a.root", "B": {"files": "b.root", "metadata": {"k": 1, "dataset": "other"}}}
    source = windrow.data.open(spec, metadata={"B": {"k": 2}})
    assert source.datasets["A"] == {"dataset": "A"}
    assert source.datasets["B"] == {"dataset": "other", "k": 2}
    assert windrow.data.open("a.root", metadata={"is_mc": True}).datasets["data"]["is_mc"] is True
    assert windrow.data.open("a.root", metadata={"data": {"k": 1}}).datasets["data"]["k"] == 1
    with pytest.raises(SpecError, match="'C' is no dataset"):
        windrow.data.open(spec, metadata={"C": {"k": 2}})
    with pytest.raises(SpecError, match="'A' is not mapped"):
        windrow.data.open(spec, metadata={"A": 3})
    with pytest.raises(TypeError):
        source.datasets["A"]["dataset"] = "x"  # type: ignore[index]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "empty mapping"),
        ([], "has no files"),
        ({"DY": []}, "'DY' has no files"),
        ({"DY": {"files": {}}}, "'DY' has no files"),
        (["a.root", "./a.root"], r"names \./a.root twice"),
        ({"a.root": "T", "DY": ["b.root"]}, "'DY' is not"),
        ({"DY": {"files": ["a.root"], "xsec": 3}}, "unknown keys xsec"),
        ({"DY": {"files": ["a.root"], "metadata": 3}}, "metadata must be a mapping"),
        ({"DY": {"files": {"a.root": 3}}}, "expected the name of its tree"),
        ({"DY": {"files": {"a.root": {"tre": "T"}}}}, "unknown keys tre"),
        ({"DY": {"files": {"a.root": {"steps": [[3, 1]]}}}}, "reversed"),
        ({"DY": {"files": {"a.root": {"steps": [[0, 3], [2, 5]]}}}}, "overlaps"),
        ({"DY": {"files": {"a.root": {"steps": "all"}}}}, "steps must be"),
        ({"DY": {"files": {"a.root": {"steps": [[0, 9]], "num_entries": 3}}}}, "beyond its 3 rows"),
        ({"DY": {"files": {"a.root": {"format": "csv"}}}}, "format 'csv'"),
        ({3: ["a.root"]}, "named by a string, not by 3"),
        ([3], "3 is not a file"),
        (3, "cannot read data from 3"),
        ("sub", "is a directory"),
        ("root://host//*.root", "globs work for local files only"),
        ("a.root:", "neither a file"),
        ({"x": np.arange(3), "y": np.arange(4)}, "'x' has 3 rows and 'y' has 4"),
        ({"x": np.arange(3), "y": np.float64(3)}, "'y' is not an array"),
        (np.arange(3), "needs named fields"),
        (ak.Array([1, 2]), "needs named fields"),
    ],
)
def test_bad_specs_are_named(here: Path, spec: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        windrow.data.open(spec)


@pytest.mark.parametrize("spec", ["x.root", "x*.root", ["a.root", "x.root"], {"D": "x.root:T"}])
def test_missing_local_files_are_missed_at_once(here: Path, spec: Any) -> None:
    with pytest.raises(MissingFileError, match=r"x\*?\.root"):
        windrow.data.open(spec)


def test_remote_files_are_not_looked_for() -> None:
    assert only("root://nowhere.invalid//x.root:T").tree == "T"


def test_the_same_file_may_be_in_two_datasets_or_give_two_trees(here: Path) -> None:
    assert len(told({"A": "a.root", "B": "a.root"})) == 2
    assert len(told(["a.root:T", "a.root:U"])) == 2


names = st.from_regex(r"[A-Za-z0-9_]{1,6}", fullmatch=True)


@given(
    st.dictionaries(names, st.lists(st.integers(0, 9), min_size=1, unique=True), min_size=1),
    st.sampled_from(["list", "treename", "mapping", "described", "preprocessed", "tree argument"]),
)
def test_all_fileset_forms_mean_the_same(filesets: dict[str, list[int]], form: str) -> None:
    files = {ds: [f"root://h//{n}.root" for n in numbers] for ds, numbers in filesets.items()}
    forms: dict[str, Any] = {
        "list": {ds: [f"{f}:T" for f in fs] for ds, fs in files.items()},
        "treename": {ds: {"treename": "T", "files": fs} for ds, fs in files.items()},
        "mapping": {ds: dict.fromkeys(fs, "T") for ds, fs in files.items()},
        "described": {ds: {"files": dict.fromkeys(fs, "T")} for ds, fs in files.items()},
        "preprocessed": {
            ds: {"files": {f: {"object_path": "T", "steps": None} for f in fs}, "form": None}
            for ds, fs in files.items()
        },
        "tree argument": files,
    }
    tree = "T" if form == "tree argument" else None
    found = told(forms[form], tree=tree)
    assert found == [(ds, f, "T") for ds, fs in files.items() for f in fs]


def test_a_very_long_dataset_name_is_no_file() -> None:
    name = "a" * 300
    source = windrow.data.open({name: {"x": np.arange(3)}})
    assert list(source.datasets) == [name]
