"""RNTuples: names a user knows, the same numbers as the TTree, hidden fields hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st

import windrow.data
from windrow.data.formats.rntuple import RNTupleReader
from windrow.errors import MissingColumnError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 12
WRITTEN = {
    "x": np.arange(ROWS, dtype="f4"),
    "flag": np.arange(ROWS) % 3 == 0,
    "i": np.arange(ROWS, dtype="i8") * -7,
    "jagged": ak.Array([list(range(n % 4)) for n in range(ROWS)]),
    "Muon": ak.Array([[{"pt": n + 0.5, "q": 1}] * (n % 3) for n in range(ROWS)]),
    "MET": ak.Array([{"pt": float(n), "phi": -1.0} for n in range(ROWS)]),
    "text": ak.Array([str(n) for n in range(ROWS)]),
    "nested": ak.Array([[[n], []] for n in range(ROWS)]),
    "maybe": ak.Array([None if n % 2 else n for n in range(ROWS)]),
}
LEAVES: dict[str, Any] = {
    **{name: WRITTEN[name] for name in ("x", "flag", "i", "jagged", "text", "nested", "maybe")},
    "Muon.pt": WRITTEN["Muon"].pt,
    "Muon.q": WRITTEN["Muon"].q,
    "MET.pt": WRITTEN["MET"].pt,
    "MET.phi": WRITTEN["MET"].phi,
}


@pytest.fixture(scope="module")
def three_clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rntuple") / "x.root"
    with uproot.recreate(path) as file:
        ntuple = file.mkrntuple("t", {name: array[:5] for name, array in WRITTEN.items()})
        ntuple.extend({name: array[5:6] for name, array in WRITTEN.items()})
        ntuple.extend({name: array[6:] for name, array in WRITTEN.items()})
    return path


def open_one(path: Path, **options: Any) -> RNTupleReader:
    reader = windrow.data.open(path, **options).open(0)
    assert isinstance(reader, RNTupleReader)
    return reader


def test_fields_are_described(three_clusters: Path) -> None:
    reader = open_one(three_clusters)
    assert reader.layout.clusters == (0, 5, 6, 12)
    kinds = {name: column.kind for name, column in reader.info.columns.items()}
    odd = {"text", "nested", "maybe"}
    lists = {"jagged", "Muon.pt", "Muon.q"}
    assert kinds == {name: "other" if name in odd else "jagged" if name in lists else "flat" for name in LEAVES}
    assert reader.info.collections == {"Muon": ("Muon.pt", "Muon.q"), "MET": ("MET.pt", "MET.phi")}
    assert reader.info.columns["flag"].dtype == np.dtype(bool)
    assert reader.info.columns["x"].stored_bytes >= 4 * ROWS
    with pytest.raises(MissingColumnError, match=r"'Muon\.pt'"):
        reader.read(["Muon.pT"], 0, 1)
    reader.close()


@given(
    st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)), min_size=1, max_size=4),
    st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, unique=True),
)
def test_any_sequence_of_ranges_and_columns(
    three_clusters: Path, ranges: list[tuple[int, int]], names: list[str]
) -> None:
    reader = open_one(three_clusters)
    for start, stop in map(sorted, ranges):
        out = reader.read(names, start, stop)
        for name in names:
            assert out[name].tolist() == LEAVES[name][start:stop].tolist(), name
            column = reader.info.columns[name]
            if column.kind == "flat":
                assert out[name].dtype == column.dtype
            elif column.kind == "jagged":
                assert out[name].layout.offsets[0] == 0
                assert out[name].layout.content.dtype == column.dtype
    reader.close()


def test_clusters_used_in_part_are_not_read_again(three_clusters: Path) -> None:
    reader = open_one(three_clusters)
    reader.read(["Muon.pt"], 6, 8)
    first = reader.bytes_read
    assert first > 0
    reader.read(["Muon.pt"], 8, 12)
    assert reader.bytes_read == first
    reader.read(["Muon.pt"], 6, 12)
    assert reader.bytes_read == 2 * first
    assert reader.reads == [("Muon.pt", 6, 8), ("Muon.pt", 8, 12), ("Muon.pt", 6, 12)]


def test_a_column_shared_by_fields_is_read_once(three_clusters: Path) -> None:
    reader = open_one(three_clusters)
    reader.read(["Muon.pt"], 0, ROWS)
    alone = reader.bytes_read
    reader.read(["Muon.q"], 0, ROWS)
    apart = reader.bytes_read
    reader.read(["Muon.pt", "Muon.q"], 0, ROWS)
    assert alone < reader.bytes_read - apart < apart  # the lengths once


def test_no_rows(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "x.root") as file:
        file.mkrntuple("t", {"x": "f4", "y": "var * int32"})
    reader = open_one(tmp_path / "x.root")
    assert (reader.info.rows, reader.info.borders) == (0, (0,))
    out = reader.read(["x", "y"], 0, 0)
    assert out["x"].dtype == np.dtype("f4")
    assert str(out["y"].type) == "0 * var * int32"


@pytest.mark.samples
def test_the_rntuple_and_the_ttree_of_one_file_agree(samples: Path) -> None:
    tree = windrow.data.open(samples / "nano_dy.root").open(0)
    ntuple = open_one(samples / "nano_dy_rntuple.root")
    assert set(tree.info.columns) == set(ntuple.info.columns)
    for name, column in tree.info.columns.items():
        other = ntuple.info.columns[name]
        assert (column.kind, column.dtype, column.counter) == (other.kind, other.dtype, other.counter)
    assert {p: set(m) for p, m in tree.info.collections.items()} == {
        p: set(m) for p, m in ntuple.info.collections.items()
    }
    names = list(tree.info.columns)
    left, right = tree.read(names, 3, 37), ntuple.read(names, 3, 37)
    for name in names:
        one, two = ak.Array(left[name]).layout, ak.Array(right[name]).layout
        if one.is_list:
            assert one.offsets.data.tobytes() == two.offsets.data.tobytes(), name
            one, two = one.content, two.content
        assert one.data.tobytes() == two.data.tobytes(), name


@pytest.mark.samples
def test_hidden_collections_stay_hidden_and_are_not_read(samples: Path) -> None:
    reader = open_one(samples / "nano_dy_rntuple.root")
    assert not any("_collection" in name for name in reader.info.columns)
    assert not any("_collection" in name for name in reader.info.collections)
    reader.read(["Muon_pt"], 0, 40)
    assert reader.bytes_read == reader.info.columns["Muon_pt"].stored_bytes  # offsets and numbers, once
    reader.read(["nMuon"], 0, 40)
    assert reader.info.columns["nMuon"].dtype == np.dtype("u4")
