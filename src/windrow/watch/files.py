"""Files that are either complete or as they were before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and move it there when it is complete; a device or pipe is written to as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    partial = path.with_name(path.name + ".part")
    partial.write_text(text)
    partial.replace(path)
