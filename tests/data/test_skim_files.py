"""A skim is there when it is complete, and not before; the real 1,479 columns survive."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot

import windrow.data
from searching import few_by_day
from windrow.data.columns import choose
from windrow.data.skim import write as skim
from windrow.data.skim.fragments import Fragment, write_fragment
from windrow.data.skim.write import write_skim

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = ("parquet", "rntuple", "ttree")


def fragments(directory: Path, count: int, rows: int = 10) -> list[Fragment]:
    return [
        write_fragment(
            directory / f"{number}.fragment",
            {"x": np.arange(rows) + number * rows, "l": ak.Array([[1.0, 2.0]] * rows)},
            rows,
        )
        for number in range(count)
    ]


KILLED = """
import os, pathlib, signal, sys
from windrow.data.skim import write as skim
from windrow.data.skim.fragments import Fragment

directory, form = pathlib.Path(sys.argv[1]), sys.argv[2]
pieces = skim._pieces

def dying(*args):
    for number, table in enumerate(pieces(*args)):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield table

skim._pieces = dying
skim.PIECE_ROWS = 10
parts = [
    Fragment(path=str(directory / f"{n}.fragment"), rows=10, memory=1, shape="same")
    for n in range(8)
]
place = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
skim.write_skim(
    directory / "skim.file", parts, format=form, record={"dataset": "d"}, staging=place
)
"""


@pytest.mark.parametrize("form", FORMATS)
def test_a_killed_writer_leaves_no_file(tmp_path: Path, form: Any) -> None:
    parts = fragments(tmp_path, 8)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), form], check=False)
    assert done.returncode == -9
    left = [path.name for path in tmp_path.iterdir() if "fragment" not in path.name]
    assert len(left) == 1
    assert left[0].startswith(".skim.file.part-")
    target = tmp_path / ("skim.parquet" if form == "parquet" else "skim.root")
    written = write_skim(target, parts, format=form, record={"dataset": "d"})
    assert written[0] == 80
    found = windrow.data.open(target).open(0).read(["x"], 0, 80)
    assert found["x"].tolist() == list(range(80))


def test_a_killed_writer_leaves_its_part_in_the_staging_directory(tmp_path: Path) -> None:
    """Who gave it the directory can tell that the writer is dead, and clear it."""
    place = tmp_path / "place"
    place.mkdir()
    fragments(tmp_path, 8)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), "parquet", str(place)], check=False
    )
    assert done.returncode == -9
    assert [p.name for p in tmp_path.iterdir() if "fragment" not in p.name] == ["place"]
    assert len(list(place.iterdir())) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_an_error_leaves_no_file(tmp_path: Path, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out" / "skim.root"
    parts = fragments(tmp_path, 2)
    write_skim(target, parts, format=form, record={"dataset": "before"})
    before = target.read_bytes()

    def failing(*args: Any) -> Any:
        yield next(original(*args))
        raise OSError(28, "no space left")

    original = skim._pieces
    monkeypatch.setattr(skim, "PIECE_ROWS", 5)
    monkeypatch.setattr(skim, "_pieces", failing)
    with pytest.raises(OSError, match="no space left"):
        write_skim(target, parts, format=form, record={"dataset": "d"})
    assert [path.name for path in target.parent.iterdir()] == ["skim.root"]
    assert target.read_bytes() == before


def test_the_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, bool]] = []
    target = tmp_path / "skim.parquet"
    monkeypatch.setattr(skim, "_reach_disk", lambda p: told.append((p.name, target.exists())))
    write_skim(target, fragments(tmp_path, 1), format="parquet", record={"dataset": "d"})
    assert [exists for _, exists in told] == [False, True]
    assert told[0][0].startswith(".skim.parquet.part-")


@pytest.mark.parametrize("form", FORMATS)
def test_writers_of_one_file_do_not_meet(tmp_path: Path, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that save to one target each write a whole file; one of them stays."""
    target = tmp_path / "out" / ("skim.parquet" if form == "parquet" else "skim.root")
    parts = fragments(tmp_path, 4)
    both = threading.Barrier(2, timeout=60)
    original = skim._pieces

    def together(*args: Any) -> Any:
        for table in original(*args):
            both.wait()
            yield table
        both.wait()

    monkeypatch.setattr(skim, "PIECE_ROWS", 10)
    monkeypatch.setattr(skim, "_pieces", together)
    some = {"a": parts, "b": parts[::-1]}  # as many pieces, other rows

    def write(name: str) -> int:
        return write_skim(target, some[name], format=form, record={"dataset": name})[0]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, some)) == [40, 40]
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    source = windrow.data.open(target)
    (name,) = source.datasets
    numbers = [np.arange(10) + 10 * n for n in (range(4) if name == "a" else range(3, -1, -1))]
    reader = source.open(0)
    assert reader.read(["x"], 0, 40)["x"].tolist() == np.concatenate(numbers).tolist()
    reader.close()


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_grows_where_it_is_told_to(tmp_path: Path, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    place.mkdir()
    target = tmp_path / "out" / "skim.file"
    seen: list[tuple[list[str], list[Path]]] = []
    original = skim._pieces

    def watched(*args: Any) -> Any:
        for table in original(*args):
            seen.append(([p.name for p in place.iterdir()], [*target.parent.iterdir()]))
            yield table

    monkeypatch.setattr(skim, "_pieces", watched)
    parts = fragments(tmp_path, 1)
    for _ in range(2):
        write_skim(target, parts, format=form, record={"dataset": "d"}, staging=place)
        assert list(place.iterdir()) == []
        assert [path.name for path in target.parent.iterdir()] == ["skim.file"]
        target.unlink()
    assert [beside for _, beside in seen] == [[], []]
    names = [name for (name,), _ in seen]
    assert all(name.startswith(".skim.file.part-") for name in names)
    assert names[0] != names[1]


def test_a_part_of_another_writer_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda *_: "same")
    others = tmp_path / ".skim.parquet.part-same"
    others.write_bytes(b"half a file")
    with pytest.raises(FileExistsError):
        write_skim(tmp_path / "skim.parquet", fragments(tmp_path, 1), format="parquet", record={"dataset": "d"})
    assert others.read_bytes() == b"half a file"
    assert not (tmp_path / "skim.parquet").exists()


def test_one_piece_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = skim.write_parquet

    def watching(path: Path, plan: Any, pieces: Any, record: Any) -> None:
        def watched() -> Any:
            for table in pieces:
                sizes.append(table.num_rows)
                yield table

        original(path, plan, watched(), record)

    monkeypatch.setattr(skim, "PIECE_BYTES", 24 * 16)  # a row of fragments() has 24 bytes
    monkeypatch.setattr(skim, "write_parquet", watching)
    parts = fragments(tmp_path, 5)
    write_skim(tmp_path / "x.parquet", parts, format="parquet", record={"dataset": "d"})
    assert sizes == [16, 16, 16, 2]


# -- real files -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nano(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """300 rows of the real file with 1,479 branches: columns, and fragments of them."""
    reader = windrow.data.open(samples / "nanoaodv5_sample.root").open(0)
    info = reader.info
    rows = np.sort(np.random.default_rng(3).permutation(info.rows)[:300])
    columns = {name: array[rows] for name, array in reader.read(list(info.columns), 0, info.rows).items()}
    reader.close()
    directory = tmp_path_factory.mktemp("nano")
    parts = [
        write_fragment(directory / f"{a}", {name: array[a:b] for name, array in columns.items()}, b - a)
        for a, b in ((0, 120), (120, 121), (121, 300))
    ]
    return info, columns, parts


def assert_equal(columns: dict[str, Any], found: dict[str, Any]) -> None:
    for name, expected in columns.items():
        if isinstance(expected, np.ndarray):
            assert found[name].dtype == expected.dtype, name
            assert found[name].tobytes() == expected.tobytes(), name
        else:
            assert found[name].type == expected.type, name
            assert np.array_equal(ak.num(found[name]), ak.num(expected)), name
            flat = [np.asarray(ak.flatten(one)) for one in (found[name], expected)]
            assert flat[0].tobytes() == flat[1].tobytes(), name


@pytest.mark.samples
@pytest.mark.parametrize("form", few_by_day(["parquet", "rntuple"]))
def test_all_columns_of_a_real_file(tmp_path: Path, nano: Any, form: Any) -> None:
    info, columns, parts = nano
    target = tmp_path / ("skim.parquet" if form == "parquet" else "skim.root")
    write_skim(target, parts, format=form, record={"dataset": "d"})
    reader = windrow.data.open(target).open(0)
    assert len(columns) == 1479
    assert set(reader.info.columns) == set(info.columns)
    assert_equal(columns, reader.read(list(columns), 0, 300))
    for name, column in info.columns.items():
        assert (reader.info.columns[name].kind, reader.info.columns[name].dtype) == (
            column.kind, column.dtype,
        ), name  # fmt: skip
        if column.kind == "jagged":
            assert reader.info.columns[name].counter == column.counter, name
    expected = {prefix: set(names) for prefix, names in info.collections.items()}
    assert {p: set(names) for p, names in reader.info.collections.items()} == expected
    reader.close()


@pytest.mark.samples
def test_a_tree_of_a_real_file(tmp_path: Path, nano: Any) -> None:
    """All kinds of columns, but not all columns, for which uproot takes seconds."""
    _, columns, _ = nano
    chosen = choose(
        ["Muon", "Jet", "SV", "LHE*Weight", "nLHE*Weight", "HLT_Mu*", "run", "event", "MET_*"], columns, what="test"
    )
    some = {name: columns[name] for name in chosen}
    part = write_fragment(tmp_path / "f", some, 300)
    target = tmp_path / "skim.root"
    write_skim(target, [part], format="ttree", record={"dataset": "d"})
    with uproot.open(target) as file:
        assert set(file["Events"].keys()) == set(chosen)
        assert file["Events"]["Muon_pt"].count_branch.name == "nMuon"
    reader = windrow.data.open(target).open(0)
    counters = {reader.info.columns[name].counter for name in chosen} - {None}
    for name in counters:  # which are always int32 in a tree that uproot writes
        some[str(name)] = some[str(name)].astype("i4")
    assert {"nMuon", "nJet", "nSV", "nLHEPdfWeight"} <= counters
    assert_equal(some, reader.read(list(chosen), 0, 300))
    reader.close()


@pytest.mark.samples
@pytest.mark.parametrize("form", few_by_day(["ttree", "parquet", "rntuple"]))
def test_other_real_files(tmp_path: Path, samples: Path, form: Any) -> None:
    """Counters with a capital N, no rows, collections that are projections."""
    names = ["HZZ.root", "nano_dy_empty.root", "nano_dy_rntuple.root"]
    # For a tree of more than a thousand branches uproot takes seconds.
    for name in names[:1] if form == "ttree" else names:
        reader = windrow.data.open(f"{samples / name}", tree=None).open(0)
        wanted = [n for n, c in reader.info.columns.items() if c.kind != "other"]
        rows = reader.info.rows
        columns = reader.read(wanted, 0, rows)
        part = write_fragment(tmp_path / f"{name}.f", columns, rows)
        suffix = "parquet" if form == "parquet" else "root"
        target = tmp_path / f"{name}.{suffix}"
        write_skim(target, [part], format=form, record={"dataset": "d"})
        again = windrow.data.open(target).open(0)
        assert set(again.info.columns) == set(wanted), name
        found = again.read(wanted, 0, rows)
        if form == "ttree":
            counters = {again.info.columns[n].counter for n in wanted} - {None}
            columns = {n: c.astype("i4") if n in counters else c for n, c in columns.items()}
        assert_equal(columns, found)
        reader.close()
        again.close()
