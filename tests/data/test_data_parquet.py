"""Parquet: leaves of nested columns, missing values, row groups, bad files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
import windrow.data
from windrow.data.formats.parquet import ParquetReader
from windrow.errors import CorruptFileError, MissingColumnError, MissingFileError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 11
WRITTEN = ak.Array(
    {
        "x": np.arange(ROWS, dtype="f4"),
        "flag": np.arange(ROWS) % 3 == 0,
        "u": np.arange(ROWS, dtype="u2"),
        "jagged": [list(range(n % 4)) for n in range(ROWS)],
        "Muon": [[{"pt": n + 0.5, "q": n, "hits": [n]}] * (n % 3) for n in range(ROWS)],
        "MET": [{"pt": float(n), "phi": -1.0} for n in range(ROWS)],
        "text": [str(n) for n in range(ROWS)],
        "nested": [[[n], []] for n in range(ROWS)],
        "maybe": [None if n == 7 else n for n in range(ROWS)],
        "gaps": [[1.0, None] if n == 7 else [2.0] for n in range(ROWS)],
    }
)
LEAVES = {
    **{name: WRITTEN[name] for name in WRITTEN.fields if name not in ("Muon", "MET")},
    "Muon.pt": WRITTEN.Muon.pt,
    "Muon.q": WRITTEN.Muon.q,
    "Muon.hits": WRITTEN.Muon.hits,
    "MET.pt": WRITTEN.MET.pt,
    "MET.phi": WRITTEN.MET.phi,
}
KINDS = dict.fromkeys(LEAVES, "other") | {
    **dict.fromkeys(("x", "flag", "u", "MET.pt", "MET.phi"), "flat"),
    **dict.fromkeys(("jagged", "gaps", "Muon.pt", "Muon.q"), "jagged"),
}


@pytest.fixture(scope="module")
def three_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    ak.to_parquet(WRITTEN, path, row_group_size=4)
    return path


def open_one(path: Path, **options: Any) -> ParquetReader:
    reader = windrow.data.open(path, **options).open(0)
    assert isinstance(reader, ParquetReader)
    return reader


def test_columns_are_described(three_groups: Path) -> None:
    reader = open_one(three_groups)
    assert reader.layout.groups == (0, 4, 8, 11)
    assert {name: column.kind for name, column in reader.info.columns.items()} == KINDS
    assert reader.info.columns["u"].dtype == np.dtype("u2")
    assert reader.info.columns["flag"].dtype == np.dtype(bool)
    assert reader.info.collections == {"Muon": ("Muon.pt", "Muon.q"), "MET": ("MET.pt", "MET.phi")}
    assert reader.info.borders == (0, 11)
    assert open_one(three_groups, grid=5).info.borders == (0, 5, 10, 11)
    assert len(reader.info.identity) == 32
    assert reader.info.identity == open_one(three_groups).info.identity


@given(
    st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)), min_size=1, max_size=4),
    st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, unique=True),
)
def test_any_sequence_of_ranges_and_columns(
    three_groups: Path, ranges: list[tuple[int, int]], names: list[str]
) -> None:
    reader = open_one(three_groups)
    for start, stop in map(sorted, ranges):
        out = reader.read(names, start, stop)
        for name in names:
            assert out[name].tolist() == LEAVES[name][start:stop].tolist(), name
            column = reader.info.columns[name]
            if column.kind == "flat":
                assert isinstance(out[name], np.ndarray)
                assert out[name].dtype == column.dtype
                assert out[name].flags.c_contiguous
            elif column.kind == "jagged" and name != "gaps":
                assert isinstance(out[name].layout, ak.contents.ListOffsetArray)
                assert out[name].layout.offsets[0] == 0
                assert out[name].layout.offsets[-1] == len(out[name].layout.content)
                assert out[name].layout.content.dtype == column.dtype
    reader.close()


def test_only_what_is_asked_for_is_read(three_groups: Path) -> None:
    reader = open_one(three_groups)
    metadata = pq.read_metadata(three_groups)
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    (number,) = (i for i, path in enumerate(paths) if path.startswith("Muon.") and path[-2:] == "pt")
    sizes = [metadata.row_group(g).column(number).total_compressed_size for g in range(3)]
    reader.read(["Muon.pt"], 0, 2)
    assert reader.bytes_read == sizes[0]
    reader.read(["Muon.pt"], 2, 8)  # the first row group was kept
    assert reader.bytes_read == sizes[0] + sizes[1]
    assert reader.reads == [("Muon.pt", 0, 2), ("Muon.pt", 2, 8)]
    assert reader.info.columns["Muon.pt"].stored_bytes == sum(sizes)


def test_files_of_pyarrow(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": pa.array([1, 2, 3], pa.int32()),
            "Muon.pt": pa.array([[1.0], [], [2.0, 3.0]], pa.list_(pa.float32())),
            "wide": pa.array([[1], [2], []], pa.large_list(pa.int64())),
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "when": pa.array([1, 2, 3], pa.timestamp("s")),
            "three": pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2)),
            "m": pa.array([[("k", 1)], [], []], pa.map_(pa.string(), pa.int64())),
            "last": pa.array([0.5, 1.5, 2.5]),
        }
    )
    pq.write_table(table, tmp_path / "x.pq")
    reader = open_one(tmp_path / "x.pq")
    kinds = {name: column.kind for name, column in reader.info.columns.items()}
    assert {name for name, kind in kinds.items() if kind == "other"} == {"kind", "when", "three"}
    assert "m" not in kinds  # a type that awkward cannot hold
    out = reader.read(list(kinds), 0, 3)
    assert out["Muon.pt"].tolist() == [[1.0], [], [2.0, 3.0]]
    assert out["wide"].tolist() == [[1], [2], []]
    assert out["kind"].tolist() == ["a", "b", "a"]
    assert out["three"].tolist() == [[1, 2]] * 3
    assert out["last"].tolist() == [0.5, 1.5, 2.5]
    assert reader.info.collections == {"Muon": ("Muon.pt",)}
    reader.close()
    reader.close()


def test_no_rows(tmp_path: Path) -> None:
    schema = pa.schema({"x": pa.float32(), "y": pa.list_(pa.int32())})
    pq.write_table(schema.empty_table(), tmp_path / "x.parquet")
    reader = open_one(tmp_path / "x.parquet")
    assert (reader.info.rows, reader.info.borders) == (0, (0,))
    out = reader.read(["x", "y"], 0, 0)
    assert out["x"].dtype == np.dtype("f4")
    assert str(out["y"].type) == "0 * var * int32"


def test_small_row_groups_are_joined(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(50_000)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=6000)
    info = open_one(tmp_path / "x.parquet").info
    assert info.borders == (0, 50_000)
    assert info.clusters == (*range(0, 50_000, 6000), 50_000)


def test_missing_things_are_named(three_groups: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingColumnError, match=r"'Muon\.pt'"):
        open_one(three_groups).read(["Muon.pT"], 0, 1)
    with pytest.raises(MissingColumnError, match="no column 'Muon'"):
        open_one(three_groups).read(["Muon"], 0, 1)
    (tmp_path / "x.parquet").write_bytes(three_groups.read_bytes())
    source = windrow.data.open(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").unlink()
    with pytest.raises(MissingFileError, match=r"x\.parquet"):
        source.open(0)


@pytest.mark.parametrize("percent", [0, 1, 30, 70, 99])
def test_truncated_files(three_groups: Path, tmp_path: Path, percent: int) -> None:
    raw = three_groups.read_bytes()
    (tmp_path / "cut.parquet").write_bytes(raw[: len(raw) * percent // 100])
    with pytest.raises(CorruptFileError, match=r"cut\.parquet cannot be read as Parquet"):
        open_one(tmp_path / "cut.parquet")


def test_damaged_pages(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": np.arange(20_000) % 7}), path, compression="zstd")
    raw = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    raw[start : start + 200] = bytes(200)
    path.write_bytes(bytes(raw))
    with pytest.raises(CorruptFileError, match=r"x\.parquet"):
        open_one(path).read(["x"], 0, 20_000)


def test_another_format(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("run,event\n" * 10)
    with pytest.raises(CorruptFileError, match="of another format"):
        open_one(tmp_path / "x.parquet")


def test_awkwards_own_types_are_read_as_what_is_stored(tmp_path: Path) -> None:
    rows = ak.Array(
        [
            {"x": 1, "pt": [1.0, 2.0], "Muon": [{"pt": 1.0, "q": 1}], "word": "a", "maybe": None},
            {"x": 2, "pt": [], "Muon": [], "word": "bc", "maybe": [1.5]},
        ]
    )
    ours = tmp_path / "extension.parquet"
    pq.write_table(ak.to_arrow_table(rows, extensionarray=True), ours)
    reader = wr.data.open(str(ours)).open(0)
    plain = {name: info.kind for name, info in reader.info.columns.items()}
    assert plain["x"] == "flat"
    assert plain["pt"] == "jagged"
    read = reader.read(list(plain), 0, 2)
    reader.close()
    assert {name: ak.to_list(values) for name, values in read.items()} == {
        "x": [1, 2],
        "pt": [[1.0, 2.0], []],
        "Muon.pt": [[1.0], []],
        "Muon.q": [[1], []],
        "word": ["a", "bc"],
        "maybe": [None, [1.5]],
    }
