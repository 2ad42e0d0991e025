"""What a skim remembers comes back with it, and files that are no skims are left alone."""

from __future__ import annotations

import builtins
import pickle
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import windrow.data
from windrow.data.skim.fragments import write_fragment
from windrow.data.skim.record import read_record
from windrow.data.skim.write import write_skim
from windrow.errors import MissingColumnError, UsageError

FORMATS = ("parquet", "rntuple", "ttree")
HIDDEN = "windrow_identity"


def save(path: Path, form: Any, dataset: str, **record: Any) -> Path:
    columns = {
        "x": np.arange(3.0),
        "nMuon": np.array([1, 0, 2], dtype="u4"),
        "Muon_pt": ak.Array([[1.0], [], [2.0, 3.0]]),
        HIDDEN: np.arange(3, dtype="u8") + np.uint64(2**63),
    }
    fragment = write_fragment(path.with_name(f"{path.name}.fragment"), columns, 3)
    facts = {"metadata": {"xs": 2.5}, "region": "SR", "rows": 10, "selected": 3, "sumw": 4.0}
    said = {"dataset": dataset, **facts, "sumw2": 5.0, "hidden": HIDDEN, **record}
    write_skim(path, [fragment], format=form, record=said)
    return path


def named(directory: Path, name: str, form: str) -> Path:
    return directory / f"{name}.{'parquet' if form == 'parquet' else 'root'}"


def kind(form: str) -> str:
    return "parquet" if form == "parquet" else "root"


@pytest.mark.parametrize("form", FORMATS)
def test_the_record_comes_back(tmp_path: Path, form: str) -> None:
    path = save(named(tmp_path, "a", form), form, "tt", metadata={"xs": np.float32(2.5), "years": (1, 2)})
    record = read_record(path, kind(form))
    assert record is not None
    assert record["dataset"] == "tt"
    assert record["metadata"] == {"xs": 2.5, "years": [1, 2]}
    assert (record["version"], record["rows"], record["sumw"]) == (1, 10, 4.0)
    if form == "parquet":
        assert b"windrow" in pq.read_schema(path).metadata
    else:
        with uproot.open(path) as file:
            assert file.classnames(cycle=False)["windrow_skim"] == "TObjString"


@pytest.mark.parametrize("form", FORMATS)
def test_identities_are_hidden_but_readable(tmp_path: Path, form: str) -> None:
    reader = windrow.data.open(save(named(tmp_path, "a", form), form, "tt")).open(0)
    assert reader.info.identity_column == HIDDEN
    assert list(reader.info.columns) == ["x", "nMuon", "Muon_pt"]
    assert reader.info.collections == {"Muon": ("Muon_pt",)}
    found = reader.read([HIDDEN, "x"], 1, 3)
    assert found[HIDDEN].dtype == np.uint64
    assert found[HIDDEN].tolist() == [2**63 + 1, 2**63 + 2]
    assert reader.read([HIDDEN], 2, 2)[HIDDEN].tolist() == []
    assert found["x"].tolist() == [1.0, 2.0]
    with pytest.raises(MissingColumnError):
        reader.read(["windrow_other"], 0, 1)


@pytest.mark.parametrize("form", FORMATS)
def test_a_column_of_that_name_alone_is_a_column(tmp_path: Path, form: str) -> None:
    path = save(named(tmp_path, "a", form), form, "tt", hidden=None)
    info = windrow.data.open(path).open(0).info
    assert info.identity_column is None
    assert HIDDEN in info.columns


def test_files_of_others_are_no_skims(tmp_path: Path) -> None:
    pq.write_table(pa.table({HIDDEN: [1]}), tmp_path / "a.parquet")
    with uproot.recreate(tmp_path / "a.root") as file:
        file.mktree("Events", {HIDDEN: "u8"}).extend({HIDDEN: np.zeros(1, "u8")})
        file["other"] = "text"
    for name in ("a.parquet", "a.root"):
        assert read_record(tmp_path / name, name[2:]) is None
        source = windrow.data.open(tmp_path / name)
        assert dict(source.datasets["data"]) == {"dataset": "data"}
        assert source.open(0).info.identity_column is None
        assert HIDDEN in source.open(0).info.columns


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [0, 3, 11, 30, 100, 300])
def test_damaged_files_are_somebody_elses_problem(tmp_path: Path, form: str, size: int) -> None:
    whole = save(named(tmp_path, "a", form), form, "tt").read_bytes()
    path = named(tmp_path, "b", form)
    for content in (whole[:size], b"\0" * size, whole[: size // 2] + whole[-size:]):
        path.write_bytes(content)
        read_record(path, kind(form))
        assert len(windrow.data.open(path).inputs) == 1


def test_records_of_another_version_are_ignored(tmp_path: Path) -> None:
    path = save(tmp_path / "a.parquet", "parquet", "tt", version=2)
    assert read_record(path, "parquet") is None


# -- datasets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_datasets_come_back_with_the_files(tmp_path: Path, form: str) -> None:
    for name, dataset in (("a", "tt"), ("b", "dy"), ("c", "tt")):
        save(named(tmp_path, name, form), form, dataset)
    source = windrow.data.open(str(named(tmp_path, "*", form)))
    assert [(i.index, i.dataset, Path(i.label).stem) for i in source.inputs] == [
        (0, "tt", "a"), (1, "tt", "c"), (2, "dy", "b"),
    ]  # fmt: skip
    assert list(source.datasets) == ["tt", "dy"]
    skim = {
        "region": "SR", "cut": None, "rows": 20, "selected": 6, "failed": None,
        "sumw": 8.0, "sumw2": 10.0, "keys": ["sumw"],
    }  # fmt: skip
    assert source.datasets["tt"] == {"dataset": "tt", "xs": 2.5, "skim": skim, "sumw": 8.0}
    assert source.datasets["dy"]["skim"]["rows"] == 10
    again = pickle.loads(pickle.dumps(source))
    assert again == source
    assert again.open(2).info.rows == 3


def test_what_the_user_says_goes_first(tmp_path: Path) -> None:
    a = save(tmp_path / "a.parquet", "parquet", "tt", metadata={"xs": 1, "year": 16, "sumw": 7})
    b = save(tmp_path / "b.parquet", "parquet", "dy", metadata={"xs": 2, "year": 16, "sumw": 7})
    source = windrow.data.open({"mc": {"files": [str(a), str(b)], "metadata": {"note": 1}}})
    assert [i.dataset for i in source.inputs] == ["mc", "mc"]
    found = dict(source.datasets["mc"])
    assert found.pop("skim")["sumw"] == 8.0
    assert found == {"dataset": "mc", "year": 16, "sumw": 7, "note": 1}
    source = windrow.data.open({"mc": {"files": str(a), "metadata": {"xs": 9}}})
    assert source.datasets["mc"]["xs"] == 9
    source = windrow.data.open(a, metadata={"xs": 8})
    assert source.datasets["tt"]["xs"] == 8
    source = windrow.data.open([a, b], metadata={"dy": {"xs": 8}})
    assert (source.datasets["tt"]["xs"], source.datasets["dy"]["xs"]) == (1, 8)


def test_unknown_sums_stay_unknown(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", "parquet", "tt")
    save(tmp_path / "b.parquet", "parquet", "tt", sumw=None)
    found = windrow.data.open(str(tmp_path / "*.parquet")).datasets["tt"]
    assert found["skim"]["sumw"] is None
    assert found["skim"]["rows"] == 20
    assert "sumw" not in found


def test_skims_among_other_files(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", "parquet", "tt")
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "b.parquet")
    source = windrow.data.open(str(tmp_path / "*.parquet"))
    assert [i.dataset for i in source.inputs] == ["tt", "data"]
    assert dict(source.datasets["data"]) == {"dataset": "data"}


def test_looking_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library is asked about a file whose bytes do not name a record."""
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "a.parquet")
    with uproot.recreate(tmp_path / "a.root") as file:
        file.mktree("Events", {"x": "f8"}).extend({"x": np.zeros(1)})

    original = builtins.__import__

    def guarded(name: str, *args: Any) -> Any:
        assert not name.startswith(("uproot", "pyarrow"))
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", guarded)
    assert read_record(tmp_path / "a.parquet", "parquet") is None
    assert read_record(tmp_path / "a.root", "root") is None


@pytest.mark.samples
def test_real_files_are_no_skims(samples: Path) -> None:
    for path in samples.glob("*.root"):
        assert read_record(path, "root") is None


def test_metadata_must_fit_into_json(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"metadata of dataset 'tt' .*<object.*is a object"):
        save(tmp_path / "a.parquet", "parquet", "tt", metadata={"xs": object()})
    assert not (tmp_path / "a.parquet").exists()
