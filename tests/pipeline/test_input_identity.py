"""An input is the same file from its discovery to its last read; else the run names it and stops."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from windrow.errors import CorruptFileError

if TYPE_CHECKING:
    from pathlib import Path

ROWS, UNITS = 40_000, 8


def write(path: Path, value: float) -> None:
    table = pa.table({"x": np.full(ROWS, value)})
    pq.write_table(table, path, row_group_size=ROWS // UNITS)


def replace_by_rename(path: Path) -> None:
    write(path.with_suffix(".new"), 2.0)
    path.with_suffix(".new").replace(path)


def write_over(path: Path) -> None:
    """The same inode, size and footer: only the time tells."""
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(1, 1))


def summing(change: Any, path: Path, after: int) -> wr.Pipeline:
    """Change the file while its rows are being run: once as many calls were made."""
    calls: list[int] = []
    analysis = wr.Pipeline("replaced")

    @analysis.output
    def total(x: Any) -> float:
        calls.append(len(x))
        if len(calls) == after:
            change(path)
        return float(np.sum(x))

    return analysis


@pytest.mark.parametrize("change", [replace_by_rename, write_over])
@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_a_file_that_is_replaced_while_it_is_read_is_named(tmp_path: Path, change: Any, engine: str) -> None:
    path = tmp_path / "rows.parquet"
    write(path, 1.0)
    source = wr.data.open(str(path), grid=ROWS // UNITS)
    with pytest.raises(CorruptFileError, match=r"rows\.parquet was replaced while it was being read"):
        summing(change, path, 3).run(source, engine=engine, workers=2, chunk=ROWS // UNITS, progress=False)


def test_a_worker_that_opens_another_file_than_the_first_one_did_says_so(tmp_path: Path) -> None:
    """Each process has readers of its own, and one that begins late opens what is there by then."""
    path, marker = tmp_path / "rows.parquet", tmp_path / "replaced"
    write(path, 1.0)
    write(path.with_suffix(".new"), 2.0)
    analysis = wr.Pipeline("replaced")

    @analysis.output
    def total(x: Any) -> float:
        if not marker.exists():
            path.with_suffix(".new").replace(path)
            marker.touch()
            os.kill(os.getpid(), 9)  # whoever does these rows again has to open the file anew
        return float(np.sum(x))

    source = wr.data.open(str(path), grid=ROWS // UNITS)
    with pytest.raises(CorruptFileError, match=r"rows\.parquet was replaced while it was being read"):
        analysis.run(source, engine="processes", workers=1, chunk=ROWS // UNITS, progress=False)


def test_a_file_that_is_replaced_just_after_it_was_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker reads is the old file, and whatever opens it next reads the new one, of the same footer."""
    path = tmp_path / "rows.parquet"
    write(path, 1.0)
    source = wr.data.open(str(path), grid=ROWS // UNITS)
    opened = type(source).open

    def open_then_replace(self: Any, index: int) -> Any:
        reader = opened(self, index)
        if not path.with_suffix(".old").exists():
            path.rename(path.with_suffix(".old"))
            path.write_bytes(path.with_suffix(".old").read_bytes())
        return reader

    monkeypatch.setattr(type(source), "open", open_then_replace)
    with pytest.raises(CorruptFileError, match=r"rows\.parquet was replaced while it was being read"):
        summing(lambda _: None, path, 3).run(source, engine="inline", chunk=ROWS // UNITS, progress=False)


def test_a_file_that_stays_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write(path, 1.0)
    source = wr.data.open(str(path), grid=ROWS // UNITS)
    result = summing(lambda _: None, path, 3).run(
        source, engine="threads", workers=2, chunk=ROWS // UNITS, progress=False
    )
    assert result["total"] == ROWS
