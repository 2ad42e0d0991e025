"""The ways of a row and of a task in docs/architecture.md are those that they really go."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

import windrow as wr

ROOT = Path(__file__).resolve().parents[1]
HOME = "/src/windrow/"


def told(way: str) -> list[str]:
    """List the files that a diagram names."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = text.split(f"**The way of a {way}**")[1].split("```")[1]
    return re.findall(r"^(\S+\.py) ", block, re.MULTILINE)


class Gone:
    """The files of the package whose functions were called, in any thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: Any, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and HOME in name:
            self.files.add(name.split(HOME)[1])


@pytest.mark.parametrize(("way", "most"), [("row", 15), ("task", 30)])
def test_a_way_is_short_and_its_files_are_there(way: str, most: int) -> None:
    files = told(way)
    assert 10 < len(files) <= most
    assert len(set(files)) == len(files)
    assert [name for name in files if not (ROOT / "src" / "windrow" / name).is_file()] == []


def test_a_row_goes_that_way() -> None:
    analysis = wr.Pipeline("way")

    @analysis.cut
    def positive(x: Any) -> Any:
        return x > 0

    @analysis.output
    def total(x: Any) -> Any:
        return float(np.sum(x))

    with Gone() as gone:
        analysis.run({"x": np.arange(1000.0)}, engine="threads", workers=2, progress=False)
    assert [name for name in told("row") if name not in gone.files] == []


def test_a_task_goes_that_way() -> None:
    @wr.task
    def double(x: int) -> int:
        return 2 * x

    with wr.Session(engine="threads", workers=1):
        double(1).result()
    with Gone() as gone, wr.Session(engine="threads", workers=1):
        assert double(2).result() == 4
    assert [name for name in told("task") if name not in gone.files] == []
