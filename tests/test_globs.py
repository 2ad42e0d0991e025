"""Patterns of paths: the same as glob's, and an end where links go in circles."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windrow.globs import matching

NAMES = st.sampled_from(["a", "b", "a.txt", ".hidden", "[x]"])
PARTS = st.sampled_from(["**", "*", "a", "b", "*.txt", "[[]x]", "?", "**a", ".*", ""])


@given(
    trees=st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=8),
    parts=st.lists(PARTS, min_size=1, max_size=5),
    whole=st.booleans(),
)
@example(trees=[["a", "b", "a.txt"]], parts=["**"], whole=False)
@example(trees=[["a", "b", "a.txt"]], parts=["**", "**", "*.txt"], whole=True)
def test_what_matches_is_what_glob_finds(trees: list[list[str]], parts: list[str], whole: bool) -> None:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as top:
        for tree in trees:
            path = Path(top, *tree)
            if not path.exists() and not any(one.is_file() for one in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")
        os.chdir(top)
        try:
            pattern = os.path.join(*([top] if whole else []), *parts)  # noqa: PTH118 - text
            # Where a pattern ends in "**" glob gives what comes before it even if that is not there.
            expected = filter(os.path.exists, glob.glob(pattern, recursive=True))  # noqa: PTH207
            assert sorted(matching(pattern)) == sorted(set(expected))
        finally:
            os.chdir(before)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "x").write_text("")
    (tmp_path / "other").symlink_to("real")
    expected = [f"{tmp_path}/{one}/deep/x" for one in ("other", "real")]
    assert sorted(matching(f"{tmp_path}/**/x")) == expected


def test_circles_end(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "x").write_text("")
    for name in ("up", "again", "once more"):
        (tmp_path / "own" / name).symlink_to("..")
        (tmp_path / name).symlink_to("own")
    expected = [f"{tmp_path}/{one}/x" for one in ("again", "once more", "own", "up")]
    assert sorted(matching(f"{tmp_path}/**/x")) == expected


@pytest.mark.skipif(os.getuid() == 0, reason="root may look everywhere")
def test_what_nobody_may_look_into_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    assert matching(f"{tmp_path}/**/x") == []
