"""Sources: opened by many threads, pickled, and held to what a fileset promised."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot

import windrow.data
import windrow.data.source
from windrow.errors import CorruptFileError, MissingFileError, SpecError
from windrow.files import Once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write(path: Path, rows: int = 10) -> str:
    with uproot.recreate(path) as file:
        tree = file.mktree("Events", {"x": "i8", "y": "var * float32"})
        tree.extend({"x": np.arange(rows), "y": ak.Array([[0.5] * (n % 3) for n in range(rows)])})
        return str(file.file.uuid)


def preprocessed(path: Path, **facts: Any) -> dict[str, Any]:
    return {"DY": {"files": {str(path): {"object_path": "Events", **facts}}}}


def test_a_preprocessed_fileset_that_is_right(tmp_path: Path) -> None:
    uuid = write(tmp_path / "x.root")
    spec = preprocessed(tmp_path / "x.root", num_entries=10, uuid=uuid.upper(), steps=[[2, 5]])
    source = windrow.data.open(spec, grid=4)
    info = source.open(0).info
    assert info.rows == 10
    assert windrow.data.units_within(info.borders, source.inputs[0].steps) == ((2, 4), (4, 5))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"num_entries": 11}, "says 11 rows, the file has 10"),
        ({"steps": [[0, 11]]}, "step up to row 11, the file has 10"),
        ({"uuid": "00-00"}, "says uuid 00-00"),
    ],
)
def test_a_preprocessed_fileset_that_is_not(tmp_path: Path, facts: dict[str, Any], message: str) -> None:
    write(tmp_path / "x.root")
    source = windrow.data.open(preprocessed(tmp_path / "x.root", **facts))
    for _ in range(2):  # the second time the file is known already
        with pytest.raises(CorruptFileError, match=message):
            source.open(0)


def test_sources_and_inputs_pickle(tmp_path: Path) -> None:
    write(tmp_path / "x.root")
    source = windrow.data.open(str(tmp_path / "x.root"), metadata={"is_mc": True}, grid=3)
    source.open(0).close()
    again = pickle.loads(pickle.dumps(source))
    assert again.inputs == source.inputs
    assert again.datasets == source.datasets
    assert again.open(0).info == source.open(0).info
    assert pickle.loads(pickle.dumps(source.inputs[0])) == source.inputs[0]
    info = source.open(0).info
    assert pickle.loads(pickle.dumps(info)) == info


def test_a_file_is_understood_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "x.root")
    source = windrow.data.open(str(tmp_path / "x.root"))
    opened: list[str] = []

    def counted(*args: Any, **options: Any) -> Any:
        opened.append("file")
        return original(*args, **options)

    original = uproot.open
    monkeypatch.setattr(uproot, "open", counted)
    with ThreadPoolExecutor(4) as pool:
        readers = list(pool.map(source.open, [0] * 8))
    assert len(opened) == 1
    assert len({id(reader) for reader in readers}) == 8
    for reader in readers:
        assert reader.read(["x"], 3, 5)["x"].tolist() == [3, 4]
        assert reader.reads == [("x", 3, 5)]
        reader.close()


def test_readers_in_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    write(tmp_path / "x.root", rows=3000)
    source = windrow.data.open(str(tmp_path / "x.root"))

    def read(part: int) -> list[Any]:
        reader = source.open(0)
        out = [reader.read(["x", "y"], a, a + 100) for a in range(part * 500, part * 500 + 500, 100)]
        reader.close()
        return [(o["x"].tolist(), o["y"].tolist()) for o in out]

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(read, range(6)))
    rows = [x for part in parts for xs, _ in part for x in xs]
    assert rows == list(range(3000))
    lengths = [len(y) for part in parts for _, ys in part for y in ys]
    assert lengths == [n % 3 for n in range(3000)]


def test_a_replaced_file_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    write(path, rows=10)
    source = windrow.data.open(str(path))
    assert source.open(0).info.rows == 10
    write(path, rows=12)
    os.utime(path, ns=(1, 1))
    assert source.open(0).info.rows == 12
    path.unlink()
    with pytest.raises(MissingFileError):
        source.open(0)


def test_a_file_that_was_not_changed_for_a_while_is_known_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.root"
    write(path, rows=10)
    first = windrow.data.open(str(path)).open(0).info
    assert windrow.data.open(str(path)).open(0).info is not first  # it may be changed again with the same time
    monkeypatch.setattr(windrow.data.source, "SETTLED_NS", -(10**12))
    first = windrow.data.open(str(path)).open(0).info
    assert windrow.data.open(str(path)).open(0).info is first
    assert windrow.data.open(str(path), grid=5).open(0).info.borders == (0, 5, 10)
    write(path, rows=12)
    assert windrow.data.open(str(path)).open(0).info.rows == 12


def test_old_layouts_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windrow.data.source, "Once", lambda limit: Once(min(limit, 2)))
    for name in "abc":
        write(tmp_path / f"{name}.root")
    source = windrow.data.open(str(tmp_path / "*.root"))
    assert isinstance(source, windrow.data.FileSource)
    for index in (0, 1, 2, 0):
        source.open(index).close()
    assert {index for index, _ in source._layouts._values} == {2, 0}


def test_formats_mix_in_one_fileset(tmp_path: Path) -> None:
    write(tmp_path / "a.root", rows=4)
    ak.to_parquet(ak.Array({"x": [7, 8]}), tmp_path / "b.parquet")
    source = windrow.data.open(
        {"root": str(tmp_path / "a.root"), "parquet": str(tmp_path / "b.parquet"), "memory": {"x": np.array([1])}}
    )
    rows = [source.open(i).read(["x"], 0, source.open(i).info.rows)["x"].tolist() for i in range(3)]
    assert rows == [[0, 1, 2, 3], [7, 8], [1]]
    assert list(source.datasets) == ["root", "parquet", "memory"]


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Any]:
    """Put files where only a protocol reaches them."""
    import fsspec  # type: ignore[import-untyped]

    files = fsspec.filesystem("memory")
    write(tmp_path / "x.root", rows=20)
    files.pipe("/x.root", (tmp_path / "x.root").read_bytes())
    with uproot.recreate(tmp_path / "n.root") as file:
        file.mkrntuple("t", {"x": np.arange(20), "y": ak.Array([[0.5]] * 20)})
    files.pipe("/n.root", (tmp_path / "n.root").read_bytes())
    ak.to_parquet(ak.Array({"x": np.arange(20), "y": [[0.5]] * 20}), tmp_path / "x.parquet")
    files.pipe("/x.parquet", (tmp_path / "x.parquet").read_bytes())
    files.pipe("/cut.parquet", (tmp_path / "x.parquet").read_bytes()[:100])
    yield
    files.rm("/", recursive=True)


@pytest.mark.parametrize("name", ["x.root", "n.root", "x.parquet"])
def test_remote_files(remote: None, name: str) -> None:
    source = windrow.data.open(f"memory://{name}")
    for _ in range(2):
        reader = source.open(0)
        assert reader.info.rows == 20
        out = reader.read(["x", "y"], 5, 8)
        assert out["x"].tolist() == [5, 6, 7]
        assert len(out["y"]) == 3
        assert reader.bytes_read > 0
        reader.close()


def test_remote_files_that_are_not_there_or_damaged(remote: None) -> None:
    for name in ("gone.root", "gone.parquet"):
        with pytest.raises(MissingFileError, match=f"memory://{name}"):
            windrow.data.open(f"memory://{name}").open(0)
    with pytest.raises(CorruptFileError, match=r"memory://cut\.parquet"):
        windrow.data.open("memory://cut.parquet").open(0)


def test_a_bad_grid_is_refused_at_once() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        windrow.data.open({"x": [1]}, grid=0)
