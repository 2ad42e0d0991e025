"""Tables: other trees of the files, against uproot and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import windrow as wr
from windrow.errors import MissingColumnError, MissingFileError, MissingTreeError, SpecError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, first: int = 0, **more: Any) -> str:
    lists = ak.Array([[1.0 * first], [], [2.0, 3.0]])
    with uproot.recreate(path) as file:
        tree = file.mktree("Events", {"x": "i8"})
        tree.extend({"x": np.arange(10)})
        runs = {"run": np.arange(first, first + 3), "sumw": lists}
        types = {"run": "i8", "sumw": "var * float64", **dict.fromkeys(more, "f8")}
        file.mktree("Runs", types).extend({**runs, **more})
        file.mkrntuple("Extra", {"n": np.array([first, 7]), "l": ak.Array([[1.5], []])})
    return str(path)


def test_a_tree_of_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.root")
    runs = wr.data.table(path, "Runs")
    assert runs["run"].tolist() == [0, 1, 2]
    assert isinstance(runs["run"], np.ndarray)
    assert runs["sumw"].tolist() == [[0.0], [], [2.0, 3.0]]
    assert list(wr.data.table(path, "Runs", columns=["sumw"])) == ["sumw"]
    extra = wr.data.table(path, "Extra")
    assert {name: ak.to_list(values) for name, values in extra.items()} == {"n": [0, 7], "l": [[1.5], []]}
    assert wr.data.table(path)["x"].tolist() == list(range(10))  # Events


def test_files_follow_each_other(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n}.root", 10 * n) for n in range(3)]
    runs = [0, 1, 2, 10, 11, 12, 20, 21, 22]
    lists = [[0.0], [], [2.0, 3.0], [10.0], [], [2.0, 3.0], [20.0], [], [2.0, 3.0]]
    fileset = {"dy": {"files": {p: {"object_path": "Events", "num_entries": 10} for p in paths}}}
    for files in (
        paths,
        f"{tmp_path}/*.root",
        f"{tmp_path}/*.root:Events",
        fileset,
        fileset["dy"],
        wr.data.open(fileset),
    ):
        table = wr.data.table(files, "Runs")
        assert table["run"].tolist() == runs
        assert table["sumw"].tolist() == lists
    assert wr.data.table(paths, "Extra")["n"].tolist() == [0, 7, 10, 7, 20, 7]


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.table({"run": [1, 2, 3], "name": ["a", "b", "c"]}), path, row_group_size=2)
    table = wr.data.table(path)
    assert table["run"].tolist() == [1, 2, 3]
    assert table["name"].tolist() == ["a", "b", "c"]
    with pytest.raises(SpecError, match="is no ROOT file and has no trees, but 'Runs' is asked"):
        wr.data.table(path, "Runs")


def test_what_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.root")
    with pytest.raises(MissingTreeError, match=r"'Rnus' is not there; trees there are: Events, Extra, Runs"):  # fmt: skip
        wr.data.table(path, "Rnus")
    with pytest.raises(MissingColumnError, match="no column 'sumv'; did you mean 'sumw'"):
        wr.data.table(path, "Runs", columns=["sumv"])
    with pytest.raises(MissingFileError, match="no such file"):
        wr.data.table(tmp_path / "b.root", "Runs")
    with pytest.raises(SpecError, match="columns= is a list"):
        wr.data.table(path, "Runs", columns="run")
    with pytest.raises(SpecError, match="files of one dataset, got those of dy, tt"):
        wr.data.table({"dy": path, "tt": path}, "Runs")
    with pytest.raises(SpecError, match="a table is read from files, got a JoinedSource"):
        wr.data.table(wr.data.join({"x": np.arange(2)}, {"y": np.arange(2)}), "Runs")


def test_files_that_are_not_alike(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.root"), write(tmp_path / "b.root", lhe=np.arange(3.0))]
    with pytest.raises(MissingColumnError, match=r"'lhe' is in only one of .*a.root and .*b.root"):
        wr.data.table(paths, "Runs")
    assert wr.data.table(paths, "Runs", columns=["run"])["run"].tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.samples
def test_the_runs_of_nanoaod(samples: Path) -> None:
    path = samples / "nano_dy.root"
    runs = wr.data.table(path, "Runs")
    plain = uproot.open(path)["Runs"].arrays()
    assert set(runs) >= {"run", "genEventSumw_", "genEventCount_"}
    for name in runs:
        assert ak.to_list(runs[name]) == ak.to_list(plain[name])
    assert runs["genEventSumw_"].sum() == ak.sum(plain.genEventSumw_) > 0
    both = wr.data.table([path, samples / "nano_dimuon.root"], "Runs", columns=["run"])
    data = uproot.open(samples / "nano_dimuon.root")["Runs/run"].array()
    assert both["run"].tolist() == [*plain.run.tolist(), *data.tolist()]
    for name in ("nano_dy_rntuple.root", "nanoaodv5_sample.root"):
        with pytest.raises(MissingTreeError, match="trees there are: Events"):
            wr.data.table(samples / name, "Runs")
    table = wr.data.table(samples / "nano_dy_rntuple.root", columns=["event"])
    assert table["event"].tolist() == wr.data.table(path, "Events")["event"].tolist()
