"""Private paths in what bodies return: others know the files by their final names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import windrow as wr


@wr.task
def says(out: wr.OutFile, tree: wr.OutDir) -> Any:
    Path(out).write_text("x")
    Path(tree, "y").write_text("y")
    return {
        "text": f"wrote {out} and {tree}/y, not {out}.bak",
        "first": f"{out} was written, and {tree}",
        "bytes": os.fsencode(out),
        "words": [b"wrote " + os.fsencode(out), b"\xff\xfe .windrow- \x00", ".windrow-other"],
        "path": Path(tree, "y"),
    }


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_texts_and_bytes_have_final_paths(engine: str, place: Path) -> None:
    (place / "in").mkdir()
    with wr.Session(engine=engine, workers=1, reuse=False):
        said = says("in/out", "tree").result(120)
    out, tree = place / "in" / "out", place / "tree"
    assert said == {
        "text": f"wrote {out} and {tree}/y, not {out}.bak",
        "first": f"{out} was written, and {tree}",
        "bytes": os.fsencode(out),
        "words": [b"wrote " + os.fsencode(out), b"\xff\xfe .windrow- \x00", ".windrow-other"],
        "path": tree / "y",
    }
