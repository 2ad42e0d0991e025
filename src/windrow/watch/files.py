"""Files of reports: where they go, and that they are either complete or as they were before."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex
from typing import Any

from windrow.errors import UsageError


def report_places(rundir: Path | None, path: Any, page_name: str, trace_name: str) -> tuple[Path, Path]:
    """Say where a page and its trace go: where the user says, else into the run directory under these names."""
    if path is None and rundir is not None:
        return rundir / page_name, rundir / trace_name
    page = Path(page_name) if path is None else Path(path)
    if page.is_dir():
        page = page / page_name
    if not page.parent.is_dir():
        raise UsageError(f"the report cannot be written to {page}: no directory {page.parent}")
    return page, page.with_name(f"{page.stem}.trace.json")


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place and move it there when it is complete; a device or pipe is written to as it is.

    What is beside it has a name of its own that nobody can have taken: in a directory that others write to, a link under a known
    name would lead elsewhere, and two who write at once would mix their text.
    """
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    partial = path.with_name(f".{token_hex(8)}.part")
    try:
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(text)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
