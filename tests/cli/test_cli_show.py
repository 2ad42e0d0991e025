"""``windrow show``: against what uproot and pyarrow say of the same files."""

from __future__ import annotations

import json
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.cli.main import main
from windrow.cli.show import Column, _other_types, grouped
from windrow.data.base import ColumnInfo, FileInfo
from windrow.data.columns import find_collections
from windrow.errors import CorruptFileError, MissingTreeError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def show(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["show", *map(str, arguments)])


def shown(*arguments: str | Path) -> Any:
    result = show(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    columns = {
        "run": np.arange(100, dtype=np.uint32),
        "x": np.linspace(0, 1, 100),
        "HLT_a": np.zeros(100, dtype=bool),
        "HLT_b": np.ones(100, dtype=bool),
        "tracks": [[1.0] * (i % 3) for i in range(100)],
        "name": ["text"] * 100,
    }
    pq.write_table(pa.table(columns), tmp_path / "table.parquet", row_group_size=40)
    return tmp_path / "table.parquet"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    with uproot.recreate(tmp_path / "trees.root") as file:
        file.mktree("Events", {"x": np.arange(7.0), "y": np.arange(7)})
        file.mktree("Runs", {"z": np.arange(2.0)})
    return tmp_path / "trees.root"


# -- real files -------------------------------------------------------------------------------------


@pytest.mark.samples
def test_a_nanoaod_file_is_told_in_a_page(samples: Path) -> None:
    result = show(samples / "nanoaodv5_sample.root")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) < 70
    assert max(map(len, lines)) <= 120
    assert "tree Events (TTree): 1,000 rows" in result.stdout
    with uproot.open(samples / "nanoaodv5_sample.root")["Events"] as tree:
        keys = tree.keys()
    for prefix, counter in (("Muon", "nMuon"), ("Jet", "nJet")):
        fields = sum(key.startswith(f"{prefix}_") for key in keys)
        (line,) = [line.split() for line in lines if line.split()[:1] == [prefix]]
        assert line[1:4] == [str(fields), "fields", counter]
    (hlt,) = [line.split() for line in lines if line.split()[:1] == ["HLT_*"]]
    assert hlt[1] == str(sum(key.startswith("HLT_") for key in keys))


@pytest.mark.samples
def test_json_has_what_uproot_finds(samples: Path) -> None:
    path = samples / "nano_dy.root"
    (file,) = shown(path)["files"]
    assert {tree["name"]: tree["rows"] for tree in file["trees"]} == {"Events": 40, "Runs": 1}
    assert file["tree"] == "Events"
    assert file["bytes"] == path.stat().st_size
    assert (file["rows"], file["units"]) == (40, [0, 40])
    with uproot.open(path)["Events"] as tree:
        assert set(file["columns"]) == set(tree.keys())
        for name in ("Muon_pt", "genWeight", "HLT_IsoMu24", "event"):
            dtype = tree[name].array(library="np", entry_stop=1)[0].dtype
            assert file["columns"][name]["type"].removesuffix("[]") == str(dtype)
            assert file["columns"][name]["bytes"] == tree[name].compressed_bytes
    assert file["columns"]["Muon_pt"]["counter"] == "nMuon"
    assert set(file["collections"]["Muon"]["columns"]) == {name for name in file["columns"] if name.startswith("Muon_")}


@pytest.mark.slow
@pytest.mark.samples
def test_an_rntuple_shows_the_columns_of_its_ttree_and_nothing_internal(samples: Path) -> None:
    (ntuple,) = shown(samples / "nano_dy_rntuple.root")["files"]
    (ttree,) = shown(samples / "nano_dy.root")["files"]
    assert ntuple["trees"] == [{"name": "Events", "kind": "RNTuple", "rows": 40}]
    assert set(ntuple["columns"]) == set(ttree["columns"])
    text = show(samples / "nano_dy_rntuple.root", "--all").stdout
    assert "_collection" not in text
    assert [line.split()[0] for line in text.splitlines() if line].count("Muon_pt") == 1


@pytest.mark.slow
@pytest.mark.samples
def test_what_is_missing_in_which_file(samples: Path) -> None:
    paths = [samples / "nano_dy.root", samples / "nano_dimuon.root"]
    keys = []
    for path in paths:
        with uproot.open(path)["Events"] as tree:
            keys.append(set(tree.keys()))
    text = show(*paths).stdout
    assert f"missing in {paths[0]} ({len(keys[1] - keys[0])}):" in text
    assert f"missing in {paths[1]} ({len(keys[0] - keys[1])}):" in text
    assert f"missing in {paths[1]}: genWeight" in show(*paths, "--columns", "genWeight").stdout


@pytest.mark.samples
def test_an_empty_file_has_columns_and_no_units(samples: Path) -> None:
    result = show(samples / "nano_dy_empty.root")
    assert result.exit_code == 0
    assert "tree Events (TTree): 0 rows" in result.stdout
    assert "1,499 columns, no units" in result.stdout


# -- made files -------------------------------------------------------------------------------------


def test_parquet_with_row_groups_lists_and_text(table: Path) -> None:
    (file,) = shown(table)["files"]
    assert (file["rows"], file["trees"], file["tree"]) == (100, [], None)
    types = {name: column["type"] for name, column in file["columns"].items()}
    assert types["x"] == "float64"
    assert types["tracks"] == "float64[]"
    assert "string" in types["name"]
    stored = pq.ParquetFile(table).metadata.row_group(0).column(0).total_compressed_size
    assert file["columns"]["run"]["bytes"] >= stored
    text = show(table).stdout
    assert "Parquet" in text
    assert "100 rows, 6 columns, 1 unit of 100 rows" in text
    assert "HLT_*  2 columns" in text


def test_a_skim_tells_where_it_comes_from_and_hides_what_windrow_added(table: Path, tmp_path: Path) -> None:
    analysis = wr.Pipeline("half")

    @analysis.cut
    def upper(x: Any) -> Any:
        return x > 0.5

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    analysis.save(str(tmp_path / "skim-{dataset}.parquet"), columns=["*", "-HLT_*"])
    fileset = {"demo": {"files": [str(table)], "metadata": {"year": 2018}}}
    analysis.run(fileset, progress=False)
    (file,) = shown(tmp_path / "skim-demo.parquet")["files"]
    assert (file["rows"], set(file["columns"])) == (50, {"run", "x", "tracks", "name"})
    assert file["metadata"]["year"] == 2018
    assert "year=2018" in show(tmp_path / "skim-demo.parquet").stdout


def test_all_columns_one_by_one(table: Path) -> None:
    lines = [line.split() for line in show(table, "--all").stdout.splitlines()]
    for name in ("run", "x", "HLT_a", "HLT_b", "tracks", "name"):
        assert sum(line[:1] == [name] for line in lines) == 1


def test_columns_by_pattern(table: Path) -> None:
    result = show(table, "--columns", "HLT_*", "--columns", "x")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["x", "HLT_a", "HLT_b", "3"]
    assert set(shown(table, "--columns", "HLT_*")["files"][0]["columns"]) == {"HLT_a", "HLT_b"}


def test_a_pattern_in_vain_is_an_error(table: Path) -> None:
    result = show(table, "--columns", "HTL_*")
    assert result.exit_code == 1
    assert "no column matches 'HTL_*'; did you mean 'HLT'" in result.stderr


def test_all_trees_are_listed_and_one_is_shown(trees: Path) -> None:
    text = show(trees).stdout
    assert "tree Events (TTree): 7 rows <- shown below" in text
    assert "tree Runs (TTree): 2 rows\n" in text
    (file,) = shown(f"{trees}:Runs")["files"]
    assert (file["tree"], list(file["columns"])) == ("Runs", ["z"])


def test_several_trees_and_none_called_events(tmp_path: Path) -> None:
    path = tmp_path / "two.root"
    with uproot.recreate(path) as file:
        file.mktree("a", {"x": np.arange(3.0)})
        file.mkrntuple("b", {"x": np.arange(4.0)})
    result = show(path)
    assert result.exit_code == 0, result.output
    assert "tree a (TTree): 3 rows" in result.stdout
    assert "tree b (RNTuple): 4 rows" in result.stdout
    assert "write FILE:TREE" in result.stdout
    assert shown(path)["files"][0]["tree"] is None
    assert "4 rows" in show(f"{path}:b").stdout


@pytest.mark.parametrize(
    ("names", "asked", "read"),
    [
        (["a"], "", "a"),
        (["a", "deep/Events"], "", "deep/Events"),
        (["a", "events", "Events"], "", None),
        (["a", "b"], "", None),
        (["a", "deep/b"], ":deep/b", "deep/b"),
        (["a", "b"], ":b;1", "b"),
    ],
)
def test_the_tree_that_is_shown_is_the_one_that_is_read(
    tmp_path: Path, names: list[str], asked: str, read: str | None
) -> None:
    path = tmp_path / "trees.root"
    with uproot.recreate(path) as file:
        for number, name in enumerate(names, start=1):
            file.mktree(name, {"x": np.zeros(number)})
    (told,) = shown(f"{path}{asked}")["files"]
    assert told["tree"] == read
    if read is None:
        with pytest.raises(MissingTreeError):
            wr.data.open(f"{path}{asked}").open(0)
    else:
        with closing(wr.data.open(f"{path}{asked}").open(0)) as reader:
            assert reader.info.rows == told["rows"] == names.index(read) + 1


def test_what_is_missing_in_json(tmp_path: Path) -> None:
    for name in ("a", "b"):
        values = {"x": np.zeros(3), f"only_{name}": np.zeros(3)}
        pq.write_table(pa.table(values), tmp_path / f"{name}.parquet")
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    assert shown(first, second)["missing"] == {str(first): ["only_b"], str(second): ["only_a"]}


def test_types_that_differ(tmp_path: Path) -> None:
    for name, kind in (("a", np.int32), ("b", np.int64)):
        values = {"n": np.arange(3, dtype=kind), "x": np.zeros(3)}
        pq.write_table(pa.table(values), tmp_path / f"{name}.parquet")
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    found = shown(first, second)
    assert found["types"] == {"n": {"int32": [str(first)], "int64": [str(second)]}}
    text = show(tmp_path / "*.parquet").stdout
    assert "1 of 2 columns are in every file with the same type" in text
    assert f"type of n differs: int32 in {first}; int64 in {second}" in text


def test_files_that_are_alike(table: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.parquet").write_bytes(table.read_bytes())
    text = show(table, tmp_path / "copy.parquet").stdout
    assert "all 6 columns are in every file with the same type" in text


@pytest.mark.parametrize(
    ("content", "words"), [(None, "no such file"), (b"", "it is empty"), (b"PAR1 and more", "give it the suffix")]
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "file.root"
    if content is not None:
        path.write_bytes(content)
    result = show(path)
    assert result.exit_code == 1
    assert result.stderr.startswith("windrow: error: ")
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in show(path, "--debug").stderr


def test_a_tree_that_is_not_there(trees: Path) -> None:
    result = show(f"{trees}:Lumi")
    assert result.exit_code == 1
    assert "trees there are: Events, Runs" in result.stderr


# -- groups -----------------------------------------------------------------------------------------

WORDS = st.sampled_from(["Muon", "nMuon", "Jet", "HLT", "pt", "x", "Muon_good"])
NAMES = st.lists(WORDS, min_size=1, max_size=3).map("_".join)
KINDS = st.sampled_from(["flat", "jagged", "other"])


@given(st.dictionaries(NAMES, st.tuples(KINDS, st.sampled_from([None, "nMuon", "nJet"]))))
def test_every_column_is_shown_once(described: dict[str, tuple[Any, str | None]]) -> None:
    infos = {
        name: ColumnInfo(
            name=name,
            kind=kind,
            dtype=None if kind == "other" else np.dtype("f4"),
            counter=counter if kind == "jagged" else None,
        )
        for name, (kind, counter) in described.items()
    }
    info = FileInfo(rows=0, borders=(0,), columns=infos, identity="", collections=find_collections(infos))
    columns = {
        name: Column(name=name, type="", kind=one.kind, counter=one.counter, stored_bytes=0)
        for name, one in infos.items()
    }
    groups, rest = grouped(columns, info)
    counters = {group.counter for group in groups} - {None}
    listed = [member.name for group in groups for member in group.members]
    listed += [column.name for column in rest]
    assert len(listed) == len(set(listed))
    assert set(listed) | counters == set(columns)
    for group in groups:
        assert all(member.name.startswith(f"{group.prefix}_") for member in group.members)
        assert group.lists == all(member.kind == "jagged" for member in group.members)


def test_columns_of_other_types_are_asked_for_together() -> None:
    """And by halves where one of them cannot be read: few requests for thousands of columns."""
    asked: list[int] = []

    def read(names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        asked.append(len(names))
        if "bad" in names:
            raise CorruptFileError("no")
        return {name: ak.Array([[[1.5]]])[start:stop] for name in names}

    names = [f"c{number}" for number in range(127)]
    found = _other_types(SimpleNamespace(read=read), names)
    assert asked == [127]
    assert set(found.values()) == {"var * var * float64"}
    asked.clear()
    found = _other_types(SimpleNamespace(read=read), [*names, "bad"])
    assert len(asked) == 15
    assert [name for name, kind in found.items() if kind == "unreadable"] == ["bad"]
